//! The figures and claims of the study on superpages.

use crate::papers::superpages::execute::Cost;
use crate::papers::superpages::plan::Benchmark;
use crate::papers::superpages::talk::{Bench, READINGS};
use crate::study::results::{Claim, Figure, FigureKind, Series, StudyResult, Unit};

/// All that was measured, by point.
pub(crate) struct Found<'a> {
    pub(crate) bench: &'a Bench<'a>,
    pub(crate) measured: &'a [Cost],
    /// Points of a mode: the benchmarks, forkbomb, the compiler, the release, the
    /// loops of misses.
    pub(crate) per_mode: usize,
    /// The first of the points on status flags.
    pub(crate) statuses: usize,
    /// The first of the benchmarks with walks from the second cache: without
    /// superpages, then with them.
    pub(crate) from_l2: usize,
    /// The first of those on free blocks.
    pub(crate) blocks: usize,
    /// The first of those that touch a table in part.
    pub(crate) sparse: usize,
    pub(crate) sizes: &'a [u64],
}

impl Found<'_> {
    fn of(&self, mode: usize, index: usize) -> &Cost {
        &self.measured[mode * self.per_mode + index]
    }

    fn count(&self) -> usize {
        self.bench.plan.benchmarks.len()
    }

    /// How much a program gains: bandwidth that is more, latency that is less.
    fn gain(&self, mode: usize, index: usize) -> f64 {
        self.gained(index, self.of(0, index), self.of(mode, index))
    }

    fn gained(&self, index: usize, off: &Cost, on: &Cost) -> f64 {
        let ratio = off.cycles as f64 / on.cycles.max(1) as f64;
        match self.bench.plan.benchmarks.get(index) {
            Some(Benchmark::RandomLatency { .. }) => 1.0 - 1.0 / ratio,
            _ => ratio - 1.0,
        }
    }

    /// The share of the compiler's time that superpages save.
    fn compiler_saved(&self) -> f64 {
        1.0 - 1.0 / (1.0 + self.gain(1, self.count() + 1))
    }

    /// Updates a second with superpages, against those without.
    pub(crate) fn gups_ratio(&self) -> f64 {
        let is_gups = |benchmark: &Benchmark| matches!(benchmark, Benchmark::Gups { .. });
        let gups = self.bench.plan.benchmarks.iter().position(is_gups);
        gups.map_or(1.0, |i| 1.0 + self.gain(1, i))
    }

    /// Time of unmapping with superpages, against that without.
    pub(crate) fn release_ratio(&self) -> f64 {
        1.0 / (1.0 + self.gain(1, self.count() + 2))
    }

    pub(crate) fn finding(&self) -> String {
        let Bench { plan, hardware, .. } = *self.bench;
        let gups = plan.benchmarks.iter().position(|b| matches!(b, Benchmark::Gups { .. }));
        let rates = gups.map(|i| {
            let updates = |mode: usize| {
                let cost = self.of(mode, i);
                cost.accesses as f64 / 2.0 / hardware.seconds(cost.cycles) / 1e9
            };
            format!(
                " GUPS: {:.4} billion updates a second without superpages, {:.4} with them.",
                updates(0),
                updates(1)
            )
        });
        format!(
            "{}{} A compiler's run takes {:.1}% less time with them.",
            plan.about.purpose,
            rates.unwrap_or_default(),
            100.0 * self.compiler_saved()
        )
    }

    /// Time, misses, walking, tables and promotions of all programs.
    pub(crate) fn programs(&self, result: &mut StudyResult) {
        let Bench { plan, modes, .. } = *self.bench;
        let mut titles: Vec<&str> = plan.benchmarks.iter().map(Benchmark::title).collect();
        titles.extend(["forkbomb", "compiler", "munmap"]);
        type Part<'a> = (&'a str, &'a str, &'a str, &'a dyn Fn(&Cost, &Cost) -> f64);
        let parts: [Part<'_>; 5] = [
            ("Time", "time (4 KiB pages = 1)", "time_ratio", &|cost, base| {
                cost.cycles as f64 / base.cycles.max(1) as f64
            }),
            ("TLB misses", "walks per 1000 accesses", "walks_per_1000", &|cost, _| {
                1000.0 * cost.walks as f64 / cost.accesses.max(1) as f64
            }),
            ("Walking", "cycles in walks (share)", "walk_cycles_share", &|cost, _| {
                cost.walk_cycles as f64 / cost.cycles.max(1) as f64
            }),
            ("Tables", "frames of page tables", "table_frames", &|cost, _| {
                cost.table_frames_max as f64
            }),
            ("Promotions", "promotions, while memory is filled too", "promotions", &|cost, _| {
                cost.total.pmap.promotions as f64
            }),
        ];
        for (id, y_label, y, part) in parts {
            let figure = Figure::new(id, "of programs", FigureKind::Bars, "program", y_label);
            result.figures.push(figure);
            for (m, mode) in modes.iter().enumerate() {
                let points = titles.iter().enumerate();
                let points = points.map(|(i, &title)| (title, part(self.of(m, i), self.of(0, i))));
                result.series.push(Series::new(id, "program", y, mode.name, points));
            }
        }
    }

    /// LMbench beside the talk's table.
    pub(crate) fn lmbench(&self, result: &mut StudyResult) {
        let Bench { plan, modes, .. } = *self.bench;
        let talked: Vec<(usize, &str, f64)> = plan
            .benchmarks
            .iter()
            .enumerate()
            .filter_map(|(i, b)| b.talk_percent().map(|percent| (i, b.title(), percent)))
            .collect();
        if talked.is_empty() {
            return;
        }
        let id = "LMbench";
        let y_label = "gain over 4 KiB pages (percent)";
        let figure = Figure::new(id, "beside the talk", FigureKind::Bars, "program", y_label);
        result.figures.push(figure);
        let mut add = |name: &str, of: &dyn Fn(usize, f64) -> f64| {
            let points = talked.iter().map(|&(i, title, percent)| (title, of(i, percent)));
            result.series.push(Series::new(id, "program", "gain_percent", name, points));
        };
        add("the talk", &|_, percent| percent);
        for (m, mode) in modes.iter().enumerate().skip(1) {
            add(mode.name, &|i, _| 100.0 * self.gain(m, i));
        }
        let at = |mode: usize, i: usize| &self.measured[self.from_l2 + mode * self.count() + i];
        let name = format!("{}, walks from L2", modes[1].name);
        add(&name, &|i, _| 100.0 * self.gained(i, at(0, i), at(1, i)));
        if plan.claims {
            for &(i, title, percent) in &talked {
                let says = format!("LMbench, {title}: {percent}% faster with superpages");
                let (paper, measured) = (percent / 100.0, self.gain(1, i));
                let claim = Claim::within("Benchmarking", &says, paper, measured, 0.02);
                push(result, claim.with_unit(Unit::Share), LMBENCH_CAUSE);
            }
        }
    }

    pub(crate) fn compiler(&self, result: &mut StudyResult) {
        if !self.bench.plan.claims {
            return;
        }
        let minutes = |hours: f64, minutes: f64| hours * 60.0 + minutes;
        for (name, off, on) in [
            ("GCC", minutes(6.0, 36.0), minutes(5.0, 14.0)),
            ("CLANG", minutes(6.0, 16.0), minutes(6.0, 15.0)),
        ] {
            let saved = 1.0 - on / off;
            let says = format!("World build by {name}: {:.1}% less time", 100.0 * saved);
            let measured = self.compiler_saved();
            let claim = Claim::within("Benchmarking", &says, saved, measured, 0.03);
            push(result, claim.with_unit(Unit::Share), COMPILER_CAUSE);
        }
    }

    /// The TLB-miss experiment.
    pub(crate) fn misses(&self, result: &mut StudyResult) {
        let Bench { plan, modes, .. } = *self.bench;
        let first = self.count() + 3;
        // Cycles of a miss: those above a TLB that never misses.
        let cycles = |mode: usize, reading: usize| {
            let at = first + 2 * reading;
            let (x, y) = (self.of(mode, at), self.of(mode, at + 1));
            (x.cycles as f64 - y.cycles as f64) / x.walks.max(1) as f64
        };
        let id = "TLB miss";
        let y_label = "cycles per TLB miss, (X - Y) / T";
        let title = "one read in each base page of 2 x TLB x superpage";
        result.figures.push(Figure::new(id, title, FigureKind::Bars, "reading", y_label));
        let names = std::iter::once("the plan").chain(READINGS.iter().map(|&(name, ..)| name));
        let names: Vec<&str> = names.collect();
        for (m, mode) in modes.iter().enumerate() {
            let points = names.iter().enumerate().map(|(r, &name)| (name, cycles(m, r)));
            let talk = [157.0, 60.0].get(m).map(|&cycles| ("the talk", cycles));
            let points = talk.into_iter().chain(points);
            result.series.push(Series::new(id, "reading", "cycles_per_miss", mode.name, points));
        }
        if plan.claims {
            let place = "Test results";
            let misses = |mode: usize| self.of(mode, first).walks as f64;
            let says = "32,882 TLB misses without superpages";
            push(result, Claim::about(place, says, 32_882.0, misses(0), 0.01), MISSES_CAUSE);
            let says = "193 TLB misses with superpages";
            push(result, Claim::about(place, says, 193.0, misses(1), 0.01), MISSES_CAUSE);
            let says = "157 cycles for a TLB miss without superpages";
            push(result, Claim::about(place, says, 157.0, cycles(0, 0), 0.25), CPM_CAUSE);
            let says = "60 cycles for a TLB miss with superpages";
            push(result, Claim::about(place, says, 60.0, cycles(1, 0), 0.25), CPM_CAUSE);
        }
    }

    /// Where the flags stand.
    pub(crate) fn status(&self, result: &mut StudyResult) {
        let id = "Failed promotions";
        let y_label = "words read by promotions that failed";
        let title = "first writes to superpages that were read";
        result.figures.push(Figure::new(id, title, FigureKind::Bars, "words of", y_label));
        for (i, name) in ["flags in the table", "flags in the PV entries"].into_iter().enumerate() {
            let pmap = self.measured[self.statuses + i].total.pmap;
            let points = [
                ("tables", pmap.failed_table_words as f64),
                ("the reverse map", pmap.failed_reverse_words as f64),
            ];
            result.series.push(Series::new(id, "words", "words", name, points));
        }
    }

    /// PCAD, AT, PBS and superpages on the same memory.
    pub(crate) fn fragmented(&self, result: &mut StudyResult) {
        let Bench { plan, modes, coalescing, .. } = *self.bench;
        let names = coalescing.iter().map(|design| design.name);
        let names: Vec<&str> = names.chain(modes.iter().skip(1).map(|mode| mode.name)).collect();
        let (hits, held) = ("Coalescing and superpages", "Held in reserve");
        let x_label = "free block size (pages)";
        let figure =
            |id, title, y_label| Figure::new(id, title, FigureKind::LinesLog2, x_label, y_label);
        result.figures.push(
            figure(hits, "random updates", "TLB hit rate (share of accesses)")
                .with_y_range(0.0, 1.0)
                .with_caption(
                    "Free blocks of one size at random places, a quarter of memory. A superpage \
                     needs a block that holds it aligned.",
                ),
        );
        result.figures.push(
            figure(held, "a table of which every fourth page is touched", "frames held in vain")
                .with_caption(
                    "For each frame that is used. Eager paging, which PBS, PCAD and AT rest on, \
                     takes every frame that was asked for; a reservation holds what it may need, \
                     until somebody else does.",
                ),
        );
        let x = "free_block_frames";
        let sizes = || self.sizes.iter().map(|&size| size as f64).enumerate();
        for (d, name) in names.iter().enumerate() {
            let at = |s: usize| &self.measured[self.blocks + s * names.len() + d];
            let points =
                sizes().map(|(s, x)| (x, 1.0 - at(s).walks as f64 / at(s).accesses.max(1) as f64));
            result.series.push(Series::new(hits, x, "tlb_hit_rate", name, points));
        }
        let used = (plan.blocks.table_mib << 6) as f64;
        let eager = sizes().map(|(_, x)| (x, (plan.blocks.table_mib << 8) as f64 / used - 1.0));
        result.series.push(Series::new(held, x, "held_ratio", "PBS", eager));
        let on = modes.len() - 1;
        for (m, mode) in modes.iter().skip(1).enumerate() {
            let points = sizes().map(|(s, x)| {
                (x, self.measured[self.sparse + s * on + m].reserved_frames as f64 / used)
            });
            result.series.push(Series::new(held, x, "held_ratio", mode.name, points));
        }
    }
}

fn push(result: &mut StudyResult, claim: Claim, cause: &str) {
    result.claims.push(if claim.holds() { claim } else { claim.with_cause(cause) });
}

const MISSES_CAUSE: &str = "2 x 64 x 256 base pages are 32,768 misses, 2 x 64 sections 128; the talk's other 114 and 65 \
     are the program's own and the kernel's, which are not simulated.";
const COMPILER_CAUSE: &str = "One run of GCC's cc1 on a small file, a sample of its accesses. A world build has larger \
     files, many processes and a disc; the talk's own two compilers differ by more than this does.";
const LMBENCH_CAUSE: &str = "What a benchmark gains is the share of its time that it walks. Where walks read from memory, \
     as the talk's cost of a miss suggests, streams gain more than the talk says and random reads \
     much more; where they find the second cache, both gain less (series \"walks from L2\"). The \
     talk's processor lies between, prefetches, and does not say how its sizes were chosen.";
const CPM_CAUSE: &str = "Where walks read, and how much of a walk other loads hide, is not known of the talk's \
     processor: the figure shows the readings.";
