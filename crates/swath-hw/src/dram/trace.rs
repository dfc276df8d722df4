//! Streams of transactions in the formats of two independent simulators, so
//! that a reader can run them there, and streams of commands for a tool that works out their energy.

use core::fmt;

use crate::clock::Cycle;
use crate::dram::request::{DramRequest, IssuedCommand};
use crate::dram::timing::{Command, Part};

/// A format of one line for each transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TraceFormat {
    /// Ramulator 2.1's `LoadStoreTrace`: `LD 0x12340` or `ST 0x12340`. It knows no time:
    /// one transaction is offered in each cycle, from the first again after the last.
    Ramulator,
    /// DRAMsim3's trace: `0x12340 READ 17` or `0x12340 WRITE 17`, with the cycle
    /// from which the transaction is offered. The cycles must not go down.
    DramSim3,
    /// A physical address and `r` or `w` in a line, `0x12340 r`, as tools that simulate caches or the
    /// memory itself read them.
    Text,
}

/// Writes transactions, each with the cycle at which it was first offered. O(transactions).
///
/// # Errors
/// The errors of `out`.
pub fn write_trace<W: fmt::Write>(
    out: &mut W,
    format: TraceFormat,
    transactions: impl IntoIterator<Item = (Cycle, DramRequest)>,
) -> fmt::Result {
    for (cycle, DramRequest { addr, write, .. }) in transactions {
        let addr = addr.raw();
        match (format, write) {
            (TraceFormat::Ramulator, false) => writeln!(out, "LD {addr:#x}")?,
            (TraceFormat::Ramulator, true) => writeln!(out, "ST {addr:#x}")?,
            (TraceFormat::DramSim3, false) => writeln!(out, "{addr:#x} READ {cycle}")?,
            (TraceFormat::DramSim3, true) => writeln!(out, "{addr:#x} WRITE {cycle}")?,
            (TraceFormat::Text, false) => writeln!(out, "{addr:#x} r")?,
            (TraceFormat::Text, true) => writeln!(out, "{addr:#x} w")?,
        }
    }
    Ok(())
}

/// Writes the commands of one channel as DRAMPower's command trace: cycle, command and bank in a line,
/// `35,ACT,0`, and at `end` the line that ends it. The commands are ACT, PRE, PREA, RD, WR and REF, and
/// REFB for each bank of a set that is refreshed; a rank's command has its first bank. O(commands).
///
/// # Errors
/// The errors of `out`.
pub fn write_commands<W: fmt::Write>(
    out: &mut W,
    part: &Part,
    commands: impl IntoIterator<Item = IssuedCommand>,
    end: Cycle,
) -> fmt::Result {
    for IssuedCommand { cycle, command, bank, .. } in commands {
        let name = match command {
            Command::Activate => "ACT",
            Command::Precharge => "PRE",
            Command::PrechargeAll => "PREA",
            Command::Read => "RD",
            Command::Write => "WR",
            Command::Refresh => "REF",
            Command::RefreshSet => {
                // The banks of a rank whose numbers leave the same remainder by the sets.
                let sets = part.set_refresh.map_or(1, |refresh| refresh.sets);
                let rank = bank - bank % part.banks();
                for bank in (bank % sets..part.banks()).step_by(sets as usize) {
                    writeln!(out, "{cycle},REFB,{}", rank + bank)?;
                }
                continue;
            }
        };
        writeln!(out, "{cycle},{name},{bank}")?;
    }
    writeln!(out, "{end},END,0")
}
