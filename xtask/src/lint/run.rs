//! Everything that must hold of the text.

use anyhow::{Context, Result, bail};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

use crate::bench::BENCH;
use crate::fuzz_program::FUZZ;
use crate::header;
use crate::lint::proof;
use crate::lint::rules::{
    circles, documentation, folders, layers, licences, manifests, names, no_std, papers, readmes,
    rooms, unsafe_code, words,
};
use crate::lint::tree::Tree;

/// Finds the breaches of one rule, one line each; none means that all is well.
type Rule = fn(&Tree) -> Vec<String>;

/// Every rule, with the name under which its breaches are told.
const RULES: &[(&str, Rule)] = &[
    ("rooms", rooms::breaches),
    ("layers", layers::breaches),
    ("circles", circles::breaches),
    ("folders", folders::breaches),
    ("names", names::breaches),
    ("unsafe code", unsafe_code::breaches),
    ("no_std", no_std::breaches),
    ("documentation", documentation::breaches),
    ("readmes", readmes::breaches),
    ("papers", papers::breaches),
    ("words", words::breaches),
    ("manifests", manifests::breaches),
    ("licences", licences::breaches),
];

/// Cargo's subcommands that are not everywhere: the arguments with which each is run.
const WHERE_INSTALLED: &[(&str, &[&str])] = &[
    // Advisories are left out: they would want the network, and change from day to day.
    ("deny", &["check", "bans", "licenses", "sources"]),
    (
        "semver-checks",
        &["--workspace", "--exclude", BENCH, "--exclude", FUZZ, "--exclude", "xtask"],
    ),
];

/// Checks format, rules, the C header, `no_std`, clippy and documentation, the quick ones first.
pub(crate) fn lint(shell: &Shell, metadata: &Metadata) -> Result<()> {
    cmd!(shell, "cargo fmt --all --check").run().context("run cargo fmt")?;
    let checked = check_rules(metadata)?;
    header::check(shell, metadata)?;
    crate::results::check(metadata)?;
    let no_std = proof::check(shell, metadata)?;
    cmd!(shell, "cargo clippy --workspace --all-targets -- -D warnings").run()?;
    cmd!(shell, "cargo doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings").run()?;
    let packed = packages(shell, metadata)?;
    let oldest = oldest_toolchain(shell, metadata)?;
    let more = subcommands(shell)?;

    println!(
        "linted: format, {checked}, the C header; {no_std}; clippy, documentation, {packed}{oldest}{more}"
    );
    Ok(())
}

/// Packs what is published, as the registry would get it, without building it from there.
fn packages(shell: &Shell, metadata: &Metadata) -> Result<String> {
    let public: Vec<&str> = metadata
        .workspace_packages()
        .iter()
        .filter(|package| package.publish.as_ref().is_none_or(|registries| !registries.is_empty()))
        .map(|package| package.name.as_str())
        .collect();
    let named = public.iter().flat_map(|name| ["-p", name]);
    cmd!(shell, "cargo package --quiet --offline --no-verify --allow-dirty {named...}").run()?;
    Ok(format!("{} packages", public.len()))
}

/// Checks the libraries with the oldest toolchain that they promise to build with, if that is
/// installed; where it is not, clippy's `incompatible_msrv` alone watches over the promise.
fn oldest_toolchain(shell: &Shell, metadata: &Metadata) -> Result<String> {
    let packages = metadata.workspace_packages();
    let Some(version) = packages.iter().filter_map(|package| package.rust_version.as_ref()).min()
    else {
        return Ok(String::new());
    };
    let toolchains = cmd!(shell, "rustup toolchain list").quiet().ignore_stderr().read();
    let wanted = format!("{}.{}", version.major, version.minor);
    let installed = toolchains.unwrap_or_default();
    let Some(toolchain) = toolchain_of(&installed, &wanted) else {
        eprintln!("warning: Rust {wanted} is not installed and was not tried");
        return Ok(format!("; not tried with Rust {wanted}, which is not installed"));
    };
    let newer: Vec<String> = packages
        .iter()
        .filter(|package| package.rust_version.as_ref() != Some(version))
        .flat_map(|package| ["--exclude".to_owned(), package.name.to_string()])
        .collect();
    let target = metadata.target_directory.join("oldest");
    cmd!(shell, "rustup run {toolchain} cargo check --workspace {newer...} --target-dir {target}")
        .run()?;
    Ok(format!(", Rust {wanted}"))
}

/// The toolchain of a release such as 1.89 in the lines of `rustup toolchain list`: it is named
/// `1.89-HOST` or `1.89.0-HOST`, as it was asked for.
fn toolchain_of<'l>(list: &'l str, release: &str) -> Option<&'l str> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let mut names = names.filter(|name| {
        let rest = name.strip_prefix(release);
        rest.is_some_and(|rest| rest.starts_with(['-', '.']))
    });
    names.next()
}

/// Checks the rules alone, which takes a second; says what was checked.
pub(crate) fn check_rules(metadata: &Metadata) -> Result<String> {
    let tree = Tree::read(metadata)?;
    for warning in folders::warnings(&tree) {
        eprintln!("warning: {warning}");
    }
    let mut breaches = Vec::new();
    for (name, rule) in RULES {
        breaches.extend(rule(&tree).into_iter().map(|breach| format!("{name}: {breach}")));
    }
    if !breaches.is_empty() {
        bail!("{} breaches:\n  {}", breaches.len(), breaches.join("\n  "));
    }
    Ok(format!(
        "{} rules on {} crates and {} files",
        RULES.len(),
        tree.crates.len(),
        tree.files.len()
    ))
}

/// Runs those of [`WHERE_INSTALLED`] that are; says aloud which are not.
fn subcommands(shell: &Shell) -> Result<String> {
    let mut told = String::new();
    for &(name, args) in WHERE_INSTALLED {
        let is_installed =
            cmd!(shell, "cargo {name} --version").quiet().ignore_stdout().ignore_stderr().run();
        if is_installed.is_ok() {
            cmd!(shell, "cargo {name} {args...}").run()?;
            told.push_str(&format!(", cargo {name}"));
        } else {
            eprintln!("warning: cargo {name} is not installed and was not run");
            told.push_str(&format!("; without cargo {name}, which is not installed"));
        }
    }
    Ok(told)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_release_is_found_by_either_name() {
        let list = "stable-host (active, default)\n1.8-host\n1.890-host\n1.89-host\n1.88.0-host\n";
        assert_eq!(toolchain_of(list, "1.89"), Some("1.89-host"));
        assert_eq!(toolchain_of(list, "1.88"), Some("1.88.0-host"));
        assert_eq!(toolchain_of(list, "1.87"), None);
    }

    #[test]
    fn the_workspace_itself_is_read() {
        let metadata = cargo_metadata::MetadataCommand::new().exec().expect("cargo metadata");
        let tree = Tree::read(&metadata).expect("the workspace's files");
        let xtask = tree.crates.iter().find(|package| package.name == "xtask").expect("xtask");
        assert_eq!(xtask.directory, "xtask");
        assert!(!xtask.is_public && !xtask.roots[0].is_library, "{xtask:?}");
        assert!(tree.edges.iter().any(|edge| edge.from == "swath-lab" && edge.to == "swath-frame"));
        assert!(tree.file("xtask/src/lint/run.rs").is_some());
        assert!(tree.files.iter().all(|file| !file.path.starts_with("target/")));
    }
}
