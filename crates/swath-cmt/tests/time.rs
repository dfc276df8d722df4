//! What a call takes where there is much, or while another thread takes much. Each test is a process of
//! its own.

use std::process::Command;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use swath_arch::testing::Random;
use swath_cmt::{Hugetlb, Options, Populate, begin_with};

fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os("SWATH_TEST_ALONE").is_some() {
        return test();
    }
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--nocapture"]).env("SWATH_TEST_ALONE", "1");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

fn free(block: NonNull<u8>) {
    // SAFETY: a block in use that the caller does not use after.
    unsafe { swath_cmt::free(block) };
}

/// A cycle of one segment among 400,000 takes no more than 1 µs, and one of any of them no more than the
/// five that its record's cold cache lines may take beside it.
#[test]
fn a_segment_is_found_among_many() {
    const SEGMENTS: usize = 400_000;
    const LEN: usize = 100_000;
    alone("a_segment_is_found_among_many", || {
        let options = Options {
            arena_mib: 64 << 10,
            populate: Populate::Never,
            hugetlb: Hugetlb::Never,
            ..Options::default()
        };
        begin_with(options).expect("a pool");
        let allocate = || swath_cmt::allocate(LEN).expect("addresses");
        let mut blocks: Vec<_> = (0..SEGMENTS).map(|_| allocate()).collect();
        let mut random = Random::new(1);
        // Holes here and there, for each of which there is another segment.
        for _ in 0..1000 {
            free(blocks.swap_remove(random.index(blocks.len())));
        }
        let mut best = [Duration::MAX; 2];
        for _ in 0..40 {
            let begin = Instant::now();
            for _ in 0..500 {
                free(allocate());
            }
            best[0] = best[0].min(begin.elapsed() / 500);
            let places: Vec<_> = (0..500).map(|_| random.index(blocks.len())).collect();
            let begin = Instant::now();
            for place in places {
                let block = &mut blocks[place];
                free(*block);
                *block = allocate();
            }
            best[1] = best[1].min(begin.elapsed() / 500);
        }
        println!("a cycle takes {:?}, of a segment at random {:?}", best[0], best[1]);
        assert!(best[0] <= Duration::from_micros(1), "{best:?}");
        assert!(best[1] <= Duration::from_micros(5), "{best:?}");
    });
}
