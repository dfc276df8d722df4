//! Bytes of the management structures (Table II).

use swath_arch::{Extent, Pfn};
use swath_frame::layout::{Layout, LayoutPreset};
use swath_frame::{ByteRange, LayoutConfig, MemoryMap};

use crate::papers::green::cost::plan::CostPlan;
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::zone::{storage_words, zone};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, metrics};
use crate::study::kind::Drawn;
use crate::study::results::{Figure, FigureKind, Series};

const DESIGN: &str = "design";
const PART: &str = "part";
const ZONE: &str = "zone";
const NODE: &str = "node";

/// The rows of Table II: bytes of a zone and of `pg_data_t` in the paper.
const TABLE_II: [(AllocatorName, [f64; 2]); 4] = [
    (AllocatorName::Linux, [1920.0, 17152.0]),
    (AllocatorName::BankArray, [68864.0, 284_928.0]),
    (AllocatorName::BankList, [71040.0, 293_632.0]),
    (AllocatorName::Adaptive, [5696.0, 32256.0]),
];

/// Bytes of the paper's zone that are no free lists: 1920 of Linux's zone less
/// the 1144 of its lists (section IV-C).
const OTHER_BYTES: f64 = 1920.0 - 1144.0;

/// Bytes of the management structures of a zone and of a node, and all bytes of
/// the zone per frame. Nothing depends on a seed.
///
/// # Errors
/// The reason why there is no such zone.
pub(crate) fn structures(plan: &CostPlan) -> Result<Grid, String> {
    let preset = LayoutPreset::ThirtyTwoGib;
    let mut areas = [Extent::default(); 8];
    let map = MemoryMap::new(preset.ranges(), &mut areas).map_err(|e| e.to_string())?;
    let bank_frames = plan.bank_frames.get();
    let config = LayoutConfig { bank_frames, ..LayoutConfig::default() };
    let layout = Layout::new(&map, preset.nodes(), config).map_err(|e| e.to_string())?;
    let mut one_area = [Extent::default(); 1];
    let span = Extent::new(Pfn::new(0), plan.frames.get());
    let range = [ByteRange::of_frames(span)];
    let one = MemoryMap::new(&range, &mut one_area).map_err(|e| e.to_string())?;
    let mut grid = Grid::new(&[DESIGN, PART], 0);
    for (design, _) in TABLE_II {
        let bytes = |map: &MemoryMap<'_>, span| -> Result<f64, String> {
            Ok(zone(design, map, span, bank_frames)?.structure_bytes() as f64)
        };
        let mut node = 0.0;
        for zone in layout.zones().iter().filter(|zone| zone.node == 0) {
            node += bytes(&map, zone.span)?;
        }
        let words = storage_words(design, &one, span, bank_frames)? as f64;
        let zone = [
            ("structure_bytes", bytes(&one, span)?),
            ("bytes_per_frame", words * 8.0 / plan.frames.get() as f64),
        ];
        grid.add(vec![design.title().into(), ZONE.into()], &[metrics(zone)]);
        let node = metrics([("structure_bytes", node)]);
        grid.add(vec![design.title().into(), NODE.into()], &[node]);
    }
    Ok(grid)
}

/// The figures of the structures.
pub(crate) fn figures(grid: &Grid) -> Vec<Drawn> {
    let caption = "Beside what each frame has, and each pageblock under Linux, whose `struct zone` \
                   does not hold it either: a zone of 16 GiB with banks of 256 MiB, and the three \
                   zones of the first node of a machine with 32 GiB.";
    let title = "management structures";
    let structures = Figure::new("Table II", title, FigureKind::Bars, "", "bytes");
    let title = "with what each frame has";
    let storage = Figure::new("All storage", title, FigureKind::Bars, "", "bytes per frame");
    let drawn = |(figure, metric): (Figure, &'static str)| {
        let of = |(design, _): (AllocatorName, _)| {
            let title = design.title();
            let points = grid.points(PART, |all| all.is(DESIGN, title), |cell| cell.get(metric));
            Series::new(&figure.id, PART, metric, title, points)
        };
        let series = TABLE_II.into_iter().map(of).collect();
        Drawn { figure, series }
    };
    let figures =
        [(structures.with_caption(caption), "structure_bytes"), (storage, "bytes_per_frame")];
    figures.into_iter().map(drawn).collect()
}

/// The statements of Table II, as bounds without tolerance. Most of them are
/// bounds over words that are not counted here, and could not fail. The free
/// lists of a zone could: the paper's other fields are taken off its figure.
pub(crate) fn claims<F: 'static>(
    conditions: &Conditions,
    grid: impl Fn(&F) -> &Grid + Copy + 'static,
) -> Vec<Statement<F>> {
    let mut claims = Vec::new();
    for (design, paper) in TABLE_II {
        for (part, paper) in [ZONE, NODE].into_iter().zip(paper) {
            let statement = statement(design, part, paper).under(conditions);
            claims.push(statement.measured(move |found: &F| {
                grid(found).evidence(|view| {
                    view.select().is(DESIGN, design.title()).is(PART, part).one("structure_bytes")
                })
            }));
        }
    }
    claims
}

fn statement<F>(design: AllocatorName, part: &str, paper: f64) -> Statement<F> {
    use AllocatorName as Name;
    let title = design.title();
    let whole = format!("{title}: bytes of a {part}'s structures");
    let lists = format!("{title}: bytes of a {part}'s free lists");
    match (part, design) {
        (NODE, _) => Statement::at_most("Table II", &whole, paper, 0.0).identity(
            "the paper's node holds zone lists, statistics and zones that are not populated, which \
             are not counted here",
        ),
        (_, Name::BankArray | Name::BankList | Name::Contiguitas | Name::Llfree) => {
            Statement::at_most("Table II", &whole, paper, 0.0).identity(
                "the heads of each bank's lists are the paper's bytes; here they are among the \
                 words that each frame has, which are not counted",
            )
        }
        (_, Name::Pbs) => Statement::at_most("Table II", &lists, paper - OTHER_BYTES, 0.0),
        (_, Name::Linux | Name::LinuxMovable | Name::LinuxDefrag | Name::LinuxGuaranteed) => {
            Statement::at_most("Table II", &lists, paper - OTHER_BYTES, 0.0)
        }
        (_, Name::Adaptive | Name::AdaptivePacked) => {
            Statement::at_most("Table II", &lists, paper - OTHER_BYTES, 0.0)
                .cause("The lists' heads, 32 for each order and pool, are most of it.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::claim::Claim;
    use crate::study::plan::read;
    use crate::study::verdict::Verdict;

    #[test]
    fn bounds_that_cannot_fail_do_not_count() {
        let plan: CostPlan = read("green-cost", include_str!("study.toml")).unwrap();
        let grid = structures(&plan).unwrap();
        let statements = claims(&Conditions::new(), |grid: &Grid| grid);
        let claims: Vec<Claim> =
            statements.into_iter().map(|statement| statement.judge(&grid)).collect();
        let judged: Vec<&str> = claims
            .iter()
            .filter(|claim| claim.verdict() != Verdict::Identity)
            .map(Claim::says)
            .collect();
        let lists = "bytes of a zone's free lists";
        assert_eq!(judged, [format!("Linux: {lists}"), format!("Adaptive-Buddy: {lists}")]);
        assert!(claims.iter().all(|claim| claim.measured().is_some()));
    }
}
