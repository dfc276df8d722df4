//! The library as a user builds it, without `std`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds it beside the tests' own; returns its file.
pub(crate) fn freestanding() -> PathBuf {
    let exe = std::env::current_exe().expect("this test");
    let target = exe.ancestors().nth(3).expect("TARGET/PROFILE/deps/NAME");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--profile", "freestanding", "-p", "swath-malloc"])
        .arg("--target-dir")
        .arg(target)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .status()
        .expect("cargo");
    assert!(built.success(), "cargo: {built}");
    target.join("freestanding/libswath_malloc.so")
}
