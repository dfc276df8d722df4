//! Lets the library begin before all others: their first blocks are its own, with the defaults of a
//! library that overrides `malloc`. What unwinds its stack is linked into it, so that a program in C has no other library
//! to load and to keep in memory.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
        if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
            println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
        }
    }
}
