//! The C library as a system has it: libraries, header, pkg-config file, CMake package.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

/// Where each file of the workspace goes below the prefix.
const FILES: &[(&str, &str)] = &[
    ("include/swath.h", "include"),
    ("crates/swath-ffi/package/swath.pc", "lib/pkgconfig"),
    ("crates/swath-ffi/package/swath-config.cmake", "lib/cmake/swath"),
    ("crates/swath-ffi/package/swath-config-version.cmake", "lib/cmake/swath"),
];

/// What cargo builds, all to `lib`.
const LIBRARIES: &[&str] = &["libswath.a", "libswath.so", "libswath_malloc.so"];

/// Builds the libraries and puts everything below `prefix`.
pub(crate) fn install(shell: &Shell, metadata: &Metadata, prefix: &Path) -> Result<()> {
    cmd!(shell, "cargo build --release -p swath-ffi -p swath-malloc").run()?;
    let root = metadata.workspace_root.as_std_path();
    let built = metadata.target_directory.join("release").into_std_path_buf();
    let files = FILES.iter().map(|(file, to)| (root.join(file), *to));
    let libraries = LIBRARIES.iter().map(|library| (built.join(library), "lib"));
    for (file, to) in files.chain(libraries) {
        let directory = prefix.join(to);
        shell.create_dir(&directory)?;
        shell.copy_file(&file, &directory).with_context(|| file.display().to_string())?;
    }
    println!("installed below {}", prefix.display());
    Ok(())
}
