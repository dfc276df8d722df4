//! Forks of programs that know nothing of the library, with memory of the kernel's hugetlb pools and
//! without.

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

fn run(program: &Path, options: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.arg(forks()).env("LD_PRELOAD", library()).envs(options.iter().copied());
    command.output().expect("it runs")
}

/// Pages of 2 MiB in the kernel's pool, more of them as long as this lives.
struct Pool {
    folder: PathBuf,
    before: u64,
}

impl Pool {
    fn raised(pages: u64) -> Option<Self> {
        let folder = PathBuf::from("/sys/kernel/mm/hugepages/hugepages-2048kB");
        let pool = Self { before: number(&folder, "nr_hugepages"), folder };
        let wanted = pool.before + number(&pool.folder, "surplus_hugepages") + pages;
        let _ = fs::write(pool.folder.join("nr_hugepages"), wanted.to_string());
        if pool.free() >= pages {
            return Some(pool);
        }
        println!("skipped: {} pages of 2 MiB instead of {pages}", pool.free());
        None
    }

    fn free(&self) -> u64 {
        number(&self.folder, "free_hugepages") - number(&self.folder, "resv_hugepages")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("nr_hugepages"), self.before.to_string());
    }
}

fn number(folder: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Threads hold the locks of files, write to memory and allocate while the process forks; each child
/// writes to the files, checks memory, allocates and ends. A child that waits for ever is ended by its
/// alarm. The counters that the threads write show a write that was lost.
const FORKS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
enum { FILES = 4, LEN = 24 << 20 };
static FILE *files[FILES];
static volatile int stop, held;
static char *block;
static void *holds(void *of) {
    FILE *file = files[(long)of];
    while (!stop) {
        flockfile(file);
        __sync_fetch_and_add(&held, 1);
        fputc('x', file);
        char *p = malloc(100 + rand() % 100000);
        memset(p, 1, 100);
        usleep(100);
        free(p);
        __sync_fetch_and_sub(&held, 1);
        funlockfile(file);
    }
    return 0;
}
static void *counts(void *from) {
    for (long round = 1; !stop; round++)
        for (long at = (long)from; at < LEN; at += 8192) {
            long *word = (long *)(block + at);
            if (*word != round - 1) { printf("a write was lost\n"); _exit(3); }
            *word = round;
        }
    return 0;
}
int main(int argc, char **argv) {
    int forks = atoi(argv[1]);
    for (int i = 0; i < FILES; i++) files[i] = fopen("/dev/null", "w");
    block = malloc(LEN);
    memset(block, 0, LEN);
    char *mine = malloc(3 << 20);
    memset(mine, 7, 3 << 20);
    pthread_t threads[FILES + 2];
    for (long i = 0; i < FILES; i++) pthread_create(&threads[i], 0, holds, (void *)i);
    for (long i = 0; i < 2; i++) pthread_create(&threads[FILES + i], 0, counts, (void *)(i * 4096));
    while (!held) usleep(10);
    long left = -1;
    FILE *pool = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
    if (pool) fscanf(pool, "%ld", &left), fclose(pool);
    printf("%ld\n", left);
    fflush(stdout);
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            for (int j = 0; j < FILES; j++) fprintf(files[j], "child %d\n", i), fflush(files[j]);
            for (int at = 0; at < 3 << 20; at += 4096) if (mine[at] != 7) _exit(4);
            memset(mine, 8, 3 << 20);
            for (int size = 1; size < 1 << 22; size *= 3) { char *p = malloc(size); *p = 1; free(p); }
            free(mine);
            FILE *more = fopen("/dev/null", "w");
            fprintf(more, "more\n");
            fclose(more);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status) { printf("child %d: status %x\n", i, status); return 1; }
        if (mine[5] != 7) return 2;
    }
    stop = 1;
    for (int i = 0; i < FILES + 2; i++) pthread_join(threads[i], 0);
    puts("well");
    return 0;
}
"#;

/// Forks of the long form, which `SWATH_TEST_LONG` asks for.
fn forks() -> &'static str {
    if std::env::var_os("SWATH_TEST_LONG").is_some() { "10000" } else { "60" }
}

#[test]
fn children_of_threads_that_hold_files_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = built(directory.path(), FORKS);
    for options in [&[][..], &[("SWATH_CANARY", "1"), ("SWATH_QUARANTINE", "50")]] {
        let got = run(&program, options);
        let said = String::from_utf8_lossy(&got.stdout).into_owned();
        assert!(got.status.success() && said.ends_with("well\n"), "{options:?}: {got:?}");
    }
}

/// The same with memory of the hugetlb pool, which leaves it at the first fork.
#[test]
fn memory_of_hugetlb_pools_is_left_before_a_fork() {
    let Some(pool) = Pool::raised(40) else { return };
    let before = pool.free();
    let directory = tempfile::tempdir().expect("a directory");
    let program = built(directory.path(), FORKS);
    let got = run(&program, &[("SWATH_HUGETLB", "1")]);
    let said = String::from_utf8_lossy(&got.stdout).into_owned();
    assert!(got.status.success() && said.ends_with("well\n"), "{got:?}");
    assert_eq!(pool.free(), before, "no page of the pool is lost");
    let left: u64 = said.lines().next().and_then(|line| line.parse().ok()).expect("a number");
    if left == before {
        println!("skipped: no userfaultfd, so no page of the pool was taken");
    }
    assert!(left == before || left + 10 <= before, "{left} of {before} pages left");
}
