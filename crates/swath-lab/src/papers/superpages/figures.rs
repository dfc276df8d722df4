//! The figures of the study on superpages.

use crate::papers::superpages::bench::{Flags, READINGS, WORK_CYCLES};
use crate::papers::superpages::claims::gain;
use crate::papers::superpages::found::{
    BUILD, CLANG, COMPILE, COMPILER, CYCLES, DESIGN, FLAGS, FORKBOMB, FROM_L2, GCC, LEVEL, MODE,
    NO_COMPILER, OFF, PLAN, PROGRAM, RELEASE, SHIFT, SHIFTED_BUILD, THREADS, TalkFound, WALKS,
    miss_cycles, speedup,
};
use crate::papers::superpages::machine::{SimulatedMachine, modes};
use crate::papers::superpages::plan::{GUPS, LMBENCH, SuperpagesPlan};
use crate::study::grid::{Evidence, Missing, View};
use crate::study::kind::{Drawn, Shown};
use crate::study::results::{Figure, FigureKind, Point, Series};

/// A program: its name in a figure, and its coordinates.
struct Named<'a> {
    title: String,
    program: &'a str,
    compiler: &'static str,
}

/// A plan, the names of its modes, and what was found.
struct Drawing<'a> {
    plan: &'a SuperpagesPlan,
    machine: SimulatedMachine,
    modes: Vec<&'static str>,
    quick: bool,
    found: &'a TalkFound,
}

/// Figures, finding and notes.
pub(crate) fn show(plan: &SuperpagesPlan, quick: bool, found: &TalkFound) -> Shown {
    let machine = SimulatedMachine::of(plan);
    let modes = modes(machine.preset.format).iter().map(|mode| mode.name).collect();
    let drawing = Drawing { plan, machine, modes, quick, found };
    let mut figures = drawing.programs();
    figures.push(drawing.lmbench());
    if !found.copies.is_empty() {
        figures.extend(drawing.copies());
    }
    if !found.work.is_empty() {
        figures.push(drawing.work());
    }
    figures.extend([drawing.misses(), drawing.flags(), drawing.shootdowns()]);
    figures.extend([drawing.coalescing(), drawing.held()]);
    let host = found.real.as_ref().map(|real| {
        let simulated = format!("{}, {}", drawing.machine.preset.name, drawing.modes[1]);
        real.show(&simulated, drawing.gups_ratio(), drawing.release_ratio())
    });
    Shown { finding: drawing.finding(), figures, notes: drawing.notes(), host }
}

