//! Builds for machines without an operating system, by what is installed: a target of the default
//! toolchain, its sources (`rust-src`), or another `rustc` with its sources, as distributions pack them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

/// The oldest compiler that takes the crates: their `rust-version`.
const MINOR_MIN: u32 = 89;

/// Where distributions put their compiler (Debian: `rustc-web` and `rust-web-src`).
const PACKAGED: &str = "/usr/bin/rustc";

/// A way to build for a target.
pub(crate) struct Toolchain {
    target: &'static str,
    /// Builds `core` from its sources.
    from_source: bool,
    /// A compiler other than the default one.
    compiler: Option<&'static str>,
    linker: PathBuf,
}

/// Returns the first line that a command prints, if it ends well.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

fn has_sources(sysroot: &str) -> bool {
    Path::new(sysroot).join("lib/rustlib/src/rust/library/core").is_dir()
}

/// Returns the second number of what `rustc --version` says.
fn minor(version: &str) -> Option<u32> {
    version.split(' ').nth(1)?.split('.').nth(1)?.parse().ok()
}

/// Returns the distribution's compiler, if it is new enough and its sources are there: with
/// `RUSTC_BOOTSTRAP` it builds its own library, as its makers do.
pub(crate) fn packaged() -> Option<&'static str> {
    let sysroot = said(PACKAGED, &["--print", "sysroot"])?;
    let minor = minor(&said(PACKAGED, &["--version"])?)?;
    (has_sources(&sysroot) && minor >= MINOR_MIN).then_some(PACKAGED)
}

impl Toolchain {
    /// Finds a way to build for the target; the error says what is to be installed.
    pub(crate) fn find(target: &'static str) -> Result<Self, String> {
        let sysroot = said("rustc", &["--print", "sysroot"]).ok_or("no rustc runs")?;
        let host = said("rustc", &["--print", "host-tuple"]).ok_or("rustc names no host")?;
        let own = Path::new(&sysroot).join("lib/rustlib");
        let linker = [own.join(host).join("bin/rust-lld"), "/usr/bin/ld.lld".into()];
        let linker = linker.into_iter().find(|linker| linker.is_file());
        let linker = linker.ok_or("neither the toolchain has rust-lld nor the system ld.lld")?;
        let (from_source, compiler) = if own.join(target).join("lib").is_dir() {
            (false, None)
        } else if has_sources(&sysroot) {
            (true, None)
        } else {
            if packaged().is_none() {
                return Err(format!(
                    "needs `rustup target add {target}`, or `rustup component add rust-src`, or a \
                     packaged compiler with its sources (Debian: rustc-web and rust-web-src)"
                ));
            }
            (true, Some(PACKAGED))
        };
        Ok(Self { target, from_source, compiler, linker })
    }

    /// Finds a way to build for the target with a `core` from its sources, so that a build's flags hold
    /// for that, too.
    pub(crate) fn from_source(target: &'static str) -> Result<Self, String> {
        let mut found = Self::find(target)?;
        if !found.from_source {
            let sysroot = said("rustc", &["--print", "sysroot"]).ok_or("no rustc runs")?;
            found.from_source = true;
            found.compiler = if has_sources(&sysroot) { None } else { packaged() };
            if found.compiler.is_none() && !has_sources(&sysroot) {
                return Err(
                    "needs `rustup component add rust-src`, or a packaged compiler with its \
                            sources (Debian: rustc-web and rust-web-src)"
                        .to_owned(),
                );
            }
        }
        Ok(found)
    }

    /// Returns cargo with the words of a build for the target, such as `build` or `rustc`.
    pub(crate) fn cargo(&self, word: &str, directory: &Path) -> Command {
        self.cargo_with(word, directory, "")
    }

    /// Returns cargo as [`cargo`](Self::cargo) does, with more flags for the compiler.
    pub(crate) fn cargo_with(&self, word: &str, directory: &Path, flags: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(directory).args([word, "--target", self.target]);
        if self.from_source {
            // `-Z` on a stable compiler: it builds its own `core`, as its makers do.
            cargo.arg("-Zbuild-std=core").env("RUSTC_BOOTSTRAP", "1");
        }
        if let Some(compiler) = self.compiler {
            cargo.env("RUSTC", compiler);
        }
        let linker = self.linker.display();
        cargo.env("RUSTFLAGS", format!("-Clinker={linker} -Clinker-flavor=ld.lld {flags}"));
        cargo
    }
}

