//! Machine snapshots.

use swath_trace::histogram::Histogram;
use swath_trace::machine::{SNAPSHOT_FORMAT, Snapshot, UnknownFrames};

use super::file::file;

/// Reads a snapshot; one that is whole agrees with itself, and is written and read again.
pub fn run(bytes: &[u8]) {
    let Ok(snapshot) = Snapshot::read(&file(&SNAPSHOT_FORMAT, bytes)[..]) else { return };
    // Nothing may stand behind what is whole.
    let longer = file(&SNAPSHOT_FORMAT, &[bytes, &[0]].concat());
    assert!(Snapshot::read(&longer[..]).is_err(), "a byte more is taken");
    assert_eq!(snapshot.check(), Ok(()));
    let summary = snapshot.summary();
    let frames: u64 = snapshot.runs().map(|run| run.extent.count).sum();
    assert_eq!(summary.total_frames(), frames);
    let within: u64 = snapshot.ranges().iter().map(|range| range.frames().count).sum();
    assert!(frames >= within, "{frames} frames in runs, {within} whole ones in ranges");
    for unknown in [UnknownFrames::Free, UnknownFrames::Used] {
        let lengths: Histogram =
            snapshot.free_extents(unknown).map(|extent| extent.count).collect();
        assert!(lengths.sum <= frames);
    }
    let mut again = Vec::new();
    snapshot.write(&mut again).expect("memory is no file");
    assert_eq!(Snapshot::read(&again[..]).expect("a file of our own"), snapshot);
}
