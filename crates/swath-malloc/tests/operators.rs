//! C++'s operators of the library: they throw, call the program's handler and keep alignments as the C++
//! library's do, in the default form and hardened, with several threads.

mod freestanding;
mod library;

use std::path::{Path, PathBuf};
use std::process::Command;

use freestanding::freestanding;
use library::library;

const PROGRAM: &str = r#"
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>
#include <thread>
#include <vector>
struct alignas(64) Aligned { char bytes[100]; };
struct Base { virtual ~Base() {} int numbers[3]; };
struct Derived : Base { std::string strings[4]; };
static int calls = 0;
int main() {
    volatile size_t most = SIZE_MAX - 8192;
    try { char *volatile p = new char[most]; (void)p; } catch (std::bad_alloc &) { puts("array"); }
    try { void *volatile p = ::operator new(most); (void)p; } catch (std::bad_alloc &) { puts("one"); }
    try { void *volatile p = ::operator new(most, std::align_val_t(64)); (void)p; }
    catch (std::bad_alloc &) { puts("aligned"); }
    if (!new (std::nothrow) char[most]) puts("null");
    std::set_new_handler([] { if (++calls == 3) std::set_new_handler(nullptr); });
    try { char *volatile p = new char[most]; (void)p; } catch (std::bad_alloc &) { printf("%d calls\n", calls); }
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; k++)
        threads.emplace_back([k] {
            std::vector<std::string> strings;
            std::vector<Aligned *> aligned;
            for (int i = 0; i < 20000; i++) {
                strings.push_back(std::string((i * 7 + k) % 300, 'x'));
                if (i % 3 == 0) aligned.push_back(new Aligned);
                if (!aligned.empty() && (uintptr_t)aligned.back() % 64) puts("misaligned");
                if (i % 5 == 0) strings[i / 2].clear(), strings[i / 2].shrink_to_fit();
                if (i % 7 == 0 && !aligned.empty()) { delete aligned.back(); aligned.pop_back(); }
            }
            for (Aligned *one : aligned) delete one;
        });
    for (auto &thread : threads) thread.join();
    Base *base = new Derived;
    delete base;
    Derived *several = new Derived[5];
    delete[] several;
    puts("end");
}
"#;

/// Operators of a program's own for single blocks, which make them longer and leave the sized ones to the library.
const OWN: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <new>
struct Narrow { char it[16]; };
struct Wide { char it[40000]; };
void *operator new(size_t bytes) { return malloc(bytes + 70000); }
void operator delete(void *block) noexcept { free(block); }
int main() {
    Narrow *volatile narrow = new Narrow;
    delete narrow;
    Wide *volatile wide = new Wide;
    delete wide;
    puts("end");
}
"#;

/// Builds a program, if there is a compiler for it.
fn built(room: &Path, source: &str) -> Option<PathBuf> {
    let (file, program) = (room.join("new.cc"), room.join("new"));
    std::fs::write(&file, source).expect("written");
    let compile = Command::new("c++")
        .args(["-std=c++17", "-O1", "-w", "-pthread"])
        .arg(&file)
        .arg("-o")
        .arg(&program)
        .output();
    let Ok(built) = compile else {
        println!("skipped: c++ is not here");
        return None;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// What it makes may be longer than what it says when it deletes it.
#[test]
fn a_program_has_operators_of_its_own() {
    let room = tempfile::tempdir().expect("a folder");
    let Some(program) = built(room.path(), OWN) else { return };
    let out = Command::new(program).env("LD_PRELOAD", library()).output().expect("it runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (&b"end\n"[..], &b""[..]));
}

#[test]
fn operators_are_those_of_the_language() {
    let room = tempfile::tempdir().expect("a folder");
    let Some(program) = built(room.path(), PROGRAM) else { return };
    let run = |variables: &[(&str, &str)]| {
        let out = Command::new(&program).envs(variables.iter().copied()).output().expect("it runs");
        assert!(out.status.success(), "{variables:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    };
    let without = run(&[]);
    assert_eq!(without, "array\none\naligned\nnull\n3 calls\nend\n");
    let (canary, guard) = (("SWATH_CANARY", "1"), ("SWATH_GUARD", "1"));
    let quarantine = ("SWATH_QUARANTINE", "256");
    // Where nothing is unwound, the C++ library's exceptions still go through the operators.
    for library in [library(), freestanding()] {
        let preload = ("LD_PRELOAD", library.to_str().expect("a path"));
        for form in [&[][..], &[canary], &[quarantine], &[canary, guard, quarantine]] {
            let mut variables = form.to_vec();
            variables.push(preload);
            assert_eq!(run(&variables), without, "{variables:?}");
        }
    }
}
