//! Gates on real-time regions: the tree of their starts, mapping, faults and
//! unmapping.
//!
//! A worst case is made by construction: all calls of an entry go the longest
//! way there is, so that their mean is the worst case.

use swath_arch::{Extent, PageRange, Pfn, PhysAddr, SliceMemory, ValidityTables, Vpn};
use swath_region::{
    DenseTree, FramePool, LayeredTree, Quota, RegionError, RegionSpace, RegionTree, Rights,
    dense_tree_words,
};

const PAGES_LOG2: u32 = 20;
const PAGES: u64 = 1 << PAGES_LOG2;
const CALLS: u64 = 4096;

/// Which tree.
#[derive(Clone, Copy)]
pub(crate) enum Tree {
    Dense,
    Layered,
}

/// Which call of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Split,
    /// A split and the union that undoes it: one call.
    Both,
    Find,
    Next,
}

/// Calls on a tree with so many `starts`, side by side, so that a page beyond has its
/// nearest start as far away as it can be, in words and in clusters; of the top's four
/// words, two have none. (With three it takes two instructions less.)
pub(crate) fn tree(
    tree: Tree,
    ask: Ask,
    starts: u64,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    match tree {
        Tree::Dense => {
            let mut words = vec![0; dense_tree_words(PAGES_LOG2)];
            let words: &mut [u64; dense_tree_words(PAGES_LOG2)] =
                words.as_mut_slice().try_into().map_err(|_| "not as many words")?;
            calls(DenseTree::<PAGES_LOG2, _, _>::new(words), ask, starts, counted)
        }
        Tree::Layered => {
            let words = vec![0; LayeredTree::words(PAGES_LOG2).ok_or("no such size")?];
            let tree = LayeredTree::new(PAGES_LOG2, words).map_err(|error| error.to_string())?;
            calls(tree, ask, starts, counted)
        }
    }
}

fn calls(
    mut tree: impl RegionTree,
    ask: Ask,
    starts: u64,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let fill = match ask {
        Ask::Next => PAGES - starts..PAGES - 1,
        Ask::Find => PAGES / 4 + 1..PAGES / 4 + starts,
        Ask::Split | Ask::Both => 1..starts,
    };
    for page in fill {
        tree.split(Vpn::new(page)).map_err(|error| error.to_string())?;
    }
    let last = raw(tree.find(Vpn::new(PAGES - 1)));
    let first = raw(tree.next(Vpn::new(0)));
    // Results are looked at with as few instructions as can be.
    let (mut sum, mut fine) = (0, true);
    let end = (PAGES - CALLS..PAGES).map(Vpn::new);
    let expected = match ask {
        Ask::Find => {
            // From the first word of the top to its third one.
            counted(&mut || {
                let mut found = 0;
                for page in PAGES - CALLS..PAGES {
                    found += raw(tree.find(Vpn::new(page)));
                }
                sum = found;
            });
            last
        }
        Ask::Next => {
            counted(&mut || {
                let mut found = 0;
                for page in 0..CALLS {
                    found += raw(tree.next(Vpn::new(page)));
                }
                sum = found;
            });
            first
        }
        Ask::Split => {
            // All in the same way; the first of them makes words non-zero.
            counted(&mut || fine = end.clone().all(|page| tree.split(page).is_ok()));
            0
        }
        Ask::Both => {
            // Each page alone in its words, so that the union climbs to the top.
            counted(&mut || {
                fine = end.clone().all(|page| tree.split(page).is_ok() && tree.union(page).is_ok());
            });
            0
        }
    };
    if fine && tree.check() && sum == expected * CALLS {
        Ok(CALLS)
    } else {
        Err("a split or a union failed, or a start is wrong".into())
    }
}

fn raw(page: Option<Vpn>) -> u64 {
    page.map_or(0, Vpn::raw)
}

/// Which call of a space of regions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    MapRegion,
    MapPage,
    UnmapRegion,
}

