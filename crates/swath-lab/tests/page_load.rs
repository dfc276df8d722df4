//! Synthetic loads: a ledger beside them that only believes the requests.

use swath_arch::Order;
use swath_frame::Mobility;
use swath_lab::papers::green::pages::load::{BOOT_US, LoadKind, LoadMachine, PageLoad};
use swath_lab::papers::green::pages::requests::{ReplayOp, TimedOp};
use swath_lab::papers::green::pages::runs::Requests;
use swath_trace::pages::ZoneMax;

const MINUTE_US: u64 = 60_000_000;

/// A small machine, so that hours of it pass quickly.
const SMALL: LoadMachine = LoadMachine { frames: 1 << 16, nodes: 2, cpus: 4 };

/// What a naive reader of the requests knows.
#[derive(Default)]
struct Ledger {
    live: Vec<Option<u64>>,
    count: usize,
    count_most: usize,
    frames: u64,
    time_us: u64,
    ops: u64,
    by_mobility: [u64; 3],
    by_order: [u64; 10],
    dma32: u64,
}

impl Ledger {
    fn take(&mut self, TimedOp { time_us, op }: TimedOp, machine: LoadMachine) {
        assert!(time_us >= self.time_us, "time goes back at {time_us}");
        self.time_us = time_us;
        self.ops += 1;
        match op {
            ReplayOp::Alloc { id, order, mobility, zone_max, cached, cpu } => {
                let id = id as usize;
                if id >= self.live.len() {
                    self.live.resize(id + 1, None);
                }
                self.count += 1;
                self.count_most = self.count_most.max(self.count);
                assert_eq!(self.live[id].replace(order.frames()), None, "handle {id} is in use");
                assert!(cpu < machine.cpus && machine.node(cpu) < machine.nodes);
                assert_eq!(zone_max == ZoneMax::Movable, mobility == Mobility::Movable);
                assert!(
                    !cached || (mobility == Mobility::Movable && order == Order::BASE),
                    "a file's"
                );
                self.frames += order.frames();
                self.by_mobility[mobility as usize] += order.frames();
                self.by_order[order.k() as usize] += 1;
                self.dma32 += u64::from(zone_max == ZoneMax::Dma32);
            }
            ReplayOp::Free { id } => {
                let frames = self.live[id as usize].take().expect("freed once");
                self.count -= 1;
                self.frames -= frames;
            }
        }
    }
}

/// The footprint's least and most after boot, in percent.
fn range(machine: LoadMachine, kind: LoadKind, seed: u64, minutes: u64) -> (f64, f64, Ledger) {
    range_beside(0, machine, kind, seed, minutes)
}

/// The same, beside so many percent of the machine that the system has in use.
fn range_beside(
    system: u64,
    machine: LoadMachine,
    kind: LoadKind,
    seed: u64,
    minutes: u64,
) -> (f64, f64, Ledger) {
    let mut ledger = Ledger::default();
    let mut range = (f64::MAX, 0f64);
    let frames = machine.frames * system / 100;
    let mut load = PageLoad::with_system(machine, kind, seed, frames).unwrap();
    let (low, high) = kind.bounds_percent();
    let high = (high + system).min(95);
    // The system's frames are rounded down.
    let low = low as f64 + 100.0 * frames as f64 / machine.frames as f64;
    for op in load.ops_before(minutes * MINUTE_US) {
        ledger.take(op, machine);
        let share = 100.0 * ledger.frames as f64 / machine.frames as f64;
        assert!(share <= high as f64, "seed {seed}: {share}% at {}", op.time_us);
        if op.time_us >= BOOT_US {
            assert!(share >= low, "seed {seed}: {share}% at {}", op.time_us);
            range = (range.0.min(share), range.1.max(share));
        }
    }
    load.check().unwrap();
    let (handles, most) = (ledger.live.len(), ledger.count_most);
    assert!(handles < 3 * most, "{handles} handles for {most} blocks: they are dense");
    (range.0, range.1, ledger)
}

