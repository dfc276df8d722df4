//! The misuse of the heap that the library finds, in its default form and hardened: each kind is a run of
//! `misuse/misuse.c`, which says so if it could go on as if nothing had happened.
//!
//! The kinds are those of the security tests of mimalloc-bench, at three lengths where the length matters.

mod library;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use library::library;

/// Builds the program, as C++ where there is a compiler for it: C has no operators to mix up.
fn build(at: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misuse/misuse.c");
    let program = at.join("misuse");
    let compile = |compiler: &str, language: &str| {
        let mut command = Command::new(compiler);
        command.args(["-O1", "-w", "-x", language]).arg(&source).arg("-o").arg(&program).output()
    };
    let built = compile("c++", "c++").or_else(|_| compile("cc", "c")).expect("a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    // Memory that goes back meanwhile, on a slow machine, is another block's sooner.
    command.args(arguments).env("SWATH_PURGE_MS", "600000").envs(variables.iter().copied());
    command.output().expect("the program runs")
}

/// A kind and a length in bytes.
type Case = (String, String);

/// Returns all cases.
fn cases(program: &Path) -> BTreeSet<Case> {
    let list = run(program, &["list"], &[]);
    let list = String::from_utf8(list.stdout).expect("names");
    let mut cases = BTreeSet::new();
    for line in list.lines() {
        let (kind, lengths) = line.split_once(' ').expect("a name and a number");
        let lengths = if lengths == "1" { &["8", "1024", "262144"][..] } else { &["64"] };
        cases.extend(lengths.iter().map(|bytes| (kind.to_owned(), (*bytes).to_owned())));
    }
    cases
}

/// Returns the cases that are not found with some variables set.
fn missed(program: &Path, cases: &BTreeSet<Case>, variables: &[(&str, &str)]) -> BTreeSet<Case> {
    let goes_on =
        |(kind, bytes): &&Case| run(program, &[kind, bytes], variables).stdout == b"not found\n";
    cases.iter().filter(goes_on).cloned().collect()
}

/// Kinds that neither form finds: nothing looks at the block after, or what lies beside it is no block's.
const NEVER: &[&str] = &[
    "one_byte_underflow",
    "some_bytes_underflow",
    "one_byte_copied_over",
    "some_bytes_copied_over",
    "one_byte_copied_under",
    "some_bytes_copied_under",
    "write_after_free",
];

/// Kinds that the hardened form alone finds.
const HARDENED: &[&str] = &[
    "one_byte_overflow",
    "some_bytes_overflow",
    "double_free_reuse",
    "double_free_single_reuse",
    "reuse",
    "reuse_downsize",
    "write_after_free_reuse",
    "zero_after_free",
    "array_delete_of_one",
];

#[test]
fn misuse_is_found() {
    let room = tempfile::tempdir().expect("a folder");
    let program = build(room.path());
    let cases = cases(&program);
    assert!(cases.len() >= 90, "{} cases", cases.len());
    // The judge: without a library of ours the C library's heap goes on after some of them.
    let library = library();
    let preload = ("LD_PRELOAD", library.to_str().expect("a path"));

    let default = missed(&program, &cases, &[preload]);
    let hardened =
        [("SWATH_CANARY", "1"), ("SWATH_GUARD", "1"), ("SWATH_QUARANTINE", "256"), preload];
    let hardened = missed(&program, &cases, &hardened);
    println!(
        "of {} cases the default form finds {}, the hardened one {}",
        cases.len(),
        cases.len() - default.len(),
        cases.len() - hardened.len()
    );
    for (kind, bytes) in &default {
        let may = NEVER.contains(&kind.as_str()) || HARDENED.contains(&kind.as_str());
        assert!(may, "{kind} of {bytes} bytes is not found");
    }
    for (kind, bytes) in &hardened {
        assert!(NEVER.contains(&kind.as_str()), "{kind} of {bytes} bytes is not found, hardened");
    }
    // Of all lengths, where there are C++'s operators, too.
    if cases.len() == 109 {
        assert!(default.len() <= 109 - 68 && hardened.len() <= 109 - 89, "fewer than before");
    }
    // Every kind that is said to need the hardened form does.
    for kind in HARDENED {
        let known = cases.iter().any(|(name, _)| name == kind);
        assert!(
            !known || default.iter().any(|(name, _)| name == kind),
            "{kind} is found by default"
        );
    }
}

/// A write before a block is found where another slot of its superblock lies before it.
#[test]
fn a_write_before_a_block_is_found() {
    const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    volatile char *blocks[64];
    size_t bytes = strtoul(argv[1], NULL, 0);
    for (int i = 0; i < 64; i++) blocks[i] = malloc(bytes);
    for (int i = 0; i < 64; i += 2) free((void *)blocks[i]);
    /* Beside a block in use, and beside free ones. */
    int which = atoi(argv[2]);
    blocks[which][-1] ^= 1;
    free((void *)blocks[which]);
    puts("not found");
    return 0;
}
"#;
    let room = tempfile::tempdir().expect("a folder");
    let (source, program) = (room.path().join("before.c"), room.path().join("before"));
    std::fs::write(&source, PROGRAM).expect("written");
    let built =
        Command::new("cc").args(["-O1", "-w"]).arg(&source).arg("-o").arg(&program).output();
    assert!(built.expect("a compiler").status.success());
    let library = library();
    let preload = ("LD_PRELOAD", library.to_str().expect("a path"));
    for bytes in ["1", "24", "100", "1000"] {
        for quarantine in ["0", "16"] {
            let variables = [("SWATH_CANARY", "1"), ("SWATH_QUARANTINE", quarantine), preload];
            let out = run(&program, &[bytes, "33"], &variables);
            assert_ne!(out.stdout, b"not found\n", "{bytes}, {quarantine}");
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(said.contains("before the block"), "{bytes}, {quarantine}: {said}");
        }
    }
}
