//! Makes a trace of a log of accesses, as `crates/swath-lab/data/compilers.c` writes it (its head
//! describes the lines). Usage: `access_log PROGRAM BURST EVERY < LOG > TRACE`.

use std::error::Error;
use std::io::{BufRead, BufWriter, Write, stdin, stdout};

use swath_arch::{PageRange, VirtAddr, Vpn};
use swath_trace::access::{
    AccessKind, MapBacking, MapProtection, MemoryAccess, Sampling, TraceEvent, TraceHeader,
    TraceWriter,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, burst, every] = &arguments[..] else {
        return Err("usage: access_log PROGRAM BURST EVERY < LOG > TRACE".into());
    };
    let (burst_accesses, period_accesses) = (burst.parse()?, every.parse()?);
    let sampling = Some(Sampling { burst_accesses, period_accesses });
    let header = TraceHeader { program: program.clone(), sampling };
    let mut trace = TraceWriter::with_header(BufWriter::new(stdout().lock()), 19, &header)?;
    for (at, line) in stdin().lock().lines().enumerate() {
        let line = line?;
        write(&mut trace, &line).map_err(|error| format!("line {}: {error}", at + 1))?;
    }
    trace.finish()?.flush()?;
    Ok(())
}

fn write<W: Write>(trace: &mut TraceWriter<W>, line: &str) -> Result<(), Box<dyn Error>> {
    let (what, numbers) = line.split_once(' ').ok_or("no numbers")?;
    let numbers: Result<Vec<u64>, _> =
        numbers.split_whitespace().map(|number| u64::from_str_radix(number, 16)).collect();
    let numbers = numbers?;
    let range = |start: u64, count: u64| PageRange::new(Vpn::new(start), count);
    let kind = match what {
        "F" => Some(AccessKind::Fetch),
        "R" => Some(AccessKind::Read),
        "W" => Some(AccessKind::Write),
        _ => None,
    };
    if let Some(kind) = kind {
        let &[addr, len_bytes] = &numbers[..] else { return Err("not two numbers".into()) };
        let access = MemoryAccess::new(VirtAddr::new(addr), u16::try_from(len_bytes)?, kind);
        return Ok(trace.push(access.ok_or("an access beyond the last address")?)?);
    }
    let event = match (what, &numbers[..]) {
        ("K", &[accesses]) => TraceEvent::Skip { accesses },
        ("M", &[start, count, protection, shared, file, first_page]) => TraceEvent::Map {
            pages: range(start, count),
            protection: MapProtection::of_bits(protection),
            backing: match file {
                0 => MapBacking::Anonymous,
                file => MapBacking::File { file, first_page },
            },
            shared: shared != 0,
        },
        ("U", &[start, count]) => TraceEvent::Unmap { pages: range(start, count) },
        ("D", &[start, count]) => TraceEvent::Discard { pages: range(start, count) },
        ("P", &[start, count, protection]) => TraceEvent::Protect {
            pages: range(start, count),
            protection: MapProtection::of_bits(protection),
        },
        ("V", &[start, count, to, to_count]) => {
            TraceEvent::Move { from: range(start, count), to: range(to, to_count) }
        }
        _ => return Err(format!("{what:?} with {} numbers", numbers.len()).into()),
    };
    Ok(trace.push_event(event)?)
}