/// An architecture's freestanding library, and what must not stand in its code.
struct Library {
    target: &'static str,
    /// What disassembles it.
    objdump: &'static str,
    /// The registers of vectors and floating point in its assembler.
    vectors: fn(&str) -> bool,
    /// A use of memory below the stack pointer, which an interrupt would overwrite.
    red_zone: fn(&str) -> bool,
}

const LIBRARIES: &[Library] = &[
    Library {
        target: "x86_64-unknown-none",
        objdump: "objdump",
        vectors: |operands| {
            ["%xmm", "%ymm", "%zmm", "%mm", "%st"].iter().any(|r| operands.contains(r))
        },
        red_zone: |operands| operands.contains("(%rsp") && below(operands, "(%rsp"),
    },
    Library {
        target: "aarch64-unknown-none-softfloat",
        objdump: "aarch64-linux-gnu-objdump",
        vectors: |operands| registers(operands, "vqdshb"),
        // Its procedure call standard has none.
        red_zone: |operands| operands.contains("[sp, #-") && !operands.ends_with('!'),
    },
    Library {
        target: "armv7a-none-eabi",
        objdump: "arm-none-eabi-objdump",
        vectors: |operands| registers(operands, "qds"),
        red_zone: |operands| operands.contains("[sp, #-") && !operands.ends_with('!'),
    },
    Library {
        target: "riscv64gc-unknown-none-elf",
        objdump: "riscv64-linux-gnu-objdump",
        // Of the vector extension; those of floating point are in the target's ABI.
        vectors: |operands| registers(operands, "v"),
        red_zone: |operands| operands.contains("(sp)") && below(operands, "(sp)"),
    },
];

/// Returns true if a displacement before `base` is negative.
fn below(operands: &str, base: &str) -> bool {
    operands.split(base).next().is_some_and(|before| {
        before.rsplit([',', ' ', '\t']).next().is_some_and(|offset| offset.starts_with('-'))
    })
}

/// Returns operands without comments, and without a branch's target: an address in hexadecimal digits
/// that stands before its name in angles, and looks like a register (`d8 <name>`).
fn without_names(operands: &str) -> &str {
    let Some(at) = operands.find(['<', '#', ';']) else { return operands.trim() };
    let before = operands[..at].trim();
    if operands[at..].starts_with('<') {
        return before.rsplit_once([' ', ',', '\t']).map_or("", |(before, _)| before);
    }
    before
}

/// Returns true if an operand is a register: one of these letters and a number.
fn registers(operands: &str, letters: &str) -> bool {
    let words = operands.split(|c: char| !c.is_ascii_alphanumeric());
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    words.into_iter().any(|word| {
        word.chars().next().is_some_and(|first| letters.contains(first)) && is_number(&word[1..])
    })
}

/// Builds `libswath.a` for kernels of the targets named, or of all that can be built here, and looks
/// at every instruction. The last line says how many passed, failed and were not built.
///
/// # Errors
/// A library that failed, or nothing that could be built.
pub(crate) fn freestanding(metadata: &Metadata, named: &[String]) -> Result<()> {
    let wanted = |library: &&Library| named.is_empty() || named.iter().any(|n| n == library.target);
    let (mut passed, mut failed, mut left) = (0, 0, 0);
    for library in LIBRARIES.iter().filter(wanted) {
        let target = library.target;
        let lack = if said(library.objdump, &["--version"]).is_none() {
            Some(format!("needs {}", library.objdump))
        } else {
            None
        };
        match lack.map_or_else(|| Toolchain::find(target), Err) {
            Err(lack) => {
                left += 1;
                println!("{target}: not built, {lack}");
            }
            Ok(toolchain) => match examine(metadata, library, &toolchain) {
                Ok((file, instructions)) => {
                    passed += 1;
                    println!("{target}: {}, {instructions} instructions", file.display());
                }
                Err(error) => {
                    failed += 1;
                    println!("{target}: failed, {error:#}");
                }
            },
        }
    }
    println!("{passed} passed, {failed} failed, {left} not built");
    ensure!(failed == 0, "a library for kernels is not safe in one");
    ensure!(passed > 0, "no library for kernels could be built here");
    Ok(())
}

