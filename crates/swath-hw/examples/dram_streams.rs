//! The streams of the DRAM matrix, for other simulators to run, and their figures, gathered.
//!
//! `cargo run --release -p swath-hw --example dram_streams -- DIR` leaves a file for each memory,
//! stream and share of reads: eight bytes for a request, the least first, with the address in the
//! low 63 bits and the highest one set for a write. Addresses are laid out as *row, bank, bank
//! group, rank, column, channel* over bursts of 64 bytes, whatever the memory's own mapping.
//!
//! A simulator is offered one request in each cycle, in order, waiting while it takes none; its
//! figure is the cycles until it has taken the last. With `DIR/dramsim3.txt` and
//! `DIR/ramulator.txt`, a line for each file with its name and the figure, `dram_streams DIR
//! MATRIX` then writes the matrix that the tests hold the memory against, with the figures of
//! `DIR/ramulator_split.txt`, where activates are two commands. Where a simulator has no such part,
//! its column is empty.

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
        let text = std::fs::read_to_string(dir.join(name))?;
        let pairs = text.lines().map(|line| {
            let (file, cycles) = line.split_once(' ').ok_or("no figure in a line")?;
            Ok((file.to_owned(), cycles.trim().parse()?))
        });
        pairs.collect()
    };
    let simulators = [read("dramsim3.txt")?, read("ramulator.txt")?, read("ramulator_split.txt")?];
    let mut text =
        "memory,stream,read_percent,held_out,dramsim3,ramulator,ramulator_split\n".to_owned();
    for (memory, stream, percent, file) in points() {
        let figures = simulators.each_ref().map(|of| of.get(&file));
        if figures == [None; 3] {
            return Err(file.into());
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
