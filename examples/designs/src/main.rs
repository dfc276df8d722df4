//! The program `swath` with two designs more.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use swath_example_designs::{colt, next_fit};

fn main() -> ExitCode {
    if let Err(error) = colt::add().and_then(|()| next_fit::add()) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    swath_cli::main()
}
