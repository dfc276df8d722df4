//! No system call that the library makes may fail unnoticed: each fails once, and then for
//! good, under a program that checks every byte. And the library under valgrind.

mod library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use library::library;

/// Stands before the C library's calls for memory: counts them, and lets those from number
/// FAIL_FROM to FAIL_TO fail.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static long count, from = -1, to;
long shim_calls(void) { return __atomic_load_n(&count, __ATOMIC_RELAXED); }
static long mapped;
long shim_mapped(void) { return __atomic_load_n(&mapped, __ATOMIC_RELAXED); }
static int refused(void) {
    if (from < 0) {
        const char *text = getenv("FAIL_FROM");
        from = text ? atol(text) : 0;
        text = getenv("FAIL_TO");
        to = text ? atol(text) : 0;
    }
    long number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (number < from || number > to) return 0;
    errno = ENOMEM;
    return 1;
}
void *mmap(void *at, size_t len, int access, int flags, int file, long offset) {
    if (refused()) return (void *)-1;
    void *got = (void *)syscall(SYS_mmap, at, len, access, flags, file, offset);
    if (at == NULL && got != (void *)-1) __atomic_add_fetch(&mapped, len, __ATOMIC_RELAXED);
    return got;
}
int munmap(void *at, size_t len) {
    int failed = (int)syscall(SYS_munmap, at, len);
    if (!failed) __atomic_sub_fetch(&mapped, len, __ATOMIC_RELAXED);
    return failed;
}
int mprotect(void *at, size_t len, int access) {
    return refused() ? -1 : (int)syscall(SYS_mprotect, at, len, access);
}
int madvise(void *at, size_t len, int advice) {
    return refused() ? -1 : (int)syscall(SYS_madvise, at, len, advice);
}
void *mremap(void *at, size_t old, size_t len, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *to_place = va_arg(rest, void *);
    va_end(rest);
    if (refused()) return (void *)-1;
    void *got = (void *)syscall(SYS_mremap, at, old, len, flags, to_place);
    /* It moves to addresses that are counted already. */
    if (got != (void *)-1) __atomic_sub_fetch(&mapped, old, __ATOMIC_RELAXED);
    return got;
}
"#;

/// Allocates all kinds of blocks in two threads and checks them. Prints how many calls there were,
/// how many requests were refused, and what is left at the end.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 60 };
static long refusals[2];
static void wrong(const char *what) { write(2, what, strlen(what)); write(2, "\n", 1); _exit(3); }
static void fill(unsigned char *block, size_t len, int with) { memset(block, with, len); }
static void check(unsigned char *block, size_t len, int with) {
    for (size_t at = 0; at < len; at++) if (block[at] != (unsigned char)with) wrong("changed");
}
static void *work(void *part) {
    long self = (long)part;
    unsigned char *held[BLOCKS] = {0};
    size_t lens[BLOCKS];
    unsigned long random = 88172645463325252ul + self;
    for (int step = 0; step < 600; step++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int slot = random % BLOCKS;
        size_t len = (random >> 8) % (1ul << (4 + (random >> 40) % (step % 40 ? 13 : 20)));
        unsigned char *got;
        errno = 0;
        if (held[slot] && random >> 60 < 6) {
            size_t less = lens[slot] < len ? lens[slot] : len;
            got = realloc(held[slot], len + 1);
            if (got) {
                check(got, less, slot);
                held[slot] = got, lens[slot] = len + 1;
                fill(got, len + 1, slot);
                continue;
            }
        } else if (held[slot]) {
            check(held[slot], lens[slot], slot);
            free(held[slot]);
            held[slot] = NULL;
            continue;
        } else if (random >> 60 < 5) {
            got = calloc(1, len);
            if (got) check(got, len, 0);
        } else if (random >> 60 < 6) {
            got = memalign(1 << (random >> 30) % 18, len);
        } else {
            got = malloc(len);
        }
        if (!got) {
            if (errno != ENOMEM) wrong("refused without ENOMEM");
            refusals[self]++;
            continue;
        }
        held[slot] = got, lens[slot] = len;
        fill(got, len, slot);
    }
    if (self) malloc_trim(0);
    for (int slot = 0; slot < BLOCKS; slot++) {
        if (held[slot]) check(held[slot], lens[slot], slot);
        free(held[slot]);
    }
    return NULL;
}
int main(void) {
    long (*calls)(void) = dlsym(RTLD_DEFAULT, "shim_calls");
    long (*mapped)(void) = dlsym(RTLD_DEFAULT, "shim_mapped");
    size_t before, after;
    pthread_t other;
    /* The C library's own, such as a thread's, are there before. */
    int tries = 0;
    while (pthread_create(&other, NULL, work, (void *)1))
        if (++tries == 20) { write(1, "0 1 0 0\n", 8); _exit(0); }
    pthread_join(other, NULL);
    for (int i = 0; i < 3; i++) free(malloc(100));
    before = mallinfo2().uordblks;
    work((void *)0);
    after = mallinfo2().uordblks;
    char line[100];
    int len = snprintf(line, sizeof line, "%ld %ld %lld %ld\n", calls ? calls() : 0,
                       refusals[0] + refusals[1], (long long)(after - before),
                       mapped ? mapped() : 0);
    write(1, line, len);
    _exit(0);
}
"#;

