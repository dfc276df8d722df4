//! Instruction gates: see the crate's text for the method.
//!
//! A gate is one entry of [`GATES`]. Its function builds what it needs, calls
//! [`counted`] around the measured calls, checks every result and says how
//! many calls there were. A worst case is an entry with one call.

use rayon::prelude::*;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::Mobility::{Movable, Unmovable};
use swath_frame::buddy::Rule;
use swath_frame::reserve::ReservationLevels;
use swath_frame::{
    BestFit, BuddyConfig, Checked, FrameAllocator, Hardening, HeadOfList, PageBuddy, QuickFit,
    Trusting,
};
use swath_vm::Status::{InReverseMap, InTable};

use crate::buffer::{
    Call, {self},
};
use crate::callgrind::{self, count};
use crate::failure::Failure;
use crate::frames::fronts::Ask::*;
use crate::frames::fronts::Live::*;
use crate::frames::fronts::{self};
use crate::frames::zones::Design::*;
use crate::frames::zones::Side::*;
use crate::frames::zones::Work::*;
use crate::frames::zones::{
    Work, Worst, {self},
};
use crate::random::Random;
use crate::regions::Ask::*;
use crate::regions::Beside::*;
use crate::regions::Step::*;
use crate::regions::Tree::*;
use crate::regions::{
    ALL, Beside, {self},
};
use crate::reserve::Calls::*;
use crate::reserve::{self};
use crate::segments::{
    Pair, {self},
};
use crate::setup::{CALLS, FRAMES, all_frames, bbs, buddy, check_taken};
use crate::superpages::{
    Measure, {self},
};
use crate::timed;
use crate::translate::Traffic::*;
use crate::translate::{self};

/// One gated operation.
struct Gate {
    name: &'static str,
    /// Instructions per call, on average over the calls of the entry.
    bound: f64,
    /// Runs the calls; how many there were, or what was wrong with a result.
    run: fn() -> Result<u64, String>,
}

const fn gate(name: &'static str, bound: f64, run: fn() -> Result<u64, String>) -> Gate {
    Gate { name, bound, run }
}

