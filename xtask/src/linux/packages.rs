//! Kernels from the distribution's packages: its own, and small ones built from the packaged source.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::command::{printed, run_well};

/// The newest long-term kernel that the distribution packages.
const KERNEL: &str = "6.12";

/// A kernel to run, and where modules for it are built.
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    pub(super) build: PathBuf,
}

/// The distribution's packages, unpacked.
pub(super) struct Packages {
    /// As the packages' names have it, such as `6.12.1+deb12-amd64`.
    version: String,
    pub(super) root: PathBuf,
}

impl Packages {
    /// Fetches what is not there yet.
    pub(super) fn fetch(room: &Path, with_source: bool) -> Result<Self> {
        let headers = format!("linux-headers-{KERNEL}-amd64");
        let depends = printed(Command::new("apt-cache").args(["depends", &headers]))?;
        let version = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: linux-headers-"))
            .with_context(|| format!("no package {headers}: `apt-get update`, or another release"))?
            .to_owned();
        let root = room.join(&version);
        let common = version.trim_end_matches("-amd64");
        let mut wanted = vec![
            format!("linux-headers-{version}"),
            format!("linux-headers-{common}-common"),
            format!("linux-kbuild-{common}"),
            format!("linux-image-{version}-unsigned"),
            "busybox-static".to_owned(),
        ];
        if with_source {
            wanted.push(format!("linux-source-{KERNEL}"));
        }
        fs::create_dir_all(&root)?;
        for package in wanted {
            let done = root.join(format!(".{package}"));
            if done.exists() {
                continue;
            }
            let at = tempfile::tempdir_in(room)?;
            run_well(Command::new("apt-get").args(["download", &package]).current_dir(at.path()))?;
            for file in fs::read_dir(at.path())? {
                run_well(Command::new("dpkg").arg("-x").arg(file?.path()).arg(&root))?;
            }
            File::create(done)?;
        }
        let packages = Self { version, root };
        packages.mend_paths()?;
        Ok(packages)
    }

    fn headers(&self) -> PathBuf {
        self.root.join(format!("usr/src/linux-headers-{}", self.version))
    }

    /// The headers name each other by where they would be installed.
    fn mend_paths(&self) -> Result<()> {
        let common = self.version.trim_end_matches("-amd64");
        let makefile = self.headers().join("Makefile");
        let path = self.root.join(format!("usr/src/linux-headers-{common}-common/Makefile"));
        fs::write(makefile, format!("include {}\n", path.display()))?;
        // Types for tracing would be made from it, by a program that need not be there.
        let vmlinux = self.headers().join("vmlinux");
        if vmlinux.exists() {
            fs::remove_file(vmlinux)?;
        }
        Ok(())
    }

    pub(super) fn kernel(&self) -> Result<Kernel> {
        let image = self.root.join(format!("boot/vmlinuz-{}", self.version));
        ensure!(image.is_file(), "{} is not in its package", image.display());
        Ok(Kernel { image, build: self.headers() })
    }

    /// Builds a small kernel from the packaged source; one that stands is kept.
    pub(super) fn build(
        &self,
        root: &Path,
        room: &Path,
        name: &str,
        configs: &[&str],
    ) -> Result<Kernel> {
        let source = room.join(format!("linux-source-{KERNEL}"));
        if !source.is_dir() {
            let at = tempfile::tempdir_in(room)?;
            let archive = self.root.join(format!("usr/src/linux-source-{KERNEL}.tar.xz"));
            run_well(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(at.path()))?;
            fs::rename(at.path().join(format!("linux-source-{KERNEL}")), &source)?;
        }
        let build = room.join(format!("kernel-{name}"));
        fs::create_dir_all(&build)?;
        let mut wanted = String::new();
        for config in configs {
            wanted += &fs::read_to_string(root.join("linux/test").join(config))?;
        }
        let file = room.join(format!("{name}.config"));
        fs::write(&file, &wanted)?;
        let make = || {
            let mut make = Command::new("make");
            make.arg("-C").arg(&source).arg(format!("O={}", build.display()));
            make
        };
        run_well(make().arg("tinyconfig").env("KCONFIG_ALLCONFIG", &file))?;
        let config = fs::read_to_string(build.join(".config"))?;
        fs::write(build.join(".config"), config + &wanted)?;
        run_well(make().arg("olddefconfig"))?;
        let config = fs::read_to_string(build.join(".config"))?;
        for line in wanted.lines().filter(|line| line.ends_with("=y")) {
            ensure!(
                config.lines().any(|set| set == line),
                "the kernel's source does not know {line}"
            );
        }
        let jobs = std::thread::available_parallelism()?;
        run_well(make().arg(format!("-j{jobs}")).args(["bzImage", "modules"]))?;
        Ok(Kernel { image: build.join("arch/x86/boot/bzImage"), build })
    }

    /// Looks at the module's files with the kernel's own check of style; its source was unpacked for a kernel.
    pub(super) fn check_style(&self, root: &Path, room: &Path) -> Result<()> {
        let check = room.join(format!("linux-source-{KERNEL}/scripts/checkpatch.pl"));
        let mut perl = Command::new("perl");
        perl.arg(check).args(["--no-tree", "--strict", "--terse", "-f"]);
        // It leaves a file of its own where it runs.
        perl.current_dir(room);
        for entry in fs::read_dir(root.join("linux/heap"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == "c" || kind == "h") {
                perl.arg(path);
            }
        }
        run_well(&mut perl)
    }
}
