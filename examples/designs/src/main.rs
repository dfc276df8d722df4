//! The program `swath` with three designs more.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use swath_example_designs::{colt, hashed, next_fit};

fn main() -> ExitCode {
    if let Err(error) = colt::add().and_then(|()| next_fit::add()).and_then(|()| hashed::add()) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    swath_cli::main()
}
