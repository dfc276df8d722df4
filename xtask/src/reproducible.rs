//! The same bytes from two checkouts in different directories.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

/// Files below `target` that are handed on.
const FILES: [&str; 5] = [
    "release/swath",
    "release/libswath.so",
    "release/libswath.a",
    "release/libswath_malloc.a",
    "freestanding/libswath_malloc.so",
];

/// Builds what is committed in two directories of different names and depths, and compares.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let room = tempfile::tempdir()?;
    let places = ["one", "another/place/of-a-longer-name"].map(|name| room.path().join(name));
    // Both before the first build, during which somebody may commit.
    for place in &places {
        cmd!(shell, "git clone --quiet --no-hardlinks . {place}").run()?;
    }
    for place in &places {
        let packages = ["-p", "swath", "-p", "swath-ffi", "-p", "swath-malloc"];
        let _there = shell.push_dir(place);
        cmd!(shell, "cargo build --release {packages...}").env_remove("CARGO_TARGET_DIR").run()?;
        let malloc = ["--profile", "freestanding", "-p", "swath-malloc"];
        cmd!(shell, "cargo build {malloc...}").env_remove("CARGO_TARGET_DIR").run()?;
    }
    let [one, other] = &places;
    for file in FILES {
        let built = |place: &Path| fs::read(place.join("target").join(file));
        let (one, other) = (built(one)?, built(other)?);
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        ensure!(differs.is_none(), "{file} differs from byte {differs:?} on");
        ensure!(one.len() == other.len(), "{file} has {} and {} bytes", one.len(), other.len());
        println!("{file}: the same {} bytes", one.len());
    }
    Ok(())
}
