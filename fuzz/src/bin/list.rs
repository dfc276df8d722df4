//! Prints the targets for `cargo xtask fuzz`: name, longest input and purpose, tabs between them.

#![forbid(unsafe_code)]

use swath_fuzz::target::Target;
use swath_fuzz::targets::TARGETS;

fn main() {
    for Target { name, about, len_bytes_max, .. } in TARGETS {
        println!("{name}\t{len_bytes_max}\t{about}");
    }
}
