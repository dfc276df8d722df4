//! No circles between the files of a crate: what two files need of each other belongs in a third.
//!
//! An arrow leads from a file to each file whose items it names, in imports, in paths and inside
//! macros. The re-exports of a `mod.rs` and of a crate's root are no arrows; who imports through
//! them points to the file behind. Modules and imports of the tests alone are left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, UseTree, Visibility};

use crate::lint::rust::{attributes, is_test_only};
use crate::lint::tree::Tree;

/// A module's or an item's path from its crate's root.
type Path = Vec<String>;

/// A name that a folder's `mod.rs` or the crate's root offers from elsewhere; `None` for `*`.
struct Reexport {
    name: Option<String>,
    from: Path,
}

/// What one file says.
#[derive(Default)]
struct Source {
    file: String,
    /// What it names, as full paths.
    paths: Vec<Path>,
    reexports: Vec<Reexport>,
    /// The items that it defines itself.
    defines: BTreeSet<String>,
}

/// The files of one crate, each under its module's path.
type Sources = BTreeMap<Path, Source>;

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for package in &tree.crates {
        let source = package.beside_manifest("src/");
        let mut texts: BTreeMap<Path, (&str, &str)> = BTreeMap::new();
        for file in tree.rust_files() {
            if let Some(path) = file.path.strip_prefix(&source) {
                texts.insert(module(path), (path, &file.text));
            }
        }
        match read(&texts) {
            Ok(sources) => breaches.extend(
                circles(&arrows(&sources))
                    .into_iter()
                    .map(|(circle, others)| tell(&source, &sources, &circle, &others)),
            ),
            Err(file) => breaches.push(format!("{source}{file} is not Rust")),
        }
    }
    breaches
}

fn tell(source: &str, sources: &Sources, circle: &[Path], others: &[Path]) -> String {
    let names = |paths: &[Path], between: &str| {
        let names: Vec<&str> = paths.iter().map(|path| sources[path].file.as_str()).collect();
        names.join(between)
    };
    let mut told = format!("{source}: a circle: {}", names(circle, " -> "));
    if !others.is_empty() {
        told.push_str(&format!(" (in circles with these: {})", names(others, ", ")));
    }
    told
}

/// The module that the file holds.
fn module(path: &str) -> Path {
    let mut parts: Path = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Reads every file that more than the tests compile; the error names a file that is not Rust.
fn read(texts: &BTreeMap<Path, (&str, &str)>) -> Result<Sources, String> {
    let mut sources = Sources::new();
    let mut tests: Vec<Path> = Vec::new();
    for (path, (file, text)) in texts {
        let parsed = syn::parse_file(text).map_err(|_| (*file).to_owned())?;
        let is_facade = ["mod.rs", "lib.rs"].iter().any(|name| file.ends_with(name));
        let mut reader = Reader {
            at: path.clone(),
            is_facade,
            modules: texts,
            source: Source { file: (*file).to_owned(), ..Source::default() },
            tests: Vec::new(),
        };
        if is_test_only(&parsed.attrs) {
            tests.push(path.clone());
        }
        reader.items(&parsed.items);
        tests.append(&mut reader.tests);
        sources.insert(path.clone(), reader.source);
    }
    sources.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
    Ok(sources)
}

/// Walks through one file.
struct Reader<'a> {
    /// The module that the walk is in.
    at: Path,
    is_facade: bool,
    modules: &'a BTreeMap<Path, (&'a str, &'a str)>,
    source: Source,
    /// Modules in files of their own that only tests compile.
    tests: Vec<Path>,
}

