//! The C library as a system has it: libraries, header, pkg-config file, CMake package.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

/// Where each file of the workspace goes below the prefix.
const FILES: &[(&str, &str)] = &[
    ("crates/swath-ffi/include/swath.h", "include"),
    ("crates/swath-ffi/package/swath.pc", "lib/pkgconfig"),
    ("crates/swath-ffi/package/swath-config.cmake", "lib/cmake/swath"),
    ("crates/swath-ffi/package/swath-config-version.cmake", "lib/cmake/swath"),
];

/// What cargo builds, all to `lib`, with the names there: a program that is linked to `libswath.so`
/// looks for the version that `crates/swath-ffi/build.rs` says. The library that overrides `malloc` is without
/// `std` where it is preloaded, since all of it is in each program's memory.
const LIBRARIES: &[(&str, &str)] = &[
    ("release/libswath.a", "libswath.a"),
    ("release/libswath.so", "libswath.so.0"),
    ("release/libswath_malloc.a", "libswath_malloc.a"),
    ("freestanding/libswath_malloc.so", "libswath_malloc.so"),
];

/// Builds the libraries and puts everything below `prefix`.
pub(crate) fn install(shell: &Shell, metadata: &Metadata, prefix: &Path) -> Result<()> {
    cmd!(shell, "cargo build --release -p swath-ffi -p swath-malloc").run()?;
    cmd!(shell, "cargo build --profile freestanding -p swath-malloc").run()?;
    let root = metadata.workspace_root.as_std_path();
    let built = metadata.target_directory.as_std_path();
    let files = FILES.iter().map(|(file, to)| (root.join(file), *to));
    for (file, to) in files {
        let directory = prefix.join(to);
        shell.create_dir(&directory)?;
        shell.copy_file(&file, &directory).with_context(|| file.display().to_string())?;
    }
    let lib = prefix.join("lib");
    for (library, name) in LIBRARIES {
        let file = built.join(library);
        shell.copy_file(&file, lib.join(name)).with_context(|| file.display().to_string())?;
    }
    // The name that a linker looks for.
    let link = lib.join("libswath.so");
    shell.remove_path(&link)?;
    std::os::unix::fs::symlink("libswath.so.0", &link)
        .with_context(|| link.display().to_string())?;
    println!("installed below {}", prefix.display());
    Ok(())
}
