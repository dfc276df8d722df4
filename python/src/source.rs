//! Snapshots and recordings, as arrays of numbers in bytes.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swath_arch::{Extent, Pfn, VirtAddr};
use swath_lab::source::real::{Machine, Trace};
use swath_trace::access::{AccessKind, MemoryAccess, TraceWriter};
use swath_trace::machine::UnknownFrames;

use crate::error::{failed, refused, there};

/// The free frames of a machine.
#[pyclass(module = "swath._native", frozen)]
pub(crate) struct Memory(pub(crate) Arc<Machine>);

/// Frames of 4 KiB that 64 bits of addresses tell apart.
const FRAMES_END: u64 = 1 << 52;

/// How unknown frames count.
fn unknown(free: bool) -> UnknownFrames {
    if free { UnknownFrames::Free } else { UnknownFrames::Used }
}

#[pymethods]
impl Memory {
    /// Those of a snapshot, or of the one that comes with Swath.
    #[staticmethod]
    fn load(py: Python<'_>, path: Option<PathBuf>, unknown_free: bool) -> PyResult<Self> {
        path.as_deref().map_or(Ok(()), there)?;
        let machine = py.detach(|| Machine::load(path.as_deref(), unknown(unknown_free)));
        Ok(Self(Arc::new(machine.map_err(refused)?)))
    }

    /// Runs of first frame and count, each of 64 bits.
    #[staticmethod]
    fn of(runs: &[u8]) -> PyResult<Self> {
        let (words, _) = runs.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let mut free: Vec<Extent> = Vec::with_capacity(pairs.len());
        for (nth, pair) in pairs.iter().enumerate() {
            let [start, count] = pair.map(u64::from_le_bytes);
            let end = start.checked_add(count).filter(|&end| end <= FRAMES_END);
            if count == 0 || end.is_none() {
                return Err(refused(format!("run {nth}: {count} frames from {start}")));
            }
            let run = Extent::new(Pfn::new(start), count);
            match free.last_mut() {
                Some(last) if last.end() > run.start => {
                    return Err(refused(format!(
                        "run {nth}: frame {start} is before the last's end"
                    )));
                }
                Some(last) if last.end() == run.start => last.count += count,
                _ => free.push(run),
            }
        }
        if free.is_empty() {
            return Err(refused("no free frame"));
        }
        let name = "array".to_owned();
        Ok(Self(Arc::new(Machine { name, file: None, unknown: UnknownFrames::Used, free })))
    }

    /// The runs, as [`of`](Self::of) takes them.
    fn runs<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let words = self.0.free.iter().flat_map(|run| [run.start.raw(), run.count]);
        PyBytes::new(py, &words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
    }
}

/// The accesses of a trace, at most `limit` of them: addresses of 64 bits, lengths of 16, kinds of 8
/// (0 read, 1 write, 2 fetch).
#[pyfunction]
pub(crate) fn read_accesses<'py>(
    py: Python<'py>,
    path: Option<PathBuf>,
    limit: usize,
) -> PyResult<[Bound<'py, PyBytes>; 3]> {
    path.as_deref().map_or(Ok(()), there)?;
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
