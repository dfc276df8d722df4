//! The green memory manager against the hardware: banks that Adaptive-Buddy has
//! offline are in deep power-down and lose their content, kernel tables and user
//! pages alike stand in the same bytes, and the migration daemon empties banks
//! while the work goes on. Nothing that is in use is ever lost; and if a bank is
//! taken down too early, this test sees it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use swath_arch::testing::Random;
use swath_arch::{
    Attributes, Extent, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, SliceMemory, Vpn,
};
use swath_frame::layout::{Layout, LayoutConfig, ZoneKind};
use swath_frame::zone::bank::BankLayout as Geometry;
use swath_frame::zone::bank::{AdaptiveBuddy, PoolPlacement};
use swath_frame::{
    BlockRequest, ByteRange, FrameAllocateError, FrameAllocator, FrameFreeError, Machine,
    MachineConfig, MachineHandle, MemoryMap, Mobility, PerCpuLists,
};
use swath_hw::power::{BankPower, PowerError, PowerState, PowerTable, destroy};
use swath_vm::migrate::daemon::{Daemon, MigrationConfig, MigrationStep};
use swath_vm::migrate::relocate::{Held, Holders, Relocator};
use swath_vm::migrate::units::NodeBanks;
use swath_vm::{AddressSpace, PageAccess, Pmap, ReverseMap, Site, Sizes, SpaceId, Status};

const FIRST: u64 = 0x2000;
const BANK: u64 = 1024;
const BANKS: usize = 8;
const FRAMES: u64 = BANK * BANKS as u64;
const PAGE: u64 = 0x40_0000;

type Computer = Machine<Vec<AdaptiveBuddy<Vec<u64>>>, Vec<PerCpuLists>, Vec<u64>>;

/// When banks go down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// When they are in POOL_OFFLINE.
    Offline,
    /// Wrong: as soon as the daemon begins to empty them.
    Early,
    /// Wrong: the second to last bank after two seconds, whatever it holds.
    Blind,
}

/// The memory's power, in step with the allocator.
struct Power<'m> {
    machine: &'m RefCell<Computer>,
    memory: &'m SliceMemory<'m>,
    banks: RefCell<BankPower>,
    now_ns: std::cell::Cell<u64>,
    rule: Rule,
    emptying: std::cell::Cell<Option<usize>>,
}

impl Power<'_> {
    /// Powers the banks as they are now. What goes down, or was down, is lost.
    fn follow(&self) {
        // Longer than a bank takes to come back.
        self.now_ns.set(self.now_ns.get() + 1_000_000);
        let pool = NodeBanks::new(self.machine, 0, 0).unwrap();
        let late = self.now_ns.get() > 2_000_000_000;
        let refreshed: Vec<bool> = (0..BANKS)
            .map(|bank| match self.rule {
                Rule::Offline => !pool.is_offline(bank),
                Rule::Early => !pool.is_offline(bank) && self.emptying.get() != Some(bank),
                Rule::Blind => !pool.is_offline(bank) && (bank != BANKS - 2 || !late),
            })
            .collect();
        let lose = &mut |frames| destroy(self.memory, frames).unwrap();
        self.banks.borrow_mut().apply_pasr(self.now_ns.get(), &refreshed, lose).unwrap();
    }
}

/// Page tables come from the machine; a bank opened for one is up before it is
/// written.
struct Tables<'m> {
    handle: MachineHandle<'m, Vec<AdaptiveBuddy<Vec<u64>>>, Vec<PerCpuLists>, Vec<u64>>,
    power: &'m Power<'m>,
}

impl FrameAllocator for Tables<'_> {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        let taken = self.handle.allocate_block(frames_max);
        self.power.follow();
        taken
    }
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let taken = self.handle.allocate_aligned(order);
        self.power.follow();
        taken
    }
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.handle.free(extent)
    }
    fn free_frames(&self) -> u64 {
        self.handle.free_frames()
    }
    fn total_frames(&self) -> u64 {
        self.handle.total_frames()
    }
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.handle.for_each_free(visit);
    }
}

/// Where each page's content is, and whether it can move: by frame, the page.
#[derive(Default)]
struct Frames {
    users: BTreeMap<u64, u64>,
    kernel: BTreeMap<u64, u64>,
}

