//! Swath's benchmarks: instruction gates and a race against other crates.
//!
//! ```text
//! cargo run --release -p swath-bench -- gates [NAME…]
//! cargo run --release -p swath-bench -- rivals [--json FILE] [--samples N]
//! cargo run --release -p swath-bench -- translate
//! cargo run --release -p swath-bench -- heap
//! cargo run --release -p swath-bench -- churn [SEEDS [FRAMES]]
//! cargo run --release -p swath-bench -- programs [--rounds N] [--no-runs] [--out DIR] [NAME…]
//! cargo run --release -p swath-bench -- registered-buffers [--rounds N] [--mib N]
//! cargo run --release -p swath-bench -- shrink [--rounds N] [--gib N]
//! ```
//!
//! # Gates
//! An instruction count is the same on every run, so it can be a gate where a
//! time cannot. `gates` starts this program again under valgrind's callgrind,
//! once for each entry of the table in [`gates`], with collection switched on
//! only inside one function that runs the measured calls in a loop. The count
//! is divided by the number of calls and compared with the entry's bound. The
//! loop itself (fetch the argument, keep the result) is part of the count,
//! some four instructions; building the map and checking the results are not.
//! Counts depend on the compiler and its target: what is gated is what the
//! workspace's release profile makes for this machine's default target.
//! Caches, branch prediction and the cost of atomic operations do not show in
//! a count of instructions.
//!
//! # Rivals
//! Times are worth something only beside other times from the same run. Each
//! row is one workload, and every contender runs it in this process, in turn:
//! sample 1 of each, sample 2 of each, and so on, starting with another
//! contender each time, so that a slow spell of the machine meets all of them.
//! A row gives the ratio of the medians, ours by theirs: below 1 we are faster.
//! All contenders are compiled with the same profile; orders, frame numbers
//! and shuffles come from the same seeds.
//!
//! * `bulk`: take every block of the memory, then put all back in the order
//!   taken. `repeat`: take a block and put it back, on a map in which a random
//!   half of the blocks is used. `shuffled free`: put all back in random
//!   order; taking and shuffling are not timed. Each with blocks of one frame
//!   and of 2^9 frames aligned to their size, on 2^20 frames.
//! * `lengths`: at about half of the memory in use, free a random one of the
//!   live requests and make a new one of 1 to 64 frames.
//!
//! PBS with granularity 9 has lists for both orders and is the one contender that
//! is judged: a row is won when it is faster than each rival. On the row of
//! lengths it runs with the best-fit rule behind `QuickFit`, which is what a user
//! with short runs of all lengths would take: without best fit a request is served
//! in many blocks, and without the lists every short block is merged and split
//! again. Granularity 4, BBS, which coalesces through ten orders, best fit alone
//! and the paper's head-of-list rule are shown.
//!
//! The closest row is `shuffled free` of single frames against
//! `bitmap-allocator`. A put changes two words in two cache lines (the bit of
//! allocated frames, by which a double free is told from a hole, and the bit
//! of class 0), theirs one; `rivals` says what was tried. Best fit alone would lose `lengths`: it takes 750
//! instructions for an exchange where `offset-allocator` takes 330, half of them
//! to keep three bitmaps and their upper levels, with as many cache misses.
//!
//! How the contenders are set up, and what favours whom:
//! * Swath runs with all the checks that its interface promises: a double free
//!   or a foreign frame is found. `buddy_system_allocator` does not look;
//!   `bitmap-allocator` finds a double free but not a frame out of range other
//!   than by a panic; `offset-allocator` panics.
//! * `buddy_system_allocator::FrameAllocator` runs with two sets of orders, 0
//!   to 9 and 0 to 20; its sets are B-trees on the global allocator.
//! * `bitmap_allocator::BitAlloc1M` has exactly 2^20 bits. It takes no block
//!   but a frame without a search bit by bit (`alloc_contiguous`), which its
//!   authors document; the rows of order 9 show that search.
//! * `offset_allocator::Allocator` has as many node slots as there are frames,
//!   so that it cannot run out of them; its log calls are compiled out. It
//!   hands out one contiguous piece or fails. Swath's rule takes several
//!   blocks where no piece is long enough, so `blocks` and `failed` stand
//!   beside the time: a time alone would compare different services. It merges
//!   what is freed at once, where `QuickFit` leaves up to 16 blocks of each length
//!   as they are until a request needs them merged.
//!
//! # Translate
//! Accesses a second through a TLB of 32 entries on one core, as this machine
//! gives them now: to be read beside the figures to reach (50 million on raster
//! traffic, 20 million on traffic that always misses). They are times and gate
//! nothing; the instructions per access do.
//!
//! # Heap
//! Instructions of each call of TLSF and half-fit, mean and worst, beside `rlsf`
//! on one trace: see [`heap`]. TLSF and half-fit without checks have bounds; the
//! checking tiers are shown. Takes some minutes, as valgrind prints every instruction.
//!
//! # Churn
//! Free huge pages after long random use, by allocator and rule: see [`frames::churn`].
//!
//! # Programs
//! Well-known allocator programs and the paper's workloads with `cmt_malloc` preloaded, beside the
//! C library's allocator, jemalloc, mimalloc, snmalloc and tcmalloc: time and peak memory as ratios.
//! See [`programs`].
//!
//! # Registered buffers
//! What it costs to register and pin a buffer, the entries of a list of its mappings, and random updates, by
//! the buffer's backing. See [`registered`].
//!
//! # Shrink
//! Half of a guest's memory is taken from it and given back, by a balloon and by words that its host sees. See
//! [`shrink`].
//!
//! Every run checks its results: no block overlaps another or lies outside the
//! memory, blocks are aligned, and at the end everything can be taken again.
//! A wrong result ends the program with exit code 1, as does a gate that is
//! passed or a row that is lost; 2 means a wrong command line or no valgrind.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::frames::churn;

mod buffer;
mod callgrind;
mod failure;
mod frames;
mod gates;
mod heap;
mod peers;
mod programs;
mod random;
mod regions;
mod registered;
mod reserve;
mod rivals;
mod segments;
mod setup;
mod shrink;
mod superpages;
mod table;
mod timed;
mod translate;

const USAGE: &str = "usage: swath-bench gates [NAME…]
       swath-bench rivals [--json FILE] [--samples N]
       swath-bench translate
       swath-bench heap
       swath-bench churn [SEEDS [FRAMES]]
       swath-bench programs [--rounds N] [--no-runs] [--out DIR] [NAME…]
       swath-bench registered-buffers [--rounds N] [--mib N]
       swath-bench shrink [--rounds N] [--gib N]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["gates", names @ ..] => gates::run(names),
        ["measure", name] => gates::measure(name),
        ["rivals", options @ ..] => rivals::run(options),
        ["translate"] => translate::run(),
        ["heap"] => heap::run(),
        ["churn", numbers @ ..] => churn::run(numbers),
        ["programs", options @ ..] => programs::run(options),
        ["registered-buffers", options @ ..] => registered::run(options),
        ["shrink", options @ ..] => shrink::run(options),
        ["heap-measure", name, steps] => heap::measure(name, steps),
        _ => Err(Failure::Setup(USAGE.into())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Result(what)) => {
            eprintln!("swath-bench: {what}");
            ExitCode::from(1)
        }
        Err(Failure::Setup(what)) => {
            eprintln!("swath-bench: {what}");
            ExitCode::from(2)
        }
    }
}
