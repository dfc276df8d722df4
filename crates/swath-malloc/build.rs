//! Lets the library begin before all others: their first blocks are its own, with the defaults of a
//! library that overrides `malloc`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    }
}