/// What lies beside the region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Free pages on both sides.
    FreeBoth,
    /// Free pages below, a region above.
    FreeBelow,
    /// Free pages above, a region below.
    FreeAbove,
    /// Regions on both sides.
    Regions,
}

/// Pages of a region that leaves one page free on either side.
pub(crate) const ALL: u64 = PAGES - 2;

/// Calls of each entry on spaces: one at a time, with its setting before it.
const STEPS: u64 = 1024;

/// Calls on a region of so many pages in a space of 2^20, that has up to [`STEPS`] of its pages mapped. Its table is full of what was there
/// before, and each page's helper entry points to an entry of the stack that is in use:
/// the handler of faults has to look at all it may have to look at.
pub(crate) fn space(
    step: Step,
    pages: u64,
    beside: Beside,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let mut words = vec![0x5555_5555_5555_5555; 5 << (PAGES_LOG2 - 1)];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let tables = ValidityTables::consecutive(PAGES_LOG2, PhysAddr::new(0));
    let mut links = vec![u32::MAX; STEPS as usize + 2];
    let frames = Extent::new(Pfn::new(0x10_0000), STEPS + 2);
    let pool = FramePool::new(frames, &mut links).map_err(|error| error.to_string())?;
    let mut words = vec![0; dense_tree_words(PAGES_LOG2)];
    let words: &mut [u64; dense_tree_words(PAGES_LOG2)] =
        words.as_mut_slice().try_into().map_err(|_| "not as many words")?;
    let tree = DenseTree::<PAGES_LOG2, _, _>::new(words);
    let headers = vec![0x5555_5555_5555_5555; 2 << PAGES_LOG2];
    let quota = Quota { guaranteed: STEPS as u32, limit: STEPS as u32 + 2 };
    let mut space = RegionSpace::new(&memory, tables, tree, headers, &pool, quota)
        .map_err(|error| error.to_string())?;
    let start = PAGES - 1 - pages;
    let range = PageRange::new(Vpn::new(start), pages);
    let touched: Vec<Vpn> = (0..STEPS.min(pages)).map(|page| Vpn::new(start + page)).collect();
    let text = |error: RegionError| error.to_string();
    let mut neighbours = Vec::new();
    if matches!(beside, Beside::FreeAbove | Beside::Regions) {
        neighbours.push(Vpn::new(start - 1));
    }
    if matches!(beside, Beside::FreeBelow | Beside::Regions) {
        neighbours.push(Vpn::new(start + pages));
    }
    for &page in &neighbours {
        space.map_region(PageRange::new(page, 1), Rights::READ).map_err(text)?;
    }
    for &page in &touched {
        space.map_region(range, Rights::READ).map_err(text)?;
        space.map_page(page, Rights::READ).map_err(text)?;
        space.unmap_region(range.start).map_err(text)?;
    }
    let (mut calls, mut failed) = (0, 0_u64);
    while calls < STEPS {
        let mut map = || failed += u64::from(space.map_region(range, Rights::READ).is_err());
        if step == Step::MapRegion {
            counted(&mut map);
            calls += 1;
        } else {
            map();
        }
        for &page in touched.iter().rev() {
            let mut fault = || failed += u64::from(space.map_page(page, Rights::READ).is_err());
            if step == Step::MapPage {
                counted(&mut fault);
                calls += 1;
            } else {
                fault();
            }
            if step == Step::MapRegion {
                break;
            }
        }
        let mut unmap = || failed += u64::from(space.unmap_region(range.start).is_err());
        if step == Step::UnmapRegion {
            counted(&mut unmap);
            // With the pages mapped again each time, fewer calls will do.
            calls += touched.len() as u64;
        } else {
            unmap();
        }
    }
    space.check().map_err(|error| error.to_string())?;
    if failed > 0 || u64::from(pool.free_frames()) != STEPS + 2 || !pool.check() {
        return Err(format!("{failed} calls failed, {} frames are free", pool.free_frames()));
    }
    Ok(if step == Step::UnmapRegion { calls / touched.len() as u64 } else { calls })
}
