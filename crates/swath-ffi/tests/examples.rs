//! The examples in C and C++, built against the static and the shared library, and run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where this build put `libswath.a` and `libswath.so`.
fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("this test");
    exe.parent().expect("target/PROFILE/deps").to_owned()
}

fn run(compiler: &str, source: &str, shared: bool) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (dir, libraries) = (tempfile::tempdir().expect("a directory"), libraries());
    let exe = dir.path().join("example");
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&exe);
    command.arg("-I").arg(root.join("../../include")).arg(root.join("examples").join(source));
    if shared {
        command.arg(libraries.join("libswath.so"));
    } else {
        command.arg(libraries.join("libswath.a")).args(["-lpthread", "-ldl", "-lm"]);
    }
    let built = command.output().expect("a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&exe).env("LD_LIBRARY_PATH", libraries).output().expect("it runs");
    assert!(output.status.success(), "{source}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn frames_in_c() {
    for shared in [false, true] {
        assert_eq!(
            run("cc", "frames.c", shared),
            "900 frames from 512 on\n\
             again: it is free already, frame 1312\n\
             48096 of 48896 frames are free\n"
        );
    }
}

#[test]
fn a_heap_in_cpp() {
    for shared in [false, true] {
        assert_eq!(
            run("c++", "heap.cpp", shared),
            "999 squared is 998001\nall memory is back: yes\n"
        );
    }
}