impl Drawing<'_> {
    fn speedup(&self, program: &str, mode: &str, walks: &str) -> Result<Evidence, Missing> {
        let ratio = |view: &View<'_>| speedup(view, program, NO_COMPILER, mode, walks);
        self.found.of(program).evidence(ratio)
    }

    /// Time with a mode's superpages / time without.
    fn time(&self, program: &str, compiler: &str, mode: &str) -> Result<Evidence, Missing> {
        let ratio = |view: &View<'_>| Ok(1.0 / speedup(view, program, compiler, mode, PLAN)?);
        self.found.of(program).evidence(ratio)
    }

    /// Updates a second with superpages, against those without.
    fn gups_ratio(&self) -> Option<f64> {
        let ratio = self.speedup(GUPS, self.modes[1], PLAN).ok()?;
        Some(ratio.estimate().value)
    }

    /// Time of unmapping with superpages, against that without.
    fn release_ratio(&self) -> Option<f64> {
        Some(self.time(RELEASE, NO_COMPILER, self.modes[1]).ok()?.estimate().value)
    }

    fn finding(&self) -> String {
        let updates = |mode: &str| {
            let rate = |view: &View<'_>| {
                let cells = view.select().is(PROGRAM, GUPS).is(MODE, mode).is(WALKS, PLAN);
                let seconds = cells.one("cycles")? / self.machine.hertz();
                Ok(cells.one("accesses")? / 2.0 / seconds / 1e9)
            };
            Some(self.found.of(GUPS).evidence(rate).ok()?.estimate().value)
        };
        let mut finding = String::new();
        if let (Some(off), Some(on)) = (updates(OFF), updates(self.modes[1])) {
            finding = format!(
                "GUPS: {off:.4} billion updates a second without superpages, {on:.4} with them. "
            );
        }
        for compiler in [GCC, CLANG] {
            if let Ok(time) = self.time(BUILD, compiler, self.modes[1]) {
                let saved = 100.0 * (1.0 - time.estimate().value);
                finding.push_str(&format!("A build by {compiler} takes {saved:.1}% less time. "));
            }
        }
        finding
    }

    fn notes(&self) -> Vec<String> {
        let preset = self.machine.preset;
        let mut notes = vec![format!(
            "One core of {}, with the second cache and the memory to itself. Its numbers:",
            preset.name
        )];
        notes.extend(preset.sources.iter().map(|source| {
            let kind = if source.assumed { "assumed, after" } else { "from" };
            format!("{}: {kind} {}.", source.what, source.from)
        }));
        notes.push(
            "Every page is touched before the count begins, so what is counted has no first faults; \
             forkbomb and the compiler count theirs."
                .to_owned(),
        );
        notes.push(
            "The compilers are GCC 12 and Clang 14 for 32-bit ARM, each on a source of 7,843 lines, and in a \
             build of three sources (that and two of 2,200 lines, drawn in proportion to their lines) with \
             assembler and linker, sampled in bursts, each of which stands for its period, and whose first \
             quarter warms up caches and TLBs. The talk's world build runs its own, older ones thousands of \
             times, beside other programs and a disc. Files are in memory before they are mapped, and \
             lie so that their superpages align: FreeBSD's run-time linker maps libraries so, and a \
             program that is linked to a multiple of a superpage; where the talk's system linked its \
             compilers is not known."
                .to_owned(),
        );
        notes.push(
            "Forkbomb and threads run on all processors. A change of a table is cleaned to memory, one \
             descriptor at a time (`PTE_SYNC` of FreeBSD's pmap), and its flush reaches every processor \
             that runs the space (figure \"Shootdowns\")."
                .to_owned(),
        );
        notes.push(format!(
            "GUPS, random reads and free blocks are measured with {} seeds; the other programs \
             depend on none.",
            self.plan.repeats.of(self.quick)
        ));
        notes
    }

    /// Time, misses, walking, tables and promotions of all programs.
    fn programs(&self) -> Vec<Drawn> {
        let plain =
            |program| Named { title: String::from(program), program, compiler: NO_COMPILER };
        let recorded = |program, compiler| Named {
            title: format!("{program}, {compiler}"),
            program,
            compiler,
        };
        let mut programs: Vec<Named<'_>> =
            self.plan.benchmarks.iter().map(|benchmark| plain(benchmark.title())).collect();
        programs.extend([FORKBOMB, THREADS, RELEASE].map(plain));
        for compiler in [GCC, CLANG] {
            let recorded =
                [COMPILE, BUILD, SHIFTED_BUILD].map(|program| recorded(program, compiler));
            programs.extend(recorded);
        }
        let number = |of: &'static str| {
            move |named: &Named<'_>, mode: &str| {
                self.found.of(named.program).evidence(|view| {
                    let cells = view.select().is(PROGRAM, named.program);
                    cells.is(COMPILER, named.compiler).is(MODE, mode).is(WALKS, PLAN).one(of)
                })
            }
        };
        let share = |of: &'static str, per: &'static str, times: f64| {
            move |named: &Named<'_>, mode: &str| {
                self.found.of(named.program).evidence(|view| {
                    let cells = view.select().is(PROGRAM, named.program);
                    let cells = cells.is(COMPILER, named.compiler).is(MODE, mode).is(WALKS, PLAN);
                    Ok(times * cells.one(of)? / cells.one(per)?.max(1.0))
                })
            }
        };
        type Of<'a> = &'a dyn Fn(&Named<'_>, &str) -> Result<Evidence, Missing>;
        let parts: [(&str, &str, &str, Of<'_>); 5] = [
            ("Time", "time (4 KiB pages = 1)", "time_ratio", &|named, mode| {
                self.time(named.program, named.compiler, mode)
            }),
            (
                "TLB misses",
                "walks per 1000 accesses",
                "walks_per_1000",
                &share("walks", "accesses", 1e3),
            ),
            (
                "Walking",
                "cycles in walks (share)",
                "walk_cycles_share",
                &share("walk_cycles", "cycles", 1.0),
            ),
            ("Tables", "frames of page tables", "table_frames", &number("table_frames")),
            (
                "Promotions",
                "promotions, while memory is filled too",
                "promotions",
                &number("promotions"),
            ),
        ];
        let drawn = |(id, y_label, y, of): (&str, &str, &str, Of<'_>)| {
            let figure = Figure::new(id, "of programs", FigureKind::Bars, "program", y_label);
            let bars = |mode: &&'static str| {
                let points = programs
                    .iter()
                    .filter_map(|named| Some(of(named, mode).ok()?.point(named.title.as_str())));
                Series::new(id, "program", y, mode, points)
            };
            // Without superpages the time is what others are a ratio to.
            let modes = self.modes.iter().skip(usize::from(id == "Time"));
            Drawn { figure, series: modes.map(bars).collect() }
        };
        parts.into_iter().map(drawn).collect()
    }

    /// LMbench beside the talk's table.
    fn lmbench(&self) -> Drawn {
        let id = "LMbench";
        let y_label = "gain over 4 KiB pages (percent)";
        let figure = Figure::new(id, "beside the talk", FigureKind::Bars, "program", y_label);
        let series = |name: &str, points: Vec<Point>| {
            Series::new(id, "program", "gain_percent", name, points)
        };
        let gains = |mode: &str, walks: &str| {
            let points = LMBENCH.into_iter().filter_map(|(title, _)| {
                let of = |view: &View<'_>| {
                    let ratio = speedup(view, title, NO_COMPILER, mode, walks)?;
                    Ok(100.0 * gain(title, ratio))
                };
                Some(self.found.of(title).evidence(of).ok()?.point(title))
            });
            points.collect::<Vec<Point>>()
        };
        let talk = LMBENCH.map(|(title, percent)| Point::named(title, percent));
        let mut all = vec![series("the talk", talk.into())];
        all.extend(self.modes.iter().skip(1).map(|mode| series(mode, gains(mode, PLAN))));
        let name = format!("{}, walks from L2", self.modes[1]);
        all.push(series(&name, gains(self.modes[1], FROM_L2)));
        Drawn { figure, series: all }
    }

    /// Copies to destinations in each of the banks: the time, and how often a row had to be
    /// closed for another.
    fn copies(&self) -> [Drawn; 2] {
        let figure = |id, title, y_label| {
            Figure::new(id, title, FigureKind::Lines, "destination further on by (KiB)", y_label)
        };
        let part = &self.machine.preset.part;
        let banks = part.groups * part.banks_per_group;
        let row_kib = (u64::from(part.bus_bytes) << part.column_bits) >> 10;
        let times = figure("Copies", "by the place of the destination", "cycles for a byte")
            .with_caption(&format!(
                "The simulated memory has {banks} banks with rows of {row_kib} KiB. Where a read and a write \
                 of a copy fall into one bank, each closes the other's row. Frames are reserved with \
                 superpages and without, so that their places in memory are those in the address space."
            ));
        let conflicts =
            figure("Row conflicts", "of copies", "rows closed for another, for each KiB copied");
        let draw = |id: &'static str, of: &'static str, y: &'static str, times: f64| {
            let programs = self.plan.benchmarks.iter();
            let programs = programs
                .filter_map(|program| Some((program, program.copied_bytes(self.quick)? as f64)));
            let series = programs.flat_map(|(program, bytes)| {
                self.modes.iter().take(2).map(move |mode| {
                    let points = self.found.copies.points(
                        SHIFT,
                        |all| all.is(PROGRAM, program.title()).is(MODE, *mode),
                        |cell| Ok(times * cell.get(of)? / bytes),
                    );
                    let name = format!("{}, {mode}", program.title());
                    Series::new(id, SHIFT, y, &name, points)
                })
            });
            series.collect::<Vec<Series>>()
        };
        [
            Drawn { figure: times, series: draw("Copies", "cycles", "cycles_per_byte", 1.0) },
            Drawn {
                figure: conflicts,
                series: draw("Row conflicts", "row_conflicts", "row_conflicts_per_kib", 1024.0),
            },
        ]
    }

    /// The gain of builds, by the work that goes on between their accesses.
    fn work(&self) -> Drawn {
        let id = "Work";
        let title = "of a build, beside its accesses";
        let x_label = "cycles of work for each access";
        let figure =
            Figure::new(id, title, FigureKind::Lines, x_label, "time saved by superpages (percent)")
                .with_caption(
                    "An access is a fetch or an access of data. The less work is done beside them, the more \
                     of the time is spent walking, and the more superpages save.",
                );
        let series = [GCC, CLANG].map(|compiler| {
            let saved = |cycles: u32| {
                let is_plans = cycles == self.plan.recorded_cycles.small();
                let grid = if is_plans { &self.found.exact } else { &self.found.work };
                let saved = grid.evidence(|view| {
                    let builds = view.select().is(COMPILER, compiler);
                    let cells = match is_plans {
                        true => builds.is(PROGRAM, BUILD).is(WALKS, PLAN),
                        false => builds.is(CYCLES, u64::from(cycles)),
                    };
                    let time = |mode: &str| cells.clone().is(MODE, mode).one("cycles");
                    Ok(100.0 * (1.0 - time(self.modes[1])? / time(self.modes[0])?.max(1.0)))
                });
                Some(saved.ok()?.point(u64::from(cycles)))
            };
            let points = WORK_CYCLES.into_iter().filter_map(saved);
            Series::new(id, CYCLES, "saved_percent", compiler, points)
        });
        Drawn { figure, series: series.into() }
    }

    /// The TLB-miss experiment.
    fn misses(&self) -> Drawn {
        let id = "TLB miss";
        let y_label = "cycles per TLB miss, (X - Y) / T";
        let title = "one read in each base page of 2 x TLB x superpage";
        let names = [PLAN].into_iter().chain(READINGS.iter().map(|&(name, ..)| name));
        let names: Vec<&str> = names.collect();
        let bars = |(nth, mode): (usize, &&'static str)| {
            let talk = [157.0, 60.0].get(nth).map(|&cycles| Point::named("the talk", cycles));
            let points = names.iter().filter_map(|&name| {
                let cycles = self.found.misses.evidence(|view| miss_cycles(view, name, mode));
                Some(cycles.ok()?.point(name))
            });
            let points = talk.into_iter().chain(points);
            Series::new(id, "reading", "cycles_per_miss", mode, points)
        };
        Drawn {
            figure: Figure::new(id, title, FigureKind::Bars, "reading", y_label),
            series: self.modes.iter().enumerate().map(bars).collect(),
        }
    }

    /// Words read by failed promotions, by the place of the flags.
    fn flags(&self) -> Drawn {
        let id = "Failed promotions";
        let y_label = "words read by promotions that failed";
        let title = "first writes to superpages that were read";
        let bars = |flags: Flags| {
            let words =
                [("tables", "failed_table_words"), ("the reverse map", "failed_reverse_words")];
            let points = words.into_iter().filter_map(|(of, metric)| {
                let select = |view: &View<'_>| view.select().is(FLAGS, flags.name()).one(metric);
                Some(self.found.flags.evidence(select).ok()?.point(of))
            });
            Series::new(id, "words", "words", flags.name(), points)
        };
        Drawn {
            figure: Figure::new(id, title, FigureKind::Bars, "words of", y_label),
            series: Flags::ALL.into_iter().map(bars).collect(),
        }
    }

    /// Flushes of TLBs, and how many of them other processors owed.
    fn shootdowns(&self) -> Drawn {
        let id = "Shootdowns";
        let title = "flushes of TLBs on several processors";
        let figure = Figure::new(id, title, FigureKind::Bars, "flushes of", "flushes");
        let bars = |mode: &&'static str| {
            let numbers = [
                (FORKBOMB, "flushes", "forkbomb"),
                (FORKBOMB, "remote_flushes", "forkbomb, other processors'"),
                (THREADS, "flushes", "threads"),
                (THREADS, "remote_flushes", "threads, other processors'"),
                (THREADS, "remote_tlbs", "threads, other processors' TLBs"),
            ];
            let points = numbers.into_iter().filter_map(|(program, of, name)| {
                let cells = |view: &View<'_>| {
                    view.select().is(PROGRAM, program).is(MODE, *mode).is(WALKS, PLAN).one(of)
                };
                Some(self.found.of(program).evidence(cells).ok()?.point(name))
            });
            Series::new(id, "flushes of", "flushes", mode, points)
        };
        Drawn { figure, series: self.modes.iter().map(bars).collect() }
    }

    /// PCAD, AT, PBS and superpages on the same memory.
    fn coalescing(&self) -> Drawn {
        let id = "Coalescing and superpages";
        let y_label = "TLB hit rate (share of accesses)";
        let kind = FigureKind::LinesLog2;
        let figure = Figure::new(id, "random updates", kind, "free block size (pages)", y_label)
            .with_y_range(0.0, 1.0)
            .with_caption(
                "Free blocks of one size at random places, a quarter of memory. A superpage \
                 needs a block that holds it aligned.",
            );
        let designs: Vec<String> =
            self.found.blocks.values(DESIGN).iter().map(ToString::to_string).collect();
        let line = |design: &String| {
            let points = self.found.blocks.points(
                LEVEL,
                |all| all.is(DESIGN, design.as_str()),
                |cell| Ok(1.0 - cell.get("walks")? / cell.get("accesses")?.max(1.0)),
            );
            Series::new(id, LEVEL, "tlb_hit_rate", design, points)
        };
        Drawn { figure, series: designs.iter().map(line).collect() }
    }

    /// Frames held in vain on the same memory.
    fn held(&self) -> Drawn {
        let id = "Held in reserve";
        let title = "a table of which every fourth page is touched";
        let kind = FigureKind::LinesLog2;
        let figure = Figure::new(id, title, kind, "free block size (pages)", "frames held in vain")
            .with_caption(
                "For each frame that is used. Eager paging, which PBS, PCAD and AT rest on, \
                     takes every frame that was asked for; a reservation holds what it may need, \
                     until another program needs it.",
            );
        let table_mib = self.plan.blocks.table_mib.get();
        let used = (table_mib << 6) as f64;
        let eager = (table_mib << 8) as f64 / used - 1.0;
        let sizes = self.found.sparse.values(LEVEL).into_iter().filter_map(|size| size.number());
        let eager = sizes.map(|size| Point::at(size, eager));
        let line = |mode: &&'static str| {
            let points = self.found.sparse.points(
                LEVEL,
                |all| all.is(DESIGN, *mode),
                |cell| Ok(cell.get("reserved_frames")? / used),
            );
            Series::new(id, LEVEL, "held_ratio", mode, points)
        };
        let mut series = vec![Series::new(id, LEVEL, "held_ratio", "PBS", eager)];
        series.extend(self.modes.iter().skip(1).map(line));
        Drawn { figure, series }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::plan::read;

    #[test]
    fn a_plan_without_copies_has_no_figure_of_them() {
        let plan = read("superpages", include_str!("superpages.toml")).unwrap();
        let shown = show(&plan, true, &TalkFound::new(0));
        let ids: Vec<&str> = shown.figures.iter().map(|drawn| drawn.figure.id.as_str()).collect();
        assert!(ids.contains(&"LMbench"), "{ids:?}");
        assert!(!ids.contains(&"Copies") && !ids.contains(&"Row conflicts"), "{ids:?}");
    }
}