/// Single frames on a half-used map of 2^20 frames, a random half, and requests of 900
/// frames there, in the tier without checks and in the checked one. The front
/// stands over PBS with granularity 9, and its claims and flushes count: on the
/// half-used map, where a free run is two frames long, and on one that was
/// free, with frames put back in the order taken. A pair is two calls; those of other orders, and of
/// runs, are in steady state, in the front and in the bare allocator ([`fronts`]). Then a
/// simulated access that mostly hits, and one that always misses. Then
/// promotions, demotions and entries of a pmap, in ARMv7. Then a
/// transaction in simulated time, of the memory alone and of the whole system;
/// the last of them walks for every transaction, which makes three requests.
/// Then, in the worst case each, the tree of regions' starts with 2, 4,096 and 65,536 of
/// them among 2^20 pages (`both` is a split and a union), the paper's tree beside it, and the
/// calls on regions of one page and of all pages, between free pages, with free pages below or above
/// only, and between regions, with the same bound for all.
/// Last the allocators of a zone, each doing the same ([`zones`]): the green memory
/// manager's beside Linux's, also in an aged zone with 60% and 90% of the frames in use (a take
/// and a give, each, and by order), and its longest calls with 16 banks and with 1,024. The bounds of
/// the aged zones stop regressions and no more: there the manager takes 1.1 times Linux's
/// instructions for both calls, and 2.8 times for a take of orders 1 to 5.
/// And the segment allocators, a get and a put in one ([`segments`]), and a search past free runs,
/// some hundred and some thousands, that are long enough and have no place.
const GATES: &[Gate] = &[
    gate("bbs-get", 60.0, || get(&mut trusting(bbs()))),
    gate("bbs-put", 60.0, || put(&mut trusting(bbs()))),
    gate("pbs4-get", 60.0, || get(&mut trusting(BuddyConfig::PBS_ARMV7))),
    gate("pbs4-put", 60.0, || put(&mut trusting(BuddyConfig::PBS_ARMV7))),
    gate("pbs9-get", 60.0, || get(&mut trusting(BuddyConfig::PBS_ARMV8))),
    gate("pbs9-put", 60.0, || put(&mut trusting(BuddyConfig::PBS_ARMV8))),
    gate("bbs-request", 355.0, || request::<HeadOfList, Trusting>(bbs())),
    gate("pbs4-request", 115.0, || request::<HeadOfList, Trusting>(BuddyConfig::PBS_ARMV7)),
    gate("pbs9-request", 115.0, || request::<HeadOfList, Trusting>(BuddyConfig::PBS_ARMV8)),
    gate("fit4-get", 330.0, || get(&mut half_used::<BestFit, Trusting>(BuddyConfig::PBS_ARMV7))),
    gate("fit4-put", 350.0, || put(&mut half_used::<BestFit, Trusting>(BuddyConfig::PBS_ARMV7))),
    gate("fit9-get", 330.0, || get(&mut half_used::<BestFit, Trusting>(BuddyConfig::PBS_ARMV8))),
    gate("fit9-put", 420.0, || put(&mut half_used::<BestFit, Trusting>(BuddyConfig::PBS_ARMV8))),
    gate("bbs-get-checked", 60.0, || get(&mut half_used::<HeadOfList, Checked>(bbs()))),
    gate("bbs-put-checked", 63.0, || put(&mut half_used::<HeadOfList, Checked>(bbs()))),
    gate("pbs4-get-checked", 60.0, || get(&mut checked(BuddyConfig::PBS_ARMV7))),
    gate("pbs4-put-checked", 60.0, || put(&mut checked(BuddyConfig::PBS_ARMV7))),
    gate("pbs9-get-checked", 60.0, || get(&mut checked(BuddyConfig::PBS_ARMV8))),
    gate("pbs9-put-checked", 60.0, || put(&mut checked(BuddyConfig::PBS_ARMV8))),
    gate("bbs-request-checked", 372.0, || request::<HeadOfList, Checked>(bbs())),
    gate("pbs4-request-checked", 120.0, || request::<HeadOfList, Checked>(BuddyConfig::PBS_ARMV7)),
    gate("pbs9-request-checked", 120.0, || request::<HeadOfList, Checked>(BuddyConfig::PBS_ARMV8)),
    gate("fit4-get-checked", 340.0, || {
        get(&mut half_used::<BestFit, Checked>(BuddyConfig::PBS_ARMV7))
    }),
    gate("fit4-put-checked", 360.0, || {
        put(&mut half_used::<BestFit, Checked>(BuddyConfig::PBS_ARMV7))
    }),
    gate("fit9-get-checked", 340.0, || {
        get(&mut half_used::<BestFit, Checked>(BuddyConfig::PBS_ARMV8))
    }),
    gate("fit9-put-checked", 430.0, || {
        put(&mut half_used::<BestFit, Checked>(BuddyConfig::PBS_ARMV8))
    }),
    gate("pbs9-get-2m", 176.0, || aligned::<Trusting>(BuddyConfig::PBS_ARMV8, 9, false)),
    gate("pbs9-get-2m-checked", 176.0, || aligned::<Checked>(BuddyConfig::PBS_ARMV8, 9, false)),
    gate("pbs9-put-2m", 236.0, || aligned::<Trusting>(BuddyConfig::PBS_ARMV8, 9, true)),
    gate("pbs9-put-2m-checked", 244.0, || aligned::<Checked>(BuddyConfig::PBS_ARMV8, 9, true)),
    gate("bbs-split", 267.0, || aligned::<Trusting>(bbs(), 3, false)),
    gate("bbs-split-checked", 264.0, || aligned::<Checked>(bbs(), 3, false)),
    gate("quick-pair", 232.0, quick_pair::<Trusting>),
    gate("quick-pair-checked", 214.0, quick_pair::<Checked>),
    gate("front-get", 117.0, || fronts::get(true, count)),
    gate("front-put", 252.0, || fronts::put(true, count)),
    gate("front-pair", 93.0, || fronts::pair(count)),
    gate("front-pair-gathered", 140.0, || fronts::gathered_pair(false, count)),
    gate("front-pair-gathers", 335.0, || fronts::gathered_pair(true, count)),
    gate("front-get-runs", 50.0, || fronts::get(false, count)),
    gate("front-put-runs", 62.0, || fronts::put(false, count)),
    gate("front-pair-1", 190.0, || fronts::pairs(true, Aligned(1), Many, count)),
    gate("front-pair-6", 190.0, || fronts::pairs(true, Aligned(6), Many, count)),
    gate("front-pair-7", 193.0, || fronts::pairs(true, Aligned(7), Many, count)),
    gate("front-pair-8", 195.0, || fronts::pairs(true, Aligned(8), Many, count)),
    gate("front-pair-9", 184.0, || fronts::pairs(true, Aligned(9), Many, count)),
    gate("front-pair-9-alone", 177.0, || fronts::pairs(true, Aligned(9), Alone, count)),
    gate("front-pair-10", 202.0, || fronts::pairs(true, Aligned(10), Many, count)),
    gate("front-run-3", 220.0, || fronts::pairs(true, Run(3), Many, count)),
    gate("front-run-5", 223.0, || fronts::pairs(true, Run(5), Many, count)),
    gate("front-run-17", 237.0, || fronts::pairs(true, Run(17), Many, count)),
    gate("front-run-63", 297.0, || fronts::pairs(true, Run(63), Many, count)),
    gate("bare-pair-3", 870.0, || fronts::pairs(false, Aligned(3), Many, count)),
    gate("bare-pair-9", 490.0, || fronts::pairs(false, Aligned(9), Many, count)),
    gate("bare-pair-10", 890.0, || fronts::pairs(false, Aligned(10), Many, count)),
    gate("bare-pair-9-alone", 1190.0, || fronts::pairs(false, Aligned(9), Alone, count)),
    gate("bare-run-17", 450.0, || fronts::pairs(false, Run(17), Many, count)),
    gate("trad-raster", 50.0, || translate::gate("trad", Raster, count)),
    gate("pcad-raster", 50.0, || translate::gate("pcad", Raster, count)),
    gate("at-raster", 55.0, || translate::gate("at", Raster, count)),
    gate("trad-misses", 550.0, || translate::gate("trad", Vertical, count)),
    gate("pcad-misses", 600.0, || translate::gate("pcad", Vertical, count)),
    gate("at-misses", 850.0, || translate::gate("at", Vertical, count)),
    gate("promote-256", 3000.0, || superpages::gate(Measure::Promote, count)),
    gate("promote-vain", 3000.0, || superpages::gate(Measure::PromoteInVain, count)),
    gate("demote-recall", 800.0, || superpages::gate(Measure::Recall, count)),
    gate("demote-new", 15_500.0, || superpages::gate(Measure::Recreate, count)),
    gate("pmap-promote", 4900.0, || superpages::gate(Measure::PmapPromote(InTable), count)),
    gate("pmap-promote-flags", 6000.0, || {
        superpages::gate(Measure::PmapPromote(InReverseMap), count)
    }),
    gate("pmap-protect", 4000.0, || superpages::gate(Measure::PmapProtect(InTable), count)),
    gate("pmap-protect-flags", 4600.0, || {
        superpages::gate(Measure::PmapProtect(InReverseMap), count)
    }),
    gate("enter", 700.0, || superpages::gate(Measure::Enter, count)),
    gate("enter-off", 700.0, || superpages::gate(Measure::EnterOff, count)),
    gate("enter-grow", 960.0, || superpages::gate(Measure::EnterAndPromote, count)),
    gate("enter-flags", 1000.0, || superpages::gate(Measure::EnterAndPromoteFlags, count)),
    gate("buffer-get", 36.6, || buffer::gate(Call::Get, count)),
    gate("buffer-put", 74.0, || buffer::gate(Call::Put, count)),
    gate("buffer-pair", 75.1, || buffer::gate(Call::Pair, count)),
    gate("buffer-steady", 38.1, || buffer::gate(Call::Steady, count)),
    gate("buffer-medium", 41.9, || buffer::gate(Call::Medium, count)),
    gate("buffer-long", 91.1, || buffer::gate(Call::Long, count)),
    gate("buffer-remote", 110.8, || buffer::gate(Call::PutRemote, count)),
    gate("buffer-returned", 43.9, || buffer::gate(Call::GetReturned, count)),
    gate("dram-raster", 990.0, || timed::dram(Raster, count)),
    gate("dram-random", 2000.0, || timed::dram_random(count)),
    gate("dram-vertical", 2080.0, || timed::dram(Vertical, count)),
    gate("system-raster", 2300.0, || timed::system("pcad", true, Raster, count)),
    gate("system-vertical", 2380.0, || timed::system("pcad", true, Vertical, count)),
    gate("system-walks", 7500.0, || timed::system("trad", false, Vertical, count)),
    gate("populate", 422.0, || {
        reserve::gate::<Trusting>(ReservationLevels::ARMV8, Populate, count)
    }),
    gate("populate-checked", 425.0, || {
        reserve::gate::<Checked>(ReservationLevels::ARMV8, Populate, count)
    }),
    gate("populate-new", 434.0, || {
        reserve::gate::<Trusting>(ReservationLevels::ARMV8, Fault, count)
    }),
    gate("populate-new-checked", 441.0, || {
        reserve::gate::<Checked>(ReservationLevels::ARMV8, Fault, count)
    }),
    gate("depopulate", 203.0, || reserve::gate::<Trusting>(ReservationLevels::ARMV8, Free, count)),
    gate("depopulate-checked", 209.0, || {
        reserve::gate::<Checked>(ReservationLevels::ARMV8, Free, count)
    }),
    gate("populate-two", 562.0, || {
        reserve::gate::<Trusting>(ReservationLevels::ARMV8_GIGABYTES, Populate, count)
    }),
    gate("populate-two-checked", 551.0, || {
        reserve::gate::<Checked>(ReservationLevels::ARMV8_GIGABYTES, Populate, count)
    }),
    gate("vrt-split-2", 27.0, || regions::tree(Dense, Split, 2, count)),
    gate("vrt-split-4k", 27.0, || regions::tree(Dense, Split, 4096, count)),
    gate("vrt-split-64k", 27.0, || regions::tree(Dense, Split, 65536, count)),
    gate("vrt-both-2", 48.0, || regions::tree(Dense, Both, 2, count)),
    gate("vrt-both-4k", 48.0, || regions::tree(Dense, Both, 4096, count)),
    gate("vrt-both-64k", 48.0, || regions::tree(Dense, Both, 65536, count)),
    gate("vrt-find-2", 47.0 + TURN, || regions::tree(Dense, Find, 2, count)),
    gate("vrt-find-4k", 47.0 + TURN, || regions::tree(Dense, Find, 4096, count)),
    gate("vrt-find-64k", 47.0 + TURN, || regions::tree(Dense, Find, 65536, count)),
    gate("vrt-next-4k", 66.0 + TURN, || regions::tree(Dense, Next, 4096, count)),
    gate("layered-both-4k", 240.0, || regions::tree(Layered, Both, 4096, count)),
    gate("layered-find-4k", 110.0, || regions::tree(Layered, Find, 4096, count)),
    gate("region-map", 280.0, || space(MapRegion, 1, FreeBoth)),
    gate("region-map-all", 280.0, || space(MapRegion, ALL, FreeBoth)),
    gate("region-map-below", 280.0, || space(MapRegion, 1, FreeBelow)),
    gate("region-map-below-all", 280.0, || space(MapRegion, ALL, FreeBelow)),
    gate("region-map-above", 280.0, || space(MapRegion, 1, FreeAbove)),
    gate("region-map-above-all", 280.0, || space(MapRegion, ALL, FreeAbove)),
    gate("region-map-between", 280.0, || space(MapRegion, 1, Regions)),
    gate("region-map-between-all", 280.0, || space(MapRegion, ALL, Regions)),
    gate("region-fault", 420.0, || space(MapPage, 1, FreeBoth)),
    gate("region-fault-all", 420.0, || space(MapPage, ALL, FreeBoth)),
    gate("region-fault-below", 420.0, || space(MapPage, 1, FreeBelow)),
    gate("region-fault-below-all", 420.0, || space(MapPage, ALL, FreeBelow)),
    gate("region-fault-above", 420.0, || space(MapPage, 1, FreeAbove)),
    gate("region-fault-above-all", 420.0, || space(MapPage, ALL, FreeAbove)),
    gate("region-fault-between", 420.0, || space(MapPage, 1, Regions)),
    gate("region-fault-between-all", 420.0, || space(MapPage, ALL, Regions)),
    gate("region-unmap", 320.0, || space(UnmapRegion, 1, FreeBoth)),
    gate("region-unmap-all", 320.0, || space(UnmapRegion, ALL, FreeBoth)),
    gate("region-unmap-below", 320.0, || space(UnmapRegion, 1, FreeBelow)),
    gate("region-unmap-below-all", 320.0, || space(UnmapRegion, ALL, FreeBelow)),
    gate("region-unmap-above", 320.0, || space(UnmapRegion, 1, FreeAbove)),
    gate("region-unmap-above-all", 320.0, || space(UnmapRegion, ALL, FreeAbove)),
    gate("region-unmap-between", 320.0, || space(UnmapRegion, 1, Regions)),
    gate("region-unmap-between-all", 320.0, || space(UnmapRegion, ALL, Regions)),
    gate("linux-fresh", 200.0, || zone(Linux, Fresh)),
    gate("array-fresh", 89.0, || zone(Array, Fresh)),
    gate("list-fresh", 45.0, || zone(List, Fresh)),
    gate("adaptive-fresh", 38.0, || zone(Adaptive, Fresh)),
    gate("linux-take", 115.0, || zone(Linux, Take(Movable))),
    gate("array-take", 96.0, || zone(Array, Take(Movable))),
    gate("list-take", 48.0, || zone(List, Take(Movable))),
    gate("adaptive-take", 41.0, || zone(Adaptive, Take(Movable))),
    gate("paper-take", 41.0, || zone(Paper, Take(Movable))),
    gate("linux-take-kernel", 115.0, || zone(Linux, Take(Unmovable))),
    gate("array-take-kernel", 98.0, || zone(Array, Take(Unmovable))),
    gate("list-take-kernel", 48.0, || zone(List, Take(Unmovable))),
    gate("adaptive-take-kernel", 41.0, || zone(Adaptive, Take(Unmovable))),
    gate("linux-give", 295.0, || zone(Linux, Give)),
    gate("array-give", 160.0, || zone(Array, Give)),
    gate("list-give", 160.0, || zone(List, Give)),
    gate("adaptive-give", 178.0, || zone(Adaptive, Give)),
    gate("paper-give", 184.0, || zone(Paper, Give)),
    gate("linux-pair", 320.0, || zone(Linux, Pair)),
    gate("array-pair", 426.0, || zone(Array, Pair)),
    gate("list-pair", 206.0, || zone(List, Pair)),
    gate("adaptive-pair", 339.0, || zone(Adaptive, Pair)),
    gate("paper-pair", 335.0, || zone(Paper, Pair)),
    gate("linux-take-mixed", 120.0, || zone(Linux, TakeMixed)),
    gate("array-take-mixed", 217.0, || zone(Array, TakeMixed)),
    gate("list-take-mixed", 211.0, || zone(List, TakeMixed)),
    gate("adaptive-take-mixed", 100.0, || zone(Adaptive, TakeMixed)),
    gate("linux-give-mixed", 340.0, || zone(Linux, GiveMixed)),
    gate("array-give-mixed", 186.0, || zone(Array, GiveMixed)),
    gate("list-give-mixed", 185.0, || zone(List, GiveMixed)),
    gate("adaptive-give-mixed", 208.0, || zone(Adaptive, GiveMixed)),
    gate("linux-pair-mixed", 370.0, || zone(Linux, PairMixed)),
    gate("array-pair-mixed", 388.0, || zone(Array, PairMixed)),
    gate("list-pair-mixed", 399.0, || zone(List, PairMixed)),
    gate("adaptive-pair-mixed", 380.0, || zone(Adaptive, PairMixed)),
    gate("linux-aged60", 370.0, || zone(Linux, Aged(60, TakesAndGives, ALL_ORDERS))),
    gate("adaptive-aged60", 393.0, || zone(Adaptive, Aged(60, TakesAndGives, ALL_ORDERS))),
    gate("linux-aged60-take", 125.0, || zone(Linux, Aged(60, Takes, ALL_ORDERS))),
    gate("adaptive-aged60-take", 191.0, || zone(Adaptive, Aged(60, Takes, ALL_ORDERS))),
    gate("linux-aged60-give", 250.0, || zone(Linux, Aged(60, Gives, ALL_ORDERS))),
    gate("adaptive-aged60-give", 202.0, || zone(Adaptive, Aged(60, Gives, ALL_ORDERS))),
    gate("linux-aged90", 370.0, || zone(Linux, Aged(90, TakesAndGives, ALL_ORDERS))),
    gate("adaptive-aged90", 407.0, || zone(Adaptive, Aged(90, TakesAndGives, ALL_ORDERS))),
    gate("linux-aged90-take", 125.0, || zone(Linux, Aged(90, Takes, ALL_ORDERS))),
    gate("adaptive-aged90-take", 205.0, || zone(Adaptive, Aged(90, Takes, ALL_ORDERS))),
    gate("linux-aged90-give", 245.0, || zone(Linux, Aged(90, Gives, ALL_ORDERS))),
    gate("adaptive-aged90-give", 203.0, || zone(Adaptive, Aged(90, Gives, ALL_ORDERS))),
    gate("linux-aged90-take-0", 120.0, || zone(Linux, Aged(90, Takes, (0, 0)))),
    gate("adaptive-aged90-take-0", 155.0, || zone(Adaptive, Aged(90, Takes, (0, 0)))),
    gate("linux-aged90-give-0", 200.0, || zone(Linux, Aged(90, Gives, (0, 0)))),
    gate("adaptive-aged90-give-0", 167.0, || zone(Adaptive, Aged(90, Gives, (0, 0)))),
    gate("linux-aged90-take-1-5", 140.0, || zone(Linux, Aged(90, Takes, (1, 5)))),
    gate("adaptive-aged90-take-1-5", 372.0, || zone(Adaptive, Aged(90, Takes, (1, 5)))),
    gate("linux-aged90-give-1-5", 380.0, || zone(Linux, Aged(90, Gives, (1, 5)))),
    gate("adaptive-aged90-give-1-5", 303.0, || zone(Adaptive, Aged(90, Gives, (1, 5)))),
    gate("linux-aged90-take-6-9", 205.0, || zone(Linux, Aged(90, Takes, (6, 9)))),
    gate("adaptive-aged90-take-6-9", 573.0, || zone(Adaptive, Aged(90, Takes, (6, 9)))),
    gate("linux-aged90-give-6-9", 740.0, || zone(Linux, Aged(90, Gives, (6, 9)))),
    gate("adaptive-aged90-give-6-9", 581.0, || zone(Adaptive, Aged(90, Gives, (6, 9)))),
    gate("linux-fresh-checked", 210.0, || zone(LinuxChecked, Fresh)),
    gate("linux-take-checked", 121.0, || zone(LinuxChecked, Take(Movable))),
    gate("linux-take-kernel-checked", 121.0, || zone(LinuxChecked, Take(Unmovable))),
    gate("linux-give-checked", 310.0, || zone(LinuxChecked, Give)),
    gate("linux-pair-checked", 336.0, || zone(LinuxChecked, Pair)),
    gate("linux-take-mixed-checked", 126.0, || zone(LinuxChecked, TakeMixed)),
    gate("linux-give-mixed-checked", 357.0, || zone(LinuxChecked, GiveMixed)),
    gate("linux-pair-mixed-checked", 388.0, || zone(LinuxChecked, PairMixed)),
    gate("array-fresh-checked", 91.0, || zone(ArrayChecked, Fresh)),
    gate("array-take-checked", 95.0, || zone(ArrayChecked, Take(Movable))),
    gate("array-give-checked", 160.0, || zone(ArrayChecked, Give)),
    gate("array-pair-checked", 427.0, || zone(ArrayChecked, Pair)),
    gate("array-take-mixed-checked", 222.0, || zone(ArrayChecked, TakeMixed)),
    gate("array-give-mixed-checked", 184.0, || zone(ArrayChecked, GiveMixed)),
    gate("array-pair-mixed-checked", 403.0, || zone(ArrayChecked, PairMixed)),
    gate("list-fresh-checked", 45.0, || zone(ListChecked, Fresh)),
    gate("list-take-checked", 49.0, || zone(ListChecked, Take(Movable))),
    gate("list-give-checked", 160.0, || zone(ListChecked, Give)),
    gate("list-pair-checked", 209.0, || zone(ListChecked, Pair)),
    gate("list-take-mixed-checked", 216.0, || zone(ListChecked, TakeMixed)),
    gate("list-give-mixed-checked", 184.0, || zone(ListChecked, GiveMixed)),
    gate("list-pair-mixed-checked", 410.0, || zone(ListChecked, PairMixed)),
    gate("adaptive-fresh-checked", 38.0, || zone(AdaptiveChecked, Fresh)),
    gate("adaptive-take-checked", 42.0, || zone(AdaptiveChecked, Take(Movable))),
    gate("adaptive-give-checked", 177.0, || zone(AdaptiveChecked, Give)),
    gate("adaptive-pair-checked", 354.0, || zone(AdaptiveChecked, Pair)),
    gate("adaptive-take-mixed-checked", 103.0, || zone(AdaptiveChecked, TakeMixed)),
    gate("adaptive-give-mixed-checked", 205.0, || zone(AdaptiveChecked, GiveMixed)),
    gate("adaptive-pair-mixed-checked", 394.0, || zone(AdaptiveChecked, PairMixed)),
    gate("adaptive-open-16", 1100.0, || worst(Worst::Open, 16)),
    gate("adaptive-open-1k", 1100.0, || worst(Worst::Open, 1024)),
    gate("adaptive-steal-16", 1100.0, || worst(Worst::Steal, 16)),
    gate("adaptive-steal-1k", 1100.0, || worst(Worst::Steal, 1024)),
    gate("adaptive-rest-16", 1100.0, || worst(Worst::Rest, 16)),
    gate("adaptive-rest-1k", 1100.0, || worst(Worst::Rest, 1024)),
    gate("segment-frame", 1300.0, || segment::<Trusting>(Pair::Frame)),
    gate("segment-frame-checked", 1365.0, || segment::<Checked>(Pair::Frame)),
    gate("segment-frame-all", 3500.0, || segment::<Trusting>(Pair::FrameOfAll)),
    gate("segment-frame-all-checked", 3675.0, || segment::<Checked>(Pair::FrameOfAll)),
    gate("segment-20m", 4400.0, || segment::<Trusting>(Pair::Large)),
    gate("segment-20m-checked", 4620.0, || segment::<Checked>(Pair::Large)),
    gate("segment-aligned", 3600.0, || segment::<Trusting>(Pair::Constrained)),
    gate("segment-aligned-checked", 3780.0, || segment::<Checked>(Pair::Constrained)),
    gate("segment-passed-16k", 9500.0, || segments::hostile(1 << 14, count)),
    gate("segment-passed-1m", 9500.0, || segments::hostile(1 << 20, count)),
    gate("baseline-frame", 2300.0, || segments::baseline::<Trusting>(Pair::Frame, count)),
    gate("baseline-frame-checked", 2370.0, || segments::baseline::<Checked>(Pair::Frame, count)),
    gate("baseline-20m", 2650.0, || segments::baseline::<Trusting>(Pair::Large, count)),
    gate("baseline-20m-checked", 2700.0, || segments::baseline::<Checked>(Pair::Large, count)),
    gate("huge-page", 434.0, || segments::huge::<Trusting>(count)),
    gate("huge-page-checked", 445.0, || segments::huge::<Checked>(count)),
    gate("pages-fresh", 57.0, || zone(Pages, Fresh)),
    gate("pages-fresh-checked", 58.0, || zone(PagesChecked, Fresh)),
    gate("pages-take", 52.0, || zone(Pages, Take(Movable))),
    gate("pages-take-checked", 52.0, || zone(PagesChecked, Take(Movable))),
    gate("pages-give", 91.0, || zone(Pages, Give)),
    gate("pages-give-checked", 93.0, || zone(PagesChecked, Give)),
    gate("pages-pair", 277.0, || zone(Pages, Pair)),
    gate("pages-pair-checked", 282.0, || zone(PagesChecked, Pair)),
    gate("pages-take-mixed", 104.0, || zone(Pages, TakeMixed)),
    gate("pages-take-mixed-checked", 106.0, || zone(PagesChecked, TakeMixed)),
    gate("pages-give-mixed", 99.0, || zone(Pages, GiveMixed)),
    gate("pages-give-mixed-checked", 101.0, || zone(PagesChecked, GiveMixed)),
];