impl Reader<'_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            if is_test_only(attributes(item)) {
                if let Item::Mod(module) = item {
                    self.tests.push(self.child(&module.ident.to_string()));
                }
                continue;
            }
            match item {
                Item::Use(item) => {
                    let mut uses = Vec::new();
                    expand(&item.tree, Vec::new(), &mut uses);
                    let is_reexport = self.is_facade && !matches!(item.vis, Visibility::Inherited);
                    for (path, name) in uses {
                        let Some(from) = self.full(&path) else { continue };
                        if is_reexport {
                            self.source.reexports.push(Reexport { name, from });
                        } else {
                            self.source.paths.push(from);
                        }
                    }
                }
                Item::Mod(module) => {
                    if let Some((_, items)) = &module.content {
                        self.at.push(module.ident.to_string());
                        self.items(items);
                        self.at.pop();
                    }
                }
                _ => {
                    if let Some(name) = defined(item) {
                        self.source.defines.insert(name);
                    }
                    self.tokens(item.to_token_stream());
                }
            }
        }
    }

    /// Notes the paths among the tokens, imports within functions and macros' insides included.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut next = 0;
        while next < tokens.len() {
            match &tokens[next] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(word) if next < 2 || !is_colons(&tokens[next - 2..next]) => {
                    let word = word.to_string();
                    if self.full(std::slice::from_ref(&word)).is_some() {
                        let mut path = vec![word];
                        next = self.path(&tokens, next + 1, &mut path);
                        continue;
                    }
                }
                _ => {}
            }
            next += 1;
        }
    }

    /// Follows a path from `next` on and notes it; returns the index behind it.
    fn path(&mut self, tokens: &[TokenTree], mut next: usize, path: &mut Path) -> usize {
        while tokens.len() >= next + 3 && is_colons(&tokens[next..next + 2]) {
            match &tokens[next + 2] {
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    // `crate::a::{b, c::d}`
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in inner.split(|token| is_char(token, ',')) {
                        let Some(TokenTree::Ident(word)) = part.first() else { continue };
                        let mut longer = path.clone();
                        longer.push(word.to_string());
                        self.path(part, 1, &mut longer);
                    }
                    return next + 3;
                }
                _ => break,
            }
            next += 3;
        }
        if path.len() > 1 {
            self.source.paths.extend(self.full(path));
        }
        next
    }

    /// Returns the path from the crate's root; `None` if it leads out of the crate.
    fn full(&self, path: &[String]) -> Option<Path> {
        let (first, mut rest) = path.split_first()?;
        let mut full = match first.as_str() {
            "crate" => Vec::new(),
            "self" => self.at.clone(),
            "super" => {
                let mut full = self.at.clone();
                full.pop()?;
                while let Some((first, after)) = rest.split_first() {
                    if first != "super" {
                        break;
                    }
                    full.pop()?;
                    rest = after;
                }
                full
            }
            name => {
                let child = self.child(name);
                if !self.modules.contains_key(&child) {
                    return None;
                }
                child
            }
        };
        full.extend_from_slice(rest);
        Some(full)
    }

    fn child(&self, name: &str) -> Path {
        let mut child = self.at.clone();
        child.push(name.to_owned());
        child
    }
}

fn is_char(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    tokens.iter().all(|token| is_char(token, ':'))
}

/// Notes every path of an import with the name that it gets; `None` stands for `*`.
fn expand(tree: &UseTree, mut path: Path, uses: &mut Vec<(Path, Option<String>)>) {
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            expand(&inner.tree, path, uses);
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            // `a::{self}` is `a`.
            if name != "self" || path.is_empty() {
                path.push(name);
            }
            let name = path.last().cloned();
            uses.push((path, name));
        }
        UseTree::Rename(rename) => {
            if rename.ident != "self" || path.is_empty() {
                path.push(rename.ident.to_string());
            }
            uses.push((path, Some(rename.rename.to_string())));
        }
        UseTree::Glob(_) => uses.push((path, None)),
        UseTree::Group(group) => {
            for tree in &group.items {
                expand(tree, path.clone(), uses);
            }
        }
    }
}

/// The name that an item defines in its module.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Returns the file that a path leads to, through re-exports to what stands behind them.
fn target(sources: &Sources, mut path: Path) -> Option<&Path> {
    // Re-exports of re-exports are few; the bound is for those that lead back to themselves.
    for _ in 0..16 {
        let (module, source) =
            (0..=path.len()).rev().find_map(|len| sources.get_key_value(&path[..len]))?;
        let Some(name) = path.get(module.len()) else { return Some(module) };
        let behind = source.reexports.iter().find_map(|reexport| {
            let mut from = reexport.from.clone();
            let is_it = match &reexport.name {
                Some(offered) => offered == name,
                None => {
                    from.push(name.clone());
                    offers(sources, &reexport.from, name)
                }
            };
            is_it.then_some(from)
        });
        match behind {
            Some(from) if !source.defines.contains(name) => {
                path = from.into_iter().chain(path.drain(module.len() + 1..)).collect();
            }
            _ => return Some(module),
        }
    }
    None
}

/// Returns true if `use module::*` brings the name.
fn offers(sources: &Sources, module: &[String], name: &str) -> bool {
    sources.get(module).is_some_and(|source| {
        source.defines.contains(name)
            || source.reexports.iter().any(|reexport| reexport.name.as_deref() == Some(name))
    })
}

type Arrows<'a> = BTreeMap<&'a Path, BTreeSet<&'a Path>>;

fn arrows(sources: &Sources) -> Arrows<'_> {
    let mut arrows = Arrows::new();
    for (module, source) in sources {
        let targets = source.paths.iter().filter_map(|path| target(sources, path.clone()));
        arrows.insert(module, targets.filter(|target| *target != module).collect());
    }
    arrows
}

