//! A paper is cited as a reader would cite it; the names of its files stand in `docs/papers.md` alone.

use crate::lint::tree::Tree;

/// The one file that may hold them.
const LIST: &str = "docs/papers.md";

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != LIST) {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(name) = paper(line) {
                breaches.push(format!("{}:{}: {name} is no citation", file.path, number + 1));
            }
        }
    }
    breaches
}

/// Finds three digits, an underscore and sixteen hexadecimal digits, with or without `.txt`.
fn paper(line: &str) -> Option<&str> {
    const LEN: usize = 3 + 1 + 16;
    let matches = |bytes: &[u8]| {
        bytes[..3].iter().all(u8::is_ascii_digit)
            && bytes[3] == b'_'
            && bytes[4..].iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let start = line.as_bytes().windows(LEN).position(matches)?;
    Some(&line[start..start + LEN])
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_file_name_of_a_paper_is_found_outside_the_list() {
        // Put together here, lest it be found.
        let name = format!("{:03}_{:016x}", 7, 0xfeed_u64);
        let line = format!("see »{name}.txt«, section 3");
        assert_eq!(
            breaches(&Tree::of(&[("a.toml", &format!("\n{line}\n")), (LIST, &line)])),
            [format!("a.toml:2: {name} is no citation")]
        );
        assert_eq!(paper("0xffff_0123456789abcdeg 012_0123456789ABCDEF"), None);
    }
}
