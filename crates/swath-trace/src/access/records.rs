//! Traces that are records of one length from end to end.

use crate::access::content::{Content, TraceError};
use crate::access::event::{BATCH, MemoryAccess};
use crate::input::Input;

/// Appends the accesses of records of `N` bytes, [`BATCH`] and those of one record at most; none at
/// the end. `push` appends those of one record.
///
/// # Errors
/// Those of the input, `cut` where a record is cut off, and what `push` finds wrong, with the byte
/// of the record at which it is.
#[inline]
pub(crate) fn decode<const N: usize>(
    input: &mut Input<Content>,
    out: &mut Vec<MemoryAccess>,
    cut: &'static str,
    mut push: impl FnMut(&[u8; N], &mut Vec<MemoryAccess>) -> Result<(), (usize, &'static str)>,
) -> Result<(), TraceError> {
    while out.len() < BATCH {
        if let Err(source) = input.fill(N) {
            return Err(input.source().explain(source));
        }
        let bytes = input.buffered();
        let offset = input.offset();
        let (records, rest) = bytes.as_chunks::<N>();
        if records.is_empty() {
            let offset = offset + rest.len() as u64;
            return match rest {
                [] => Ok(()),
                _ => Err(TraceError::Truncated { offset, what: cut }),
            };
        }
        let mut done = 0;
        for record in records {
            if out.len() >= BATCH {
                break;
            }
            if let Err((at, what)) = push(record, out) {
                return Err(TraceError::Record { offset: offset + (done + at) as u64, what });
            }
            done += N;
        }
        input.consume(done);
    }
    Ok(())
}