/// Returns, for each set of files that all reach each other, a shortest circle among them (its
/// first file is its last as well) and the set's other files.
fn circles(arrows: &Arrows<'_>) -> Vec<(Vec<Path>, Vec<Path>)> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> =
        arrows.keys().map(|&from| (from, reach(arrows, from))).collect();
    let mut done: BTreeSet<&Path> = BTreeSet::new();
    let mut circles = Vec::new();
    for &from in arrows.keys() {
        if !reached[from].contains(from) || done.contains(from) {
            continue;
        }
        let set: Vec<&Path> = reached[from]
            .iter()
            .copied()
            .filter(|to| reached.get(to).is_some_and(|back| back.contains(from)))
            .collect();
        done.extend(&set);
        let shortest = set.iter().filter_map(|start| circle(arrows, start)).min_by_key(Vec::len);
        if let Some(shortest) = shortest {
            let others = set.into_iter().filter(|path| !shortest.contains(path)).cloned().collect();
            circles.push((shortest, others));
        }
    }
    circles
}

/// The files that arrows lead to from `from`, which is among them only if one leads back.
fn reach<'a>(arrows: &Arrows<'a>, from: &'a Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        open.extend(arrows[next].iter().filter(|to| reached.insert(**to)));
    }
    reached
}

/// Returns a shortest way from `start` back to itself.
fn circle(arrows: &Arrows<'_>, start: &Path) -> Option<Vec<Path>> {
    let mut before: BTreeMap<&Path, &Path> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(next) = open.pop_front() {
        for &to in &arrows[next] {
            if to == start {
                let mut way = vec![start.clone(), next.clone()];
                let mut at = next;
                while at != start {
                    at = before[at];
                    way.push(at.clone());
                }
                way.reverse();
                return Some(way);
            }
            if !before.contains_key(to) {
                before.insert(to, next);
                open.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod unit {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> =
            files.iter().map(|(path, _)| format!("crates/a/src/{path}")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        breaches(&Tree::of(&files))
    }

    #[test]
    fn imports_paths_and_macros_are_arrows() {
        for back in [
            "use crate::x::X;",
            "use super::x::{self, X};",
            "use {crate::x::X as Z, std::fmt};",
            "fn f() -> crate::x::X { todo!() }",
            "fn f() { use crate::{y::Y, x::{X, W}}; }",
            "fn f() { assert!(super::x::IS_IT); }",
            "macro_rules! m { () => { $crate::x::X } }",
            "mod inner { use super::super::x::X; }",
        ] {
            assert_eq!(
                found(&[("lib.rs", "mod x; mod y;"), ("x.rs", "use crate::y::Y;"), ("y.rs", back)]),
                ["crates/a/src/: a circle: x.rs -> y.rs -> x.rs"],
                "{back}"
            );
        }
    }

    #[test]
    fn tests_other_crates_and_words_in_texts_are_none() {
        for back in [
            "#[cfg(test)] mod unit { use crate::x::X; }",
            "#[cfg(all(test, not(loom)))] use crate::x::X;",
            "/// See [`crate::x::X`].\nfn f() -> &'static str { \"crate::x::X\" }",
            "use other::x::X; use x::X;",
            "mod inner { use super::Y; } use self::inner::Z;",
        ] {
            assert_eq!(
                found(&[("lib.rs", "mod x; mod y;"), ("x.rs", "use crate::y::Y;"), ("y.rs", back)]),
                [""; 0],
                "{back}"
            );
        }
        assert_eq!(
            found(&[
                ("lib.rs", "mod x; #[cfg(test)] mod unit;"),
                ("x.rs", "use crate::unit::help;"),
                ("unit.rs", "use crate::x::X;"),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn a_reexport_is_no_arrow_but_leads_to_the_file_behind() {
        let lib = ("lib.rs", "mod b; pub use b::{X, y::Y};");
        let facade = ("b/mod.rs", "mod x; mod y; mod z; pub use x::*; pub(crate) use self::y::Y;");
        let x = ("b/x.rs", "pub struct X;");
        let z = ("b/z.rs", "use crate::b::X;");
        assert_eq!(found(&[lib, facade, x, ("b/y.rs", "use super::X;"), z]), [""; 0]);
        let x = ("b/x.rs", "use crate::Y; pub struct X;");
        assert_eq!(
            found(&[lib, facade, x, ("b/y.rs", "use super::X;"), z]),
            ["crates/a/src/: a circle: b/x.rs -> b/y.rs -> b/x.rs"]
        );
        // Code in a `mod.rs` is as code elsewhere.
        let facade = ("b/mod.rs", "mod x; fn f() { x::g() }");
        assert_eq!(
            found(&[("lib.rs", ""), facade, ("b/x.rs", "pub fn g() { super::f() }")]),
            ["crates/a/src/: a circle: b/mod.rs -> b/x.rs -> b/mod.rs"]
        );
    }

    #[test]
    fn the_shortest_circle_of_a_set_is_told() {
        assert_eq!(
            found(&[
                ("lib.rs", ""),
                ("v.rs", "use crate::w::W;"),
                ("w.rs", "use crate::x::X;"),
                ("x.rs", "use crate::{v::V, y::Y};"),
                ("y.rs", "use crate::x::X;"),
            ]),
            ["crates/a/src/: a circle: x.rs -> y.rs -> x.rs (in circles with these: v.rs, w.rs)"]
        );
    }
}
