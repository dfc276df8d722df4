//! The PBS paper's worked examples: Fig. 3, 5, 6, 7, 8 and Table 2.
//!
//! Each layout is allocated from, mapped and walked for real; every number of
//! the paper is a claim that holds exactly or not at all.

use swath_arch::{Extent, Format, PageRange, Pfn, VirtAddr, Vpn};
use swath_frame::{BuddyConfig, FrameAllocator};

use crate::papers::page_buddy::translation::{
    Accesses, Design, Hardware, Program, Scheme, measure,
};
use crate::source::memory::{Allocator, Source, random};
use crate::study::old::plan::{CasesPlan, ContiguityBits};
use crate::study::results::{Claim, Figure, FigureKind, Series, StudyResult};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// A request in a layout of free frames.
struct Case {
    name: String,
    free: Vec<Extent>,
    /// Where the request is mapped.
    pages: PageRange,
    format: Format,
    pbs: BuddyConfig,
}

/// What came out, for BBS and for PBS.
struct Found {
    /// Nodes of the free lists before the request: BBS, PBS.
    nodes: [u64; 2],
    /// Blocks that served the request: BBS, PBS.
    blocks: [u64; 2],
    /// Page-table walks to touch each page once: BBS and TRAD, BBS and PCAD,
    /// PBS and PCAD.
    walks: [u64; 3],
}

impl Case {
    fn new(name: &str, free: &[(u64, u64)], first_page: u64, pages: u64) -> Self {
        let free = free.iter().map(|&(start, count)| Extent::new(Pfn::new(start), count));
        Self {
            name: name.to_owned(),
            free: free.collect(),
            pages: PageRange::new(Vpn::new(first_page), pages),
            format: Format::ArmV7,
            pbs: BuddyConfig::PBS_ARMV7,
        }
    }

    fn run(&self, seed: u64) -> Result<Found, StudyError> {
        let error = |what: String| StudyError::Machine {
            study: "pbs-cases".to_owned(),
            what: format!("{}: {what}", self.name),
        };
        let source = Source::Free(&self.free);
        let mut random = random(seed, 0);
        let mut nodes = [0; 2];
        for (nodes, config) in nodes.iter_mut().zip([BuddyConfig::BBS, self.pbs]) {
            let prepared = source.prepare(config, &mut random);
            let allocator: Allocator = prepared.map_err(|e| error(e.to_string()))?;
            allocator.for_each_free(&mut |_| *nodes += 1);
        }
        let program = Program {
            requests: vec![self.pages],
            masters: vec![Accesses::Listed(self.pages.iter().map(Vpn::address).collect())],
        };
        let hardware = Hardware::new(self.format, 32, ContiguityBits::Ideal(16));
        let mut blocks = [0; 2];
        let mut walks = [0; 3];
        let designs = [
            ("TRAD", BuddyConfig::BBS, Scheme::Trad),
            ("PCAD", BuddyConfig::BBS, Scheme::Pcad),
            ("PBS", self.pbs, Scheme::Pcad),
        ];
        for (i, (name, allocator, scheme)) in designs.into_iter().enumerate() {
            let design = Design { name, allocator, best_fit: false, scheme };
            let measured = measure(&hardware, &design, &source, &program, &mut random)
                .map_err(|e| error(e.to_string()))?;
            blocks[usize::from(i == 2)] = measured.blocks;
            walks[i] = measured.walks;
        }
        Ok(Found { nodes, blocks, walks })
    }
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &CasesPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let six = [(16, 6)];
    let fig_6 = [(1, 256)];
    let fig_8 = &plan.fig_8;
    let table_2 = [("(a)", &fig_8.a), ("(b)", &fig_8.b), ("(c)", &fig_8.c), ("(d)", &fig_8.d)];
    let mut cases = vec![
        Case::new("Fig. 3 and 5", &six, 4, 5),
        Case::new("Fig. 6, ARMv7", &fig_6, 0x100, 256),
        Case {
            format: Format::ArmV8,
            pbs: BuddyConfig::PBS_ARMV8,
            ..Case::new("Fig. 6, ARMv8", &fig_6, 0x100, 256)
        },
    ];
    let requested = fig_8.request_frames;
    cases.extend(table_2.map(|(name, free)| Case::new(name, free, 0x100, requested)));
    let found = run.points(about, &cases, |case| case.run(about.seed))?;

