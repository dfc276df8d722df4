//! Lemma 1 of Böhnert and Scholl, section IV-A4: nothing but the stack ends has
//! ever to be initialised. Each case of its proof, and a check by enumeration of
//! every history of a small space with every garbage in the arrays.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::machine::{Memory, hardware};
use swath_arch::{Extent, PageRange, Pfn, PhysAddr, ValidityTables, Vpn};
use swath_region::{DenseTree, FramePool, Quota, RegionSpace, Rights, dense_tree_words};

const K: u32 = 5;
const TABLES: ValidityTables = ValidityTables::consecutive(K, PhysAddr::new(0));
const FRAMES: Extent = Extent::new(Pfn::new(0x100), 8);

type Space<'p, M> = RegionSpace<'p, M, DenseTree<K, 1, [u64; dense_tree_words(K)]>, Vec<u64>>;

fn range(start: u64, count: u64) -> PageRange {
    PageRange::new(Vpn::new(start), count)
}

/// Runs `body` on a space of 32 pages whose arrays are full of `garbage`.
fn with_space<G: Fn(usize) -> u32>(
    garbage: G,
    body: impl FnOnce(&Memory<G>, &mut Space<'_, &Memory<G>>),
) {
    let memory = Memory::new(ValidityTables::len_bytes(K), garbage);
    let mut links = [0; FRAMES.count as usize];
    let pool = FramePool::new(FRAMES, &mut links).unwrap();
    let tree = DenseTree::new([0; dense_tree_words(K)]);
    let headers = vec![u64::MAX; 64];
    let mut space = RegionSpace::new(&memory, TABLES, tree, headers, &pool, Quota::OPEN).unwrap();
    body(&memory, &mut space);
}

/// A space with region [4, 8), pages 5 and 4 mapped in this order, and region [8, 12)
/// in which page 8 is mapped.
fn two_regions(body: impl FnOnce(&Memory<fn(usize) -> u32>, [u64; 3])) {
    with_space((|_| u32::MAX) as fn(usize) -> u32, |memory, space| {
        space.map_region(range(4, 4), Rights::READ).unwrap();
        space.map_region(range(8, 4), Rights::READ).unwrap();
        let frames = [5, 4, 8].map(|page| space.map_page(Vpn::new(page), Rights::READ));
        body(memory, frames.map(|frame| frame.unwrap().raw()));
    });
}

fn frame(memory: &Memory<fn(usize) -> u32>, page: u64) -> Option<u64> {
    hardware(memory, &TABLES, page).map(|(frame, _)| frame)
}

/// Sets what the hardware reads first for a page: c, h.
fn stale(memory: &Memory<fn(usize) -> u32>, page: u64, start: u32, at: u32) {
    memory.poke(TABLES.regions, page, start);
    memory.poke(TABLES.helper, page, at);
}

#[test]
fn case_1_the_cached_start_lies_above_the_page() {
    two_regions(|memory, _| {
        for start in [7, 8, 31, 32, u32::MAX] {
            stale(memory, 6, start, 4);
            assert_eq!(frame(memory, 6), None);
        }
    });
}

#[test]
fn case_2_1_the_cached_start_is_right_and_its_stack_is_empty() {
    with_space((|_| 4) as fn(usize) -> u32, |memory, space| {
        // Every word of the arrays says 4: c, h and even s point at each other.
        space.map_region(range(4, 4), Rights::READ).unwrap();
        assert_eq!(hardware(memory, &TABLES, 4), None);
        space.map_page(Vpn::new(4), Rights::READ).unwrap();
        assert!(hardware(memory, &TABLES, 4).is_some());
        space.unmap_region(Vpn::new(4)).unwrap();
        space.map_region(range(4, 4), Rights::READ).unwrap();
        assert_eq!(hardware(memory, &TABLES, 4), None);
    });
}

#[test]
fn case_2_1_the_cached_start_is_outdated_and_no_stack_is_there() {
    two_regions(|memory, _| {
        for start in 0..4 {
            for at in 0..12 {
                stale(memory, 6, start, at);
                memory.poke(TABLES.stack, 0, 6);
                assert_eq!(frame(memory, 6), None, "{start} {at}");
            }
        }
        // Inside a region, but not where it starts.
        stale(memory, 11, 9, 9);
        memory.poke(TABLES.stack, 9, 11);
        assert_eq!(frame(memory, 11), None);
    });
}

#[test]
fn case_2_2_1_the_cached_start_is_that_of_a_region_below() {
    two_regions(|memory, [_, _, eight]| {
        for at in 0..12 {
            stale(memory, 9, 4, at);
            assert_eq!(frame(memory, 9), None, "{at}");
        }
        assert_eq!(frame(memory, 8), Some(eight));
    });
}

#[test]
fn case_2_2_2_the_cached_start_is_right_by_chance_and_the_page_is_not_mapped() {
    two_regions(|memory, _| {
        for at in 0..12 {
            stale(memory, 6, 4, at);
            assert_eq!(frame(memory, 6), None, "{at}");
        }
        // The word past the stack's end is not on the stack.
        stale(memory, 6, 4, 6);
        memory.poke(TABLES.stack, 6, 6);
        assert_eq!(frame(memory, 6), None);
    });
}

#[test]
fn case_2_2_2_the_cached_start_is_right_and_the_page_is_mapped() {
    two_regions(|memory, [five, four, eight]| {
        assert_eq!(
            [5, 4, 8].map(|page| frame(memory, page)),
            [Some(five), Some(four), Some(eight)]
        );
    });
}

/// The paper's footnote 5 excludes page 0, which leaves a gap: with sp\[0\] = 0 as an
/// inclusive end, c = h = 0 and s\[0\] = b by chance, b would seem mapped. With
/// ends one past the last it does not.
#[test]
fn what_footnote_5_leaves_open_is_closed() {
    with_space((|_| 0) as fn(usize) -> u32, |memory, space| {
        for page in 0..32 {
            memory.poke(TABLES.stack, 0, page as u32);
            assert_eq!(hardware(memory, &TABLES, page), None);
        }
        // And page 0 is a page like others.
        space.map_region(range(0, 1), Rights::READ).unwrap();
        assert_eq!(hardware(memory, &TABLES, 0), None);
        let frame = space.map_page(Vpn::new(0), Rights::READ).unwrap().raw();
        assert_eq!(hardware(memory, &TABLES, 0), Some((frame, 1)));
    });
}

/// A sequence of choices, and the next one in an order that meets all of them.
#[derive(Default)]
struct Choices {
    taken: Vec<(u32, u32)>,
    at: usize,
}

impl Choices {
    fn choose(&mut self, options: u32) -> u32 {
        if self.at == self.taken.len() {
            self.taken.push((0, options));
        }
        let (chosen, of) = self.taken[self.at];
        assert_eq!(of, options, "the run is not a function of its choices");
        self.at += 1;
        chosen
    }

    /// Goes to the next sequence; false after the last.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, options)) = self.taken.pop() {
            if chosen + 1 < options {
                self.taken.push((chosen + 1, options));
                return true;
            }
        }
        false
    }
}

