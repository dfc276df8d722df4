//! The counting program of the paper on virtual memory with constant bounds,
//! rebuilt from its description (section V-A): "mc is a program which
//! successively processes several input streams and computes for each input
//! stream and each element in the input stream the number of its occurrences".
//!
//! A stream is a file, an element a number below 3 × 2^27. An element's counter is found by the element
//! itself, in a table that is zeroed when a stream begins and given back when it ends; a summary of
//! the stream stays to the end, and is noted before the table goes. So a stream touches few pages of
//! a large table, and the summaries behind the first table keep a heap that shrinks only at its end
//! from shrinking, which is how few pages for one stream can become many for all: the paper has
//! 206 and 96,035.
//!
//! `mc FILE…`; made to be recorded with `swath record heap`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

/// Elements are below this.
const ELEMENTS: usize = 3 << 27;

/// What stays of a stream.
struct Summary {
    name: String,
    different: usize,
    /// The element that occurs most often, and how often.
    most: (usize, u32),
}

/// The number that stands in a line.
fn element(line: &str) -> io::Result<usize> {
    let number = line.trim().parse().ok().filter(|&number| number < ELEMENTS);
    number.ok_or_else(|| io::Error::other(format!("{line:?} is no number below {ELEMENTS}")))
}

/// Counts a stream's elements, prints how often each occurs, and adds to the summaries.
fn count(name: &str, summaries: &mut Vec<Summary>) -> io::Result<()> {
    let mut counters = vec![0_u32; ELEMENTS];
    let mut seen = Vec::new();
    for line in BufReader::new(File::open(name)?).lines() {
        let element = element(&line?)?;
        if counters[element] == 0 {
            seen.push(element);
        }
        counters[element] += 1;
    }
    let mut out = io::stdout().lock();
    for &element in &seen {
        writeln!(out, "{element} {}", counters[element])?;
    }
    let counted = seen.iter().map(|&element| (element, counters[element]));
    let most = counted.max_by_key(|&(_, count)| count).unwrap_or_default();
    summaries.push(Summary { name: name.to_owned(), different: seen.len(), most });
    Ok(())
}

fn main() -> io::Result<()> {
    let mut summaries = Vec::new();
    for name in std::env::args().skip(1) {
        count(&name, &mut summaries)?;
    }
    let mut out = io::stdout().lock();
    for Summary { name, different, most: (element, times) } in &summaries {
        writeln!(out, "{name}: {different} different, most often {element}, {times} times")?;
    }
    Ok(())
}
