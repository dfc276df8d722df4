//! The tools that watch a run for undefined behaviour: Miri under both models of borrows, the
//! sanitizers of threads and addresses, the model checker.
//!
//! A part whose tool is not installed is said to be left out, and is not counted as passed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::bare_metal::packaged;
use crate::test::{model_checks, run};

/// The toolchain that has Miri, and the sanitizers for its own library.
const TOOLCHAIN: &str = "+nightly";

/// The target that a sanitizer builds the standard library for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Cargo's arguments for the tests that Miri runs: in every crate with unsafe code the cases of all
/// safe functions that reach a raw pointer, but in those whose unsafe code is system calls, which
/// Miri does not know (`swath-cmt`, `swath-malloc`, the recorders); and the conformance of the C
/// interface, by a hundredth of its random steps. The other random runs against models are not among them: one of
/// their thousands of steps takes a second there.
const UNDER_MIRI: &[&[&str]] = &[
    &["-p", "swath-heap", "--test", "suite", "safe_calls"],
    &["-p", "swath-pool", "--test", "suite", "safe_calls"],
    &["-p", "swath-region", "--test", "suite", "heap::safe_calls"],
    &["-p", "swath-ffi", "--test", "readers"],
    &["-p", "swath-ffi", "--test", "conformance"],
    &["-p", "swath-ffi", "--test", "pmap", "memory_is_reached_directly"],
    &["-p", "swath-ffi", "--test", "segments"],
];

/// Cargo's arguments for the tests whose threads are watched.
const THREADS: &[&[&str]] = &[
    &["-p", "swath-pool", "--test", "suite", "threads::"],
    &["-p", "swath-frame", "--test", "suite", "front::"],
    &["-p", "swath-cmt", "--test", "api"],
];

/// The programs of C and C++ whose memory is watched, with their compilers.
const IN_C: &[(&str, &str)] =
    &[("cc", "crates/swath-ffi/examples/frames.c"), ("c++", "crates/swath-ffi/examples/heap.cpp")];

/// A tool at work.
struct Part {
    name: &'static str,
    /// The reason why it cannot run here.
    lacks: fn() -> Option<String>,
    /// Runs it; returns the number of tests that passed.
    run: fn(&Metadata) -> Result<u64>,
}

const PARTS: &[Part] = &[
    Part { name: "stacked-borrows", lacks: lacks_miri, run: |m| miri(m, "") },
    Part { name: "tree-borrows", lacks: lacks_miri, run: |m| miri(m, "-Zmiri-tree-borrows") },
    Part { name: "threads", lacks: lacks_watcher, run: threads },
    Part { name: "addresses", lacks: lacks_watcher, run: addresses },
    Part { name: "models", lacks: || None, run: models },
];

/// Names of the parts, in the order in which they run.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

/// Runs the parts named, all if none is; the last line says how many passed, failed and were
/// left out.
///
/// # Errors
/// A part that failed, or nothing that could run.
pub(crate) fn soundness(metadata: &Metadata, named: &[String]) -> Result<()> {
    let wanted = |part: &&Part| named.is_empty() || named.iter().any(|name| name == part.name);
    let mut told = Vec::new();
    let (mut passed, mut failed) = (0, 0);
    for part in PARTS.iter().filter(wanted) {
        let name = part.name;
        told.push(match (part.lacks)() {
            Some(lack) => format!("{name}: not run, {lack}"),
            None => match (part.run)(metadata) {
                Ok(tests) => {
                    passed += 1;
                    format!("{name}: passed, {tests} tests")
                }
                Err(error) => {
                    failed += 1;
                    format!("{name}: failed, {error:#}")
                }
            },
        });
    }
    for line in &told {
        println!("{line}");
    }
    println!("{passed} passed, {failed} failed, {} not run", told.len() - passed - failed);
    ensure!(failed == 0, "a part failed");
    ensure!(passed > 0, "no part could run");
    Ok(())
}

/// True if a command ends well; it prints nothing.
fn answers(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn lacks_miri() -> Option<String> {
    let has = answers(Command::new("cargo").args([TOOLCHAIN, "miri", "--version"]));
    (!has).then(|| "no nightly toolchain with the component `miri`".to_owned())
}

/// What builds code that a sanitizer watches, the standard library with it.
enum Watcher {
    /// The nightly toolchain, which brings the sanitizers.
    Nightly,
    /// The distribution's compiler, with the sanitizers that LLVM's packages bring.
    Packaged(&'static str),
}

impl Watcher {
    fn find() -> Option<Self> {
        let output = Command::new("rustc").args([TOOLCHAIN, "--print", "sysroot"]).output().ok()?;
        let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        if output.status.success() && sysroot.join("lib/rustlib/src/rust/library").is_dir() {
            return Some(Self::Nightly);
        }
        packaged().filter(|_| runtime("thread").is_some()).map(Self::Packaged)
    }
}

/// Returns the newest packaged library of a sanitizer, by the number of its version.
fn runtime(sanitizer: &str) -> Option<PathBuf> {
    let short = if sanitizer == "thread" { "tsan" } else { "asan" };
    let versions = std::fs::read_dir("/usr/lib").ok()?.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_prefix("llvm-")?.parse::<u32>().ok()
    });
    let library = |version: u32| {
        let folder = format!("/usr/lib/llvm-{version}/lib/clang/{version}/lib/linux");
        PathBuf::from(folder).join(format!("libclang_rt.{short}-x86_64.a"))
    };
    let mut versions: Vec<u32> = versions.filter(|&version| library(version).is_file()).collect();
    versions.sort_unstable();
    versions.last().map(|&newest| library(newest))
}

