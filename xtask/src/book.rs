//! The pictures of README and of the book in `docs/book`, drawn anew by the studies.

use std::fs;

use anyhow::{Context, Result};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

/// The folder of the pictures.
const FIGURES: &str = "docs/book/src/figures";

/// The studies' pictures: study, file in the report.
const PICTURES: [(&str, &str); 5] = [
    ("green-layout", "film"),
    ("pbs-tlb", "fig-12"),
    ("superpages", "time"),
    ("cl-availability", "served"),
    ("rt-runtimes", "fig-6"),
];

/// Runs the studies in their quick form and copies their pictures.
pub(crate) fn draw(shell: &Shell, metadata: &Metadata) -> Result<()> {
    let report = metadata.target_directory.join("book");
    let studies = PICTURES.map(|(study, _)| study);
    cmd!(shell, "cargo run --release -- study {studies...} --quick --out {report}").run()?;
    for (study, picture) in PICTURES {
        let from = report.join(study).join(format!("{picture}.svg"));
        let to = metadata.workspace_root.join(FIGURES).join(format!("{study}-{picture}.svg"));
        fs::copy(&from, &to).with_context(|| format!("{from} to {to}"))?;
        println!("{to}");
    }
    Ok(())
}
