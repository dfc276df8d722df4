//! A copy of linux/, and the modules and programs that are built there: nothing is left in the source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::command::run_well;
use super::packages::Kernel;

/// A copy of linux/ and of the C library's header.
pub(super) struct Source {
    root: PathBuf,
}

impl Source {
    /// Copies what is not there or has changed; what was changed in the copy alone is as in the source again.
    pub(super) fn copy(from: &Path, to: &Path) -> Result<Self> {
        for directory in ["linux", "crates/swath-ffi/include"] {
            let (from, to) = (from.join(directory), to.join(directory));
            for file in files(&from)? {
                let copy = to.join(&file);
                let bytes = fs::read(from.join(&file))?;
                // A file that is the same keeps its time, so that it need not be compiled again.
                if fs::read(&copy).is_ok_and(|old| old == bytes) {
                    continue;
                }
                fs::create_dir_all(copy.parent().context("a file lies in a folder")?)?;
                fs::write(&copy, bytes).with_context(|| copy.display().to_string())?;
            }
        }
        Ok(Self { root: to.to_owned() })
    }

    /// Replaces the only place where a file of the copy has a text.
    pub(super) fn replace(&self, file: &str, from: &str, to: &str) -> Result<()> {
        let path = self.root.join(file);
        let text = fs::read_to_string(&path)?;
        ensure!(text.matches(from).count() == 1, "{file} has not once: {from}");
        fs::write(path, text.replace(from, to))?;
        Ok(())
    }

    /// Builds the heap's module for a kernel; returns its file.
    pub(super) fn heap(&self, kernel: &Kernel, library: &Path) -> Result<PathBuf> {
        fs::copy(library, self.root.join("linux/heap/libswath.o_shipped"))?;
        self.module(kernel, "linux/heap", "swath_heap.ko")
    }

    /// Builds the module of the emulated device.
    pub(super) fn edu(&self, kernel: &Kernel) -> Result<PathBuf> {
        self.module(kernel, "linux/test/edu", "swath_edu.ko")
    }

    fn module(&self, kernel: &Kernel, directory: &str, name: &str) -> Result<PathBuf> {
        let at = self.root.join(directory);
        let make = |word: &str| {
            let mut make = Command::new("make");
            make.arg("-C").arg(&kernel.build).arg(format!("M={}", at.display())).arg(word);
            make
        };
        // Kernels differ, and what is built for one says so nowhere.
        run_well(&mut make("clean"))?;
        run_well(make("modules").arg("KCFLAGS=-Werror"))?;
        let file = at.join(name);
        run_well(Command::new("strip").arg("-g").arg(&file))?;
        Ok(file)
    }

    /// Builds a program of linux/test that needs nothing of the guest's, with a library of ours if it has that.
    pub(super) fn program(&self, to: &Path, name: &str, library: Option<&Path>) -> Result<PathBuf> {
        let file = to.join(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-static"]);
        for include in ["linux/include", "crates/swath-ffi/include"] {
            gcc.arg("-I").arg(self.root.join(include));
        }
        let source = self.root.join("linux/test").join(format!("{name}.c"));
        gcc.arg("-o").arg(&file).arg(source).args(library);
        run_well(&mut gcc)?;
        Ok(file)
    }
}

/// Returns the files below a folder, by their paths from it.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(folder.join(&at))? {
            let entry = entry?;
            let path = at.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    Ok(found)
}
