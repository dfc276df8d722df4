//! The examples in C and C++, built against the static and the shared library, and run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name by which a program looks for the shared library.
const SO_NAME: &str = "libswath.so.0";

/// Returns the directory in which this build put `libswath.a` and `libswath.so`.
fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("this test");
    exe.parent().expect("target/PROFILE/deps").to_owned()
}

fn run(compiler: &str, source: &str, shared: bool) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (dir, libraries) = (tempfile::tempdir().expect("a directory"), libraries());
    let exe = dir.path().join("example");
    // The name by which the program looks for it.
    symlink(libraries.join("libswath.so"), dir.path().join(SO_NAME)).expect("a link");
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&exe);
    command.arg("-I").arg(root.join("include")).arg(root.join("examples").join(source));
    if shared {
        command.arg(libraries.join("libswath.so"));
    } else {
        command.arg(libraries.join("libswath.a")).args(["-lpthread", "-ldl", "-lm"]);
    }
    let built = command.output().expect("a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&exe).env("LD_LIBRARY_PATH", dir.path()).output().expect("it runs");
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
fn segments_in_c() {
    for shared in [false, true] {
        assert_eq!(
            run("cc", "segments.c", shared),
            "baseline: 8 segments, 160 MiB acquired\n  4 MiB at 12 MiB\n  16 MiB at 24 MiB\n\
             global bitmap: 10 segments, 220 MiB acquired\n  8 MiB at 320 MiB\n  12 MiB at 336 MiB\n\
             pre-allocated: 12 segments, 0 MiB acquired\n  4 MiB at 324 MiB\n  16 MiB at 336 MiB\n"
        );
    }
}

/// Frees a block twice.
const TWICE: &str = "#include <swath.h>\n#include <stdio.h>\n\
                     int main(void) { void *block = cmt_malloc(100);\n\
                     cmt_free(block); cmt_free(block); puts(\"alive\"); return 0; }\n";

/// A program with more rights than its caller does not let the caller's environment choose what a wrong
/// pointer comes to.
#[test]
fn a_privileged_program_does_not_read_the_environment() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let dir = tempfile::tempdir().expect("a directory");
    let (source, exe) = (dir.path().join("twice.c"), dir.path().join("twice"));
    fs::write(&source, TWICE).expect("written");
    let mut command = Command::new("cc");
    command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    command.arg(&source).arg("-o").arg(&exe).arg(libraries().join("libswath.a"));
    let built = command.args(["-lpthread", "-ldl", "-lm"]).output().expect("a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = |user: Option<u32>| {
        let mut command = Command::new(&exe);
        command.env("SWATH_ON_ERROR", "0");
        if let Some(user) = user {
            command.uid(user);
        }
        command.output()
    };
    assert_eq!(run(None).expect("it runs").stdout, b"alive\n");
    // Set to run as its owner, and run by another: only root can make it so.
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    allow(dir.path(), 0o755).and_then(|()| allow(&exe, 0o4755)).expect("the owner may");
    match run(Some(65534)) {
        Ok(output) if output.status.code() == Some(127) => println!("skipped: {output:?}"),
        Ok(output) => assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}"),
        Err(error) => println!("skipped: cannot run as another user: {error}"),
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

/// The files of the package where a system has them.
fn installed() -> tempfile::TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let prefix = tempfile::tempdir().expect("a directory");
    let package = |name: &str| root.join("package").join(name);
    for (file, to) in [
        (root.join("include/swath.h"), "include"),
        (libraries().join("libswath.a"), "lib"),
        (package("swath.pc"), "lib/pkgconfig"),
        (package("swath-config.cmake"), "lib/cmake/swath"),
        (package("swath-config-version.cmake"), "lib/cmake/swath"),
    ] {
        let directory = prefix.path().join(to);
        fs::create_dir_all(&directory).expect("a directory");
        fs::copy(&file, directory.join(file.file_name().expect("a name"))).expect("a copy");
    }
    let lib = prefix.path().join("lib");
    fs::copy(libraries().join("libswath.so"), lib.join(SO_NAME)).expect("a copy");
    symlink(SO_NAME, lib.join("libswath.so")).expect("a link");
    prefix
}

#[test]
fn the_shared_library_has_a_versioned_name() {
    let read = Command::new("readelf").arg("-d").arg(libraries().join("libswath.so")).output();
    // It comes with every C compiler for Linux but a few.
    if let Ok(read) = read {
        let text = String::from_utf8(read.stdout).expect("text");
        let line = text.lines().find(|line| line.contains("(SONAME)")).expect("a name");
        assert!(line.ends_with(&format!("[{SO_NAME}]")), "{line}");
    } else {
        println!("readelf is not here");
    }
    let cmake = include_str!("../package/swath-config.cmake");
    assert!(cmake.contains(&format!("IMPORTED_SONAME \"{SO_NAME}\"")));
}

#[test]
fn the_package_files_have_the_crates_version() {
    let version = env!("CARGO_PKG_VERSION");
    let pc = include_str!("../package/swath.pc");
    assert!(pc.lines().any(|line| line == format!("Version: {version}")));
    let cmake = include_str!("../package/swath-config-version.cmake");
    assert!(cmake.starts_with(&format!("set(PACKAGE_VERSION \"{version}\")\n")));
}

#[test]
fn pkg_config_finds_the_library() {
    let prefix = installed();
    let asked = Command::new("pkg-config")
        .args(["--cflags", "--libs", "--static", "swath"])
        .env("PKG_CONFIG_PATH", prefix.path().join("lib/pkgconfig"))
        .output();
    let Ok(asked) = asked else {
        println!("pkg-config is not here");
        return;
    };
    assert!(asked.status.success(), "{asked:?}");
    let flags = String::from_utf8(asked.stdout).expect("text");
    let exe = prefix.path().join("frames");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/frames.c");
    let built =
        Command::new("cc").arg(source).args(flags.split_whitespace()).arg("-o").arg(&exe).output();
    let built = built.expect("a compiler");
    assert!(built.status.success(), "{built:?}");
    let ran = Command::new(&exe).env("LD_LIBRARY_PATH", prefix.path().join("lib")).output();
    assert!(ran.expect("it runs").status.success());
}

#[test]
fn cmake_finds_the_library() {
    let prefix = installed();
    let project = prefix.path().join("project");
    fs::create_dir(&project).expect("a directory");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(p C CXX)\n\
         find_package(swath {} REQUIRED)\n\
         add_executable(frames {dir}/frames.c)\ntarget_link_libraries(frames swath::static)\n\
         add_executable(heap {dir}/heap.cpp)\ntarget_link_libraries(heap swath::swath)\n",
        env!("CARGO_PKG_VERSION"),
        dir = examples.display()
    );
    fs::write(project.join("CMakeLists.txt"), text).expect("written");
    let made = Command::new("cmake")
        .args(["-S", ".", "-B", "build"])
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display()))
        .current_dir(&project)
        .output();
    let Ok(made) = made else {
        println!("CMake is not here");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let built = Command::new("cmake").args(["--build", "build"]).current_dir(&project).output();
    let built = built.expect("CMake");
    assert!(built.status.success(), "{built:?}");
    for name in ["frames", "heap"] {
        let ran = Command::new(project.join("build").join(name)).output().expect("it runs");
        assert!(ran.status.success(), "{ran:?}");
    }
}
