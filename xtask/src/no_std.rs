//! Proof that the lower crates need no standard library.
//!
//! A crate is generated that links all of them into a static library with its
//! own panic handler. If any of them, or anything they depend on, links `std`,
//! there are two panic handlers and the compiler refuses; if one links `alloc`,
//! the global allocator is missing and it refuses as well. This needs no more
//! than the host's toolchain. Where a bare-metal target is installed, the same
//! crate is also built for it, and there `std` does not even exist.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

/// The crates that a kernel links.
pub(crate) const LOWER: &[&str] =
    &["swath-arch", "swath-frame", "swath-vm", "swath-heap", "swath-hw"];

/// Targets without an operating system, used as far as they are installed.
const BARE_METAL: &[&str] =
    &["x86_64-unknown-none", "aarch64-unknown-none", "riscv64gc-unknown-none-elf"];

/// Builds those of [`LOWER`] that exist; says what was built for which targets.
pub(crate) fn check(shell: &Shell, metadata: &Metadata) -> Result<String> {
    let crates: Vec<(String, String)> = metadata
        .workspace_packages()
        .iter()
        .filter(|package| LOWER.contains(&package.name.as_str()))
        .filter_map(|package| {
            Some((package.name.to_string(), package.manifest_path.parent()?.to_string()))
        })
        .collect();
    ensure!(!crates.is_empty(), "none of the crates {LOWER:?} is in the workspace");

    let directory = metadata.target_directory.join("no_std");
    generate(shell, directory.as_std_path(), &crates)?;
    // The same versions as everywhere, and no registry to ask.
    shell.copy_file(metadata.workspace_root.join("Cargo.lock"), directory.join("Cargo.lock"))?;

    let manifest = directory.join("Cargo.toml");
    let built = directory.join("target");
    cmd!(shell, "cargo build --quiet --manifest-path {manifest} --target-dir {built}")
        .run()
        .context("a lower crate uses std or alloc")?;
    let mut targets = vec!["the host"];
    let sysroot = cmd!(shell, "rustc --print sysroot").read()?;
    for target in BARE_METAL {
        if !Path::new(&sysroot).join("lib/rustlib").join(target).join("lib").is_dir() {
            continue;
        }
        cmd!(
            shell,
            "cargo build --quiet --manifest-path {manifest} --target-dir {built} --target {target}"
        )
        .run()
        .with_context(|| format!("a lower crate does not build for {target}"))?;
        targets.push(target);
    }
    let names: Vec<&str> = crates.iter().map(|(name, _)| name.as_str()).collect();
    Ok(format!("{} link without std for {}", names.join(", "), targets.join(", ")))
}

fn generate(shell: &Shell, directory: &Path, crates: &[(String, String)]) -> Result<()> {
    let mut manifest = String::from(
        "[package]\nname = \"no-std-proof\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         publish = false\n\n[workspace]\n\n[lib]\ncrate-type = [\"staticlib\"]\n\n\
         [profile.dev]\npanic = \"abort\"\n\n[dependencies]\n",
    );
    let mut source = String::from(
        "#![no_std]\n\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo<'_>) -> ! {\n    \
         loop {}\n}\n\n",
    );
    for (name, path) in crates {
        // A literal string of TOML cannot hold a quote, so escape by debug.
        manifest.push_str(&format!("{name} = {{ path = {path:?} }}\n"));
        source.push_str(&format!("extern crate {};\n", name.replace('-', "_")));
    }
    shell.create_dir(directory.join("src"))?;
    shell.write_file(directory.join("Cargo.toml"), manifest)?;
    shell.write_file(directory.join("src/lib.rs"), source)?;
    Ok(())
}
