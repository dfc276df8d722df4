//! Workloads that other crates add.
//!
//! A crate adds its own by [`add`], before the program runs: from then on the studies that compare
//! workloads run it beside the paper's, and a plan names it where it names one. The paper says nothing
//! of it, so it takes part in no claim.

use std::sync::{Mutex, PoisonError};

use crate::papers::page_buddy::workload::streams::{
    Category, Stream, TRANSACTION_BYTES, Traffic, Workload,
};

/// The number of a workload that was added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AddedId(u16);

/// Reasons why a workload cannot be added.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddWorkloadError {
    /// A name that a plan cannot write: lower-case letters, digits and single hyphens inside.
    #[error("the workload's name {0:?}: only lower-case letters, digits and single hyphens inside")]
    Name(&'static str),
    /// A name, for plans or figures, that a workload has already.
    #[error("there is a workload {0:?} already")]
    NameTaken(&'static str),
    /// No buffers, no masters, a master without transactions, or more than numbers and memory allow.
    #[error("workload {name:?}: {what}")]
    Size {
        /// Its name.
        name: &'static str,
        /// The part of it that is too few or too many.
        what: &'static str,
    },
    /// A transaction that is not within a buffer.
    #[error(
        "workload {name:?}, transaction {nth} of {master:?}: byte {offset_bytes} of buffer {buffer} is \
         no line within it"
    )]
    Transaction {
        /// The workload's name.
        name: &'static str,
        /// The master's.
        master: &'static str,
        /// The transaction's number, from 0.
        nth: u64,
        /// Its buffer.
        buffer: usize,
        /// Its offset in the buffer.
        offset_bytes: u64,
    },
}

/// A workload with its name in plans.
struct Added {
    name: &'static str,
    workload: Workload,
}

static ADDED: Mutex<Vec<Added>> = Mutex::new(Vec::new());

/// The most bytes of all buffers: 1 TiB.
const BYTES_MAX: u64 = 1 << 40;

/// Adds a workload to the studies of this paper, for this process. `name` is its name in plans; that in
/// the figures is the workload's own, its category [`Category::Added`] whatever it says.
///
/// # Errors
/// [`AddWorkloadError`]; nothing is added.
pub fn add(name: &'static str, workload: Workload) -> Result<(), AddWorkloadError> {
    if !crate::study::results::is_study_name(name) {
        return Err(AddWorkloadError::Name(name));
    }
    if workload.name.is_empty() || workload.name.chars().any(char::is_control) {
        return Err(AddWorkloadError::Size { name, what: "no name for the figures in one line" });
    }
    check(name, &workload)?;
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    for (plans, figures) in PAPER.into_iter().chain(added.iter().map(|a| (a.name, a.workload.name)))
    {
        if plans == name {
            return Err(AddWorkloadError::NameTaken(name));
        }
        if figures == workload.name {
            return Err(AddWorkloadError::NameTaken(figures));
        }
    }
    if added.len() > usize::from(u16::MAX) {
        return Err(AddWorkloadError::Size { name, what: "too many were added" });
    }
    added.push(Added { name, workload: Workload { category: Category::Added, ..workload } });
    Ok(())
}

/// Refuses a workload with a transaction outside its buffers.
fn check(name: &'static str, workload: &Workload) -> Result<(), AddWorkloadError> {
    let size = |what| Err(AddWorkloadError::Size { name, what });
    let total = workload.buffers.iter().try_fold(0, |sum: u64, &bytes| sum.checked_add(bytes));
    if workload.buffers.is_empty() || workload.buffers.contains(&0) {
        return size("no buffer, or one without bytes");
    }
    if total.is_none_or(|bytes| bytes > BYTES_MAX) {
        return size("more than 1 TiB of buffers");
    }
    if workload.masters.is_empty() {
        return size("no master");
    }
    for master in &workload.masters {
        if let Traffic::Streams(streams) = &master.traffic
            && !streams.iter().all(is_possible)
        {
            return size("a stream of no lines, or of too many");
        }
        let mut count = 0;
        for (nth, one) in (0..).zip(master.transactions()) {
            let len_bytes = workload.buffers.get(one.buffer).copied().unwrap_or(0);
            let offset_bytes = one.offset_bytes;
            if offset_bytes >= len_bytes || !offset_bytes.is_multiple_of(TRANSACTION_BYTES) {
                let (master, buffer) = (master.name, one.buffer);
                return Err(AddWorkloadError::Transaction {
                    name,
                    master,
                    nth,
                    buffer,
                    offset_bytes,
                });
            }
            count += 1;
        }
        if count == 0 {
            return size("a master without transactions");
        }
    }
    Ok(())
}