/// Gates whose first may take no more than the second, where both are run: the
/// green memory manager's allocator against Linux's.
const NOT_ABOVE: &[(&str, &str)] = &[
    ("adaptive-fresh", "linux-fresh"),
    ("adaptive-take", "linux-take"),
    ("adaptive-take-kernel", "linux-take-kernel"),
    ("adaptive-give", "linux-give"),
    ("adaptive-give-mixed", "linux-give-mixed"),
    ("paper-take", "linux-take"),
    ("paper-give", "linux-give"),
    ("adaptive-take-mixed", "linux-take-mixed"),
    ("adaptive-aged60-give", "linux-aged60-give"),
    ("adaptive-aged90-give", "linux-aged90-give"),
    ("adaptive-aged90-give-0", "linux-aged90-give-0"),
    ("adaptive-aged90-give-1-5", "linux-aged90-give-1-5"),
    ("adaptive-aged90-give-6-9", "linux-aged90-give-6-9"),
];

/// Gates whose first may take so much of the second: Adaptive-Buddy in an aged zone and Linux's,
/// which takes blocks from lists that no bank divides; and the checked tier, and the one
/// without checks.
const NOT_ABOVE_BY: &[(&str, &str, f64)] = &[
    ("adaptive-aged60", "linux-aged60", 1.12),
    ("adaptive-aged90", "linux-aged90", 1.16),
    ("adaptive-aged90-take-1-5", "linux-aged90-take-1-5", 2.8),
    ("bbs-get-checked", "bbs-get", 1.05),
    ("bbs-put-checked", "bbs-put", 1.05),
    ("bbs-request-checked", "bbs-request", 1.05),
    ("pbs4-get-checked", "pbs4-get", 1.05),
    ("pbs4-put-checked", "pbs4-put", 1.05),
    ("pbs4-request-checked", "pbs4-request", 1.05),
    ("pbs9-get-checked", "pbs9-get", 1.05),
    ("pbs9-put-checked", "pbs9-put", 1.05),
    ("pbs9-request-checked", "pbs9-request", 1.05),
    ("fit4-get-checked", "fit4-get", 1.05),
    ("fit4-put-checked", "fit4-put", 1.05),
    ("fit9-get-checked", "fit9-get", 1.05),
    ("fit9-put-checked", "fit9-put", 1.05),
    ("quick-pair-checked", "quick-pair", 1.04),
    ("segment-frame-checked", "segment-frame", 1.05),
    ("segment-frame-all-checked", "segment-frame-all", 1.05),
    ("segment-20m-checked", "segment-20m", 1.05),
    ("segment-aligned-checked", "segment-aligned", 1.05),
    ("baseline-frame-checked", "baseline-frame", 1.03),
    ("baseline-20m-checked", "baseline-20m", 1.05),
    ("huge-page-checked", "huge-page", 1.05),
    ("pages-fresh-checked", "pages-fresh", 1.05),
    ("pages-take-checked", "pages-take", 1.05),
    ("pages-give-checked", "pages-give", 1.05),
    ("pages-pair-checked", "pages-pair", 1.05),
    ("pages-take-mixed-checked", "pages-take-mixed", 1.05),
    ("pages-give-mixed-checked", "pages-give-mixed", 1.05),
    ("linux-fresh-checked", "linux-fresh", 1.05),
    ("linux-take-checked", "linux-take", 1.05),
    ("linux-take-kernel-checked", "linux-take-kernel", 1.05),
    ("linux-give-checked", "linux-give", 1.05),
    ("linux-pair-checked", "linux-pair", 1.05),
    ("linux-take-mixed-checked", "linux-take-mixed", 1.05),
    ("linux-give-mixed-checked", "linux-give-mixed", 1.05),
    ("linux-pair-mixed-checked", "linux-pair-mixed", 1.05),
    ("pbs9-get-2m-checked", "pbs9-get-2m", 1.05),
    ("pbs9-put-2m-checked", "pbs9-put-2m", 1.05),
    ("bbs-split-checked", "bbs-split", 1.05),
    ("array-fresh-checked", "array-fresh", 1.03),
    ("array-take-checked", "array-take", 1.01),
    ("array-give-checked", "array-give", 1.01),
    ("array-pair-checked", "array-pair", 1.01),
    ("array-take-mixed-checked", "array-take-mixed", 1.03),
    ("array-give-mixed-checked", "array-give-mixed", 1.01),
    ("array-pair-mixed-checked", "array-pair-mixed", 1.05),
    ("list-fresh-checked", "list-fresh", 1.01),
    ("list-take-checked", "list-take", 1.02),
    ("list-give-checked", "list-give", 1.01),
    ("list-pair-checked", "list-pair", 1.02),
    ("list-take-mixed-checked", "list-take-mixed", 1.05),
    ("list-give-mixed-checked", "list-give-mixed", 1.01),
    ("list-pair-mixed-checked", "list-pair-mixed", 1.05),
    ("adaptive-fresh-checked", "adaptive-fresh", 1.02),
    ("adaptive-take-checked", "adaptive-take", 1.03),
    ("adaptive-give-checked", "adaptive-give", 1.01),
    ("adaptive-pair-checked", "adaptive-pair", 1.05),
    ("adaptive-take-mixed-checked", "adaptive-take-mixed", 1.05),
    ("adaptive-give-mixed-checked", "adaptive-give-mixed", 1.01),
    ("adaptive-pair-mixed-checked", "adaptive-pair-mixed", 1.05),
    ("populate-checked", "populate", 1.03),
    ("populate-new-checked", "populate-new", 1.04),
    ("depopulate-checked", "depopulate", 1.03),
    ("populate-two-checked", "populate-two", 1.01),
];

