//! Streams of transactions in the formats of two independent simulators, so
//! that a reader can run them there.

use core::fmt;

use crate::clock::Cycle;
use crate::dram::request::DramRequest;

/// A format of one line for each transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TraceFormat {
    /// Ramulator 2.1's `LoadStoreTrace`: `LD 0x12340` or `ST 0x12340`. It knows no time:
    /// one transaction is offered in each cycle, from the first again after the last.
    Ramulator,
    /// DRAMsim3's trace: `0x12340 READ 17` or `0x12340 WRITE 17`, with the cycle
    /// from which the transaction is offered. The cycles must not go down.
    DramSim3,
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
        }
    }
    Ok(())
}
