//! The book in docs/book: each page stands in its contents, its links and pictures are there, and
//! each command in it runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages in the order of the contents, each with its text.
fn pages() -> Vec<(String, String)> {
    let contents = read(&source().join("SUMMARY.md"));
    let links = links(&contents);
    links.into_iter().map(|page| (page.clone(), read(&source().join(&page)))).collect()
}

/// The places to which links and pictures lead, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut links = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if !is_code {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            links.extend(targets.map(str::to_owned));
        }
    }
    links
}

/// The blocks of code of a language: the line of each, and its text. A comment above one says why
/// it is not run.
fn blocks(text: &str, language: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut nth = 0;
    while nth < lines.len() {
        let Some(name) = lines[nth].strip_prefix("```") else {
            nth += 1;
            continue;
        };
        let body: Vec<&str> =
            lines[nth + 1..].iter().copied().take_while(|&line| line != "```").collect();
        let reason =
            nth.checked_sub(1).and_then(|above| lines[above].strip_prefix("<!-- not run: "));
        match reason {
            Some(reason) => assert!(reason.trim_end_matches(" -->").len() > 10, "{reason}"),
            None if name == language => blocks.push((nth + 1, body.join("\n"))),
            None => {}
        }
        nth += body.len() + 2;
    }
    blocks
}

#[test]
fn every_page_stands_in_the_contents_once() {
    let listed: Vec<String> = pages().into_iter().map(|(page, _)| page).collect();
    let set: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(set.len(), listed.len(), "a page stands twice");
    let files = std::fs::read_dir(source()).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> =
        names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert_eq!(set, there);
    for (page, text) in pages() {
        assert!(text.starts_with("# "), "{page} begins with its title");
    }
}

/// A link to a page or a picture leads to one, and so does one to a file of the project; mdBook would
/// rename a relative link out of the book, so these are whole addresses.
#[test]
fn links_lead_somewhere() {
    const PROJECT: &str = "https://github.com/swath-rs/swath";
    let mut pictures = BTreeSet::new();
    for (page, text) in pages() {
        for link in links(&text) {
            if let Some(file) =
                link.strip_prefix(PROJECT).and_then(|rest| rest.strip_prefix("/blob/main/"))
            {
                assert!(source().join("../../..").join(file).is_file(), "{page}: {link}");
                continue;
            }
            if link.starts_with("https://") {
                let is_ours =
                    link.starts_with(PROJECT) || link.starts_with("https://docs.rs/swath-");
                assert!(is_ours, "{page}: {link} is another's");
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link.as_str(), ""));
            assert!(heading.is_empty(), "{page}: headings are not checked: {link}");
            assert!(source().join(file).is_file(), "{page}: {link} leads nowhere");
            if let Some(picture) = file.strip_prefix("figures/") {
                assert!(read(&source().join(file)).contains("class=\"swath-figure"), "{picture}");
                pictures.insert(picture.to_owned());
            }
        }
    }
    let folder = std::fs::read_dir(source().join("figures")).unwrap();
    let there: BTreeSet<String> =
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(pictures, there, "each picture is shown");
    let film = std::fs::metadata(source().join("figures/green-layout-film.svg")).unwrap();
    assert!(film.len() <= 200_000, "{} bytes", film.len());
}

/// The commands of a page run one after the other in one empty directory.
#[test]
#[cfg(unix)]
fn every_command_runs() {
    let program = Path::new(env!("CARGO_BIN_EXE_swath")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(program.to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).unwrap();
    let run = |page: &str, text: &str| {
        let dir = tempfile::tempdir().unwrap();
        let blocks = blocks(text, "sh");
        for (line, block) in &blocks {
            let output = Command::new("sh")
                .args(["-e", "-c", block])
                .current_dir(dir.path())
                .env("PATH", &path)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{page}, line {line}: {block}\n{said}");
        }
        blocks.len()
    };
    let count: usize = std::thread::scope(|scope| {
        let runs: Vec<_> = pages()
            .into_iter()
            .map(|(page, text)| scope.spawn(move || run(&page, &text)))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    assert!(count >= 10, "only {count} blocks of commands were found");
}

/// mdBook makes a page of each, and none of its links is left as it was written.
#[test]
fn mdbook_renders_it() {
    let room = tempfile::tempdir().unwrap();
    let built = Command::new("mdbook")
        .arg("build")
        .arg(source().parent().unwrap())
        .arg("-d")
        .arg(room.path())
        .output();
    let Ok(built) = built else {
        println!("skipped: no mdbook in PATH");
        return;
    };
    assert!(built.status.success(), "{built:?}");
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    for (page, _) in pages() {
        let html = read(&room.path().join(&page).with_extension("html"));
        let inside = html.split_once("<main>").unwrap().1.split_once("</main>").unwrap().0;
        assert!(inside.contains("<h1 id="), "{page} has no title");
        let targets = inside.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let pictures = inside.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for target in targets.chain(pictures) {
            let (file, _) = target.split_once('#').unwrap_or((target, ""));
            let leads = file.starts_with("https://") || room.path().join(file).exists();
            assert!(leads, "{page}: {target}");
        }
    }
}

#[test]
fn blocks_are_found_by_language_and_reason() {
    let text = "a\n```sh\none\n```\n<!-- not run: it needs a machine -->\n```sh\ntwo\n```\n```text\nx\n```";
    assert_eq!(blocks(text, "sh"), [(2, "one".to_owned())]);
    assert_eq!(links("[a](b.md) ![c](d.svg)\n```\n[no](no)\n```"), ["b.md", "d.svg"]);
}
