//! Packages for Debian and its kin: the program, the C library, and what is needed to build against it.

use std::collections::BTreeSet;
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
    /// Files of its control archive other than `control`: name and text.
    control: &'static [(&'static str, &'static str)],
    /// Packages of the same version that it needs.
    needs: &'static [&'static str],
    summary: &'static str,
    /// Lines of at most 79 letters.
    description: &'static [&'static str],
    /// Puts its files below the root.
    stage: fn(&Shell, &Metadata, &Path) -> Result<()>,
    /// Tries what was unpacked below a root, with what it needs.
    attempt: fn(&Shell, &Metadata, &Path) -> Result<()>,
}

/// The packages, each after those that it needs.
const DEBS: [Deb; 3] = [
    Deb {
        name: "swath",
        section: "utils",
        control: &[],
        needs: &[],
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
        name: "libswath0",
        section: "libs",
        control: &[
            ("shlibs", "libswath 0 libswath0\n"),
            ("triggers", "activate-noawait ldconfig\n"),
        ],
        needs: &[],
        summary: "memory managers that keep memory contiguous, for C",
        description: &[
            "Allocators of frames, address spaces, real-time heaps, models of TLBs and DRAM,",
            "and cmt_malloc, over storage that the caller gives; and a library that puts",
            "cmt_malloc in the place of a program's malloc (LD_PRELOAD).",
        ],
        stage: stage_library,
        attempt: try_library,
    },
    Deb {
        name: "libswath-dev",
        section: "libdevel",
        control: &[],
        needs: &["libswath0"],
        summary: "memory managers that keep memory contiguous, for C: development files",
        description: &["Header, archives, pkg-config file and CMake package of libswath0."],
        stage: stage_development,
        attempt: try_development,
    },
];

/// The package of the C library.
const LIBC: &str = "libc6";