/// What one turn of the loop over calls of `find` and `next` takes beside the call's
/// own instructions: two arguments, the call, test and choice, sum, count, compare
/// and jump.
const TURN: f64 = 9.0;

/// The orders of the mixture of blocks.
const ALL_ORDERS: zones::Span = (0, 9);

fn space(step: regions::Step, pages: u64, beside: Beside) -> Result<u64, String> {
    regions::space(step, pages, beside, count)
}

fn zone(design: zones::Design, work: Work) -> Result<u64, String> {
    zones::gate(design, work, count)
}

fn worst(call: Worst, banks: u64) -> Result<u64, String> {
    zones::worst(call, banks, count)
}

fn segment<H: Hardening>(pair: Pair) -> Result<u64, String> {
    segments::global::<H>(pair, count)
}

/// Runs the measured calls.
fn counted(mut work: impl FnMut()) {
    count(&mut work);
}

/// The allocator and, in random order, the frames in use.
type HalfUsed<R, H> = (PageBuddy<Vec<u64>, R, H>, Vec<Pfn>);

fn trusting(config: BuddyConfig) -> HalfUsed<HeadOfList, Trusting> {
    half_used(config)
}

fn checked(config: BuddyConfig) -> HalfUsed<HeadOfList, Checked> {
    half_used(config)
}