    let mut claims = Vec::new();
    let mut claim = |place: &str, says: &str, paper: u64, measured: u64| {
        claims.push(Claim::exactly(place, says, paper as f64, measured as f64));
    };
    let five = &found[0];
    claim("Fig. 3", "Six free frames from 16 on: nodes in the BBS free lists", 2, five.nodes[0]);
    claim("Fig. 3", "A request for five pages: blocks that BBS allocates", 2, five.blocks[0]);
    claim("Fig. 5", "Six free frames from 16 on: nodes in the PBS free lists", 1, five.nodes[1]);
    claim("Fig. 5", "A request for five pages: blocks that PBS allocates", 1, five.blocks[1]);
    claim("Fig. 2", "Five pages on BBS: TLB entries with PCAD", 2, five.walks[1]);
    claim("Fig. 7", "Five pages on PBS: TLB entries with PCAD", 1, five.walks[2]);
    for (says, paper, measured) in fig_7(about.seed)? {
        claim("Fig. 7", says, paper, measured);
    }
    let (v7, v8) = (&found[1], &found[2]);
    claim("Fig. 6(a)", "PPNs 1 to 256 are free: nodes in BBS", 9, v7.nodes[0]);
    claim("Fig. 6(b)", "The same: nodes in PBS for ARMv7", 3, v7.nodes[1]);
    claim("Fig. 6(c)", "The same: nodes in PBS for ARMv8", 1, v8.nodes[1]);
    claim("Section IV-D", "Page-table walks without coalescing", 256, v7.walks[0]);
    claim("Section IV-D", "Page-table walks with PCAD on BBS", 9, v7.walks[1]);
    let paper = [
        ([2, 2], [1, 1], [4, 1, 1]),
        ([6, 2], [2, 1], [4, 2, 1]),
        ([8, 4], [4, 2], [4, 4, 2]),
        ([6, 3], [2, 1], [4, 2, 1]),
    ];
    for (((nodes, blocks, walks), found), (case, _)) in paper.iter().zip(&found[3..]).zip(table_2) {
        let mut row = |what: &str, paper: u64, measured: u64| {
            claim("Table 2", &format!("Case {case}: {what}"), paper, measured);
        };
        for (i, name) in ["BBS", "PBS"].into_iter().enumerate() {
            row(&format!("free-list nodes, {name}"), nodes[i], found.nodes[i]);
            row(&format!("mapped blocks, {name}"), blocks[i], found.blocks[i]);
        }
        for (i, name) in ["BBS + Trad.", "BBS + PCAD", "PBS + PCAD"].into_iter().enumerate() {
            row(&format!("TLB entries, {name}"), walks[i], found.walks[i]);
        }
    }

    let mut figures = Vec::new();
    let mut series = Vec::new();
    let mut bars = |id: &str, title: &str, y: &str, designs: &[(&str, Vec<(String, u64)>)]| {
        figures.push(Figure::new(id, title, FigureKind::Bars, "layout", title));
        for (design, points) in designs {
            let points = points.iter().map(|(case, count)| (case.clone(), *count as f64));
            series.push(Series::new(id, "layout", y, design, points));
        }
    };
    let column = |of: &dyn Fn(&Found) -> u64, range: std::ops::Range<usize>| {
        range.map(|i| (cases[i].name.clone(), of(&found[i]))).collect::<Vec<_>>()
    };
    bars(
        "Fig. 6",
        "Free-list nodes, PPNs 1 to 256 free",
        "nodes",
        &[("BBS", column(&|f| f.nodes[0], 1..3)), ("PBS", column(&|f| f.nodes[1], 1..3))],
    );
    bars(
        "Table 2, nodes",
        "Free-list nodes",
        "nodes",
        &[("BBS", column(&|f| f.nodes[0], 3..7)), ("PBS", column(&|f| f.nodes[1], 3..7))],
    );
    bars(
        "Table 2, entries",
        "TLB entries for four pages",
        "tlb_entries",
        &[
            ("TRAD", column(&|f| f.walks[0], 3..7)),
            ("PCAD", column(&|f| f.walks[1], 3..7)),
            ("PBS", column(&|f| f.walks[2], 3..7)),
        ],
    );
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            claims,
            notes: vec![
                "The paper draws the layouts of Fig. 8; its text gives the numbers of ranges and \
                 nodes. The layouts here have exactly those; they stand in the plan."
                    .to_owned(),
                "The numbers of the blocks in section IV-F count the nodes that a figure draws; \
                 only how many blocks are allocated is judged."
                    .to_owned(),
                "The layouts are the paper's; real memory and real accesses are not used here."
                    .to_owned(),
            ],
            ..run::result(about, plan, run, about.purpose.clone())
        },
        host: None,
    })
}

/// The example of Fig. 7: VPN 5 of five pages mapped from VPN 4 on, through
/// tables written by the operating system's side and read by the hardware's.
fn fig_7(seed: u64) -> Result<[(&'static str, u64, u64); 4], StudyError> {
    use std::cell::RefCell;
    use swath_arch::{Attributes, Coalescing, SliceMemory};
    use swath_hw::walk;
    use swath_vm::AddressSpace;

    let error = |what: &dyn std::fmt::Display| StudyError::Machine {
        study: "pbs-cases".to_owned(),
        what: format!("Fig. 7: {what}"),
    };
    let free = [Extent::new(Pfn::new(16), 6)];
    let prepared = Source::Free(&free).prepare(BuddyConfig::PBS_ARMV7, &mut random(seed, 0));
    let frames: RefCell<Allocator> = RefCell::new(prepared.map_err(|e| error(&e))?);
    let tables = Extent::new(Pfn::new(64), 64);
    let mut words = vec![0; 64 * 512];
    let memory = SliceMemory::new(tables.start, &mut words);
    let table_frames: RefCell<Allocator> = RefCell::new(
        crate::source::memory::new_allocator(tables, BuddyConfig::BBS, true)
            .map_err(|e| error(&e))?,
    );
    let coalescing = Coalescing::Pcad(ContiguityBits::Ideal(16).field());
    let mut space = AddressSpace::new(Format::ArmV7, coalescing, &memory, &frames, &table_frames)
        .map_err(|e| error(&e))?;
    let five = PageRange::new(Vpn::new(4), 5);
    space.allocate_eager(five, Attributes::USER_DATA, &mut |_| {}).map_err(|e| error(&e))?;
    let page = VirtAddr::new(5 << 12).page();
    let translation = walk(&space.regime(), page, &memory, &mut 0).map_err(|e| error(&e))?;
    let (pages, frames) = translation.block(Format::ArmV7, page);
    Ok([
        ("VPN 5: the demanding PPN", 17, translation.frame.raw()),
        ("VPN 5: BaseVPN = VPN - Descend", 4, pages.start.raw()),
        ("VPN 5: BasePPN = PPN - Descend", 16, frames.start.raw()),
        ("VPN 5: BlockSize = Ascend + Descend + 1", 5, pages.count),
    ])
}
