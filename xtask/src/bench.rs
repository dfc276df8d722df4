//! The benchmarks, which the default build leaves out.

use anyhow::Result;
use xshell::{Shell, cmd};

/// The crate with the peers to compare against.
pub(crate) const BENCH: &str = "swath-bench";

/// Runs the benchmarks named, all without a name.
pub(crate) fn bench(shell: &Shell, which: &[String]) -> Result<()> {
    let all =
        ["gates", "rivals", "heap", "churn", "programs", "registered-buffers"].map(str::to_owned);
    for name in if which.is_empty() { &all } else { which } {
        cmd!(shell, "cargo run --release -p {BENCH} -- {name}").run()?;
    }
    Ok(())
}
