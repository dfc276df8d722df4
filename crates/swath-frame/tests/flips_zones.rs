//! Single bits flipped in the words of a zone, in the campaign of [`flips`](crate::flips).
//!
//! Most of a Linux zone's words hold nothing at a time, so half of the flips are aimed at
//! those that do.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, BankLayoutError, BoundaryPlacement, ListPlacement,
    Placement, PoolPlacement, PoolPolicy, TreePlacement,
};
use swath_frame::{
    BestFit, BuddyConfig, Checked, FrameAllocateError, FrameFreeError, HeadOfList, IsolateError,
    LinuxZone, MemoryMap, Mobility, PageZone, Rule, ZoneAllocator,
};

use crate::flips::{MAP, Words, campaign, measure};
use crate::flips_frames::{Calls, Frames, walked};

const SPAN: Extent = Extent::new(Pfn::new(0), 4288);

impl<Z: ZoneAllocator> Calls<Z> {
    /// The calls of a zone without a checked tier.
    fn of_zone() -> Self {
        Self {
            take,
            take_frame: |zone| zone.allocate(Order::BASE, Mobility::Movable),
            free,
            fault: |_| None,
            find: |zone| walked(zone.check()),
            aim: |_, random, len| random.index(len),
        }
    }
}

fn take<Z: ZoneAllocator>(
    zone: &mut Z,
    random: &mut Random,
    sink: &mut dyn FnMut(Extent),
) -> Result<(), FrameAllocateError> {
    let mobility = Mobility::ALL[random.index(3)];
    let order = Order::known([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 9][random.index(11)]);
    let mut sink = |start| sink(Extent::new(start, order.frames()));
    match random.below(8) {
        0 => {
            let frames = zone.isolation_order().frames();
            let start = random.below(SPAN.end().raw().div_ceil(frames)) * frames;
            let unit = Extent::new(Pfn::new(start), frames);
            for result in [zone.isolate(unit), zone.rejoin(unit)] {
                if let Err(IsolateError::Corrupt(fault)) = result {
                    return Err(FrameAllocateError::Corrupt(fault));
                }
            }
        }
        1 => {
            let (count, unmixed) = (1 + random.below(6) as u32, random.below(2) == 0);
            zone.allocate_batch(order, mobility, unmixed, count, &mut sink);
        }
        2 => zone.allocate_unmixed(order, mobility).into_iter().for_each(sink),
        _ => zone.allocate(order, mobility).into_iter().for_each(sink),
    }
    Ok(())
}

fn free(zone: &mut impl ZoneAllocator, extent: Extent) -> Result<(), FrameFreeError> {
    if extent.count % 2 == 0 {
        let mut blocks = extent.blocks(Order::known(9));
        return blocks.try_for_each(|(start, order)| zone.free(start, order));
    }
    extent.iter().try_for_each(|frame| zone.free(frame, Order::BASE))
}

/// Any word, or a link of a free block, or one of the words behind the links.
fn aim_linux(zone: &impl ZoneAllocator, random: &mut Random, len: usize) -> usize {
    if random.below(2) == 0 {
        return random.index(len);
    }
    let links = SPAN.end().raw().next_multiple_of(1024) as usize;
    let mut blocks = Vec::new();
    zone.for_each_free(&mut |block| blocks.push(block.start.raw() as usize));
    if blocks.is_empty() || random.below(2) == 0 {
        return links + random.index(len - links);
    }
    blocks[random.index(blocks.len())]
}

fn linux(pageblock: u8) -> (LinuxZone<Words>, Words) {
    let words = Words::new(LinuxZone::<Words>::storage_words(SPAN));
    let zone = LinuxZone::new(&MAP, SPAN, Order::known(pageblock), words.clone());
    (zone.expect("as many words as needed"), words)
}

fn no_flip_breaks_linux(pageblock: u8) {
    campaign(&format!("linux zone, pageblocks of order {pageblock}"), || {
        let (zone, words) = linux(pageblock);
        let (fault, find, aim) = (LinuxZone::fault, LinuxZone::find_fault, aim_linux);
        (Frames::new(zone.checked(), Calls { fault, find, aim, ..Calls::of_zone() }), words)
    });
}

