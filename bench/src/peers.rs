//! The allocators that programs are run with, as libraries to preload.
//!
//! mimalloc and snmalloc are built from the sources that their crates on crates.io carry, with the
//! flags of their own builds; jemalloc and tcmalloc are the system's packages, which are installed if
//! they are missing and this process may do so. What cannot be had is left out of the table
//! with a line that says so; the C library and ours are always there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::failure::{Failure, make, setup};

/// Whose an allocator is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    /// Ours with other options, to be looked at only.
    Variant,
    Peer,
}

/// An allocator.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// None for the C library's own.
    pub(crate) path: Option<PathBuf>,
    pub(crate) environment: &'static [(&'static str, &'static str)],
    pub(crate) whose: Whose,
}

/// The workspace's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

fn metadata(manifest: &Path) -> Result<Value, Failure> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(manifest);
    let output = command.output().map_err(|error| setup(format!("{command:?}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(setup(format!("{command:?}: {said}")));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| setup(format!("{command:?}: {error}")))
}

/// Where the workspace is built.
pub(crate) fn target_directory() -> Result<PathBuf, Failure> {
    let metadata = metadata(&root().join("Cargo.toml"))?;
    let path = metadata["target_directory"].as_str();
    path.map(PathBuf::from).ok_or_else(|| setup("cargo does not say where it builds"))
}

/// The overriding library, as the README builds it.
pub(crate) fn ours() -> Result<PathBuf, Failure> {
    let mut command = Command::new("cargo");
    command.args(["build", "--profile", "freestanding", "-p", "swath-malloc"]);
    make(command.current_dir(root()))?;
    Ok(target_directory()?.join("freestanding/libswath_malloc.so"))
}

/// The directory of a crate of crates.io, which is fetched if need be, and its version.
fn crate_source(name: &str, version: &str, out: &Path) -> Result<PathBuf, Failure> {
    let package = out.join(name);
    fs::create_dir_all(&package)
        .map_err(|error| setup(format!("{}: {error}", package.display())))?;
    let manifest = package.join("Cargo.toml");
    let text = format!(
        "[package]\nname = \"peer\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
         [dependencies]\n{name} = \"={version}\"\n[workspace]\n"
    );
    let written = fs::write(&manifest, text).and_then(|()| fs::write(package.join("lib.rs"), ""));
    written.map_err(|error| setup(format!("{}: {error}", package.display())))?;
    let metadata = metadata(&manifest)?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let found = packages.iter().find(|package| package["name"] == name);
    let path = found.and_then(|package| package["manifest_path"].as_str()).map(Path::new);
    let path =
        path.and_then(Path::parent).ok_or_else(|| setup(format!("{name} was not fetched")))?;
    Ok(path.to_path_buf())
}

fn mimalloc(out: &Path) -> Result<PathBuf, Failure> {
    let source = crate_source("libmimalloc-sys", "0.1.49", out)?.join("c_src/mimalloc/v2");
    let library = out.join("libmimalloc.so");
    let mut command = Command::new("cc");
    command
        .args(["-O3", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-builtin-malloc"])
        .args(["-ftls-model=initial-exec", "-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB"])
        .arg("-DMI_SHARED_LIB_EXPORT")
        .arg("-I")
        .arg(source.join("include"))
        .arg(source.join("src/static.c"))
        .arg("-lpthread")
        .arg("-o")
        .arg(&library);
    make(&mut command)?;
    Ok(library)
}

fn snmalloc(out: &Path) -> Result<PathBuf, Failure> {
    let source = crate_source("snmalloc-sys", "0.7.6", out)?.join("upstream/src");
    let library = out.join("libsnmallocshim.so");
    let mut command = Command::new("c++");
    command
        .args(["-O3", "-DNDEBUG", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"])
        .args(["-fomit-frame-pointer", "-ftls-model=initial-exec", "-ffunction-sections"])
        .arg("-DSNMALLOC_USE_WAIT_ON_ADDRESS=1")
        .arg("-DSNMALLOC_EXPORT=__attribute__((visibility(\"default\")))");
    if cfg!(target_arch = "x86_64") {
        command.args(["-mcx16", "-mprfchw"]);
    }
    command
        .arg("-I")
        .arg(&source)
        .arg(source.join("snmalloc/override/new.cc"))
        .arg(source.join("snmalloc/override/malloc.cc"))
        .args(["-lpthread", "-latomic", "-o"])
        .arg(&library);
    make(&mut command)?;
    Ok(library)
}

/// The file that the dynamic linker finds for a name.
fn installed(name: &str) -> Option<PathBuf> {
    let output = Command::new("ldconfig")
        .arg("-p")
        .output()
        .or_else(|_| Command::new("/sbin/ldconfig").arg("-p").output());
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
    Some(PathBuf::from(line.split_once("=> ")?.1.trim()))
}

/// The library `name` of a package, which is installed if need be.
fn packaged(name: &str, package: &str) -> Result<PathBuf, Failure> {
    if installed(name).is_none() {
        let mut command = Command::new("apt-get");
        make(command.args(["install", "-y", "-qq", "--no-install-recommends", package]))?;
    }
    installed(name).ok_or_else(|| setup(format!("{name} is not installed")))
}

/// All allocators that can be had; what cannot is said.
pub(crate) fn find_libraries(out: &Path) -> Result<Vec<Library>, Failure> {
    let (ours, peer) = (Some(ours()?), Whose::Peer);
    let [plain, small] =
        [&[("SWATH_HUGETLB", "0")][..], &[("SWATH_HUGETLB", "0"), ("SWATH_THP", "0")]];
    let mut libraries = vec![
        Library { name: "swath", path: ours.clone(), environment: plain, whose: Whose::Ours },
        Library { name: "swath, 4 KiB", path: ours, environment: small, whose: Whose::Variant },
        Library { name: "glibc", path: None, environment: &[], whose: peer },
    ];
    let peers = [
        ("jemalloc", packaged("libjemalloc.so.2", "libjemalloc2")),
        ("mimalloc", mimalloc(out)),
        ("snmalloc", snmalloc(out)),
        ("tcmalloc", packaged("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")),
    ];
    for (name, found) in peers {
        match found {
            Ok(path) => {
                libraries.push(Library { name, path: Some(path), environment: &[], whose: peer });
            }
            Err(Failure::Setup(why) | Failure::Result(why)) => {
                println!("left out: {name}: {why}");
            }
        }
    }
    Ok(libraries)
}
