//! The command line.

use crate::failure::{Failure, setup};
use crate::patterns::{Pattern, Plan};
use crate::setup::FRAMES;

const USAGE: &str =
    "usage: swath-bench-llfree [check | times | instructions | many | churn] [--threads 1,2]
       [--orders 0-10] [--frames N] [--rounds N] [--patterns bulk,repeat,random,aged,cross]
       [--reuse fifo|gather]";

/// What is measured.
pub(crate) struct Options {
    /// Numbers of threads.
    pub(crate) threads: Vec<usize>,
    /// Orders of blocks.
    pub(crate) orders: Vec<u8>,
    /// Frames of the memory.
    pub(crate) frames: u64,
    /// Times that each allocator runs each pattern.
    pub(crate) rounds: usize,
    /// Patterns.
    pub(crate) patterns: Vec<Pattern>,
    /// Whether our front gathers what is in use.
    pub(crate) gathers: bool,
}

impl Options {
    /// Reads the words after the program's name, or after what is to be done.
    pub(crate) fn parse(args: &[&str]) -> Result<Self, Failure> {
        let mut options = Self {
            threads: vec![1, 2],
            orders: (0..=10).collect(),
            frames: FRAMES,
            rounds: 9,
            patterns: Pattern::ALL.to_vec(),
            gathers: false,
        };
        let (pairs, rest) = args.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(setup(USAGE));
        }
        for &[option, value] in pairs {
            match option {
                "--threads" => options.threads = numbers(value)?,
                "--orders" => options.orders = numbers(value)?,
                "--frames" => options.frames = number(value)?,
                "--rounds" => options.rounds = number(value)?,
                "--patterns" => options.patterns = patterns(value)?,
                "--reuse" => {
                    options.gathers = match value {
                        "fifo" => false,
                        "gather" => true,
                        _ => return Err(setup(USAGE)),
                    }
                }
                _ => return Err(setup(USAGE)),
            }
        }
        let most = options.threads.iter().max().copied().unwrap_or_default() as u64;
        let largest = options.orders.iter().max().copied().unwrap_or_default();
        if options.rounds == 0
            || options
                .threads
                .iter()
                .any(|&threads| threads == 0 || threads > 1 && threads % 2 == 1)
        {
            return Err(setup("at least one round; one thread, or an even number of them"));
        }
        // LLFree has blocks up to 2^11 frames.
        if largest > 11 || options.frames.checked_shr(largest.into()).unwrap_or(0) < 64 * most {
            return Err(setup("orders up to 11, and 64 blocks of the largest for each thread"));
        }
        Ok(options)
    }

    /// A plan for each number of threads and each order.
    pub(crate) fn plans(&self, calls: usize) -> impl Iterator<Item = Plan> + '_ {
        let Self { frames, .. } = *self;
        self.threads.iter().flat_map(move |&threads| {
            self.orders.iter().map(move |&order| Plan { frames, threads, order, calls })
        })
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| setup(format!("{text} is not a number here\n{USAGE}")))
}

/// Numbers and ranges of them, separated by commas.
fn numbers<T: TryFrom<u32>>(text: &str) -> Result<Vec<T>, Failure> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        for value in number::<u32>(first)?..=number(last)? {
            all.push(T::try_from(value).map_err(|_| setup(format!("{value} is too large")))?);
        }
    }
    if all.is_empty() { Err(setup(USAGE)) } else { Ok(all) }
}

fn patterns(text: &str) -> Result<Vec<Pattern>, Failure> {
    let known = |name: &str| {
        let pattern = Pattern::ALL.into_iter().find(|pattern| pattern.name() == name);
        pattern.ok_or_else(|| setup(format!("{name} is no pattern\n{USAGE}")))
    };
    text.split(',').map(known).collect()
}
