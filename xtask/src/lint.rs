//! Everything that must hold of the text.

use anyhow::{Context, Result, bail};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

use crate::{header, layering, no_std, sources};

pub(crate) fn lint(shell: &Shell, metadata: &Metadata) -> Result<()> {
    // The quick ones first.
    cmd!(shell, "cargo fmt --all --check").run().context("run cargo fmt")?;

    let (crates, edges) = layering::graph(metadata);
    let mut breaches = layering::breaches(&crates, &edges);
    let findings = sources::read(metadata)?;
    breaches.extend(findings.breaches);
    for warning in &findings.warnings {
        eprintln!("warning: {warning}");
    }
    if !breaches.is_empty() {
        bail!("{} breaches:\n  {}", breaches.len(), breaches.join("\n  "));
    }

    header::check(shell, metadata)?;
    let no_std = no_std::check(shell, metadata)?;
    cmd!(shell, "cargo clippy --workspace --all-targets -- -D warnings").run()?;
    cmd!(shell, "cargo doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings").run()?;

    println!(
        "linted: format, {} crates and {} edges between them, unsafe code, names, the C header; {no_std}; \
         clippy, documentation",
        crates.len(),
        edges.len()
    );
    Ok(())
}
