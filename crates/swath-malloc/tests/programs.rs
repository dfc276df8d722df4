//! Real programs on the overriding library give the results that they give without.

mod library;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use library::library;

fn run(directory: &Path, program: &str, preload: Option<&Path>) -> Option<Output> {
    let mut command = Command::new("sh");
    command.args(["-c", program]).current_dir(directory);
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().expect("a shell");
    // What is not installed is not tested.
    (output.status.code() != Some(127)).then_some(output)
}

const THREADS: &str = r#"
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>
int main() {
    std::vector<std::thread> threads;
    std::vector<std::size_t> sums(4);
    std::vector<std::vector<std::string>> given(4, std::vector<std::string>(2000));
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            std::map<int, std::string> map;
            for (int i = 0; i < 20000; i++) {
                map[i * 7919 % 5000] = std::string(i % 300, 'a' + t);
                if (i % 10 == 0) given[(t + 1) % 4][i / 10] = std::string(i % 700, 'z');
            }
            for (auto &entry : map) sums[t] += entry.second.size();
        });
    for (auto &thread : threads) thread.join();
    std::size_t all = 0;
    for (auto &row : given) for (auto &text : row) all += text.size();
    for (auto sum : sums) std::printf("%zu\n", sum);
    std::printf("%zu\n", all);
}
"#;

#[test]
fn programs_run_as_without() {
    let library = library();
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    fs::write(directory.join("threads.cpp"), THREADS).expect("written");
    let built = run(directory, "c++ -O1 -pthread threads.cpp -o threads", None).expect("c++");
    assert!(built.status.success(), "{built:?}");
    let programs = [
        "./threads",
        "c++ -O2 -S -o - threads.cpp",
        "python3 -c 'import json,re,zlib; x=[{str(i):list(range(i%50))} for i in range(20000)]; \
         s=json.dumps(x); print(len(s), zlib.crc32(s.encode()), len(re.findall(\"1+\", s)))'",
        "git --version && rm -rf repo && git init -q repo && cd repo && \
         for i in 1 2 3 4 5 6 7 8; do seq $i 5000 > f$i; done && git add . && \
         git -c user.name=n -c user.email=e@f commit -q -m m && git gc -q && \
         git log --format=%T && git fsck",
        "sqlite3 :memory: 'create table t(a,b); with recursive c(i) as (select 1 union all \
         select i+1 from c where i<50000) insert into t select i, i*7919%10007 from c; \
         create index x on t(b); select count(*), sum(a) from t where b between 100 and 5000;'",
        "redis-server --version >/dev/null && redis-server --port 0 --unixsocket $PWD/redis.sock \
         --save '' --daemonize no --io-threads 2 >redis.log & pid=$!; \
         command -v redis-server >/dev/null || exit 127; \
         for i in $(seq 300); do [ -S redis.sock ] && break; sleep 0.1; done; \
         redis-cli -s redis.sock debug sleep 0 >/dev/null; \
         redis-cli -s redis.sock eval 'for i=1,20000 do redis.call(\"set\",\"k\"..i,string.rep(\"x\",i%500)) \
         end return redis.call(\"dbsize\")' 0; redis-cli -s redis.sock --raw strlen k19999; \
         redis-cli -s redis.sock shutdown nosave; wait $pid",
        "gcc -xc - -O2 -S -o - <<'END'\nint f(int a){int s=0;for(int i=0;i<a;i++)s+=i*i;return s;}\nEND",
        "perl -e '%h=map{$_=>\"v\"x($_%100)}1..30000; $s+=length for values %h; print $s'",
    ];
    let mut ran = 0;
    for program in programs {
        let Some(expected) = run(directory, program, None) else {
            println!("not here: {program}");
            continue;
        };
        let got = run(directory, program, Some(&library)).expect("it is here");
        assert_eq!(
            (
                got.status,
                String::from_utf8_lossy(&got.stdout),
                String::from_utf8_lossy(&got.stderr)
            ),
            (
                expected.status,
                String::from_utf8_lossy(&expected.stdout),
                String::from_utf8_lossy(&expected.stderr)
            ),
            "{program}"
        );
        assert!(expected.status.success(), "{program}: {expected:?}");
        ran += 1;
    }
    assert!(ran >= 2, "only {ran} of the programs are here");
}

/// Has 64 MiB of blocks of all sizes, some of them before `main`, and prints the pages of 2 MiB that the
/// pool has left.
const POOL: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
static std::vector<std::string> early(1000, std::string(5000, 'x'));
int main() {
    for (std::size_t size = 16; size < 40u << 20; size = size * 3 / 2)
        std::memset(std::malloc(size), 1, size);
    const char *name = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    long pages = -1;
    if (FILE *file = std::fopen(name, "r")) std::fscanf(file, "%ld", &pages);
    std::printf("%ld\n", pages);
}
"#;

/// The administrator's pages are not taken by a program that does not know of the library.
#[test]
fn hugetlb_pages_are_taken_only_when_asked_for() {
    let pool = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB");
    let read = |name: &str| -> i64 {
        let text = fs::read_to_string(pool.join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let (before, more) = (read("nr_hugepages"), read("surplus_hugepages") + 40);
    let set = |pages: i64| fs::write(pool.join("nr_hugepages"), pages.to_string());
    let raised = set(before + more);
    let free = read("free_hugepages");
    let available = free - read("resv_hugepages");
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    fs::write(directory.join("pool.cpp"), POOL).expect("written");
    let built = run(directory, "c++ -w -O1 pool.cpp -o pool", None).expect("c++");
    let left = |program: &str| -> i64 {
        let output = run(directory, program, Some(&library())).expect("it is here");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    };
    let [by_default, asked, reserve] =
        ["./pool", "SWATH_HUGETLB=1 ./pool", "SWATH_RESERVE=16M ./pool"].map(left);
    let _ = set(before);
    assert!(built.status.success(), "{built:?}");
    if raised.is_err() || available < 40 {
        println!("skipped: {available} pages of 2 MiB are there");
        return;
    }
    assert_eq!(by_default, free, "left by default");
    assert!(asked <= free - 20, "left of {free} when asked for: {asked}");
    assert!(reserve <= free - 8, "left of {free} by a reserve: {reserve}");
}

#[test]
fn wrong_frees_are_named_and_end_the_program() {
    let library = library();
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let source = r#"
#include <stdlib.h>
#include <stdio.h>
int main(int argc, char **argv) {
    char *volatile block = malloc(100);
    long here;
    switch (atoi(argv[argc - 1])) {
    case 0: free(block); free(block); break;
    case 1: free(block + 16); break;
    case 2: free(&here); break;
    case 3: { char *volatile large = malloc(1 << 20); free(large); free(large); break; }
    }
    puts("alive");
}
"#;
    fs::write(directory.join("wrong.c"), source).expect("written");
    let built = run(directory, "cc -w wrong.c -o wrong", None).expect("cc");
    assert!(built.status.success(), "{built:?}");
    for case in 0..4 {
        let got = run(directory, &format!("./wrong {case}"), Some(&library)).expect("it is here");
        let said = String::from_utf8_lossy(&got.stderr);
        assert!(!got.status.success() && said.starts_with("swath: free: "), "{case}: {got:?}");
        let lenient = format!("SWATH_ON_ERROR=0 ./wrong {case}");
        let got = run(directory, &lenient, Some(&library)).expect("it is here");
        assert_eq!(String::from_utf8_lossy(&got.stdout), "alive\n", "{case}");
    }
}
