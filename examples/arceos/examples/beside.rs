//! Both page allocators under the same loads in one run, in turns: nanoseconds of a call, and the calls refused.

#![forbid(unsafe_code)]

use std::time::Instant;

use axallocator::{BitmapPageAllocator, PageAllocator};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use swath_example_arceos::{ContiguousPages, storage_words};
use swath_frame::segment::Area;

const PAGE: usize = 4096;
/// 1 GiB.
const PAGES: usize = 1 << 18;
const ROUNDS: usize = 15;
const STEPS: usize = 20_000;

/// A load: its name, the pages of a request, and its alignment.
type Load = (&'static str, fn(&mut Pcg64Mcg) -> usize, usize);

const LOADS: [Load; 4] = [
    ("single pages", |_| 1, PAGE),
    ("runs of 1 to 127 pages", mixed, PAGE),
    ("huge pages of 2 MiB", |_| 512, 2 << 20),
    ("runs of 1 to 16 MiB", |random| random.random_range(256..=4096), PAGE),
];

fn mixed(random: &mut Pcg64Mcg) -> usize {
    let count = 1 << random.random_range(0..7);
    count + random.random_range(0..count)
}

/// Fills three quarters of memory, frees every other run, and then takes and frees at random; returns the
/// nanoseconds of a call there, and the calls that were refused.
fn run(allocator: &mut impl PageAllocator, (_, count_of, align): Load, seed: u64) -> (f64, usize) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    allocator.init(0, PAGES * PAGE);
    let mut held = Vec::new();
    while allocator.used_pages() < PAGES / 4 * 3 {
        let count = count_of(&mut random);
        match allocator.alloc_pages(count, align) {
            Ok(at) => held.push((at, count)),
            Err(_) => break,
        }
    }
    held.shuffle(&mut random);
    for (at, count) in held.drain(held.len() / 2..) {
        allocator.dealloc_pages(at, count);
    }
    // Chosen before the clock runs.
    let steps: Vec<_> = (0..STEPS)
        .map(|_| {
            (random.random_bool(0.5), random.random_range(0..usize::MAX), count_of(&mut random))
        })
        .collect();
    let mut refused = 0;
    let began = Instant::now();
    for (frees, which, count) in steps {
        if frees && !held.is_empty() {
            let (at, count) = held.swap_remove(which % held.len());
            allocator.dealloc_pages(at, count);
        } else {
            match allocator.alloc_pages(count, align) {
                Ok(at) => held.push((at, count)),
                Err(_) => refused += 1,
            }
        }
    }
    (began.elapsed().as_nanos() as f64 / STEPS as f64, refused)
}

fn ours(load: Load, seed: u64) -> (f64, usize) {
    let pages = PAGES as u64;
    let mut words = vec![0; storage_words(pages).expect("a span of pages")];
    let mut area = [Area::default()];
    let made = ContiguousPages::<PAGE>::new(pages, &mut area, &mut words);
    run(&mut made.expect("enough words"), load, seed)
}

fn theirs(load: Load, seed: u64) -> (f64, usize) {
    run(&mut *Box::new(BitmapPageAllocator::<PAGE>::new()), load, seed)
}

fn main() {
    println!("{ROUNDS} rounds in turns, {STEPS} calls each: median [least, most]");
    for load in LOADS {
        let (mut all, mut refused) = ([vec![], vec![]], [0, 0]);
        for seed in 0..ROUNDS as u64 {
            for (which, run) in [ours, theirs].into_iter().enumerate() {
                let (ns, no) = run(load, seed);
                all[which].push(ns);
                refused[which] += no;
            }
        }
        let mut ratios: Vec<f64> =
            all[0].iter().zip(&all[1]).map(|(ours, theirs)| ours / theirs).collect();
        let show = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            format!("{:.2} [{:.2}, {:.2}]", values[ROUNDS / 2], values[0], values[ROUNDS - 1])
        };
        let [ours, theirs] = all.each_mut().map(show);
        let ratio = show(&mut ratios);
        println!("{}:", load.0);
        println!("  Swath's global bitmap  {ours} ns, {} refused", refused[0]);
        println!("  the crate's bitmap     {theirs} ns, {} refused", refused[1]);
        println!("  ratio                  {ratio}");
    }
}
