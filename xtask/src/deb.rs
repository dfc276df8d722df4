//! Packages for Debian and its kin: the program, and the C library.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

use crate::install;

/// A package.
struct Deb {
    name: &'static str,
    section: &'static str,
    summary: &'static str,
    /// Lines of at most 79 letters.
    description: &'static [&'static str],
    /// Puts its files below the root.
    stage: fn(&Shell, &Metadata, &Path) -> Result<()>,
    /// Tries what was unpacked below a root.
    attempt: fn(&Shell, &Metadata, &Path) -> Result<()>,
}

const DEBS: [Deb; 2] = [
    Deb {
        name: "swath",
        section: "utils",
        summary: "laboratory of contiguous memory",
        description: &[
            "Says how contiguous this machine's memory is and what blocks it, records what",
            "its kernel's allocator is asked for and replays it on others, and runs the",
            "studies of five papers on allocators and TLBs.",
        ],
        stage: stage_program,
        attempt: try_program,
    },
    Deb {
        name: "libswath-dev",
        section: "libdevel",
        summary: "memory managers that keep memory contiguous, for C",
        description: &[
            "Allocators of frames, address spaces, real-time heaps, models of TLBs and DRAM,",
            "and cmt_malloc, over storage that the caller gives: header, libraries,",
            "pkg-config file and CMake package.",
        ],
        stage: stage_library,
        attempt: try_library,
    },
];

/// Builds the packages into `out`, unpacks each and tries what is in it.
pub(crate) fn build(shell: &Shell, metadata: &Metadata, out: &Path) -> Result<()> {
    ensure!(
        cmd!(shell, "dpkg-deb --version").quiet().ignore_stdout().run().is_ok(),
        "dpkg-deb is not there: install dpkg"
    );
    // As a release is built otherwise: with other crates beside it, or not, is another build.
    cmd!(shell, "cargo build --release").run()?;
    shell.create_dir(out)?;
    // All files are as old as what they were made of.
    let made = match shell.var("SOURCE_DATE_EPOCH") {
        Ok(made) => made,
        Err(_) => cmd!(shell, "git log -1 --format=%ct").read().context("git log")?,
    };
    for deb in &DEBS {
        let file = pack(shell, metadata, deb, (out, &made))?;
        let room = tempfile::tempdir()?;
        let root = room.path();
        cmd!(shell, "dpkg-deb --extract {file} {root}").run()?;
        (deb.attempt)(shell, metadata, root).with_context(|| file.display().to_string())?;
        println!("{}: {} bytes, unpacked and tried", file.display(), fs::metadata(&file)?.len());
    }
    Ok(())
}

fn pack(
    shell: &Shell,
    metadata: &Metadata,
    deb: &Deb,
    (out, made): (&Path, &str),
) -> Result<PathBuf> {
    let room = tempfile::tempdir()?;
    let root = room.path().join("root");
    (deb.stage)(shell, metadata, &root)?;
    let documents = root.join("usr/share/doc").join(deb.name);
    shell.create_dir(&documents)?;
    let licenses = ["LICENSE", "LICENSE-MIT", "LICENSE-APACHE"];
    let texts: Result<Vec<String>> = licenses
        .iter()
        .map(|file| Ok(fs::read_to_string(metadata.workspace_root.join(file))?))
        .collect();
    shell.write_file(documents.join("copyright"), texts?.join("\n"))?;
    let (version, architecture) =
        (version(metadata)?, cmd!(shell, "dpkg --print-architecture").read()?);
    let size = installed_kib(&root)?;
    let Deb { name, section, summary, .. } = deb;
    let description = deb.description.join("\n ");
    shell.write_file(
        root.join("DEBIAN/control"),
        format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: The Swath developers <swath@users.noreply.invalid>\n\
             Section: {section}\nPriority: optional\nInstalled-Size: {size}\n\
             Depends: libc6 (>= {}), libgcc-s1\nDescription: {summary}\n {description}\n",
            newest_libc(shell, &root)?,
        ),
    )?;
    let file = out.join(format!("{name}_{version}_{architecture}.deb"));
    cmd!(shell, "dpkg-deb --root-owner-group --build {root} {file}")
        .env("SOURCE_DATE_EPOCH", made)
        .ignore_stdout()
        .run()?;
    Ok(file)
}

fn version(metadata: &Metadata) -> Result<String> {
    let swath = metadata.workspace_packages().into_iter().find(|one| *one.name == "swath");
    Ok(swath.context("no package swath")?.version.to_string())
}

