//! Proof that the lower crates need no standard library.
//!
//! A crate is generated that links them into a static library with its own
//! panic handler. If any of them, or anything they depend on, links `std`,
//! there are two panic handlers and the compiler refuses; if one links `alloc`,
//! the global allocator is missing and it refuses as well. This needs no more
//! than the host's toolchain. Where a bare-metal target is installed, the same
//! crate is also built for it, and there `std` does not even exist.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

use crate::lint::rules::no_std::LOWER;

/// Those of [`LOWER`] that may use `alloc`: a model of hardware stands beside
/// the kernel, not inside, and owns its arrays; Hermit's crate of page ranges, which an example
/// takes its types from, names a list that may grow. They are proved apart, with an
/// allocator that never gives.
const ALLOCATING: &[&str] = &["swath-hw", "swath-example-kernels"];

/// Targets without an operating system, used as far as they are installed.
const BARE_METAL: &[&str] =
    &["x86_64-unknown-none", "aarch64-unknown-none", "riscv64gc-unknown-none-elf"];

const PANIC_HANDLER: &str = "\
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
";

const ALLOCATOR: &str = "\
struct Never;

// SAFETY: it hands out nothing, so nothing can come back.
unsafe impl core::alloc::GlobalAlloc for Never {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}

#[global_allocator]
static NEVER: Never = Never;
";

/// Builds those of [`LOWER`] that exist; says what was built for which targets.
pub(crate) fn check(shell: &Shell, metadata: &Metadata) -> Result<String> {
    let sysroot = cmd!(shell, "rustc --print sysroot").read()?;
    let installed =
        |target: &str| Path::new(&sysroot).join("lib/rustlib").join(target).join("lib").is_dir();
    let targets: Vec<&str> =
        BARE_METAL.iter().copied().filter(|target| installed(target)).collect();

    let mut lower = Vec::new();
    let mut allocating = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let directory = package.manifest_path.parent().context("a manifest without directory")?;
        if ALLOCATING.contains(&name) {
            allocating.push((name, directory.as_str()));
        } else if LOWER.contains(&name) {
            lower.push((name, directory.as_str()));
        }
    }
    let mut proved = Vec::new();
    for (crates, may_allocate) in [(lower, false), (allocating, true)] {
        let without = if may_allocate { "std" } else { "std and alloc" };
        prove(shell, metadata, &crates, may_allocate, &targets)
            .with_context(|| format!("{crates:?} must build without {without}"))?;
        let names: Vec<&str> = crates.iter().map(|(name, _)| *name).collect();
        proved.push(format!("{} without {without}", names.join(", ")));
    }
    let everywhere = [&["the host"], targets.as_slice()].concat().join(", ");
    Ok(format!("linked for {everywhere}: {}", proved.join("; ")))
}

fn prove(
    shell: &Shell,
    metadata: &Metadata,
    crates: &[(&str, &str)],
    may_allocate: bool,
    targets: &[&str],
) -> Result<()> {
    ensure!(!crates.is_empty(), "there is none in the workspace");
    let directory = metadata.target_directory.join("no_std").join(if may_allocate {
        "allocating"
    } else {
        "bare"
    });

    let mut manifest = String::from(
        "[package]\nname = \"no-std-proof\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         publish = false\n\n[workspace]\n\n[lib]\ncrate-type = [\"staticlib\"]\n\n\
         [profile.dev]\npanic = \"abort\"\n\n[dependencies]\n",
    );
    let mut source = format!("#![no_std]\n\n{PANIC_HANDLER}\n");
    if may_allocate {
        source.push_str(ALLOCATOR);
    }
    for (name, path) in crates {
        manifest.push_str(&format!("{name} = {{ path = {path:?} }}\n"));
        source.push_str(&format!("extern crate {};\n", name.replace('-', "_")));
    }
    shell.create_dir(directory.join("src"))?;
    shell.write_file(directory.join("Cargo.toml"), manifest)?;
    shell.write_file(directory.join("src/lib.rs"), source)?;
    // The same versions as everywhere, and no registry to ask.
    shell.copy_file(metadata.workspace_root.join("Cargo.lock"), directory.join("Cargo.lock"))?;

    let manifest = directory.join("Cargo.toml");
    let built = directory.join("target");
    let build =
        || cmd!(shell, "cargo build --quiet --manifest-path {manifest} --target-dir {built}");
    build().run()?;
    for target in targets {
        build().args(["--target", target]).run()?;
    }
    Ok(())
}
