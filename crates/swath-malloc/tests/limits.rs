//! Programs whose addresses are limited, before they begin and from within, or that ask for more than
//! they touch.

mod library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use library::library;

fn built(directory: &Path, source: &str) -> PathBuf {
    let (file, out) = (directory.join("program.c"), directory.join("program"));
    fs::write(&file, source).expect("written");
    let flags = ["-O1", "-w", "-fno-builtin", "-pthread", "-o"];
    let made = Command::new("cc").args(flags).arg(&out).arg(&file).output().expect("cc");
    assert!(made.status.success(), "{made:?}");
    out
}

/// Runs a line of the shell, in which `LIBRARY` stands for the library's name.
fn run(line: &str) -> Output {
    let line = line.replace("LIBRARY", library().to_str().expect("a path in UTF-8"));
    Command::new("sh").args(["-c", &line]).output().expect("a shell")
}

#[test]
fn small_limits_are_enough_for_small_programs() {
    let expected = run("ls -l /proc/self/ns /usr");
    assert!(expected.status.success());
    for kib in [1_000_000, 300_000, 100_000] {
        let got = run(&format!("ulimit -v {kib}; LD_PRELOAD=LIBRARY ls -l /proc/self/ns /usr"));
        assert_eq!(String::from_utf8_lossy(&got.stderr), "", "{kib} KiB");
        assert_eq!((got.status, got.stdout.len()), (expected.status, expected.stdout.len()));
    }
}

/// Asks for 1 GiB 200 times and writes to one page of each.
const UNTOUCHED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    int got = 0;
    for (int i = 0; i < 200; i++) {
        char *block = malloc(1ul << 30);
        if (!block) break;
        block[i] = 1;
        got++;
    }
    printf("%d\n", got);
}
"#;

#[test]
fn two_hundred_gibibytes_may_be_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = built(directory.path(), UNTOUCHED);
    let got = run(&format!("SWATH_THP=0 LD_PRELOAD=LIBRARY {}", program.display()));
    // Where the kernel counts what is only reserved no allocator has so much.
    let mode = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if mode.trim() == "2" {
        println!("skipped: the kernel counts addresses");
        return;
    }
    assert_eq!(String::from_utf8_lossy(&got.stdout), "200\n", "{got:?}");
}

/// Limits its addresses, asks for 1 MiB until there is none, and again after a free.
const LIMITED: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
int main(void) {
    struct rlimit limit = {256ul << 20, RLIM_INFINITY};
    free(malloc(100));
    setrlimit(RLIMIT_AS, &limit);
    static char *blocks[1000];
    int got = 0;
    errno = 0;
    while (got < 1000 && (blocks[got] = malloc(1 << 20))) got++;
    int full = errno;
    free(blocks[0]);
    char *again = malloc(1 << 20);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_AS, &limit);
    char *more = malloc(64 << 20);
    char line[100];
    setvbuf(stdout, line, _IOFBF, sizeof line);
    printf("%d %d %d %d\n", got, full == ENOMEM, !!again, !!more);
}
"#;

#[test]
fn a_limit_from_within_holds() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = built(directory.path(), LIMITED);
    let got = run(&format!("LD_PRELOAD=LIBRARY {}", program.display()));
    let text = String::from_utf8_lossy(&got.stdout).into_owned();
    let numbers: Vec<i64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let &[blocks, full, again, more] = numbers.as_slice() else { panic!("{got:?}") };
    assert!((200..=256).contains(&blocks), "{blocks} MiB within 256");
    assert_eq!((full, again, more), (1, 1, 1));
}