/// Returns true for a stream whose lines can be counted.
fn is_possible(stream: &Stream) -> bool {
    let tiles = stream.tiles;
    let sizes = [tiles.row_bytes, tiles.rows, tiles.block_bytes, tiles.block_rows];
    let most = 1 << 20;
    sizes.iter().all(|size| (1..=most).contains(size)) && tiles.halo_rows <= most
}

/// The paper's names in plans and figures; a test of the table holds them against it.
pub(crate) const PAPER: [(&str, &str); 9] = [
    ("camera-preview", "Camera preview"),
    ("image-scaling", "Image scaling"),
    ("image-blending", "Image blending"),
    ("edge-detection", "Edge detection"),
    ("convolution", "Convolution"),
    ("rotated-preview", "Rotated preview"),
    ("rotated-display", "Rotated display"),
    ("matrix-multiplication", "Matrix multiplication"),
    ("matrix-transpose", "Matrix transpose"),
];

/// Returns the numbers of all that were added.
pub(crate) fn all_added() -> impl Iterator<Item = AddedId> {
    let count = ADDED.lock().unwrap_or_else(PoisonError::into_inner).len();
    (0..count as u16).map(AddedId)
}

impl AddedId {
    fn of<T>(self, of: impl FnOnce(&Added) -> T) -> T {
        let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
        // Only `all_added` makes numbers, and nothing is taken out.
        of(&added[usize::from(self.0)])
    }

    /// The name in plans.
    pub(crate) fn name(self) -> &'static str {
        self.of(|added| added.name)
    }

    /// The name in figures.
    pub(crate) fn title(self) -> &'static str {
        self.of(|added| added.workload.name)
    }

    /// The workload.
    pub(crate) fn workload(self) -> Workload {
        self.of(|added| added.workload.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::page_buddy::workload::streams::{Master, Tiles, Transaction};

    fn listed(buffers: Vec<u64>, all: &[(usize, u64)]) -> Workload {
        let transaction = |&(buffer, offset_bytes): &(usize, u64)| Transaction {
            buffer,
            offset_bytes,
            write: false,
        };
        let masters = vec![Master::listed("core", all.iter().map(transaction))];
        Workload { name: "Mine", category: Category::II, buffers, masters }
    }

    #[test]
    fn what_cannot_be_is_refused_and_adds_nothing() {
        let good = || listed(vec![4096, 64], &[(0, 0), (0, 4032), (1, 0)]);
        for (plans, figures) in PAPER {
            assert_eq!(add(plans, good()), Err(AddWorkloadError::NameTaken(plans)));
            let titled = Workload { name: figures, ..good() };
            assert_eq!(add("mine", titled), Err(AddWorkloadError::NameTaken(figures)));
        }
        for name in ["", "Mine", "a b", "-a", "a/b"] {
            assert_eq!(add(name, good()), Err(AddWorkloadError::Name(name)));
        }
        for wrong in [(0, 4096), (0, 65), (1, 64), (2, 0), (0, u64::MAX)] {
            let error = add("mine", listed(vec![4096, 64], &[(0, 0), wrong])).unwrap_err();
            let (buffer, offset_bytes) = wrong;
            let (name, master, nth) = ("mine", "core", 1);
            let said = AddWorkloadError::Transaction { name, master, nth, buffer, offset_bytes };
            assert_eq!(error, said);
        }
        let no_lines = Tiles { block_bytes: 0, ..Tiles::raster(64, 1) };
        let stream = Stream { buffer: 0, write: false, tiles: no_lines };
        let streaming =
            |stream| Workload { masters: vec![Master::streaming("display", &[stream])], ..good() };
        let masters = Vec::new();
        for wrong in [
            listed(vec![], &[]),
            listed(vec![0], &[]),
            listed(vec![64], &[]),
            listed(vec![u64::MAX, u64::MAX], &[(0, 0)]),
            Workload { masters, ..good() },
            streaming(stream),
            streaming(Stream { tiles: Tiles::raster(u64::MAX, u64::MAX), ..stream }),
        ] {
            assert!(matches!(add("mine", wrong), Err(AddWorkloadError::Size { .. })));
        }
        assert_eq!(all_added().count(), 0);
    }
}
