//! Churn: what single frames that come and go leave of memory.
//!
//! Memory is filled with single frames, x% of which are freed at random. Then as many frames as are
//! left in use come and go twelve times: a random one is freed and another taken. At the end the
//! aligned runs of 2 MiB that hold no frame in use are counted. If all in use lay together, x% of
//! memory would be such runs.
//!
//! Two CPUs take and free in random turns. With unmovable frames, one in a thousand of those that are
//! taken is never freed again.

use swath_arch::Pfn;
use swath_frame::Mobility;

use crate::random::Random;

/// Frames of a run that is counted.
pub(crate) const HUGE_FRAMES: usize = 512;

/// The shares of memory, in percent, that are free.
pub(crate) const PERCENTS: [u64; 3] = [50, 25, 10];

const TURNS: usize = 12;

/// Single frames: taken for an owner of this mobility, and freed.
pub(crate) trait Singles {
    fn take(&mut self, cpu: u64, mobility: Mobility) -> Option<Pfn>;
    fn give(&mut self, cpu: u64, frame: Pfn) -> bool;
}

/// One run: how many runs of 2 MiB are free at the end.
pub(crate) fn churn(
    allocator: &mut dyn Singles,
    frames: u64,
    percent: u64,
    unmovable: bool,
    seed: u64,
) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let mut used = Vec::with_capacity(frames as usize);
    while let Some(frame) = allocator.take(random.below(2), Mobility::Movable) {
        used.push(frame);
    }
    if used.len() as u64 != frames {
        return Err(format!("{} of {frames} frames could be had", used.len()));
    }
    random.shuffle(&mut used);
    let (mut pinned, mut failed) = (Vec::new(), 0_u64);
    for frame in used.drain(..(frames * percent / 100) as usize) {
        failed += u64::from(!allocator.give(random.below(2), frame));
    }
    for _ in 0..TURNS * used.len() {
        let at = random.below(used.len() as u64) as usize;
        failed += u64::from(!allocator.give(random.below(2), used[at]));
        let stays = unmovable && random.below(1000) == 0;
        let mobility = if stays { Mobility::Unmovable } else { Mobility::Movable };
        let frame = allocator.take(random.below(2), mobility).ok_or("a free frame was refused")?;
        used[at] = frame;
        if stays {
            pinned.push(used.swap_remove(at));
        }
    }
    if failed > 0 {
        return Err(format!("{failed} frames did not come back"));
    }
    let mut huge = vec![true; frames as usize / HUGE_FRAMES];
    for frame in used.iter().chain(&pinned) {
        huge[frame.raw() as usize / HUGE_FRAMES] = false;
    }
    Ok(huge.into_iter().filter(|&free| free).count() as u64)
}

/// Prints a row of the table: for each share the mean, the least and the most that `found` has for the seeds.
pub(crate) fn print_row(
    name: &str,
    found: impl Fn(u64) -> Result<Vec<u64>, String>,
) -> Result<(), String> {
    print!("| {name:<36} |");
    for percent in PERCENTS {
        let found = found(percent).map_err(|what| format!("{name}: {what}"))?;
        let mean = found.iter().sum::<u64>() as f64 / found.len() as f64;
        let (least, most) = (found.iter().min(), found.iter().max());
        let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
        print!(" {mean:.1} ({least} to {most}) |");
    }
    println!();
    Ok(())
}
