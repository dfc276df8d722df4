//! Hands the linker the script of the machine.

fn main() {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo says for what it builds");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate lies");
    println!("cargo:rustc-link-arg=-T{root}/link/{arch}.ld");
    // It lies where the script says, whatever the target's default is.
    println!("cargo:rustc-link-arg=--no-pie");
    println!("cargo:rerun-if-changed=link/{arch}.ld");
    // What is linked with it: it is linked anew when one of these files is another.
    println!("cargo:rerun-if-env-changed=SWATH_LINKED");
    let linked = std::env::var_os("SWATH_LINKED").unwrap_or_default();
    for file in std::env::split_paths(&linked).filter(|file| !file.as_os_str().is_empty()) {
        println!("cargo:rustc-link-arg={}", file.display());
        println!("cargo:rerun-if-changed={}", file.display());
        // The kernel's own panic handler and memory functions come first: the library has them, too.
        println!("cargo:rustc-link-arg=--allow-multiple-definition");
    }
}
