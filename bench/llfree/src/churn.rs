//! Free huge pages after churn by single frames, on two CPUs in random turns.

use swath_arch::Pfn;
use swath_frame::Mobility;
use swath_frame::front::{Fifo, Gather};

use crate::churned::{HUGE_FRAMES, PERCENTS, Singles, churn, print_row};
use crate::contender::{Contender, Cpu, Shared};
use crate::failure::{Failure, setup};
use crate::options::Options;
use crate::ours::Ours;
use crate::theirs::Theirs;

/// The CPUs of a shared allocator, as they take and free single frames.
struct Cpus<C>([C; 2]);

impl<C: Cpu> Singles for Cpus<C> {
    fn take(&mut self, cpu: u64, _mobility: Mobility) -> Option<Pfn> {
        self.0[cpu as usize].get().map(Pfn::new)
    }

    fn give(&mut self, cpu: u64, frame: Pfn) -> bool {
        self.0[cpu as usize].put(frame.raw())
    }
}

/// Prints how many runs of 2 MiB are free after churn, of so many seeds.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (frames, seeds) = (options.frames, options.rounds as u64);
    if !frames.is_multiple_of(HUGE_FRAMES as u64) {
        return Err(setup("churn wants a multiple of 512 frames"));
    }
    let possible = PERCENTS.map(|percent| frames * percent / 100 / HUGE_FRAMES as u64);
    println!(
        "free runs of 2 MiB after churn, mean (least to most) of {seeds} seeds; possible: {possible:?}"
    );
    for unmovable in [false, true] {
        println!("\n| {} |", if unmovable { "unmovable frames among them" } else { "all movable" });
        row::<Ours<Gather>>(frames, seeds, unmovable)?;
        row::<Ours<Fifo>>(frames, seeds, unmovable)?;
        row::<Theirs>(frames, seeds, unmovable)?;
    }
    Ok(())
}

fn row<C: Contender>(frames: u64, seeds: u64, unmovable: bool) -> Result<(), Failure> {
    let found = |percent| {
        let one = |seed| {
            C::with(frames, 2, |shared| {
                let mut cpus = Cpus([shared.on(0, 0)?, shared.on(1, 0)?]);
                churn(&mut cpus, frames, percent, unmovable, seed)
            })
        };
        (1..=seeds).map(one).collect()
    };
    print_row(C::NAME, found).map_err(Failure::Result)
}
