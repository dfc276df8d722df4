//! The package's own tests, run by pytest where Python is there.
//!
//! They run on the library as cargo has built it for this test, beside the package's Python files, in
//! a virtual environment that is kept in the target directory. What is missing is said aloud: without
//! Python, or without a package index and what it would give, they do not run.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What the tests cannot do without.
const NEEDED: [&str; 3] = ["numpy", "pyarrow", "pytest"];

/// What the notebook and some executors want. A Python that is there is used as it is, and pytest
/// says which tests were skipped for the lack of them. The last two are MPI for Python and an MPI.
const WANTED: [&str; 8] =
    ["pandas", "matplotlib", "nbclient", "ipykernel", "distributed", "submitit", "mpi4py", "mpich"];

fn main() -> ExitCode {
    // Asked by name, as cargo's own tests can be.
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if !filters.is_empty() && !filters.iter().any(|filter| "pytest".contains(filter.as_str())) {
        return ExitCode::SUCCESS;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target");
    let python = match python(target) {
        Ok(python) => python,
        Err(why) => {
            println!("pytest did not run: {why}");
            return ExitCode::SUCCESS;
        }
    };
    let room = assemble(here, target);
    let run = Command::new(python)
        .args(["-m", "pytest", "-rs", "-p", "no:cacheprovider"])
        .args(["--doctest-modules", "--pyargs", "swath"])
        .arg(here.join("tests"))
        .current_dir(here)
        .env("PYTHONPATH", &room)
        .env("PYTHONPYCACHEPREFIX", target.join("python-cache"))
        .env("SWATH_PROGRAM", program(target).unwrap_or_default())
        .stdin(Stdio::null())
        .status()
        .expect("python runs");
    let (passed, failed) = if run.success() { (1, 0) } else { (0, 1) };
    let verdict = if run.success() { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    if run.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The program as cargo has built it, if it has: its results are compared.
fn program(target: &Path) -> Option<PathBuf> {
    ["debug", "release"]
        .map(|profile| target.join(profile).join("swath"))
        .into_iter()
        .find(|program| program.is_file())
}

/// The package with the library in it.
fn assemble(here: &Path, target: &Path) -> PathBuf {
    let room = target.join("python");
    let package = room.join("swath");
    // A file that was renamed since would stay.
    let _ = fs::remove_dir_all(&package);
    fs::create_dir_all(&package).expect("the target directory can be written");
    for entry in fs::read_dir(here.join("package/swath")).expect("the package is there") {
        let path = entry.expect("it can be read").path();
        if path.is_file() {
            fs::copy(&path, package.join(path.file_name().expect("a file"))).expect("copied");
        }
    }
    // This program lies beside the library that was built for it.
    let own = std::env::current_exe().expect("this program has a path");
    let beside = own.parent().expect("it is in a folder");
    let library = [beside.join("libswath_py.so"), beside.join("../libswath_py.so")];
    let library = library.iter().find(|path| path.is_file()).expect("cargo has built the library");
    fs::copy(library, package.join("_native.abi3.so")).expect("copied");
    room
}

/// A Python with the packages, or the reason why there is none.
fn python(target: &Path) -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os("SWATH_PYTHON") {
        let given = PathBuf::from(given);
        let lacks = || format!("SWATH_PYTHON lacks one of {}", NEEDED.join(", "));
        return is_ready(&given).then_some(given).ok_or_else(lacks);
    }
    let system = Path::new("python3");
    let version = "import sys; raise SystemExit(sys.version_info < (3, 10))";
    if !succeeds(system, &["-c", version]) {
        return Err("no python3 of version 3.10 or later".to_owned());
    }
    let room = target.join("python-venv");
    let python = room.join("bin/python");
    if is_ready(&python) {
        return Ok(python);
    }
    if is_ready(system) {
        return Ok(system.to_owned());
    }
    if !succeeds(system, &["-m", "venv", &room.to_string_lossy()]) {
        return Err("python3 cannot make a virtual environment".to_owned());
    }
    // What is imported is compiled then; the whole of it would take longer than the tests.
    let pip = ["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"];
    let install = |packages: &[&str]| succeeds(&python, &[&pip, packages].concat());
    if !install(&NEEDED) || !is_ready(&python) {
        return Err(format!("{} cannot be installed", NEEDED.join(", ")));
    }
    // Not every machine has a package of each.
    if !install(&WANTED) {
        for wanted in WANTED {
            install(&[wanted]);
        }
    }
    Ok(python)
}

fn is_ready(python: &Path) -> bool {
    succeeds(python, &["-c", &format!("import {}", NEEDED.join(", "))])
}

fn succeeds(program: &Path, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    let command =
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
