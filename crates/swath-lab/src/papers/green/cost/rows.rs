//! Rows of the paper's Tables V and VI: what runs on two kernels took.

/// A row: what an operation or a program takes on Linux, and by how much that differs under Adaptive-Buddy.
pub(crate) struct PaperRow {
    pub(crate) table: &'static str,
    pub(crate) test: &'static str,
    /// The seconds of an operation on Linux; `None` of a program, whose run was another one than ours.
    pub(crate) seconds: Option<f64>,
    /// The share by which the paper's runs differ, in either direction.
    pub(crate) difference: f64,
    /// The share by which rounding may have changed that.
    pub(crate) rounding: f64,
}

/// Operations a second on Linux, and the difference.
const fn operation(test: &'static str, per_second: f64, difference: f64) -> PaperRow {
    let seconds = Some(1.0 / per_second);
    PaperRow { table: "Table VI", test, seconds, difference: difference.abs(), rounding: 0.0 }
}

/// System time in milliseconds and user time in whole seconds, of which two differ by up to a second more or less
/// than is printed; each on Linux and under Adaptive-Buddy.
const fn program(test: &'static str, system_ms: [f64; 2], user_s: [f64; 2]) -> PaperRow {
    let linux = system_ms[0] / 1000.0 + user_s[0];
    let own = system_ms[1] / 1000.0 + user_s[1];
    let difference = (own - linux).abs() / linux;
    PaperRow { table: "Table V", test, seconds: None, difference, rounding: 1.0 / linux }
}

pub(crate) const TABLE_V: [PaperRow; 12] = [
    program("bodytrack", [864.0, 672.0], [290.0, 290.0]),
    program("blackscholes", [3_885.0, 3_915.0], [352.0, 352.0]),
    program("canneal", [7_380.0, 7_432.0], [297.0, 299.0]),
    program("dedup", [27_843.0, 28_363.0], [56.0, 55.0]),
    program("facesim", [9_610.0, 9_836.0], [1051.0, 1058.0]),
    program("ferret", [2_042.0, 1_900.0], [813.0, 818.0]),
    program("fluidanimate", [2_934.0, 2_961.0], [873.0, 876.0]),
    program("freqmine", [2_360.0, 2_382.0], [987.0, 981.0]),
    program("streamcluster", [12_319.0, 12_614.0], [1052.0, 1094.0]),
    program("swaptions", [13_373.0, 12_228.0], [666.0, 639.0]),
    program("vips", [4_478.0, 3_848.0], [273.0, 272.0]),
    program("x264", [1_603.0, 1_787.0], [211.0, 211.0]),
];

pub(crate) const TABLE_VI: [PaperRow; 17] = [
    operation("creat-clo", 151_816.0, -0.0130),
    operation("page_test", 552_330.0, 0.0135),
    operation("brk_test", 3_716_713.0, 0.0626),
    operation("exec_test", 1396.0, -0.0043),
    operation("fork_test", 3260.0, -0.0205),
    operation("link_test", 133_415.0, -0.0394),
    operation("disk_rr", 432_397.0, 0.0071),
    operation("disk_rw", 350_405.0, 0.0263),
    operation("disk_wrt", 523_008.0, 0.0272),
    operation("disk_src", 94_153.0, -0.0088),
    operation("shared_memory", 1_054_128.0, -0.0005),
    operation("tcp_test", 202_990.0, -0.0026),
    operation("udp_test", 458_661.0, -0.0193),
    operation("fifo_test", 1_184_720.0, 0.0032),
    operation("stream_pipe", 1_167_396.0, -0.0083),
    operation("dgram_pipe", 1_081_990.0, -0.0228),
    operation("pipe_cpy", 1_548_410.0, 0.0219),
];