#[test]
fn no_flip_breaks_a_linux_zone() {
    no_flip_breaks_linux(9);
}

#[test]
fn no_flip_breaks_a_linux_zone_of_small_pageblocks() {
    no_flip_breaks_linux(4);
}

fn no_flip_breaks_pages<R: Rule>(name: &str, config: BuddyConfig) {
    type Zone<R> = PageZone<Words, R, Checked>;
    campaign(name, || {
        let unit = Order::known(6);
        let words = Words::new(Zone::<R>::storage_words(&MAP, config, unit));
        let zone = Zone::<R>::new(&MAP, config, unit, words.clone());
        let (fault, find) = (PageZone::fault, PageZone::find_fault);
        let calls = Calls { fault, find, ..Calls::of_zone() };
        (Frames::new(zone.expect("as many words as needed"), calls), words)
    });
}

#[test]
fn no_flip_breaks_a_zone_of_pages() {
    no_flip_breaks_pages::<HeadOfList>("zone of pages, pbs 4", BuddyConfig::PBS_ARMV7);
}

#[test]
fn no_flip_breaks_a_zone_of_pages_by_best_fit() {
    no_flip_breaks_pages::<BestFit>("zone of pages, best fit", BuddyConfig::PBS_ARMV8);
}

fn banks<P: Placement + Clone>(
    rule: &P,
    needed: fn(&MemoryMap<'_>, Extent, BankLayout, &P) -> Result<usize, BankLayoutError>,
) -> (BankBuddy<Words, P>, Words) {
    let banks = BankLayout::new(Pfn::new(0), 1024, Order::known(9)).expect("a layout");
    let words = Words::new(needed(&MAP, SPAN, banks, rule).expect("banks"));
    let buddy = BankBuddy::new(&MAP, SPAN, banks, rule.clone(), words.clone());
    (buddy.expect("as many words as needed"), words)
}

fn no_flip_breaks_banks<P: Placement + Clone>(name: &str, rule: &P) {
    campaign(name, || {
        let (buddy, words) = banks(rule, BankBuddy::<Words, P>::checked_words);
        let buddy = buddy.checked().expect("as many words as needed");
        let (fault, find) = (BankBuddy::fault, BankBuddy::find_fault);
        (Frames::new(buddy, Calls { fault, find, ..Calls::of_zone() }), words)
    });
}

#[test]
fn no_flip_breaks_an_array_of_banks() {
    no_flip_breaks_banks("array of banks", &ArrayPlacement);
}

#[test]
fn no_flip_breaks_two_regions_of_banks() {
    no_flip_breaks_banks("two regions of banks", &BoundaryPlacement::new(64));
    no_flip_breaks_banks("reserved banks", &TreePlacement::new(4));
}

#[test]
fn no_flip_breaks_lists_of_banks() {
    no_flip_breaks_banks("lists of banks", &ListPlacement::new(true));
}

#[test]
fn no_flip_breaks_an_adaptive_buddy() {
    no_flip_breaks_banks("adaptive", &PoolPlacement::new(PoolPolicy::PACKED));
}

#[test]
fn no_flip_breaks_an_adaptive_buddy_of_the_paper() {
    no_flip_breaks_banks("adaptive, the paper's", &PoolPlacement::new(PoolPolicy::PAPER));
}

fn measure_banks<P: Placement + Clone>(name: &str, rule: &P) {
    measure(name, || {
        let (buddy, words) = banks(rule, BankBuddy::<Words, P>::storage_words);
        (Frames::new(buddy, Calls::of_zone()), words)
    });
}

/// As [`flips_frames`](crate::flips_frames) does it for the page buddy system.
#[test]
#[ignore = "measures what is not promised"]
fn without_a_checked_tier() {
    measure("linux zone", || {
        let (zone, words) = linux(9);
        (Frames::new(zone, Calls { aim: aim_linux, ..Calls::of_zone() }), words)
    });
    measure_banks("array of banks", &ArrayPlacement);
    measure_banks("lists of banks", &ListPlacement::new(true));
    measure_banks("adaptive", &PoolPlacement::new(PoolPolicy::PACKED));
}