/// Names of the targets.
pub(crate) fn targets() -> impl Iterator<Item = &'static str> {
    LIBRARIES.iter().map(|library| library.target)
}

/// Builds `libswath.a` for a kernel; returns the file.
///
/// # Errors
/// If it does not build.
pub(crate) fn build_library(metadata: &Metadata, toolchain: &Toolchain) -> Result<PathBuf> {
    let room = metadata.target_directory.join("freestanding").into_std_path_buf();
    let profile = ["-p", "swath-ffi", "--profile", "freestanding", "--no-default-features"];
    let status = toolchain
        .cargo("rustc", metadata.workspace_root.as_std_path())
        .args(profile)
        .args(["--crate-type", "staticlib", "--quiet", "--target-dir"])
        .arg(&room)
        .status()?;
    ensure!(status.success(), "it does not build");
    Ok(room.join(toolchain.target).join("freestanding/libswath.a"))
}

/// Builds and disassembles a library; returns the file and the number of its instructions.
fn examine(
    metadata: &Metadata,
    library: &Library,
    toolchain: &Toolchain,
) -> Result<(PathBuf, usize)> {
    let file = build_library(metadata, toolchain)?;
    let output =
        Command::new(library.objdump).args(["-d", "--no-show-raw-insn"]).arg(&file).output();
    let output = output.with_context(|| library.objdump.to_owned())?;
    ensure!(output.status.success(), "{} fails", library.objdump);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut count = 0;
    let mut function = "";
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:") {
            function = name.split('<').nth(1).unwrap_or(name);
        }
        // "  address:\tmnemonic operands"
        let Some((_, instruction)) = line.split_once(":\t") else { continue };
        count += 1;
        let operands = instruction.split_once([' ', '\t']).map_or("", |(_, operands)| operands);
        let operands = without_names(operands);
        if (library.vectors)(operands) {
            bail!("{function} uses a vector register: {instruction}");
        }
        if (library.red_zone)(operands) {
            bail!("{function} uses memory below the stack pointer: {instruction}");
        }
    }
    ensure!(count > 0, "{} shows no instruction", library.objdump);
    Ok((file, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_no_register() {
        for (operands, left) in [
            ("x8, d8 <core::fmt::pad+0xd8>", "x8,"),
            ("d8 <it>", ""),
            ("d8, d9", "d8, d9"),
            ("0x10(%rip),%rax  # d8 <it>", "0x10(%rip),%rax"),
            ("x0, [x1]  ; it", "x0, [x1]"),
        ] {
            assert_eq!(without_names(operands), left, "{operands}");
        }
    }

    #[test]
    fn what_must_not_stand_in_a_kernel_is_seen() {
        let [x86, aarch64, arm, riscv] = LIBRARIES else { panic!("a target without a case") };
        assert!((x86.vectors)("%xmm0,0x10(%rdi)") && !(x86.vectors)("%rax,0x10(%rdi)"));
        assert!((x86.red_zone)("%rax,-0x8(%rsp)") && (x86.red_zone)("-0x18(%rsp,%rax,8),%rcx"));
        assert!(!(x86.red_zone)("%rax,0x8(%rsp)") && !(x86.red_zone)("-0x8(%rbp),%rax"));
        assert!((aarch64.vectors)("q0, [x0]") && (aarch64.vectors)("v1.16b, v2.16b, v3.16b"));
        assert!(!(aarch64.vectors)("x0, [x1, x2]"));
        assert!((arm.vectors)("d16, [r0]") && !(arm.vectors)("r0, [r1]"));
        assert!((riscv.vectors)("v8,(a0)") && !(riscv.vectors)("a0,-8(a1)"));
        assert!((riscv.red_zone)("ra,-8(sp)") && !(riscv.red_zone)("ra,8(sp)"));
    }

    #[test]
    fn a_compiler_says_its_version() {
        assert_eq!(
            minor("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)"),
            Some(96)
        );
        assert_eq!(minor("something else"), None);
    }
}
