//! Hands the linker the script of the machine.

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate lies");
    println!("cargo:rustc-link-arg=-T{root}/system.ld");
    println!("cargo:rustc-link-arg=--no-pie");
    println!("cargo:rerun-if-changed=system.ld");
}
