//! Hands the linker the script of the machine.

fn main() {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo says for what it builds");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate lies");
    println!("cargo:rustc-link-arg=-T{root}/link/{arch}.ld");
    // It lies where the script says, whatever the target's default is.
    println!("cargo:rustc-link-arg=--no-pie");
    println!("cargo:rerun-if-changed=link/{arch}.ld");
}
