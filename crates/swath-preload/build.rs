//! Compiles the library, where there is one for the target.

use std::env::var;
use std::path::PathBuf;

#[allow(unreachable_pub, missing_docs)]
mod protocol {
    include!("src/protocol.rs");
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/preload.c");
    println!("cargo::rerun-if-changed=src/protocol.rs");
    println!("cargo::rustc-check-cfg=cfg(has_library)");
    let target = |key: &str| var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    let runs = target("OS") == "linux" && target("ENV") == "gnu" && target("POINTER_WIDTH") == "64";
    if !runs {
        return;
    }
    let out = PathBuf::from(var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let constants = [
        ("WINDOW_ADDR", protocol::WINDOW_ADDR),
        ("LANES", protocol::LANES),
        ("LANE_BYTES", protocol::LANE_BYTES),
        ("START", protocol::START),
        ("MALLOC", protocol::MALLOC),
        ("CALLOC", protocol::CALLOC),
        ("ALIGNED", protocol::ALIGNED),
        ("FREE", protocol::FREE),
        ("REALLOC", protocol::REALLOC),
        ("REALLOCATED", protocol::REALLOCATED),
    ];
    // The same library whatever the profile; -fno-builtin because the compiler
    // knows malloc, and must not think that it knows ours.
    let mut build = cc::Build::new();
    build.opt_level(2).debug(false).pic(true).warnings(true).extra_warnings(true);
    build.flag("-std=gnu11").flag("-fno-builtin").flag("-fvisibility=hidden");
    let mut command = build.get_compiler().to_command();
    for (name, value) in constants {
        command.arg(format!("-DSWATH_{name}={value}ull"));
    }
    command.args(["-shared", "src/preload.c", "-o"]).arg(out.join("libswath_preload.so"));
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?} ended with {status}");
    println!("cargo::rustc-cfg=has_library");
}
