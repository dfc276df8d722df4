//! What must hold of the source files, and can be read off them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, TargetKind};

use crate::no_std;

/// Crates whose every root forbids unsafe code.
const SAFE: &[&str] =
    &["swath-arch", "swath-frame", "swath-vm", "swath-hw", "swath-preload", "swath-py", "xtask"];
/// A longer file wants to be two.
const LINES_MAX: usize = 700;
/// Names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "misc"];

/// What was found: breaches fail the lint, warnings are only told.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Findings {
    pub(crate) breaches: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn read(metadata: &Metadata) -> Result<Findings> {
    let mut findings = Findings::default();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        for target in &package.targets {
            let text = std::fs::read_to_string(&target.src_path)
                .with_context(|| target.src_path.to_string())?;
            let is_program = target.kind.contains(&TargetKind::Bin);
            let is_library = target.kind.iter().any(|kind| {
                matches!(kind, TargetKind::Lib | TargetKind::CDyLib | TargetKind::StaticLib)
            });
            let mut wanted = Vec::new();
            if SAFE.contains(&name) && (is_program || is_library) {
                wanted.push("#![forbid(unsafe_code)]");
            }
            if no_std::LOWER.contains(&name) && is_library {
                wanted.push("#![no_std]");
            }
            for attribute in wanted {
                if !has_attribute(&text, attribute) {
                    let line = format!("{} lacks the line {attribute}", target.src_path);
                    findings.breaches.push(line);
                }
            }
        }
        let directory = package.manifest_path.parent().context("a manifest without directory")?;
        let mut files = Vec::new();
        rust_files(directory.as_std_path(), &mut files)?;
        for path in files {
            let text =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            look_at(&path, &text, &mut findings);
        }
    }
    Ok(findings)
}

/// Whether the attribute stands in a line of its own, for every build.
fn has_attribute(text: &str, attribute: &str) -> bool {
    text.lines().any(|line| line == attribute)
}

fn look_at(path: &Path, text: &str, findings: &mut Findings) {
    let lines = text.lines().count();
    if lines >= LINES_MAX {
        let line = format!("{} has {lines} lines (below {LINES_MAX} is wanted)", path.display());
        findings.warnings.push(line);
    }
    for line in text.lines() {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        if words.next() != Some("mod") {
            continue;
        }
        let name = words.next().unwrap_or_default().trim_end_matches([';', '{', '}']);
        if EMPTY_NAMES.contains(&name) {
            let line = format!("{}: the name of `mod {name}` says nothing", path.display());
            findings.breaches.push(line);
        }
    }
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                rust_files(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn an_attribute_counts_only_when_unconditional() {
        let attribute = "#![no_std]";
        assert!(has_attribute("//! Text.\n\n#![no_std]\n", attribute));
        assert!(!has_attribute("#![cfg_attr(not(test), no_std)]\n", attribute));
        assert!(!has_attribute("//! `#![no_std]`\n// #![no_std]\n", attribute));
    }

    #[test]
    fn empty_names_are_found_and_long_files_are_told() {
        let mut findings = Findings::default();
        look_at(
            Path::new("a.rs"),
            "mod utils;\npub(crate) mod common {\n}\nmod commons;\n",
            &mut findings,
        );
        assert_eq!(
            findings.breaches,
            [
                "a.rs: the name of `mod utils` says nothing",
                "a.rs: the name of `mod common` says nothing"
            ]
        );
        assert_eq!(findings.warnings, [""; 0]);
        look_at(Path::new("b.rs"), &"\n".repeat(LINES_MAX), &mut findings);
        assert_eq!(findings.warnings, ["b.rs has 700 lines (below 700 is wanted)"]);
    }
}
