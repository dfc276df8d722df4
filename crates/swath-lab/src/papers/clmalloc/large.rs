//! Large requests on threads: `cmt_malloc` beside `malloc` (Fig. 7 of
//! 003_f9a9d8482224280c.txt).

#![allow(unsafe_code, reason = "writes to blocks of a C allocator: each with its proof")]

use std::ptr::NonNull;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::papers::clmalloc::allocator::{Cmt, Heap, Libc};
use crate::papers::clmalloc::plan::LargePlan;
use crate::papers::clmalloc::rounds::{
    Times, geometric_mean, in_turn, on_threads, oversubscribed, threads_title,
};
use crate::papers::page_buddy::allocation::host_name;
use crate::study::results::{Claim, Figure, FigureKind, HostResult, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

const SIZES: &str = "Sizes";
const PAGE_BYTES: usize = 4096;

/// What a program does with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// It writes the first and the last word.
    Ends,
    /// It writes a word of each page.
    Pages,
}

impl Use {
    const ALL: [Self; 2] = [Self::Ends, Self::Pages];

    const fn ratio_figure(self) -> &'static str {
        match self {
            Self::Ends => "Fig. 7",
            Self::Pages => "Fig. 7, pages written",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Ends => "both ends of each block are written",
            Self::Pages => "each page of each block is written",
        }
    }

    fn time_figure(self, threads: u64) -> String {
        let s = if threads == 1 { "" } else { "s" };
        format!("{}, {threads} thread{s}", self.ratio_figure())
    }
}

/// The sizes in bytes that one thread asks for, each a whole number of words.
fn sizes(plan: &LargePlan, thread: u64, count: u64) -> Vec<usize> {
    let mut random = Pcg64::seed_from_u64(plan.about.seed ^ thread << 32);
    let (least, most) = plan.size_kib;
    let words = least * 128..=most * 128;
    (0..count).map(|_| random.random_range(words.clone()) as usize * 8).collect()
}

/// A block, and how long it is.
struct Block {
    at: NonNull<u8>,
    len: usize,
    tag: u64,
}

impl Block {
    fn word(&self, offset: usize) -> *mut u64 {
        self.at.as_ptr().wrapping_add(offset).cast()
    }

    fn offsets(&self, how: Use) -> impl Iterator<Item = usize> + use<> {
        let inner = if how == Use::Pages { self.len } else { 1 };
        (0..inner).step_by(PAGE_BYTES).chain([self.len - 8])
    }

    fn write(&self, how: Use) {
        for offset in self.offsets(how) {
            // SAFETY: a word of this block, which is in use and aligned to 16; lengths are whole words.
            unsafe { self.word(offset).write(self.tag ^ offset as u64) };
        }
    }

    /// The sum of what was written, or `None` if any of it has changed.
    fn read(&self, how: Use) -> Option<u64> {
        let mut sum = 0_u64;
        for offset in self.offsets(how) {
            // SAFETY: as in `write`, which wrote it.
            let word = unsafe { self.word(offset).read() };
            if word != self.tag ^ offset as u64 {
                return None;
            }
            sum = sum.wrapping_add(word);
        }
        Some(sum)
    }
}

/// One thread's requests: each takes the place of the one made `live` before, which is read and
/// freed. The sum of all that was read; `None` if a block was not to be had, or not as it was written.
fn requests<H: Heap>(sizes: &[usize], live: usize, how: Use) -> Option<u64> {
    let mut blocks: Vec<Option<Block>> = (0..live).map(|_| None).collect();
    let mut sum = Some(0_u64);
    let mut give = |place: &mut Option<Block>| {
        if let Some(block) = place.take() {
            sum = sum.zip(block.read(how)).map(|(sum, read)| sum.wrapping_add(read));
            // SAFETY: of this allocator, and taken out of its place.
            unsafe { H::put(block.at) };
        }
    };
    for (nth, &len) in sizes.iter().enumerate() {
        let place = &mut blocks[nth % live];
        give(place);
        let block = Block { at: H::get(len)?, len, tag: (nth as u64) << 32 };
        block.write(how);
        *place = Some(block);
    }
    blocks.iter_mut().for_each(give);
    sum
}

/// All threads' requests: nanoseconds and the sum.
fn measure<H: Heap>(parts: &[Vec<usize>], live: usize, how: Use) -> Result<(f64, u64), String> {
    let (ns, sums) = on_threads(parts, |sizes| requests::<H>(sizes, live, how))?;
    let sum = sums.into_iter().try_fold(0_u64, |sum, one| Some(sum.wrapping_add(one?)));
    Ok((ns, sum.ok_or("a block was refused, or another's bytes stood in it")?))
}

