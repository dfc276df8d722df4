//! `swath film`: snapshots of a machine in sequence, as a film.

use std::path::PathBuf;

use clap::Args;
use swath_lab::film::MOMENTS_MAX;
use swath_lab::report::film::write;
use swath_lab::source::film::film;
use swath_trace::machine::Snapshot;

use crate::failure::Failure;

/// Arguments of `swath film`.
#[derive(Args)]
pub(crate) struct FilmArgs {
    /// Snapshots of one machine, from `swath snapshot`, in their order.
    #[arg(required = true, num_args = 1..=MOMENTS_MAX)]
    snapshots: Vec<PathBuf>,
    /// The file to write: a picture that plays (`.svg`), or a page in which it can be paused and
    /// scrubbed.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

/// Reads the snapshots and writes the film.
pub(crate) fn run(FilmArgs { snapshots, out }: &FilmArgs) -> Result<(), Failure> {
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let snapshot = Snapshot::load(path)
            .map_err(|error| Failure::new(1, format!("{}: {error}", path.display())))?;
        Ok((name, snapshot))
    };
    let snapshots = snapshots.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    write(out, &film(&snapshots))?;
    say!("{} moments, {}", snapshots.len(), out.display());
    Ok(())
}