fn built(directory: &Path, name: &str, source: &str, args: &[&str]) -> PathBuf {
    let file = directory.join(format!("{name}.c"));
    fs::write(&file, source).expect("written");
    let out = directory.join(name);
    let made = Command::new("cc")
        .args(["-O1", "-w", "-fno-builtin"])
        .args(args)
        .arg(&file)
        .arg("-o")
        .arg(&out)
        .output();
    let made = made.expect("cc");
    assert!(made.status.success(), "{made:?}");
    out
}

/// What a run printed: calls, requests refused, bytes lost, bytes mapped.
fn numbers(output: &Output, place: &str) -> [i64; 4] {
    assert!(output.status.success(), "{place}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<i64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{place}: {output:?}"))
}

#[test]
fn every_system_call_may_fail() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let shim = built(directory, "shim.so", SHIM, &["-shared", "-fPIC"]);
    let program = built(directory, "program", PROGRAM, &["-pthread"]);
    let preload = format!("{}:{}", shim.display(), library().display());
    let reserve = &[("SWATH_RESERVE", "8M")][..];
    for options in
        [&[][..], &[("SWATH_GUARD", "1"), ("SWATH_THP", "0")], &[("SWATH_POPULATE", "1")], reserve]
    {
        let run = |from: i64, to: i64| {
            let mut command = Command::new(&program);
            command.env("LD_PRELOAD", &preload).envs(options.iter().copied());
            // An arena that is asked for is not made shorter: what is mapped can be compared.
            command.env("SWATH_ARENA_MIB", "4096");
            command.env("FAIL_FROM", from.to_string()).env("FAIL_TO", to.to_string());
            let output = command.output().expect("it runs");
            numbers(&output, &format!("{options:?}, calls {from} to {to} fail"))
        };
        let [calls, refused, lost, mapped] = run(0, 0);
        assert!(calls > 10 && refused == 0 && lost == 0, "{options:?}: {calls} {refused} {lost}");
        // The first of these end the making of the pool, which is tried again.
        for number in 1..=calls {
            let [_, refused, lost, now] = run(number, number);
            assert!(refused <= 1, "{options:?}: call {number} alone fails, {refused} requests");
            assert_eq!(lost, 0, "{options:?}: call {number} fails");
            // A reserve's tables may be missing then, and are not tried again.
            let tables = if options == reserve { mapped - now } else { 0 };
            assert!((0..8 << 20).contains(&tables), "{options:?}: call {number} fails, {tables}");
            assert_eq!(now + tables, mapped, "{options:?}: call {number} fails");
        }
        // From one on all fail, and with it most requests; or ten, after which all is well.
        let mut any = false;
        for number in (1..=calls).step_by(3) {
            let [_, refused, lost, _] = run(number, i64::MAX);
            any |= refused > 0;
            assert_eq!(lost, 0, "{options:?}: all calls from {number} on fail");
            let [_, _, lost, now] = run(number, number + 9);
            assert_eq!(lost, 0, "{options:?}: ten calls from {number} on fail");
            assert!(now == mapped || options == reserve, "{options:?}: ten calls from {number}");
        }
        assert!(any, "{options:?}: no request was ever refused");
    }
}

/// Frees 64 MiB and goes on with long blocks, for at most ten seconds; prints the KiB resident before
/// the free and at the end.
const IDLE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    fscanf(file, "%*d %ld", &pages);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}
int main(void) {
    char *block = malloc(64 << 20);
    memset(block, 1, 64 << 20);
    long full = resident(), now = full;
    free(block);
    for (int i = 0; i < 1000 && now > full - (60 << 10); i++) {
        for (int calls = 0; calls < 20; calls++) free(malloc(1 << 20));
        usleep(10000);
        now = resident();
    }
    printf("%ld %ld\n", full, now);
    return 0;
}
"#;

#[test]
fn memory_goes_back_after_the_delay() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = built(directory.path(), "idle", IDLE, &[]);
    let run = |delay: &str| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&program).env("LD_PRELOAD", library()).env("SWATH_PURGE_MS", delay);
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let kib: Vec<i64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let &[full, now] = kib.as_slice() else { panic!("{output:?}") };
        (full, now)
    };
    let (full, now) = run("50");
    assert!(full > 64 << 10 && now <= full - (60 << 10), "{now} of {full} KiB are still there");
}

#[test]
fn limited_addresses_are_enough() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = built(directory.path(), "program", PROGRAM, &["-pthread"]);
    // Far less than an arena of twice the machine's memory.
    let line =
        format!("ulimit -v 2000000; LD_PRELOAD={} exec {}", library().display(), program.display());
    let output = Command::new("sh").args(["-c", &line]).output().expect("a shell");
    let [_, refused, lost, _] = numbers(&output, "limited addresses");
    assert_eq!((refused, lost), (0, 0));
}

#[test]
fn valgrind_finds_nothing() {
    let there = Command::new("valgrind").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("valgrind is not here");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = built(directory.path(), "program", PROGRAM, &["-pthread"]);
    // Its own malloc stays away, so that the library's runs; the arena is as small as
    // valgrind's room for addresses.
    let output = Command::new("valgrind")
        .args(["--soname-synonyms=somalloc=nouserintercepts", "--error-exitcode=9", "-q"])
        .arg(program)
        .env("LD_PRELOAD", library())
        .env("SWATH_ARENA_MIB", "1024")
        .output()
        .expect("it runs");
    let [_, refused, lost, _] = numbers(&output, "valgrind");
    assert_eq!((refused, lost), (0, 0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