/// What a step does, of those that the model says are possible.
#[derive(Clone, Copy)]
enum Step {
    Map(u64, u64),
    Unmap(u64),
    Fault(u64),
    Split(u64),
    Merge(u64),
}

/// Pages of the space that the enumeration uses.
const USED: u64 = 3;
/// All that a word can say about them: a page of them, another one, no page.
const GARBAGE: [u32; 5] = [0, 1, 2, 3, u32::MAX];

/// By start: one past the last page, and the mapped pages.
type Model = BTreeMap<u64, (u64, BTreeMap<u64, u64>)>;

fn possible(model: &Model) -> Vec<Step> {
    let mut steps = Vec::new();
    for start in 0..USED {
        for end in start + 1..=USED {
            if model.iter().all(|(&a, &(e, _))| e <= start || end <= a) {
                steps.push(Step::Map(start, end));
            }
        }
    }
    for (&start, &(end, ref mapped)) in model {
        steps.push(Step::Unmap(start));
        steps.extend((start..end).filter(|page| !mapped.contains_key(page)).map(Step::Fault));
        let above = mapped.keys().next_back().map_or(start + 1, |&page| page + 1);
        steps.extend((above.max(start + 1)..end).map(Step::Split));
        if mapped.is_empty() && model.values().any(|&(e, _)| e == start) {
            steps.push(Step::Merge(start));
        }
    }
    steps
}

fn apply(step: Step, model: &mut Model, space: &mut Space<'_, &Memory<impl Fn(usize) -> u32>>) {
    match step {
        Step::Map(start, end) => {
            space.map_region(range(start, end - start), Rights::READ).unwrap();
            model.insert(start, (end, BTreeMap::new()));
        }
        Step::Unmap(start) => {
            let unmapped = space.unmap_region(Vpn::new(start)).unwrap();
            let (end, mapped) = model.remove(&start).unwrap();
            assert_eq!(unmapped.pages, range(start, end - start));
            assert_eq!(unmapped.frames as usize, mapped.len());
        }
        Step::Fault(page) => {
            let frame = space.map_page(Vpn::new(page), Rights::READ).unwrap();
            let (_, (_, mapped)) = model.range_mut(..=page).next_back().unwrap();
            mapped.insert(page, frame.raw());
        }
        Step::Split(at) => {
            space.split_region(Vpn::new(at)).unwrap();
            let (_, (end, _)) = model.range_mut(..at).next_back().unwrap();
            let upper = std::mem::replace(end, at);
            model.insert(at, (upper, BTreeMap::new()));
        }
        Step::Merge(start) => {
            space.merge_region(Vpn::new(start)).unwrap();
            let (upper, _) = model.remove(&start).unwrap();
            model.range_mut(..start).next_back().unwrap().1.0 = upper;
        }
    }
}

/// Every history of up to five steps on three pages, and for each of them every garbage that
/// can make a difference: a word gets its value when it is first read, and
/// the run is repeated for each. What the hardware says of a page is then what
/// was mapped.
#[test]
fn no_garbage_is_ever_believed() {
    let mut runs = 0_u64;
    for steps in 0..=5 {
        let choices = RefCell::new(Choices::default());
        loop {
            let garbage = |_| GARBAGE[choices.borrow_mut().choose(5) as usize];
            with_space(garbage, |memory, space| {
                let mut model = Model::new();
                for _ in 0..steps {
                    let possible = possible(&model);
                    let step = choices.borrow_mut().choose(possible.len() as u32);
                    apply(possible[step as usize], &mut model, space);
                }
                let page = u64::from(choices.borrow_mut().choose(USED as u32));
                let mapped = model.values().find_map(|(_, mapped)| mapped.get(&page).copied());
                let found = hardware(memory, &TABLES, page).map(|(frame, _)| frame);
                assert_eq!(found, mapped, "page {page}, {:?}", choices.borrow().taken);
                space.check().unwrap();
            });
            runs += 1;
            if !choices.borrow_mut().advance() {
                break;
            }
        }
    }
    println!("{runs} histories with garbage");
    assert!(runs > 100_000);
}
