//! The counting program of the paper on virtual memory with constant bounds,
//! rebuilt from its description (section V-A): "mc is a program which
//! successively processes several input streams and computes for each input
//! stream and each element in the input stream the number of its occurrences".
//!
//! A stream is a file, an element a word. The table of a stream is given back
//! when the stream ends; its result, a list in the order of the words, stays to
//! the end, when all are printed. So large blocks come and go below small
//! ones that stay, which is what keeps a heap that shrinks only at its end from
//! shrinking.
//!
//! `mc FILE…`; made to be recorded with `swath record heap`.

use std::collections::HashMap;
use std::io::{
    BufRead, BufReader, Write, {self},
};

/// Words of a stream and how often each occurs, in the order of the words.
fn count(stream: impl BufRead) -> io::Result<Vec<(String, u64)>> {
    let mut table: HashMap<String, u64> = HashMap::new();
    for line in stream.lines() {
        for word in line?.split_whitespace() {
            match table.get_mut(word) {
                Some(count) => *count += 1,
                None => {
                    table.insert(word.to_owned(), 1);
                }
            }
        }
    }
    let mut counts: Vec<_> = table.into_iter().collect();
    counts.sort_unstable();
    Ok(counts)
}

fn main() -> io::Result<()> {
    let mut results = Vec::new();
    for name in std::env::args_os().skip(1) {
        results.push(count(BufReader::new(std::fs::File::open(name)?))?);
    }
    let mut out = io::stdout().lock();
    for (number, counts) in results.iter().enumerate() {
        for (word, count) in counts {
            writeln!(out, "{number} {word} {count}")?;
        }
    }
    Ok(())
}
