//! The library in the place of the C library's: blocks of its heap, its functions that tell of the heap,
//! and the names that both have.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The directory in which this test's build put the library.
fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("this test");
    exe.parent().expect("target/PROFILE/deps").to_owned()
}

fn built(directory: &Path, name: &str, source: &str, more: &[&Path]) -> PathBuf {
    let file = directory.join(format!("{name}.c"));
    fs::write(&file, source).expect("written");
    let out = directory.join(name);
    let mut command = Command::new("cc");
    command.args(["-O1", "-w", "-fno-builtin", "-o"]).arg(&out).arg(&file).args(more);
    let made = command.args(["-pthread", "-ldl", "-lm"]).output().expect("cc");
    assert!(made.status.success(), "{made:?}");
    out
}

fn preloaded(program: &Path) -> Output {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", libraries().join("libswath_malloc.so")).output().expect("it runs")
}

/// Frees and resizes blocks of the C library's own heap: short ones, mappings, and another thread's.
const FOREIGN: &str = r#"
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void *__libc_malloc(size_t);
void *__libc_memalign(size_t, size_t);
static void all(void) {
    size_t sizes[] = {1, 24, 100, 5000, 100000, 130000, 200000, 5000000};
    for (int i = 0; i < 8; i++) {
        size_t size = sizes[i];
        char *block = __libc_malloc(size);
        memset(block, 7, size);
        if (malloc_usable_size(block) < size || malloc_usable_size(block) > size + 4096) exit(2);
        char *longer = realloc(block, 2 * size);
        for (size_t at = 0; at < size; at++) if (longer[at] != 7) exit(3);
        memset(longer, 8, 2 * size);
        free(longer);
        free(__libc_malloc(size));
        free(__libc_memalign(256, size));
        free(malloc(size));
    }
}
static void *thread(void *unused) { all(); return NULL; }
int main(void) {
    all();
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    puts("alive");
}
"#;

#[test]
fn blocks_of_the_c_librarys_heap_go_back_to_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = preloaded(&built(directory.path(), "foreign", FOREIGN, &[]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alive\n", "{output:?}");
    assert!(output.status.success());
}

/// What the heap says of itself before and after 3 MiB are in use.
const INFO: &str = r#"
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    free(malloc(1));
    struct mallinfo2 before = mallinfo2();
    void *block = malloc(3 << 20);
    struct mallinfo2 after = mallinfo2();
    struct mallinfo old = mallinfo();
    int ok = after.uordblks - before.uordblks == 3 << 20
        && after.arena >= after.uordblks && after.fordblks == after.arena - after.uordblks
        && (size_t)old.uordblks == after.uordblks && (size_t)old.arena == after.arena
        && mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1 && mallopt(M_ARENA_MAX, 1) == 1
        && mallopt(M_PERTURB, 1) == 0 && mallopt(12345, 1) == 0;
    errno = 0;
    ok = ok && malloc_info(1, stdout) == -1 && errno == EINVAL;
    free(block);
    ok = ok && mallinfo2().uordblks == before.uordblks;
    puts(ok ? "right" : "wrong");
    malloc_stats();
    return malloc_info(0, stdout);
}
"#;

#[test]
fn the_heap_tells_of_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = preloaded(&built(directory.path(), "info", INFO, &[]));
    let said = String::from_utf8_lossy(&output.stdout);
    let xml = said.strip_prefix("right\n").unwrap_or_else(|| panic!("{output:?}"));
    assert!(xml.starts_with("<malloc version=\"1\">\n") && xml.ends_with("</malloc>\n"), "{xml}");
    let sizes = xml.matches("size=\"").count();
    assert_eq!((sizes, output.status.code()), (4, Some(0)), "{xml}");
    let stats = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stats.starts_with("system bytes     = ") && stats.lines().count() == 2, "{stats}");
}

/// A program that has the archive linked in has its `malloc`.
#[test]
fn the_archive_brings_malloc() {
    let directory = tempfile::tempdir().expect("a directory");
    let twice = "#include <stdlib.h>\nint main(void) { void *volatile block = malloc(100);\n\
                 free(block); free(block); return 0; }\n";
    let archive = libraries().join("libswath_malloc.a");
    let program = built(directory.path(), "twice", twice, &[&archive]);
    let output = Command::new(&program).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("swath: free: ") && !output.status.success(), "{output:?}");
}

/// The library has the C library's names and C++'s operators, and no others.
#[test]
fn no_other_names_are_exported() {
    let library = libraries().join("libswath_malloc.so");
    let Ok(read) = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output() else {
        println!("skipped: nm is not here");
        return;
    };
    let text = String::from_utf8_lossy(&read.stdout);
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let mut expected = BTreeSet::from([
        "aligned_alloc",
        "calloc",
        "free",
        "mallinfo",
        "mallinfo2",
        "malloc",
        "malloc_info",
        "malloc_stats",
        "malloc_trim",
        "malloc_usable_size",
        "mallopt",
        "memalign",
        "posix_memalign",
        "pvalloc",
        "realloc",
        "reallocarray",
        "valloc",
    ]);
    // C++'s operators: of one and of an array, with a length, an alignment, or without throwing.
    let quietly = "RKSt9nothrow_t";
    let operators: Vec<String> = ["w", "a"]
        .iter()
        .flat_map(|of| {
            let new = [format!("_Zn{of}m"), format!("_Zn{of}mSt11align_val_t")];
            let of = of.replace('w', "l");
            let delete = [format!("_Zd{of}Pv"), format!("_Zd{of}PvSt11align_val_t")];
            let sized = [format!("_Zd{of}Pvm"), format!("_Zd{of}PvmSt11align_val_t")];
            let both = new.into_iter().chain(delete);
            both.flat_map(|name| [format!("{name}{quietly}"), name]).chain(sized)
        })
        .collect();
    expected.extend(operators.iter().map(String::as_str));
    assert_eq!(names, expected);
}

/// Blocks of no bytes, more of them than there are places that fault: each once, and as the C library's to `realloc`
/// and its kin.
const NOTHING: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { BLOCKS = 40000 };
static char *blocks[BLOCKS];
static int compare(const void *a, const void *b) {
    char *one = *(char **)a, *other = *(char **)b;
    return (one > other) - (one < other);
}
int main(void) {
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = i % 3 == 0 ? calloc(i % 2, 0) : i % 3 == 1 ? aligned_alloc(16, 0) : malloc(0);
            if (!blocks[i] || (size_t)blocks[i] % 16) return 1;
        }
        qsort(blocks, BLOCKS, sizeof *blocks, compare);
        for (int i = 1; i < BLOCKS; i++) if (blocks[i - 1] == blocks[i]) return 2;
        for (int i = 0; i < BLOCKS; i++) {
            if (i % 7 == 0) {
                blocks[i] = realloc(blocks[i], 100 + i);
                if (!blocks[i] || malloc_usable_size(blocks[i]) < 100 + i) return 3;
                memset(blocks[i], i, 100 + i);
            }
            free(blocks[i]);
        }
    }
    char *block = malloc(0);
    if (malloc_usable_size(block) != 0) return 4;
    free(block);
    puts("end");
    fflush(stdout);
    free(block);
    return 5;
}
"#;

#[test]
fn blocks_of_no_bytes_are_blocks() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = built(directory.path(), "nothing", NOTHING, &[]);
    let out = preloaded(&program);
    assert_eq!(out.stdout, b"end\n", "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("swath: free: "), "a double free: {out:?}");
}