/// The files below a folder, in order.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        match entry.file_type()?.is_dir() {
            true => files.extend(files_of(&entry.path())?),
            false => files.push(entry.path()),
        }
    }
    Ok(files)
}

fn installed_kib(root: &Path) -> Result<u64> {
    let sizes = files_of(root)?.into_iter().map(|file| Ok(file.symlink_metadata()?.len()));
    Ok(sizes.sum::<Result<u64>>()?.div_ceil(1024))
}

/// The newest version of the C library of which a program or library needs something.
fn newest_libc(shell: &Shell, root: &Path) -> Result<String> {
    let mut newest = (2, 17);
    for file in files_of(root)? {
        let text = fs::read(&file)?;
        if !text.starts_with(b"\x7fELF") {
            continue;
        }
        let symbols =
            cmd!(shell, "objdump -T {file}").quiet().read().context("objdump (binutils)")?;
        for word in symbols.split(|letter: char| letter.is_whitespace() || "()".contains(letter)) {
            let version = word.strip_prefix("GLIBC_").and_then(|version| version.split_once('.'));
            let numbers = version.and_then(|(major, minor)| {
                let minor = minor.split('.').next()?;
                Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
            });
            newest = newest.max(numbers.unwrap_or(newest));
        }
    }
    Ok(format!("{}.{}", newest.0, newest.1))
}

fn stage_program(shell: &Shell, metadata: &Metadata, root: &Path) -> Result<()> {
    let program = metadata.target_directory.join("release/swath");
    let bin = root.join("usr/bin");
    shell.create_dir(&bin)?;
    shell.copy_file(&program, &bin)?;
    let man = cmd!(shell, "{program} man").quiet().read()?;
    shell.write_file(root.join("usr/share/man/man1/swath.1"), man + "\n")?;
    for (name, to) in [
        ("bash", "usr/share/bash-completion/completions/swath"),
        ("zsh", "usr/share/zsh/vendor-completions/_swath"),
        ("fish", "usr/share/fish/vendor_completions.d/swath.fish"),
    ] {
        let text = cmd!(shell, "{program} completions {name}").quiet().read()?;
        shell.write_file(root.join(to), text + "\n")?;
    }
    Ok(())
}

fn try_program(shell: &Shell, metadata: &Metadata, root: &Path) -> Result<()> {
    let program = root.join("usr/bin/swath");
    let said = cmd!(shell, "{program} --version").quiet().read()?;
    ensure!(said == format!("swath {}", version(metadata)?), "it says {said:?}");
    let page = fs::read_to_string(root.join("usr/share/man/man1/swath.1"))?;
    ensure!(page.contains(".TH swath 1"), "no manual page");
    Ok(())
}

fn stage_library(shell: &Shell, metadata: &Metadata, root: &Path) -> Result<()> {
    install::install(shell, metadata, &root.join("usr"))
}

/// Builds an example against the unpacked header and libraries, and runs it with each.
fn try_library(shell: &Shell, metadata: &Metadata, root: &Path) -> Result<()> {
    let example = metadata.workspace_root.join("crates/swath-ffi/examples/frames.c");
    let (include, lib) = (root.join("usr/include"), root.join("usr/lib"));
    let (by_archive, by_library) = (root.join("by-archive"), root.join("by-library"));
    let archive = lib.join("libswath.a");
    // What the pkg-config file says, where there is a program that reads it.
    let pkg_config = cmd!(shell, "pkg-config --cflags --libs swath").quiet().ignore_stderr();
    let flags = pkg_config.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).read();
    let by_hand = format!("-I{} -L{} -lswath", include.display(), lib.display());
    let flags = match cmd!(shell, "pkg-config --version").quiet().ignore_stdout().run() {
        Ok(()) => flags.context("swath.pc")?,
        Err(_) => by_hand,
    };
    let flags = flags.split_whitespace();
    cmd!(shell, "cc -I {include} {example} {archive} -lpthread -ldl -lm -o {by_archive}")
        .quiet()
        .run()?;
    cmd!(shell, "cc {example} {flags...} -o {by_library}").quiet().run()?;
    let one = cmd!(shell, "{by_archive}").quiet().read()?;
    let other = cmd!(shell, "{by_library}").env("LD_LIBRARY_PATH", &lib).quiet().read()?;
    ensure!(one == other && one.contains("900"), "the example says {one:?} and {other:?}");
    let malloc = lib.join("libswath_malloc.so");
    let said = cmd!(shell, "sh -c 'echo allocated'").env("LD_PRELOAD", &malloc).quiet().read()?;
    ensure!(said == "allocated", "a shell on libswath_malloc.so says {said:?}");
    Ok(())
}