#[test]
fn footprints_stay_within_their_bounds_and_reach_both() {
    for (kind, low, high) in [
        (LoadKind::Light, 10.0, 50.0),
        (LoadKind::Medium, 30.0, 80.0),
        (LoadKind::Filled, 10.0, 95.0),
    ] {
        for seed in 1..=3 {
            let (least, most, ledger) = range(SMALL, kind, seed, 120);
            assert!(least < low + 3.0, "{kind:?}, seed {seed}: at least {least}%");
            assert!(most > high - 3.0, "{kind:?}, seed {seed}: at most {most}%");
            // All that the load is made of takes part.
            assert!(ledger.by_mobility.iter().all(|&frames| frames > SMALL.frames / 64));
            assert!([0, 1, 2, 3, 9].iter().all(|&order: &usize| ledger.by_order[order] > 0));
            assert!(ledger.dma32 > 0 && ledger.by_mobility[1] > ledger.by_mobility[0]);
        }
    }
}

#[test]
fn a_system_comes_on_top_of_both_bounds() {
    for (kind, system, low, high) in [
        (LoadKind::Light, 13, 23.0, 63.0),
        (LoadKind::Medium, 13, 43.0, 93.0),
        // No load fills memory beyond 95%.
        (LoadKind::Medium, 40, 70.0, 95.0),
        (LoadKind::Filled, 13, 23.0, 95.0),
    ] {
        for seed in 4..=5 {
            let (least, most, _) = range_beside(system, SMALL, kind, seed, 120);
            assert!(least < low + 3.0, "{kind:?}, seed {seed}: at least {least}%");
            assert!(most > high - 3.0, "{kind:?}, seed {seed}: at most {most}%");
        }
    }
    // A tenth of the machine is left to the load, or it is none.
    let of = |kind, frames| PageLoad::with_system(SMALL, kind, 1, frames).is_some();
    let most =
        |low: u64| SMALL.frames * 95 / 100 - (SMALL.frames * low).div_ceil(100) - SMALL.frames / 10;
    for (kind, low) in [(LoadKind::Light, 10), (LoadKind::Medium, 30), (LoadKind::Filled, 10)] {
        assert!(of(kind, most(low)) && !of(kind, most(low) + 1), "{kind:?}");
        assert!(!of(kind, u64::MAX), "{kind:?}");
    }
}

#[test]
fn the_papers_machines() {
    for (machine, minutes) in [(LoadMachine::GIB_4, 24), (LoadMachine::GIB_32, 3)] {
        for kind in [LoadKind::Light, LoadKind::Medium, LoadKind::Filled] {
            let (_, _, ledger) = range(machine, kind, 7, minutes);
            eprintln!("{machine:?} {kind:?}: {} requests in {minutes} minutes", ledger.ops);
            assert!(ledger.ops > 100_000);
        }
    }
}

#[test]
fn the_invariants_hold_after_each_tick() {
    let mut load = PageLoad::new(SMALL, LoadKind::Medium, 11).unwrap();
    let mut next = 0;
    while let Some(time_us) = load.next_stretch().map(|stretch| stretch.time_us(0)) {
        if time_us >= next {
            load.check().unwrap();
            next = time_us + 7 * MINUTE_US / 10;
        }
        if time_us > 60 * MINUTE_US {
            break;
        }
    }
}

#[test]
fn a_function_of_machine_kind_and_seed() {
    let take = |kind, seed| -> Vec<TimedOp> {
        let mut load = PageLoad::new(SMALL, kind, seed).unwrap();
        load.ops_before(u64::MAX).skip(50_000).take(100_000).collect()
    };
    assert_eq!(take(LoadKind::Light, 1), take(LoadKind::Light, 1));
    assert_ne!(take(LoadKind::Light, 1), take(LoadKind::Light, 2));
    assert_ne!(take(LoadKind::Light, 1), take(LoadKind::Medium, 1));
}

#[test]
fn machines_out_of_the_limits() {
    for machine in [
        LoadMachine { frames: (1 << 16) - 1, nodes: 1, cpus: 1 },
        LoadMachine { frames: (1 << 30) + 1, nodes: 1, cpus: 1 },
        LoadMachine { frames: 1 << 20, nodes: 0, cpus: 1 },
        LoadMachine { frames: 1 << 20, nodes: 1, cpus: 0 },
    ] {
        assert!(PageLoad::new(machine, LoadKind::Light, 1).is_none(), "{machine:?}");
    }
    // One processor for two nodes is odd, not wrong.
    let odd = LoadMachine { frames: 1 << 16, nodes: 2, cpus: 1 };
    assert_eq!(odd.node(0), 0);
    range(odd, LoadKind::Light, 1, 5);
}
