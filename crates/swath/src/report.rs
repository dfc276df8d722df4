//! `swath report`: renders the results that are there.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use swath_lab::report::folder::Folder;
use swath_lab::report::write;

use crate::failure::Failure;
use crate::study::warn_of;

/// Arguments of `swath report`.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// The report's directory.
    dir: PathBuf,
    /// Print the result of the command as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command. It fails if results are left out, though the page is written.
pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if !args.dir.is_dir() {
        return Err(Failure::new(2, format!("{}: no such directory", args.dir.display())));
    }
    let rendered = write::render(&Folder::open(&args.dir)?)?;
    warn_of(&rendered);
    let left_out: Vec<String> = rendered.left_out.iter().map(ToString::to_string).collect();
    let (studies, index) = (&rendered.studies, rendered.index.to_string_lossy());
    if args.json {
        say!("{}", json!({ "studies": studies, "index": index, "left_out": left_out }));
    } else {
        let noun = if studies.len() == 1 { "study" } else { "studies" };
        say!("{} {noun}; open {index}", studies.len());
    }
    match left_out.len() {
        0 => Ok(()),
        1 => Err(Failure::new(1, "1 result was left out")),
        more => Err(Failure::new(1, format!("{more} results were left out"))),
    }
}