fn half_used<R: Rule, H: Hardening>(config: BuddyConfig) -> HalfUsed<R, H> {
    let mut allocator = buddy(config, false);
    let mut frames: Vec<Pfn> = (0..FRAMES).map(Pfn::new).collect();
    Random::new(1).shuffle(&mut frames);
    for frame in frames.drain(FRAMES as usize / 2..) {
        allocator.free_frame(frame).expect("every frame is allocated");
    }
    (allocator, frames)
}

/// Requests of 900 frames; what is counted is a block.
fn request<R: Rule, H: Hardening>(config: BuddyConfig) -> Result<u64, String> {
    let (mut allocator, used) = half_used::<R, H>(config);
    let mut blocks = Vec::with_capacity(FRAMES as usize);
    let mut failed = 0;
    counted(|| {
        for _ in 0..256 {
            failed += u64::from(allocator.allocate(900, &mut |block| blocks.push(block)).is_err());
        }
    });
    allocator.check()?;
    let taken: Vec<Option<Pfn>> = blocks.iter().flat_map(|block| block.iter()).map(Some).collect();
    check_taken(&taken, &used, allocator.free_frames())?;
    if failed == 0 { Ok(blocks.len() as u64) } else { Err("a request failed".into()) }
}

fn get<R: Rule, H: Hardening>((allocator, used): &mut HalfUsed<R, H>) -> Result<u64, String> {
    let mut taken = vec![None; CALLS];
    counted(|| taken.iter_mut().for_each(|frame| *frame = allocator.allocate_frame()));
    allocator.check()?;
    check_taken(&taken, used, allocator.free_frames())
}

