//! The program that libFuzzer drives: one of the targets, named by the environment.

#![no_main]
#![forbid(unsafe_code)]

use std::sync::LazyLock;

use swath_fuzz::target::Target;
use swath_fuzz::targets;

/// The target that `SWATH_FUZZ_TARGET` names.
static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("SWATH_FUZZ_TARGET").unwrap_or_default();
    match targets::find(&name) {
        Some(target) => target,
        None => {
            eprintln!("SWATH_FUZZ_TARGET is {name:?}, which is no target");
            std::process::exit(2);
        }
    }
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
