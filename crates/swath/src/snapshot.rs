//! `swath snapshot`: reads which frames of this machine are free.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::progress::bytes_bar;
use crate::show;

/// Arguments of `swath snapshot`.
#[derive(Args)]
pub(crate) struct SnapshotArgs {
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// Takes the snapshot, writes it and says what it holds.
pub(crate) fn run(SnapshotArgs { out, json }: &SnapshotArgs) -> Result<(), Failure> {
    let bar = bytes_bar("reading frames");
    let snapshot = swath_trace::machine::capture(&mut |done, of| {
        bar.0.set_length(of);
        bar.0.set_position(done);
    })
    .map_err(|error| Failure::new(1, error))?;
    bar.0.finish_and_clear();
    let failed = |error| Failure::new(1, format!("{}: {error}", out.display()));
    snapshot.save(out).map_err(failed)?;
    show::snapshot(&snapshot, *json);
    Ok(())
}
