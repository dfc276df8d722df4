//! C++'s operators of the library: they throw, call the program's handler and keep alignments as the C++
//! library's do, in the default form and hardened, with several threads.

use std::process::Command;

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

#[test]
fn operators_are_those_of_the_language() {
    let library = std::env::current_exe().expect("this test").with_file_name("libswath_malloc.so");
    let room = tempfile::tempdir().expect("a folder");
    let (source, program) = (room.path().join("new.cc"), room.path().join("new"));
    std::fs::write(&source, PROGRAM).expect("written");
    let compile = Command::new("c++")
        .args(["-std=c++17", "-O1", "-w", "-pthread"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    let Ok(built) = compile else {
        println!("skipped: c++ is not here");
        return;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = |variables: &[(&str, &str)]| {
        let out = Command::new(&program).envs(variables.iter().copied()).output().expect("it runs");
        assert!(out.status.success(), "{variables:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    };
    let without = run(&[]);
    assert_eq!(without, "array\none\naligned\nnull\n3 calls\nend\n");
    let preload = ("LD_PRELOAD", library.to_str().expect("a path"));
    let (canary, guard) = (("SWATH_CANARY", "1"), ("SWATH_GUARD", "1"));
    let quarantine = ("SWATH_QUARANTINE", "256");
    for form in [&[][..], &[canary], &[quarantine], &[canary, guard, quarantine]] {
        let mut variables = form.to_vec();
        variables.push(preload);
        assert_eq!(run(&variables), without, "{variables:?}");
    }
}
