//! Buffers that are registered, one after another, whose backing differs: `bench/programs/registered.c`
//! shows what contiguity buys on this machine without a device.
//!
//! A row gives medians of the rounds, and the least and the most: to make and write the buffer, to
//! register it with io_uring, which pins it, and to unregister it, to lock it, all in ms; its runs of
//! physical memory, and the entries of an IOMMU's tables for the list of mappings that VFIO would make
//! of them; and millions of random updates a second. Rounds are interleaved, each in a process of its own.
//! What this machine does not let a process know or do is a question mark, and a backing that it does not
//! have a line that says so: pages of 2 MiB and 1 GiB come from the kernel's hugetlb pools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, make, setup};
use crate::peers::{ours, target_directory};
use crate::setup::{median, numbers, spread};

/// Numbers that the program prints: their titles and divisors.
const COLUMNS: [(&str, f64); 7] = [
    ("make ms", 1e6),
    ("register ms", 1e6),
    ("unregister ms", 1e6),
    ("lock ms", 1e6),
    ("runs", 1.0),
    ("entries", 1.0),
    ("M updates/s", 1e6),
];

/// A buffer: its title, the program's word for its backing, and true if the library is preloaded.
const BUFFERS: [(&str, &str, bool); 6] = [
    ("pages of 4 KiB", "4k", false),
    ("transparent huge pages", "thp", false),
    ("hugetlb, 2 MiB", "2m", false),
    ("hugetlb, 1 GiB", "1g", false),
    ("malloc, C library", "malloc", false),
    ("malloc, Swath's reserve", "malloc", true),
];

/// What one run printed.
type Printed = [f64; COLUMNS.len()];

/// One run; what the machine says if it has no such backing.
fn sample(
    program: &Path,
    how: &str,
    mib: u64,
    preload: Option<&Path>,
) -> Result<Result<Printed, String>, Failure> {
    let mut command = Command::new(program);
    command.args([how, &mib.to_string()]);
    if let Some(path) = preload {
        // As much again, for what lies beside the buffer.
        command.env("LD_PRELOAD", path).env("SWATH_RESERVE", format!("{}M", mib + mib.div_ceil(8)));
    }
    let output = command.output().map_err(|error| setup(format!("{command:?}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.code() == Some(3) {
        return Ok(Err(said));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let numbers = numbers.try_into().ok().filter(|_| output.status.success());
    numbers.map(Ok).ok_or_else(|| Failure::Result(format!("{command:?}: {text} {said}")))
}

/// A number of a column with the least and the most.
fn cell(values: &mut [f64], scale: f64) -> String {
    let middle = median(values);
    if middle < 0.0 {
        return "?".to_owned();
    }
    let digits = usize::from(scale > 1.0) * if middle / scale < 10.0 { 2 } else { 0 };
    values.iter_mut().for_each(|value| *value /= scale);
    spread(values, digits)
}

/// Runs all buffers and prints the table.
pub(crate) fn run(options: &[&str]) -> Result<(), Failure> {
    let (mut rounds, mut mib) = (3, 1024);
    numbers(options, &mut [("--rounds", &mut rounds, 1000), ("--mib", &mut mib, 1024)])?;
    let out: PathBuf = target_directory()?.join("programs");
    fs::create_dir_all(&out).map_err(|error| setup(format!("{}: {error}", out.display())))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/registered.c");
    let program = out.join("registered");
    make(Command::new("cc").args(["-O2", "-pthread"]).arg(source).arg("-o").arg(&program))?;
    let library = ours()?;
    let mut found: Vec<Result<Vec<Printed>, String>> =
        BUFFERS.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..rounds {
        for ((_, how, preload), kept) in BUFFERS.iter().zip(&mut found) {
            let Ok(samples) = kept else { continue };
            match sample(&program, how, mib, preload.then_some(library.as_path()))? {
                Ok(numbers) => samples.push(numbers),
                Err(why) => *kept = Err(why),
            }
        }
    }
    println!("buffers of {mib} MiB, {rounds} rounds: median (least to most); ? is not known here");
    for ((title, ..), samples) in BUFFERS.iter().zip(&found) {
        println!("\n{title}");
        match samples {
            Err(why) => println!("  none on this machine: {why}"),
            Ok(samples) => {
                for (at, (column, scale)) in COLUMNS.iter().enumerate() {
                    let mut values: Vec<f64> = samples.iter().map(|one| one[at]).collect();
                    println!("  {column:>14}  {}", cell(&mut values, *scale));
                }
            }
        }
    }
    Ok(())
}