fn parts(plan: &LargePlan, threads: u64, count: u64) -> Vec<Vec<usize>> {
    let part = |thread: u64| (thread + 1) * count / threads - thread * count / threads;
    (0..threads).map(|thread| sizes(plan, thread, part(thread))).collect()
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &LargePlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let (threads, counts, rounds) = if run.quick {
        (&plan.threads_quick, &plan.requests_quick, plan.rounds_quick)
    } else {
        (&plan.threads, &plan.requests, plan.rounds)
    };
    let mut host = HostResult::new(&about.study, host_name(), figures(plan, threads));
    run.watch.begin(&about.study, (2 * threads.len() * counts.len()) as u64);
    for how in Use::ALL {
        for &threads in threads {
            let mut times = Vec::new();
            for &count in counts {
                if run.watch.cancelled() {
                    return Err(StudyError::Interrupted);
                }
                let (parts, live) = (parts(plan, threads, count), plan.live as usize);
                let malloc = || measure::<Libc>(&parts, live, how);
                let cmt = || measure::<Cmt>(&parts, live, how);
                let found = in_turn(rounds, malloc, cmt);
                let (found, _) = found.map_err(|what| {
                    let what = format!("{count} requests, {threads} threads: {what}");
                    StudyError::Machine { study: about.study.clone(), what }
                })?;
                times.push((count, found));
                run.watch.point();
            }
            add(&mut host, how, threads, &times);
            if plan.claims {
                host.claims.push(claim(how, threads, &times));
            }
        }
    }
    let mut result = StudyResult {
        figures: vec![
            Figure::new(SIZES, "of the requests", FigureKind::LinesLog2, "requests", "GiB in all")
                .with_caption("The same for both allocators and any number of threads, about."),
        ],
        notes: notes(plan),
        ..run::result(about, plan, run, about.purpose.clone())
    };
    for &threads in threads {
        let gib = |count: u64| {
            let bytes: usize = parts(plan, threads, count).iter().flatten().sum();
            bytes as f64 / f64::from(1 << 30)
        };
        let points = counts.iter().map(|&count| (count as f64, gib(count)));
        let s = if threads == 1 { "" } else { "s" };
        let name = format!("{threads} thread{s}");
        result.series.push(Series::new(SIZES, "requests", "gib", &name, points));
    }
    Ok(Outcome { result, host: Some(host) })
}

fn add(host: &mut HostResult, how: Use, threads: u64, times: &[(u64, Times)]) {
    let ratios = times.iter().map(|(count, times)| (*count as f64, times.ratio()));
    let (figure, name) = (how.ratio_figure(), threads_title(threads));
    host.series.push(Series::new(figure, "requests", "time_ratio", &name, ratios));
    let figure = how.time_figure(threads);
    let malloc = times.iter().map(|(n, times)| (*n as f64, times.malloc_ns / 1000.0 / *n as f64));
    let cmt = times.iter().map(|(n, times)| (*n as f64, times.cmt_ns / 1000.0 / *n as f64));
    host.series.push(Series::new(&figure, "requests", "us_per_request", "malloc", malloc));
    host.series.push(Series::new(&figure, "requests", "us_per_request", "CLMalloc", cmt));
}

fn figures(plan: &LargePlan, threads: &[u64]) -> Vec<Figure> {
    let lines = FigureKind::LinesLog2;
    let (least, most) = plan.size_kib;
    let mut figures = Vec::new();
    for how in Use::ALL {
        let caption = format!(
            "Blocks of {least} to {most} KiB, {} at a time on each thread; {}. Below 1 \
             cmt_malloc is faster. Medians of rounds taken in turn. {}",
            plan.live,
            how.title(),
            oversubscribed(threads),
        );
        let figure = Figure::new(
            how.ratio_figure(),
            how.title(),
            lines,
            "requests",
            "time (CLMalloc / malloc)",
        );
        figures.push(figure.with_caption(caption.trim_end()));
    }
    for how in Use::ALL {
        for &threads in threads {
            let title = format!("{}, {}", threads_title(threads), how.title());
            let y = "time of a request and its free (µs)";
            figures.push(Figure::new(&how.time_figure(threads), &title, lines, "requests", y));
        }
    }
    figures
}

fn notes(plan: &LargePlan) -> Vec<String> {
    vec![format!(
        "The paper does not say how large its requests are, how many blocks a program holds, or \
         what it does with them: here {} to {} KiB, {}, and two uses. The requests of a point are \
         divided among its threads; time is from the first thread's start to the last one's end. \
         What was written is compared before each free. Medians leave out what the first round of \
         all pays for memory that the pool never had.",
        plan.size_kib.0, plan.size_kib.1, plan.live,
    )]
}

fn claim(how: Use, threads: u64, times: &[(u64, Times)]) -> Claim {
    let ratio = geometric_mean(times.iter().map(|(_, times)| times.ratio()));
    let says = format!(
        "similar performance to malloc and free, {}, {}: time, mean over the numbers of requests",
        threads_title(threads),
        how.title(),
    );
    let claim =
        Claim::at_most("Section 5.3, Fig. 7", &says, 1.0, ratio, 0.1).with_unit(Unit::Ratio);
    // Where it does not hold, the cause is not known yet.
    let cause = if how == Use::Pages && ratio < 1.0 {
        "Memory stays with the pool for its delay; malloc gives some back with the frees, and its \
         pages fault when they are written again."
    } else {
        ""
    };
    claim.with_cause(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_was_written() {
        let sizes = [1 << 20, 8, 4096, 4104, 12288, 100_000 / 8 * 8];
        for how in Use::ALL {
            let malloc = requests::<Libc>(&sizes, 2, how).unwrap();
            assert_eq!(requests::<Cmt>(&sizes, 3, how), Some(malloc), "{how:?}");
        }
    }

    #[test]
    fn a_changed_byte_is_found() {
        let mut words = [0_u64; 1024];
        let at = NonNull::from(&mut words).cast();
        let block = Block { at, len: 8192, tag: 5 };
        block.write(Use::Pages);
        assert!(block.read(Use::Pages).is_some());
        // SAFETY: within the block.
        unsafe { block.word(4096).write(0) };
        assert!(block.read(Use::Pages).is_none());
        assert!(block.read(Use::Ends).is_some());
    }
}
