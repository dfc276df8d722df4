//! The program `swath` with one workload more.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = swath_example_workloads::hash_join::add() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    swath_cli::main()
}
