//! Threads and memory that a command may use.

use clap::Args;
use swath_lab::study::needs::Limits;

/// Arguments of the commands that measure points.
#[derive(Args)]
pub(crate) struct Resources {
    /// Threads; as many as processors if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// The most memory that a study may take, as in 3GiB; three quarters of the machine's if
    /// not given. Fewer points are measured at a time within it, and a plan whose points do
    /// not fit is refused.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_limit: Option<u64>,
}

impl Resources {
    /// Threads that the user, or the machine, has.
    pub(crate) fn jobs(&self) -> u64 {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from) as u64;
        self.jobs.map_or_else(cores, u64::from)
    }

    pub(crate) fn limits(&self) -> Limits {
        let here = Limits::here();
        Limits { memory_bytes: self.memory_limit.unwrap_or(here.memory_bytes), ..here }
    }
}

/// A number of bytes with its unit: 512MiB, 3GiB, or bytes alone.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim_start() {
        "" | "B" => 0,
        "KiB" | "K" => 10,
        "MiB" | "M" => 20,
        "GiB" | "G" => 30,
        other => return Err(format!("{other:?} is none of B, KiB, MiB and GiB")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is no number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "more than 2^64 bytes".to_owned())
}