fn put<R: Rule, H: Hardening>((allocator, used): &mut HalfUsed<R, H>) -> Result<u64, String> {
    let frames = used.split_off(used.len() - CALLS);
    let mut freed = 0;
    counted(|| {
        frames.iter().for_each(|&frame| freed += u64::from(allocator.free_frame(frame).is_ok()));
    });
    allocator.check()?;
    check_taken(&[], used, allocator.free_frames())?;
    if freed == CALLS as u64 { Ok(freed) } else { Err("a free failed".into()) }
}

/// Aligned blocks of 2^`k` frames, taken in a row from memory that is free or, if `put`, freed in
/// random order.
fn aligned<H: Hardening>(config: BuddyConfig, k: u8, put: bool) -> Result<u64, String> {
    const BLOCKS: usize = 1 << 10;
    let mut allocator: PageBuddy<_, HeadOfList, H> = buddy(config, true);
    let order = Order::known(k);
    let mut taken = vec![None; BLOCKS];
    let mut take = || {
        taken.iter_mut().for_each(|block| *block = allocator.allocate_aligned(order).ok());
    };
    if put {
        take();
    } else {
        counted(take);
    }
    let mut blocks: Vec<Extent> = taken.into_iter().flatten().collect();
    Random::new(1).shuffle(&mut blocks);
    let mut freed = blocks.len();
    if put {
        counted(|| freed = blocks.iter().filter(|&&block| allocator.free(block).is_ok()).count());
        blocks.clear();
    }
    allocator.check()?;
    let frames: Vec<Option<Pfn>> = blocks.iter().flat_map(|block| block.iter()).map(Some).collect();
    check_taken(&frames, &[], allocator.free_frames())?;
    if freed == BLOCKS { Ok(BLOCKS as u64) } else { Err("a call failed".into()) }
}

