//! The `swath` program.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    swath_cli::main()
}