fn lacks_watcher() -> Option<String> {
    let lack = "no nightly toolchain with the component `rust-src`, nor a packaged compiler with its \
                sources and LLVM's sanitizers (Debian: rustc-web, rust-web-src, libclang-rt-19-dev)";
    let missing = IN_C.iter().find(|(cc, _)| !answers(Command::new(cc).arg("--version")));
    let missing = missing.map(|(cc, _)| format!("no compiler `{cc}`"));
    Watcher::find().map_or_else(|| Some(lack.to_owned()), |_| missing)
}

/// A cargo that builds into a folder of its own.
fn cargo(metadata: &Metadata, folder: &str) -> Command {
    let mut command = Command::new("cargo");
    command
        .current_dir(&metadata.workspace_root)
        .env("CARGO_TARGET_DIR", metadata.target_directory.join(folder));
    command
}

/// Runs commands that test; returns how many tests passed.
fn tests(commands: impl IntoIterator<Item = Command>) -> Result<u64> {
    let mut sum = 0;
    for mut command in commands {
        let (tally, is_well) = run(&mut command)?;
        ensure!(is_well && tally.failed == 0, "{command:?}");
        ensure!(tally.passed > 0, "no test ran: {command:?}");
        sum += tally.passed;
    }
    Ok(sum)
}

fn miri(metadata: &Metadata, model: &str) -> Result<u64> {
    tests(UNDER_MIRI.iter().map(|arguments| {
        let mut command = cargo(metadata, "miri");
        command
            .args([TOOLCHAIN, "miri", "test"])
            .args(*arguments)
            // Tests leak the storage of objects that C would never free; seeds are of no use
            // to a file.
            .env("MIRIFLAGS", format!("-Zmiri-ignore-leaks -Zmiri-disable-isolation {model}"))
            .env("PROPTEST_CASES", "4");
        command
    }))
}

/// A cargo whose code is watched by a sanitizer, the standard library's too.
fn watched(metadata: &Metadata, sanitizer: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = cargo(metadata, sanitizer);
    let mut flags = format!("-Zsanitizer={sanitizer}");
    match Watcher::find().context("no compiler with its sources")? {
        Watcher::Nightly => {
            command.arg(TOOLCHAIN);
        }
        Watcher::Packaged(compiler) => {
            command.env("RUSTC", compiler).env("RUSTC_BOOTSTRAP", "1");
            let library = runtime(sanitizer).context("no library of the sanitizer")?;
            let library = library.display();
            // Before the libraries of C, of which it needs all.
            flags += &format!(
                " -Zexternal-clangrt -Zpre-link-arg=-Wl,--whole-archive -Zpre-link-arg={library} \
                 -Zpre-link-arg=-Wl,--no-whole-archive"
            );
        }
    }
    command.args(arguments).args(["-Zbuild-std", "--target", TARGET]).env("RUSTFLAGS", flags);
    Ok(command)
}

fn threads(metadata: &Metadata) -> Result<u64> {
    let mut commands = Vec::new();
    for arguments in THREADS {
        commands.push(watched(metadata, "thread", &[&["test"], *arguments].concat())?);
    }
    tests(commands)
}

/// Runs the programs of C over a static library, both watched.
fn addresses(metadata: &Metadata) -> Result<u64> {
    let build = ["rustc", "-p", "swath-ffi", "--lib", "--crate-type", "staticlib"];
    let mut command = watched(metadata, "address", &build)?;
    ensure!(command.status().context("cargo")?.success(), "{command:?}");
    let built = metadata.target_directory.join("address").join(TARGET).join("debug");
    let root = metadata.workspace_root.as_std_path();
    for (compiler, source) in IN_C {
        let program =
            built.join(Path::new(source).file_stem().context("a name")?.to_string_lossy().as_ref());
        let mut compile = Command::new(compiler);
        compile
            .args(["-g", "-fsanitize=address", "-I"])
            .arg(root.join("crates/swath-ffi/include"))
            .arg(root.join(source))
            .arg(built.join("libswath.a"))
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program);
        ensure!(compile.status().with_context(|| (*compiler).to_owned())?.success(), "{compile:?}");
        let output = Command::new(&program).output().with_context(|| program.to_string())?;
        if !output.status.success() {
            bail!("{program}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(IN_C.len() as u64)
}

fn models(metadata: &Metadata) -> Result<u64> {
    tests([model_checks(metadata)?.0])
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn every_program_of_c_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (_, source) in IN_C {
            assert!(root.join(source).is_file(), "{source}");
        }
    }
}
