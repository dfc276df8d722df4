//! The C library as an object for a kernel's address space.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use cargo_metadata::Metadata;

use super::command::{printed, run_well};
use crate::bare_metal::Toolchain;

/// The target of bare metal that kernels of this processor are nearest to.
const TARGET: &str = "x86_64-unknown-none";

/// What code in this kernel is built with: its place in the address space, its mitigations, and calls
/// that its loader of modules can bind.
const FLAGS: &str = "-Crelocation-model=static -Ccode-model=kernel -Cjump-tables=no -Zplt=yes \
    -Zfunction-return=thunk-extern -Zcf-protection=branch -Zretpoline -Zretpoline-external-thunk";

/// A kernel's stack has 16 KiB; half of that is for who calls.
const FRAME_BYTES_MAX: u64 = 2048;

/// What is built of the C library.
pub(super) struct Built {
    /// What the module calls of it, for a kernel's address space.
    pub(super) object: PathBuf,
    /// All of it, for a program.
    pub(super) hosted: PathBuf,
}

impl Built {
    /// Builds both; the inner result says what this machine lacks.
    pub(super) fn new(metadata: &Metadata, room: &Path) -> Result<Result<Self, String>> {
        let toolchain = match Toolchain::from_source(TARGET) {
            Ok(toolchain) => toolchain,
            Err(lack) => return Ok(Err(lack)),
        };
        let root = metadata.workspace_root.as_std_path();
        Ok(Ok(Self { object: library(root, room, &toolchain)?, hosted: hosted(metadata)? }))
    }
}

/// Makes one object of what the module calls of the C library, for a kernel's address space.
fn library(root: &Path, room: &Path, toolchain: &Toolchain) -> Result<PathBuf> {
    let status = toolchain
        .cargo_with("rustc", root, FLAGS)
        .args(["-p", "swath-ffi", "--profile", "freestanding", "--no-default-features"])
        .args(["--crate-type", "staticlib", "--quiet", "--target-dir"])
        .arg(room)
        .status()?;
    ensure!(status.success(), "the library does not build for a kernel");
    let archive = room.join(TARGET).join("freestanding/libswath.a");
    let ours = room.join("libswath.a");
    fs::copy(&archive, &ours)?;
    // The kernel has `memcpy` and its kin.
    for member in printed(Command::new("ar").arg("t").arg(&ours))?.lines() {
        if member.contains("compiler_builtins") {
            run_well(Command::new("ar").arg("d").arg(&ours).arg(member))?;
        }
    }
    let called = fs::read_to_string(root.join("linux/heap/policy.c"))?;
    let defined = printed(Command::new("nm").args(["--defined-only", "--quiet"]).arg(&ours))?;
    let mut symbols = Vec::new();
    for line in defined.lines() {
        if let Some((_, name)) = line.split_once(" T ")
            && called.contains(&format!("{name}("))
        {
            symbols.push(name.to_owned());
        }
    }
    ensure!(!symbols.is_empty(), "the library has nothing that the module calls");
    let whole = room.join("whole.o");
    let mut link = Command::new("ld");
    link.args(["-r", "--gc-sections"]);
    for symbol in &symbols {
        link.args(["-u", symbol]);
    }
    run_well(link.arg("-o").arg(&whole).arg(&ours))?;
    let object = room.join("libswath.o_shipped");
    let mut keep = Command::new("objcopy");
    keep.args(["--strip-debug", "--remove-section=.eh_frame", "--remove-section=.comment"]);
    for symbol in &symbols {
        keep.arg(format!("--keep-global-symbol={symbol}"));
    }
    run_well(keep.arg(&whole).arg(&object))?;
    examine(&object)?;
    Ok(object)
}

/// Builds the C library for a program.
fn hosted(metadata: &Metadata) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--quiet", "-p", "swath-ffi"]);
    run_well(build.current_dir(&metadata.workspace_root))?;
    Ok(metadata.target_directory.join("release/libswath.a").into_std_path_buf())
}

/// Looks at the object's instructions: stack frames that a kernel has no room for.
fn examine(object: &Path) -> Result<()> {
    let text = printed(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(object))?;
    let mut function = String::new();
    let mut bytes = 0;
    for line in text.lines() {
        if let Some(head) = line.strip_suffix(">:") {
            function = head.split('<').nth(1).unwrap_or(head).to_owned();
            bytes = 0;
        } else if let Some(amount) =
            line.split_once("sub ").and_then(|(_, operands)| taken(operands.trim_start()))
        {
            // A large frame is taken a page at a time.
            bytes += amount;
            ensure!(bytes <= FRAME_BYTES_MAX, "{function} takes {bytes} bytes of a kernel's stack");
        }
    }
    Ok(())
}

/// Returns how much of the stack `sub` with these operands takes.
fn taken(operands: &str) -> Option<u64> {
    let amount = operands.strip_prefix("$0x")?.strip_suffix(",%rsp")?;
    u64::from_str_radix(amount, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::taken;

    #[test]
    fn a_stack_frame_is_read() {
        assert_eq!(taken("$0x1c8,%rsp"), Some(0x1c8));
        assert_eq!(taken("$0x1c8,%rax"), None);
        assert_eq!(taken("%rcx,%rsp"), None);
    }
}
