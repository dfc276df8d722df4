//! Names the shared library as its programs will look for it.

/// Version of the C interface: it changes when a program that is linked to an older library would
/// not run with a newer one.
const SO_VERSION: &str = "0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libswath.so.{SO_VERSION}");
    }
}