/// Short blocks in lists before best fit, the same tier in both: a random one comes back, and one as
/// long as another is taken; one call is the two together.
fn quick_pair<H: Hardening>() -> Result<u64, String> {
    let map = all_frames();
    let storage = vec![0; QuickFit::<Vec<u64>, (), H>::storage_words(&map)];
    let buddy = buddy::<BestFit, H>(BuddyConfig::PBS_ARMV8, true);
    let mut quick =
        QuickFit::<_, _, H>::new(map, buddy, storage).map_err(|error| error.to_string())?;
    let mut random = Random::new(1);
    let mut blocks = Vec::new();
    while let Some(block) = quick.allocate_block(1 + random.below(24)) {
        blocks.push(block);
    }
    random.shuffle(&mut blocks);
    for block in blocks.drain(CALLS..) {
        quick.free(block).map_err(|error| error.to_string())?;
    }
    let lengths: Vec<u64> = (0..CALLS).map(|_| 1 + random.below(24)).collect();
    let mut failed = 0_u64;
    counted(|| {
        for (block, &length) in blocks.iter_mut().zip(&lengths) {
            failed += u64::from(quick.free(*block).is_err());
            match quick.allocate_block(length) {
                Some(new) => *block = new,
                None => failed += 1,
            }
        }
    });
    let held: u64 = blocks.iter().map(|block| block.count).sum();
    if failed > 0 || held + quick.free_frames() != FRAMES {
        return Err(format!("{failed} calls failed, {held} frames are held"));
    }
    let mut scratch = vec![0; QuickFit::<Vec<u64>, (), H>::storage_words(&map)];
    quick.check(&mut scratch)?;
    Ok(CALLS as u64)
}

