//! ChampSim's binary records (`input_instr` in its `inc/trace_instruction.h`).
//!
//! 64 bytes to an instruction, numbers with the lowest byte first, no header:
//!
//! ```text
//! byte  0  ip                    8
//!       8  is_branch             1
//!       9  branch_taken          1
//!      10  destination_registers 2 x 1
//!      12  source_registers      4 x 1
//!      16  destination_memory    2 x 8
//!      32  source_memory         4 x 8
//! ```
//!
//! A record gives its fetch, then its reads, then its writes; an operand of
//! address 0 is not there. The format holds no lengths: each access is one
//! byte long here, so none lies across a page boundary.

use swath_arch::VirtAddr;

use crate::access::content::{Content, TraceError};
use crate::access::event::{AccessKind, MemoryAccess};
use crate::access::records;
use crate::input::Input;

const RECORD_BYTES: usize = 64;
const BRANCH: usize = 8;
const TAKEN: usize = 9;
const DESTINATIONS: usize = 16;
const SOURCES: usize = 32;

/// A reader of ChampSim's records.
pub(crate) struct ChampSim {
    input: Input<Content>,
}

/// The first of the two flags that is neither 0 nor 1.
#[inline]
fn wrong_flag(record: &[u8; RECORD_BYTES]) -> Option<usize> {
    [BRANCH, TAKEN].into_iter().find(|&at| record[at] > 1)
}

#[inline]
fn addresses(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

#[inline]
fn access(addr: u64, kind: AccessKind) -> MemoryAccess {
    MemoryAccess { addr: VirtAddr::new(addr), len_bytes: 1, kind }
}

impl ChampSim {
    pub(crate) fn new(input: Input<Content>) -> Self {
        Self { input }
    }

    /// Returns true if `head` starts with a record and holds no record that cannot be: none of zeros alone, whose
    /// instruction would be at address 0, as a device or a hole in a file gives without end.
    pub(crate) fn is_plausible(head: &[u8]) -> bool {
        let (records, _) = head.as_chunks();
        let can_be = |record| wrong_flag(record).is_none() && *record != [0; RECORD_BYTES];
        !records.is_empty() && records.iter().all(can_be)
    }

    /// Appends accesses; none at the end.
    pub(crate) fn decode(&mut self, out: &mut Vec<MemoryAccess>) -> Result<(), TraceError> {
        records::decode(&mut self.input, out, "a record of 64 bytes", |record, out| {
            if let Some(at) = wrong_flag(record) {
                return Err((at, "a flag that is not 0 or 1"));
            }
            out.extend(addresses(&record[..BRANCH]).map(|ip| access(ip, AccessKind::Fetch)));
            let there = |addr: &u64| *addr != 0;
            let sources = addresses(&record[SOURCES..]).filter(there);
            out.extend(sources.map(|addr| access(addr, AccessKind::Read)));
            let destinations = addresses(&record[DESTINATIONS..SOURCES]).filter(there);
            out.extend(destinations.map(|addr| access(addr, AccessKind::Write)));
            Ok(())
        })
    }
}
