//! The machine that runs a study, in words.

/// Describes the machine: processor, number of cores and operating system.
pub(crate) fn host_name() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = cpu.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    format!("{cpu}, {cores} cores, {}", std::env::consts::OS)
}
