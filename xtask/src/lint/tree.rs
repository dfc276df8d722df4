//! The project's crates and files, read once for all rules.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, TargetKind};

/// Folders that hold nothing written by hand, wherever they stand.
const SKIPPED_FOLDERS: &[&str] = &["target", "report", "__pycache__", "node_modules"];

/// Folders whose names begin with a dot and are read all the same.
const HIDDEN_FOLDERS: &[&str] = &[".ci", ".cargo", ".github"];

/// The crates, the dependencies between them, and every file that is text.
#[derive(Default, Debug)]
pub(crate) struct Tree {
    pub(crate) crates: Vec<Crate>,
    pub(crate) edges: Vec<Edge>,
    /// Sorted by path.
    pub(crate) files: Vec<File>,
}

/// A crate of the workspace and what its manifest says.
#[derive(Default, Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Path from the workspace's root, without a slash at its end.
    pub(crate) directory: String,
    /// Paths of the library's root and of the programs' roots.
    pub(crate) roots: Vec<Root>,
    /// False with `publish = false`.
    pub(crate) is_public: bool,
    pub(crate) description: Option<String>,
    pub(crate) licence: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) readme: Option<String>,
    pub(crate) rust_version: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
}

/// A root file of a crate: of its library or of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub(crate) path: String,
    pub(crate) is_library: bool,
}

/// A dependency between two crates of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    /// True if only the tests of `from` use it.
    pub(crate) tests_only: bool,
    /// True if the manifest states a version, which a registry would look for.
    pub(crate) has_version: bool,
}

/// A file of text.
#[derive(Debug)]
pub(crate) struct File {
    /// Path from the workspace's root, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Tree {
    /// Reads the workspace: its crates as cargo tells them, its files from its root downwards.
    pub(crate) fn read(metadata: &Metadata) -> Result<Self> {
        let root = metadata.workspace_root.as_std_path();
        let relative = |path: &Path| -> Result<String> {
            let path = path.strip_prefix(root).context("a path outside the workspace")?;
            let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
            Ok(parts.join("/"))
        };
        let packages = metadata.workspace_packages();
        let mut tree = Self::default();
        for package in &packages {
            let directory =
                package.manifest_path.parent().context("a manifest without directory")?;
            let mut roots = Vec::new();
            for target in &package.targets {
                let is_library = target.kind.iter().any(|kind| {
                    matches!(kind, TargetKind::Lib | TargetKind::CDyLib | TargetKind::StaticLib)
                });
                if is_library || target.kind.contains(&TargetKind::Bin) {
                    let path = relative(target.src_path.as_std_path())?;
                    roots.push(Root { path, is_library });
                }
            }
            tree.crates.push(Crate {
                name: package.name.to_string(),
                directory: relative(directory.as_std_path())?,
                roots,
                is_public: package.publish.as_ref().is_none_or(|registries| !registries.is_empty()),
                description: package.description.clone(),
                licence: package.license.clone(),
                repository: package.repository.clone(),
                readme: package.readme.as_ref().map(ToString::to_string),
                rust_version: package.rust_version.as_ref().map(ToString::to_string),
                keywords: package.keywords.clone(),
                categories: package.categories.clone(),
            });
            for dependency in &package.dependencies {
                if packages.iter().any(|other| other.name.as_str() == dependency.name) {
                    tree.edges.push(Edge {
                        from: package.name.to_string(),
                        to: dependency.name.clone(),
                        tests_only: dependency.kind == DependencyKind::Development,
                        has_version: !dependency.req.comparators.is_empty(),
                    });
                }
            }
        }
        read_files(root, "", &mut tree.files)?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// Returns the file at `path`, if it exists and is text.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        Some(&self.files[at])
    }

    /// Returns every file of Rust, tests and examples included.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// Makes a tree of texts, each with its path, and of one public crate for each `…/src` in them.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for &(path, text) in files {
            tree.files.push(File { path: path.to_owned(), text: text.to_owned() });
            let Some((directory, _)) = path.split_once("/src/") else { continue };
            if tree.crates.iter().all(|known| known.directory != directory) {
                let name = directory.rsplit('/').next().unwrap_or(directory).to_owned();
                let directory = directory.to_owned();
                let path = format!("{directory}/src/lib.rs");
                let roots = vec![Root { path, is_library: true }];
                tree.crates.push(Crate {
                    name,
                    directory,
                    roots,
                    is_public: true,
                    ..Crate::default()
                });
            }
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree
    }
}

impl Crate {
    /// Returns the path of the file `name` beside the manifest.
    pub(crate) fn beside_manifest(&self, name: &str) -> String {
        if self.directory.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.directory)
        }
    }
}

/// Reads the files below `directory`, whose path from the root is `prefix`.
fn read_files(directory: &Path, prefix: &str, files: &mut Vec<File>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            let is_hidden = name.starts_with('.') && !HIDDEN_FOLDERS.contains(&name.as_str());
            if !is_hidden && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                read_files(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if entry.path().is_file() {
            // Through symbolic links, such as those to the licences.
            let bytes = std::fs::read(entry.path()).with_context(|| path.clone())?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(File { path, text });
            }
        }
    }
    Ok(())
}
