//! Snapshots and recordings, as arrays of numbers in bytes.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swath_arch::VirtAddr;
use swath_lab::source::real::{Machine, Trace};
use swath_trace::access::{AccessKind, MemoryAccess, TraceWriter};
use swath_trace::machine::UnknownFrames;

use crate::error::{failed, refused};

/// The free extents of a snapshot, or of the one that comes with Swath: first frame and count, each
/// of 64 bits.
#[pyfunction]
pub(crate) fn read_free<'py>(
    py: Python<'py>,
    path: Option<PathBuf>,
    unknown_free: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let unknown = if unknown_free { UnknownFrames::Free } else { UnknownFrames::Used };
    let machine = py.detach(|| Machine::load(path.as_deref(), unknown)).map_err(refused)?;
    let words = machine.free.iter().flat_map(|extent| [extent.start.raw(), extent.count]);
    Ok(PyBytes::new(py, &words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()))
}

/// The accesses of a trace, at most `limit` of them: addresses of 64 bits, lengths of 16, kinds of 8
/// (0 read, 1 write, 2 fetch).
#[pyfunction]
pub(crate) fn read_accesses<'py>(
    py: Python<'py>,
    path: Option<PathBuf>,
    limit: usize,
) -> PyResult<[Bound<'py, PyBytes>; 3]> {
    let columns = py.detach(|| {
        let trace = Trace::new(path.as_deref());
        let failed = |error| trace.error(&error);
        let (mut addresses, mut lengths, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
        for access in trace.open().map_err(failed)?.take(limit) {
            let MemoryAccess { addr, len_bytes, kind } = access.map_err(failed)?;
            addresses.extend(addr.raw().to_le_bytes());
            lengths.extend(len_bytes.to_le_bytes());
            kinds.push(match kind {
                AccessKind::Read => 0,
                AccessKind::Write => 1,
                AccessKind::Fetch => 2,
            });
        }
        Ok([addresses, lengths, kinds])
    });
    let columns = columns.map_err(|error: swath_lab::source::real::InputError| refused(error))?;
    Ok(columns.map(|column| PyBytes::new(py, &column)))
}

/// Writes a trace of accesses, in the form in which they are read.
#[pyfunction]
pub(crate) fn write_accesses(
    py: Python<'_>,
    path: PathBuf,
    addresses: &[u8],
    lengths: &[u8],
    kinds: &[u8],
) -> PyResult<u64> {
    let (addresses, _) = addresses.as_chunks::<8>();
    let (lengths, _) = lengths.as_chunks::<2>();
    if addresses.len() != kinds.len() || lengths.len() != kinds.len() {
        return Err(refused("addresses, lengths and kinds are not equally many"));
    }
    let mut accesses = Vec::with_capacity(kinds.len());
    for (nth, ((address, length), kind)) in addresses.iter().zip(lengths).zip(kinds).enumerate() {
        let kind = match kind {
            0 => AccessKind::Read,
            1 => AccessKind::Write,
            2 => AccessKind::Fetch,
            other => return Err(refused(format!("access {nth}: no kind {other}"))),
        };
        let address = VirtAddr::new(u64::from_le_bytes(*address));
        let access = MemoryAccess::new(address, u16::from_le_bytes(*length), kind);
        accesses.push(access.ok_or_else(|| {
            refused(format!("access {nth}: empty, or it ends beyond the last address"))
        })?);
    }
    py.detach(|| {
        let mut writer = TraceWriter::new(BufWriter::new(File::create(path)?), 3)?;
        accesses.iter().try_for_each(|&access| writer.push(access))?;
        let count = writer.count();
        writer.finish()?;
        Ok(count)
    })
    .map_err(|error: std::io::Error| failed(error))
}