impl Holders for Frames {
    fn held(&self, frame: Pfn) -> Held {
        if self.users.contains_key(&frame.raw()) {
            Held::Movable { start: frame, order: Order::BASE }
        } else if self.kernel.contains_key(&frame.raw()) {
            Held::Unmovable
        } else {
            Held::Free
        }
    }
    fn moved(&mut self, from: Pfn, to: Pfn, order: Order) {
        for i in 0..order.frames() {
            let page = self.users.remove(&(from.raw() + i)).unwrap();
            self.users.insert(to.raw() + i, page);
        }
    }
}

fn content(page: u64, word: u64) -> u64 {
    (page << 9 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Debug, Default)]
struct Outcome {
    /// Words that differ from what was written, each time they were looked at.
    corrupted: u64,
    /// Frames in use that their bank does not serve.
    unreachable: u64,
    emptied: u64,
    moved_frames: u64,
    offline_most: usize,
    down_ns: u64,
}

fn run(rule: Rule, seed: u64) -> Outcome {
    let all = Extent::new(Pfn::new(FIRST), FRAMES);
    let mut areas = [Extent::default(); 1];
    let map = MemoryMap::new(&[ByteRange::of_frames(all)], &mut areas).unwrap();
    let units = LayoutConfig { bank_frames: BANK, section_frames: BANK, ..LayoutConfig::default() };
    let layout = Layout::new(&map, &[all], units).unwrap();
    let config = MachineConfig { cpus: 1, min_free_kib: Some(256), per_cpu_lists: true };
    let geometry = Geometry::new(Pfn::new(0), BANK, Order::known(10)).unwrap();
    let pools = PoolPlacement::default();
    let words = AdaptiveBuddy::<Vec<u64>>::storage_words(&map, all, geometry, &pools).unwrap();
    let zone = AdaptiveBuddy::new(&map, all, geometry, pools, vec![0; words]).unwrap();
    let size = Computer::size(&map, &layout, config);
    let lists = vec![PerCpuLists::default(); size.lists];
    let machine = Machine::new(&map, layout, config, vec![zone], lists, vec![0; size.words]);
    let machine = RefCell::new(machine.unwrap());
    let mut words = vec![0; FRAMES as usize * 512];
    let memory = SliceMemory::new(Pfn::new(FIRST), &mut words);
    let power = Power {
        machine: &machine,
        memory: &memory,
        banks: RefCell::new(BankPower::new(Pfn::new(FIRST), BANK, BANKS, PowerTable::PAPER)),
        now_ns: Default::default(),
        rule,
        emptying: Default::default(),
    };
    let tables = || Tables {
        handle: MachineHandle::new(&machine, Mobility::Unmovable, ZoneKind::Normal, 0, 0).unwrap(),
        power: &power,
    };
    let sizes = Sizes::all(Format::X86_64);
    let space =
        AddressSpace::with_superpages(Format::X86_64, sizes, &memory, tables(), tables()).unwrap();
    let mut spaces = [space];
    let words = ReverseMap::words_needed(all, sizes, Status::InTable, FRAMES as u32).unwrap();
    let reverse = ReverseMap::new(all, sizes, Status::InTable, vec![0; words]).unwrap();
    let mut pmap = Pmap::new(reverse);
    let mut frames = Frames::default();
    let mut random = Random::new(seed);
    let (mut pages, mut outcome) = (0, Outcome::default());
    let eager = MigrationConfig {
        interval_ns: 0,
        retry_ns: 0,
        occupied_permille_max: 950,
        reserve_frames: 64,
        settle_ns: 0,
    };
    let mut daemon = Daemon::new(eager);
    for round in 0..240 {
        let goal = [FRAMES / 2, FRAMES / 8, FRAMES / 3][round / 20 % 3];
        for _ in 0..120 {
            let reached = &mut (&mut spaces[..], |_, _| ());
            let used = frames.users.len() + frames.kernel.len();
            if (used as u64) < goal {
                let movable = random.below(20) > 0;
                let mobility = if movable { Mobility::Movable } else { Mobility::Unmovable };
                let (order, highest) = (Order::BASE, ZoneKind::Normal);
                let request =
                    BlockRequest { order, mobility, highest, node: 0, cpu: 0, urgent: false };
                let taken = machine.borrow_mut().allocate(request);
                let Ok(frame) = taken else { continue };
                power.follow();
                pages += 1;
                for word in 0..512 {
                    let at = PhysAddr::new(frame.address().raw() + 8 * word);
                    memory.write_u64(at, content(pages, word)).unwrap();
                }
                if movable {
                    let site = Site { space: SpaceId(0), page: Vpn::new(PAGE + pages) };
                    let user = Attributes::USER_DATA;
                    frames.users.insert(frame.raw(), pages);
                    // A broken table shows up below as a page that is gone.
                    let _ = pmap.enter(reached, site, frame, user, PageAccess::Write, None);
                } else {
                    frames.kernel.insert(frame.raw(), pages);
                }
            } else {
                // A process exits: its pages lie side by side.
                let from = FIRST + random.below(FRAMES);
                let user = frames.users.range(from..).next().map(|(&frame, &page)| (frame, page));
                if let Some((frame, page)) = user {
                    let range = PageRange::new(Vpn::new(PAGE + page), 1);
                    let _ = pmap.remove(reached, SpaceId(0), range);
                    frames.users.remove(&frame);
                    let extent = Extent::new(Pfn::new(frame), 1);
                    machine.borrow_mut().free(extent, 0).unwrap();
                }
            }
        }
        power.follow();
        let mut banks = NodeBanks::new(&machine, 0, 0).unwrap();
        let mut reached = (&mut spaces[..], |_, _| ());
        let mut relocator = Relocator {
            pmap: &mut pmap,
            spaces: &mut reached,
            holders: &mut frames,
            memory: &memory,
        };
        let step = daemon.step(power.now_ns.get(), 100, &mut banks, &mut relocator);
        outcome.emptied += u64::from(matches!(step, MigrationStep::Emptied { .. }));
        power.emptying.set(daemon.moving());
        power.follow();
        let offline = (0..BANKS).filter(|&bank| banks.is_offline(bank)).count();
        outcome.offline_most = outcome.offline_most.max(offline);
        // What the processor sees of every page, and the kernel of its own.
        let mut power_banks = power.banks.borrow_mut();
        for (&frame, &page) in frames.users.iter().chain(&frames.kernel) {
            let now_ns = power.now_ns.get();
            match power_banks.access(now_ns, Pfn::new(frame), 0) {
                Ok(_) => {}
                Err(PowerError::Down { .. }) => outcome.unreachable += 1,
                Err(error) => panic!("{error}"),
            }
            let mapped = match spaces[0].translate(Vpn::new(PAGE + page)) {
                Ok(mapping) => mapping.frame.raw() == frame,
                Err(_) => frames.kernel.contains_key(&frame),
            };
            outcome.corrupted += u64::from(!mapped);
            for word in [0, 255, 511] {
                let at = PhysAddr::new((frame << 12) + 8 * word);
                outcome.corrupted += u64::from(memory.read_u64(at) != Ok(content(page, word)));
            }
        }
        drop(power_banks);
        if outcome.corrupted > 0 {
            break;
        }
        machine.borrow().check().unwrap();
    }
    outcome.moved_frames = daemon.statistics().moved_frames;
    let energy = power.banks.borrow().energy(power.now_ns.get());
    outcome.down_ns = energy.residency_ns[PowerState::DeepPowerDown as usize];
    println!("{rule:?}, seed {seed}: {outcome:?}");
    // Tables may be garbage; they are not to be walked again.
    if outcome.corrupted > 0 {
        spaces.into_iter().for_each(std::mem::forget);
    }
    outcome
}

#[test]
fn what_is_in_use_outlives_deep_power_down() {
    for seed in 1..=3 {
        let outcome = run(Rule::Offline, seed);
        assert_eq!((outcome.corrupted, outcome.unreachable), (0, 0));
        assert!(outcome.emptied > 5 && outcome.moved_frames > 500);
        assert!(outcome.offline_most >= 4 && outcome.down_ns > 0);
    }
}

/// The test above can fail: each wrong rule destroys what somebody needs.
#[test]
fn a_wrong_offline_shows_as_corrupted_data() {
    for rule in [Rule::Early, Rule::Blind] {
        let outcome = run(rule, 1);
        assert!(outcome.corrupted > 0 && outcome.unreachable > 0, "{rule:?}: {outcome:?}");
    }
}
