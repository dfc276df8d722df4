//! The program `swath` with a workload and a rule for the memory's writes more.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = swath_example_workloads::hash_join::add() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = swath_example_workloads::more_writes::add() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    swath_cli::main()
}