/// In the child, under valgrind: runs one entry and says how many calls it
/// measured.
pub(crate) fn measure(name: &str) -> Result<(), Failure> {
    let gate = find(name)?;
    let calls = (gate.run)().map_err(|what| Failure::Result(format!("{name}: {what}")))?;
    println!("calls {calls}");
    Ok(())
}

fn find(name: &str) -> Result<&'static Gate, Failure> {
    GATES.iter().find(|gate| gate.name == name).ok_or_else(|| {
        let names: Vec<&str> = GATES.iter().map(|gate| gate.name).collect();
        Failure::Setup(format!("no gate {name:?}; there are {}", names.join(", ")))
    })
}

/// Counts the entries `names`, or all, and compares each with its bound.
pub(crate) fn run(names: &[&str]) -> Result<(), Failure> {
    let chosen: Vec<&Gate> = if names.is_empty() {
        GATES.iter().collect()
    } else {
        names.iter().map(|name| find(name)).collect::<Result<_, _>>()?
    };
    println!("{:<20} {:>10} {:>12} {:>8}", "gate", "calls", "instr/call", "bound");
    let (mut broken, mut means) = (Vec::new(), Vec::new());
    // Instructions are the same whatever else runs. The rows keep their order.
    let counts: Vec<_> = chosen.par_iter().map(|gate| callgrind::run(gate.name)).collect();
    for (gate, count) in chosen.into_iter().zip(counts) {
        let (calls, instructions) = count?;
        let mean = instructions as f64 / calls as f64;
        let verdict = if mean <= gate.bound { "" } else { "  over" };
        println!("{:<20} {calls:>10} {mean:>12.2} {:>8.0}{verdict}", gate.name, gate.bound);
        if mean > gate.bound {
            broken.push(gate.name.to_owned());
        }
        means.push((gate.name, mean));
    }
    let mean = |name: &str| means.iter().find(|row| row.0 == name).map(|row| row.1);
    let equal = NOT_ABOVE.iter().map(|&(ours, theirs)| (ours, theirs, 1.0));
    for (ours, theirs, ratio) in equal.chain(NOT_ABOVE_BY.iter().copied()) {
        if let (Some(own), Some(other)) = (mean(ours), mean(theirs))
            && own > other * ratio
        {
            broken.push(format!("{ours} takes more than {ratio} of {theirs}"));
        }
    }
    if broken.is_empty() {
        Ok(())
    } else {
        Err(Failure::Result(format!("over the bound: {}", broken.join(", "))))
    }
}