/// The package that has each library that ours may need, by the beginning of its name.
const PACKAGES: [(&str, &str); 6] = [
    ("libc.so.", LIBC),
    ("libm.so.", LIBC),
    ("libpthread.so.", LIBC),
    ("libdl.so.", LIBC),
    ("ld-linux", LIBC),
    ("libgcc_s.so.", "libgcc-s1"),
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
    let version = version(metadata)?;
    let mut packed: Vec<(&str, PathBuf)> = Vec::new();
    for deb in &DEBS {
        let file = pack(shell, metadata, deb, (out, &made))?;
        let again = tempfile::tempdir()?;
        let twin = pack(shell, metadata, deb, (again.path(), &made))?;
        ensure!(fs::read(&file)? == fs::read(&twin)?, "{} is not the same twice", file.display());
        let said = cmd!(shell, "dpkg-deb --field {file} Package Version").quiet().read()?;
        ensure!(said == format!("Package: {}\nVersion: {version}", deb.name), "it says {said:?}");
        let room = tempfile::tempdir()?;
        let root = room.path();
        let needed = packed.iter().filter(|(name, _)| deb.needs.contains(name));
        for file in needed.map(|(_, file)| file).chain([&file]) {
            cmd!(shell, "dpkg-deb --extract {file} {root}").run()?;
        }
        (deb.attempt)(shell, metadata, root).with_context(|| file.display().to_string())?;
        packed.push((deb.name, file.clone()));
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
    let changes = fs::read_to_string(metadata.workspace_root.join("CHANGELOG.md"))?;
    write_compressed(shell, &documents.join("changelog"), &changes)?;
    let (version, architecture) =
        (version(metadata)?, cmd!(shell, "dpkg --print-architecture").read()?);
    let size = installed_kib(&root)?;
    let Deb { name, section, summary, .. } = deb;
    let description = deb.description.join("\n ");
    let mut depends = libraries_of(shell, &root)?;
    depends.extend(deb.needs.iter().map(|needed| format!("{needed} (= {version})")));
    let depends = match depends.is_empty() {
        true => String::new(),
        false => format!("Depends: {}\n", depends.join(", ")),
    };
    shell.write_file(
        root.join("DEBIAN/control"),
        format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: The Swath developers <swath@users.noreply.invalid>\n\
             Section: {section}\nPriority: optional\nInstalled-Size: {size}\n\
             {depends}Description: {summary}\n {description}\n",
        ),
    )?;
    for (name, text) in deb.control {
        shell.write_file(root.join("DEBIAN").join(name), text)?;
    }
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

/// Writes a text as `gzip` leaves it, without a name and a time.
fn write_compressed(shell: &Shell, to: &Path, text: &str) -> Result<()> {
    shell.write_file(to, text)?;
    cmd!(shell, "gzip -9nf {to}").quiet().run().context("gzip")
}

/// The packages of the libraries of which programs and libraries below `root` need something; of the C
/// library the newest version that they name.
fn libraries_of(shell: &Shell, root: &Path) -> Result<Vec<String>> {
    let mut newest = (2, 17);
    let mut needed = BTreeSet::new();
    for file in files_of(root)? {
        if file.is_symlink() || !fs::read(&file)?.starts_with(b"\x7fELF") {
            continue;
        }
        let said =
            cmd!(shell, "objdump -p -T {file}").quiet().read().context("objdump (binutils)")?;
        for word in said.split(|letter: char| letter.is_whitespace() || "()".contains(letter)) {
            let version = word.strip_prefix("GLIBC_").and_then(|version| version.split_once('.'));
            let numbers = version.and_then(|(major, minor)| {
                let minor = minor.split('.').next()?;
                Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
            });
            newest = newest.max(numbers.unwrap_or(newest));
        }
        let libraries = said.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
        for library in libraries.map(str::trim) {
            let (_, package) = PACKAGES
                .iter()
                .find(|(prefix, _)| library.starts_with(prefix))
                .with_context(|| format!("{} needs {library}", file.display()))?;
            needed.insert(*package);
        }
    }
    let version = format!(" (>= {}.{})", newest.0, newest.1);
    let with = |package| format!("{package}{}", if package == LIBC { &version } else { "" });
    Ok(needed.into_iter().map(with).collect())
}

fn stage_program(shell: &Shell, metadata: &Metadata, root: &Path) -> Result<()> {
    let program = metadata.target_directory.join("release/swath");
    let bin = root.join("usr/bin");
    shell.create_dir(&bin)?;
    shell.copy_file(&program, &bin)?;
    let man = cmd!(shell, "{program} man").quiet().read()?;
    write_compressed(shell, &root.join("usr/share/man/man1/swath.1"), &(man + "\n"))?;
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
    let page = root.join("usr/share/man/man1/swath.1.gz");
    let page = cmd!(shell, "gzip -dc {page}").quiet().read()?;
    ensure!(page.contains(".TH swath 1"), "no manual page");
    Ok(())
}

/// The shared libraries below `usr/lib`.
const SHARED: [&str; 2] = ["libswath.so.0", "libswath_malloc.so"];

fn stage_library(shell: &Shell, metadata: &Metadata, root: &Path) -> Result<()> {
    let room = tempfile::tempdir()?;
    install::install(shell, metadata, room.path())?;
    let lib = root.join("usr/lib");
    shell.create_dir(&lib)?;
    for library in SHARED {
        let to = lib.join(library);
        shell.copy_file(room.path().join("lib").join(library), &to)?;
        // As Debian has them: no symbols but the dynamic ones, and not to be run.
        cmd!(shell, "strip --strip-unneeded {to}").quiet().run().context("strip (binutils)")?;
        cmd!(shell, "chmod 644 {to}").quiet().run()?;
    }
    Ok(())
}

fn stage_development(shell: &Shell, metadata: &Metadata, root: &Path) -> Result<()> {
    let usr = root.join("usr");
    install::install(shell, metadata, &usr)?;
    SHARED.iter().try_for_each(|library| Ok(shell.remove_path(usr.join("lib").join(library))?))
}

/// Runs a shell on the `malloc` of the package.
fn try_library(shell: &Shell, _: &Metadata, root: &Path) -> Result<()> {
    let malloc = root.join("usr/lib/libswath_malloc.so");
    let said = cmd!(shell, "sh -c 'echo allocated'").env("LD_PRELOAD", &malloc).quiet().read()?;
    ensure!(said == "allocated", "a shell on libswath_malloc.so says {said:?}");
    Ok(())
}

/// Builds an example against the unpacked header and libraries, and runs it with each.
fn try_development(shell: &Shell, metadata: &Metadata, root: &Path) -> Result<()> {
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
    Ok(())
}
