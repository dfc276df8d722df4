//! The streams of the DRAM matrix, for other simulators to run, and their figures, gathered.
//!
//! ```text
//! cargo run --release -p swath-hw --example dram_streams -- DIR
//! cargo run --release -p swath-hw --example dram_streams -- DIR crates/swath-hw/tests/dram_matrix.csv
//! cargo test -p swath-hw --test suite dram_golden
//! ```
//!
//! **The streams.** The first command leaves a file for each memory, stream and share of reads: eight
//! bytes for a request, the least first, with the address in the low 63 bits and the highest one set for a
//! write. Addresses are laid out as *row, bank, bank group, rank, column, channel* over bursts of 64 bytes,
//! whatever the memory's own mapping.
//!
//! **The simulators.** Each is offered one request in each cycle of the memory's clock, in order, waiting
//! while it takes none; its figure is the cycles until it has taken the last. The parts' numbers, the
//! simulators' versions and their settings stand in `tests/dram_golden.rs`. What they say goes into `DIR`,
//! a line for each file with its name, a space and the figure: `dramsim3.txt` and `ramulator.txt`, and
//! `ramulator_split.txt` for Ramulator's own controller for LPDDR5. A simulator that has no such part has no
//! line.
//!
//! **The matrix.** The second command writes the matrix anew, to which the tests hold the memory.

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use swath_arch::PhysAddr;
use swath_hw::dram::{DramConfig, Location};

#[path = "../tests/dram_streams/mod.rs"]
mod dram_streams;

use dram_streams::{MEMORIES, READ_PERCENT, STREAMS, memory, requests};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let dir = args.next().ok_or("the folder for the streams is missing")?;
    match args.next() {
        None => export(&dir),
        Some(matrix) => gather(&dir, &matrix),
    }
}

/// Each point of the matrix: the memory, the stream's number, the share, and the file's name.
fn points() -> impl Iterator<Item = (&'static str, usize, u32, String)> {
    MEMORIES.into_iter().flat_map(|memory| {
        (0..STREAMS.len()).flat_map(move |stream| {
            READ_PERCENT.into_iter().map(move |percent| {
                let name = format!("{memory} {} {percent}", STREAMS[stream].name);
                (memory, stream, percent, name.replace([' ', ','], "-"))
            })
        })
    })
}

fn export(dir: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    for (name, stream, percent, file) in points() {
        let config = memory(name);
        let mut bytes = Vec::new();
        for (addr, write) in requests(STREAMS[stream].pattern, percent) {
            let place = config.mapping.locate(PhysAddr::new(addr)).ok_or("no such address")?;
            let word = plain_address(&config, &place) | u64::from(write) << 63;
            bytes.extend(word.to_le_bytes());
        }
        std::fs::write(dir.join(file), bytes)?;
    }
    Ok(())
}

fn gather(dir: &Path, matrix: &Path) -> Result<(), Box<dyn Error>> {
    let read = |name: &str| -> Result<HashMap<String, u64>, Box<dyn Error>> {
        let path = dir.join(name);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let pairs = (1..).zip(text.lines()).map(|(number, line)| {
            let pair = line
                .split_once(' ')
                .and_then(|(file, cycles)| Some((file.to_owned(), cycles.trim().parse().ok()?)));
            pair.ok_or_else(|| format!("{}, line {number}: no name and figure", path.display()))
        });
        Ok(pairs.collect::<Result<_, _>>()?)
    };
    let simulators = [read("dramsim3.txt")?, read("ramulator.txt")?, read("ramulator_split.txt")?];
    let mut text =
        "memory,stream,read_percent,held_out,dramsim3,ramulator,ramulator_split\n".to_owned();
    for (memory, stream, percent, file) in points() {
        let figures = simulators.each_ref().map(|of| of.get(&file));
        if figures == [None; 3] {
            return Err(format!("no simulator has a figure for {file}").into());
        }
        let [dramsim3, ramulator, split] =
            figures.map(|figure| figure.map_or(String::new(), u64::to_string));
        let stream = &STREAMS[stream];
        text += &format!(
            "{memory},{:?},{percent},{},{dramsim3},{ramulator},{split}\n",
            stream.name, stream.held_out
        );
    }
    std::fs::write(matrix, text)?;
    Ok(())
}

/// Returns the address that means the same place under *row, bank, group, rank, column, channel*,
/// from the highest bit to the lowest: a mapping that simulators have built in.
fn plain_address(config: &DramConfig, location: &Location) -> u64 {
    let part = &config.part;
    let low_bits = part.burst_bytes().trailing_zeros() - part.bus_bytes.trailing_zeros();
    let fields = [
        (u64::from(location.channel), config.channels.trailing_zeros()),
        (u64::from(location.column >> low_bits), part.column_bits - low_bits),
        (u64::from(location.rank), config.ranks.trailing_zeros()),
        (u64::from(location.group), part.groups.trailing_zeros()),
        (u64::from(location.bank), part.banks_per_group.trailing_zeros()),
        (u64::from(location.row), part.row_bits),
    ];
    let mut at = part.burst_bytes().trailing_zeros();
    fields.iter().fold(0, |addr, &(value, bits)| {
        let placed = addr | value << at;
        at += bits;
        placed
    })
}
