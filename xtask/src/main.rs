//! The project's chores, as `cargo xtask CHORE`.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use xshell::{Shell, cmd};

mod bare_metal;
mod bench;
mod book;
mod boot;
mod deb;
mod emulator;
mod fuzz;
mod fuzz_program;
mod header;
mod install;
mod ledger;
mod lint;
mod linux;
mod mutants;
mod reproducible;
mod results;
mod rtl;
mod rtl_cost;
mod soundness;
mod test;
mod verdicts;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's chores")]
struct Chores {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Every test: unit, integration and documentation, then the model checks.
    /// Its last line is `N passed, N failed`.
    Test,
    /// Everything that must hold of the text: format, clippy, links of the
    /// documentation, `no_std`, and the rules of this project.
    Lint {
        /// Only the rules of this project, which takes seconds.
        #[arg(long)]
        rules: bool,
    },
    /// The gates on instruction counts and the races against rivals; the heaps'
    /// worst calls; whole programs on other allocators; buffers that are registered.
    Bench {
        /// Which of them; all if none is named.
        #[arg(value_parser = ["gates", "rivals", "heap", "churn", "programs", "registered-buffers"])]
        which: Vec<String>,
    },
    /// Changes the code of a file, one operator or value at a time, and says which changes no
    /// test of its crate finds; needs cargo-mutants. Hours for a large file without `--sample`.
    Mutants(mutants::Choice),
    /// Attacks parsers and structures under a coverage-guided fuzzer; what it finds is stored as a
    /// regression case in fuzz/corpus.
    Fuzz(fuzz::Attack),
    /// Runs under the tools that watch for undefined behaviour: Miri with both models of
    /// borrows, the sanitizers of threads and addresses, the model checker.
    Soundness {
        /// Which of them; all if none is named.
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(soundness::names()))]
        parts: Vec<String>,
    },
    /// Boots the kernel in kernel/ under an emulator; says which machines could not be run.
    Boot {
        /// Which of them; all if none is named.
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(boot::names()))]
        machines: Vec<String>,
    },
    /// Builds the Linux module in linux/ for a kernel of the distribution's, and tries it in a guest under an
    /// emulator.
    Linux(linux::Trial),
    /// Lints the hardware in rtl/, simulates it beside the models, synthesises it, and proves it; says what
    /// could not be run.
    Rtl(rtl::Choice),
    /// Builds the C library for kernels, and sees that no instruction in it uses a vector register or
    /// memory below the stack pointer.
    Freestanding {
        /// For which targets; all that can be built here if none is named.
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(bare_metal::targets()))]
        targets: Vec<String>,
    },
    /// Writes include/swath.h, the C header, anew.
    Header,
    /// Builds the C libraries and installs them with header, pkg-config file and
    /// CMake package.
    Install {
        /// Below which directory.
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
    },
    /// Builds packages for Debian of the program and of the C library, unpacks each and tries it.
    Deb {
        /// Into which folder.
        #[arg(long, default_value = "target/deb")]
        out: PathBuf,
    },
    /// Builds what is committed in two directories and compares the programs and libraries,
    /// byte for byte; takes two release builds.
    Reproducible,
    /// Draws the pictures of README and of the book anew: some studies in their quick form.
    Book,
    /// Runs the studies and says where the page is.
    Report {
        /// What `swath study` shall be told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Keeps the results of full forms in results/: the tables and claims of reports, and a page
    /// with every claim beside its verdict.
    Results {
        /// Folders that `swath study NAME --out DIR` wrote; if none is named, the page is compared
        /// with what is kept.
        reports: Vec<PathBuf>,
    },
    /// Runs studies with many fresh seeds and lists each claim whose verdict changes. The full
    /// form, unless told otherwise: minutes to hours for each seed.
    Verdicts(verdicts::Seeds),
}

fn main() -> Result<()> {
    let shell = Shell::new()?;
    let metadata = cargo_metadata::MetadataCommand::new().exec().context("cargo metadata")?;
    shell.change_dir(&metadata.workspace_root);
    match Chores::parse().chore {
        Chore::Test => test::test(&metadata),
        Chore::Lint { rules: false } => lint::lint(&shell, &metadata),
        Chore::Lint { rules: true } => {
            println!("linted: {}", lint::check_rules(&metadata)?);
            Ok(())
        }
        Chore::Bench { which } => bench::bench(&shell, &which),
        Chore::Mutants(choice) => mutants::mutants(&shell, &metadata, &choice),
        Chore::Fuzz(attack) => fuzz::fuzz(&metadata, &attack),
        Chore::Soundness { parts } => soundness::soundness(&metadata, &parts),
        Chore::Boot { machines } => boot::boot(&metadata, &machines),
        Chore::Linux(trial) => linux::run(&metadata, &trial),
        Chore::Rtl(choice) => rtl::rtl(&metadata, &choice),
        Chore::Freestanding { targets } => bare_metal::freestanding(&metadata, &targets),
        Chore::Header => header::write(&shell, &metadata),
        Chore::Install { prefix } => {
            // A path of the caller's, who may stand elsewhere.
            install::install(&shell, &metadata, &std::path::absolute(prefix)?)
        }
        Chore::Deb { out } => deb::build(&shell, &metadata, &std::path::absolute(out)?),
        Chore::Reproducible => reproducible::check(&shell),
        Chore::Book => book::draw(&shell, &metadata),
        Chore::Report { args } => report(&shell, &metadata, &args),
        Chore::Results { reports } if reports.is_empty() => results::check(&metadata),
        Chore::Results { reports } => results::keep(&metadata, &reports),
        Chore::Verdicts(seeds) => verdicts::verdicts(&shell, &metadata, &seeds),
    }
}

fn report(shell: &Shell, metadata: &cargo_metadata::Metadata, args: &[String]) -> Result<()> {
    cmd!(shell, "cargo run --release -- study {args...}").run()?;
    let out = match args.iter().position(|arg| arg == "--out") {
        Some(at) => args.get(at + 1).context("--out without a directory")?.as_str(),
        None => args.iter().find_map(|arg| arg.strip_prefix("--out=")).unwrap_or("report"),
    };
    let page = metadata.workspace_root.join(out).join("index.html");
    ensure!(page.is_file(), "the studies ended well but left no page at {page}");
    println!("the report is at {page}");
    Ok(())
}
