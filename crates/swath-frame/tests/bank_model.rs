//! The three bank-aware allocators against a naive model: which bank serves a
//! request, where each bank counts, and what is free in it, after every
//! operation; all sequences on a small zone, random ones on larger ones.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::bank::{
    AdaptiveBuddy, ArrayPlacement, BankBuddy, BankLayout, BankLayoutError, BankPool,
    BankPreference, BankState, BoundaryPlacement, ListPlacement, Placement, PoolPlacement,
    PoolPolicy, TreePlacement,
};
use swath_frame::{ByteRange, FrameFreeError, IsolateError, MemoryMap, Mobility, ZoneAllocator};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Rule {
    Array,
    List {
        recent_first: bool,
    },
    Pools,
    /// The boundary's slack.
    Boundary(u64),
    /// The order from which on a request is for a huge page.
    Trees(u32),
}

/// Frames one by one, lists as plain vectors with the head first.
#[derive(Clone)]
struct Model {
    rule: Rule,
    bank_frames: usize,
    /// `None` for frames that the zone has not, else whether it is free.
    free: Vec<Option<bool>>,
    crosses: Vec<bool>,
    isolated: Vec<bool>,
    pool: Vec<Option<BankPool>>,
    lists: [Vec<usize>; 3],
    recent: [Option<usize>; 2],
    boundary: usize,
    /// The bank that unmovable, movable and huge requests have each, and the mobility of each bank.
    reserved: [Option<usize>; 3],
    movable: Vec<bool>,
    held: Vec<(Pfn, Order)>,
}

impl Model {
    /// Banks from frame 0 on.
    fn new(rule: Rule, map: &MemoryMap<'_>, zone: Extent, bank_frames: usize) -> Self {
        let count = (zone.end().raw() as usize).div_ceil(bank_frames);
        let frames = (0..(count * bank_frames) as u64).map(Pfn::new);
        let own = |frame: &Pfn| zone.contains(*frame) && map.contains(*frame);
        let free: Vec<_> = frames.clone().map(|frame| own(&frame).then_some(true)).collect();
        let foreign: Vec<_> = frames.map(|frame| map.contains(frame) && !own(&frame)).collect();
        let mut model = Self {
            rule,
            bank_frames,
            crosses: foreign.chunks(bank_frames).map(|bank| bank.contains(&true)).collect(),
            free,
            isolated: vec![false; count],
            pool: vec![None; count],
            lists: Default::default(),
            recent: [None; 2],
            boundary: 0,
            reserved: [None; 3],
            movable: vec![true; count],
            held: Vec::new(),
        };
        for bank in 0..count {
            if model.total(bank) > 0
                && !matches!(rule, Rule::Array | Rule::Boundary(_) | Rule::Trees(_))
            {
                let pool = if model.crosses[bank] { BankPool::Kernel } else { BankPool::Offline };
                model.pool[bank] = Some(pool);
                model.lists[pool as usize].push(bank);
            }
        }
        model
    }

    fn bank(&self, bank: usize) -> &[Option<bool>] {
        &self.free[bank * self.bank_frames..][..self.bank_frames]
    }

    fn total(&self, bank: usize) -> usize {
        self.bank(bank).iter().flatten().count()
    }

    fn free_of(&self, bank: usize) -> usize {
        self.bank(bank).iter().flatten().filter(|free| **free).count()
    }

    fn largest(&self, bank: usize, top: u32) -> Option<u32> {
        let whole = |order: &u32| {
            let mut blocks = self.bank(bank).chunks(1 << order);
            blocks.any(|block| block.iter().all(|frame| *frame == Some(true)))
        };
        (0..=top).rev().find(whole)
    }

    fn serves(&self, bank: usize, order: Order) -> bool {
        !self.isolated[bank] && self.largest(bank, order.k()) == Some(order.k())
    }

    fn shift(&mut self, bank: usize, to: BankPool) {
        let Some(from) = self.pool[bank] else { return };
        self.lists[from as usize].retain(|&other| other != bank);
        self.recent.iter_mut().filter(|recent| **recent == Some(bank)).for_each(|recent| {
            *recent = None;
        });
        self.lists[to as usize].insert(0, bank);
        self.pool[bank] = Some(to);
    }

    fn is_whole(&self, bank: usize) -> bool {
        self.free_of(bank) == self.total(bank) && !self.crosses[bank]
    }

    /// Moves the boundary down past wholly free banks while so many frames stay free below.
    fn give_way(&mut self, slack: u64) {
        while let Some(top) = self.boundary.checked_sub(1) {
            let rest = (0..top).filter(|&bank| !self.isolated[bank]);
            let free: usize = rest.map(|bank| self.free_of(bank)).sum();
            if self.isolated[top] || !self.is_whole(top) || (free as u64) < slack {
                return;
            }
            self.boundary = top;
        }
    }

    /// Moves the boundary for a request that its region cannot serve.
    fn press(&mut self, order: Order, movable: bool) {
        let mut own = if movable { self.boundary..self.pool.len() } else { 0..self.boundary };
        if own.any(|bank| self.serves(bank, order)) {
            return;
        }
        if movable {
            return self.give_way(0);
        }
        let above = (self.boundary..self.pool.len()).find(|&bank| self.serves(bank, order));
        self.boundary = above.map_or(self.boundary, |bank| bank + 1);
    }

    /// The banks that may serve a request: one, unless the rule leaves it open.
    /// The bank moves as the rule says once it is known.
    fn serving(&self, order: Order, movable: bool, top: u32) -> Vec<usize> {
        let own = if movable { BankPool::User } else { BankPool::Kernel };
        let serving = |pool: BankPool| -> Vec<usize> {
            let list = &self.lists[pool as usize];
            list.iter().copied().filter(|&bank| self.serves(bank, order)).collect()
        };
        match self.rule {
            Rule::Array => {
                let mut banks = (0..self.pool.len()).filter(|&bank| self.serves(bank, order));
                if movable { banks.next_back() } else { banks.next() }.into_iter().collect()
            }
            Rule::Boundary(_) => {
                let serves = |bank: &usize| self.serves(*bank, order);
                let found = if movable {
                    let mut above = (self.boundary..self.pool.len()).rev();
                    above.find(serves).or_else(|| (0..self.boundary).rev().find(serves))
                } else {
                    (0..self.boundary).find(serves)
                };
                found.into_iter().collect()
            }
            Rule::Trees(huge) => {
                let kind = Self::tree_kind(huge, order, movable);
                let reserved = self.reserved[kind].filter(|&bank| self.serves(bank, order));
                let any = || self.around(kind).find(|&bank| self.serves(bank, order));
                let next = reserved.or_else(|| self.next_tree(kind, order)).or_else(any);
                next.into_iter().collect()
            }
            Rule::List { recent_first } => {
                let recent = self.recent[own as usize].filter(|&bank| self.serves(bank, order));
                if recent_first && recent.is_some() {
                    return recent.into_iter().collect();
                }
                let found = [own, BankPool::Offline].map(serving).concat();
                if let Some(&first) = found.first() {
                    return vec![first];
                }
                let key = |bank: &usize| {
                    if movable {
                        self.largest(*bank, top).unwrap_or(0) as usize
                    } else {
                        self.free_of(*bank)
                    }
                };
                let other = if movable { BankPool::Kernel } else { BankPool::User };
                let others = serving(other);
                let best = others.iter().map(key).max();
                others.iter().copied().find(|bank| Some(key(bank)) == best).into_iter().collect()
            }
            Rule::Pools => {
                let found = serving(own);
                if !found.is_empty() {
                    return found;
                }
                let offline = serving(BankPool::Offline);
                let edge = if movable { offline.iter().max() } else { offline.iter().min() };
                if let Some(&edge) = edge {
                    return vec![edge];
                }
                if movable {
                    return serving(BankPool::Kernel);
                }
                // The most free frames, up to a 32nd of a bank.
                let unit = (self.bank_frames.next_power_of_two() / 32).max(1);
                let bucket = |bank: &usize| (self.free_of(*bank) / unit).min(31);
                let users = serving(BankPool::User);
                let best = users.iter().map(bucket).max();
                users.into_iter().filter(|bank| Some(bucket(bank)) == best).collect()
            }
        }
    }

    const fn tree_kind(huge: u32, order: Order, movable: bool) -> usize {
        if !movable {
            0
        } else if order.k() < huge {
            1
        } else {
            2
        }
    }

    /// All banks, from behind the one that this kind of request has.
    fn around(&self, kind: usize) -> impl Iterator<Item = usize> + use<> {
        let (count, first) = (self.pool.len(), self.reserved[kind].map_or(0, |bank| bank + 1));
        (0..count).map(move |nth| (first + nth) % count)
    }

    /// The bank that this kind of request gets when its own cannot serve.
    fn next_tree(&self, kind: usize, order: Order) -> Option<usize> {
        let others = |bank: &usize| !self.reserved.contains(&Some(*bank));
        let free: Vec<usize> =
            self.around(kind).filter(others).filter(|&bank| self.serves(bank, order)).collect();
        let own: Vec<usize> =
            free.iter().copied().filter(|&bank| self.movable[bank] == (kind > 0)).collect();
        let is_partly = |bank: &&usize| {
            !self.is_whole(**bank) && self.free_of(**bank) * 16 >= self.total(**bank)
        };
        let partly = own.iter().find(is_partly);
        partly.or_else(|| free.iter().find(|bank| self.is_whole(**bank))).or(own.first()).copied()
    }

    /// Reserves a bank for this kind of request, if its own cannot serve.
    fn reserve(&mut self, huge: u32, order: Order, movable: bool) {
        let kind = Self::tree_kind(huge, order, movable);
        if self.reserved[kind].is_some_and(|bank| self.serves(bank, order)) {
            return;
        }
        if let Some(bank) = self.next_tree(kind, order) {
            if self.is_whole(bank) {
                self.movable[bank] = movable;
            }
            self.reserved[kind] = Some(bank);
        }
    }

    fn take(&mut self, start: Option<Pfn>, order: Order, movable: bool, top: u32) {
        if matches!(self.rule, Rule::Boundary(_)) {
            self.press(order, movable);
        }
        let banks = self.serving(order, movable, top);
        if let Rule::Trees(huge) = self.rule {
            self.reserve(huge, order, movable);
        }
        let Some(start) = start else {
            assert!(banks.is_empty(), "order {order} was free in {banks:?}");
            return;
        };
        let bank = start.raw() as usize / self.bank_frames;
        assert!(banks.contains(&bank), "order {order} came from bank {bank}, not {banks:?}");
        let own = if movable { BankPool::User } else { BankPool::Kernel };
        if self.pool[bank] != Some(own) && !(movable && self.pool[bank] == Some(BankPool::Kernel)) {
            self.shift(bank, own);
        }
        if self.pool[bank] == Some(own) {
            self.recent[own as usize] = Some(bank);
        }
        for frame in &mut self.free[start.raw() as usize..][..order.frames() as usize] {
            assert_eq!(*frame, Some(true));
            *frame = Some(false);
        }
        self.held.push((start, order));
    }

    fn give(&mut self, nth: usize) -> (Pfn, Order) {
        let (start, order) = self.held.swap_remove(nth);
        self.free[start.raw() as usize..][..order.frames() as usize].fill(Some(true));
        let bank = start.raw() as usize / self.bank_frames;
        if !self.isolated[bank] {
            self.rest(bank);
        }
        (start, order)
    }

    fn rest(&mut self, bank: usize) {
        match self.rule {
            _ if !self.is_whole(bank) => {}
            Rule::Boundary(slack) if bank < self.boundary => self.give_way(slack),
            _ => self.shift(bank, BankPool::Offline),
        }
    }

    fn isolate(&mut self, bank: usize, isolated: bool) -> Result<(), IsolateError> {
        let frame = Pfn::new((bank * self.bank_frames) as u64);
        if bank >= self.pool.len() || self.total(bank) == 0 {
            return Err(IsolateError::Foreign { frame });
        }
        if self.isolated[bank] == isolated {
            return Err(IsolateError::State { frame });
        }
        self.isolated[bank] = isolated;
        if matches!(self.rule, Rule::Boundary(_)) && !isolated {
            self.rest(bank);
        }
        if let Some(pool) = self.pool[bank] {
            self.shift(bank, pool);
            if isolated {
                self.lists[pool as usize].remove(0);
            } else {
                self.rest(bank);
            }
        }
        Ok(())
    }

    fn state(&self, bank: usize) -> BankState {
        BankState {
            extent: Extent::new(
                Pfn::new((bank * self.bank_frames) as u64),
                self.bank_frames as u64,
            ),
            total_frames: self.total(bank) as u64,
            free_frames: self.free_of(bank) as u64,
            pool: match self.rule {
                Rule::Boundary(_) if self.total(bank) == 0 => None,
                Rule::Boundary(_) if bank < self.boundary => Some(BankPool::Kernel),
                Rule::Boundary(_) => Some(BankPool::User),
                Rule::Trees(_) if self.total(bank) == 0 => None,
                Rule::Trees(_) if self.movable[bank] => Some(BankPool::User),
                Rule::Trees(_) => Some(BankPool::Kernel),
                _ => self.pool[bank],
            },
            isolated: self.isolated[bank],
            crosses: self.crosses[bank] && self.total(bank) > 0,
        }
    }
}

/// An allocator and its model, which do everything together.
#[derive(Clone)]
struct Pair<P> {
    buddy: BankBuddy<Vec<u64>, P>,
    model: Model,
    top: u32,
}

fn with_map<T>(areas: &[(u64, u64)], body: impl FnOnce(&MemoryMap<'_>) -> T) -> T {
    let extent = |&(start, count): &(u64, u64)| Extent::new(Pfn::new(start), count);
    let ranges: Vec<_> = areas.iter().map(|area| ByteRange::of_frames(extent(area))).collect();
    let mut storage = vec![Extent::default(); ranges.len()];
    body(&MemoryMap::new(&ranges, &mut storage).unwrap())
}

impl<P: Placement + Clone> Pair<P> {
    fn new(
        placement: P,
        rule: Rule,
        areas: &[(u64, u64)],
        zone: (u64, u64),
        bank_frames: usize,
        top: u8,
    ) -> Self {
        let zone = Extent::new(Pfn::new(zone.0), zone.1);
        let banks = BankLayout::new(Pfn::new(0), bank_frames as u64, Order::known(top)).unwrap();
        with_map(areas, |map| {
            let words =
                BankBuddy::<Vec<u64>, P>::storage_words(map, zone, banks, &placement).unwrap();
            let buddy = BankBuddy::new(map, zone, banks, placement, vec![!0; words]).unwrap();
            let model = Model::new(rule, map, zone, bank_frames);
            Self { buddy, model, top: top.into() }
        })
    }

    fn take(&mut self, order: u8, mobility: Mobility) {
        let order = Order::known(order);
        let start = self.buddy.allocate(order, mobility);
        self.model.take(start, order, mobility == Mobility::Movable, self.top);
    }

    fn give(&mut self, nth: usize) {
        let (start, order) = self.model.give(nth);
        assert_eq!(self.buddy.free(start, order), Ok(()));
    }

    fn isolate(&mut self, bank: usize, isolated: bool) {
        let expected = self.model.isolate(bank, isolated);
        let result =
            if isolated { self.buddy.isolate_bank(bank) } else { self.buddy.rejoin_bank(bank) };
        assert_eq!(result, expected);
    }

    /// Every frame is in exactly one place, and every bank where it belongs.
    fn agree(&self) {
        assert_eq!(self.buddy.check(), Ok(()));
        assert_eq!(self.buddy.banks(), self.model.pool.len());
        for bank in 0..self.buddy.banks() {
            assert_eq!(self.buddy.bank(bank), Some(self.model.state(bank)), "bank {bank}");
        }
        let mut open = 0;
        self.buddy.for_each_free(&mut |block| {
            open += block.count;
            assert!(block.iter().all(|frame| self.model.free[frame.raw() as usize] == Some(true)));
        });
        let banks = 0..self.buddy.banks();
        let expected: usize =
            banks.filter(|&bank| !self.model.isolated[bank]).map(|b| self.model.free_of(b)).sum();
        assert_eq!(open, expected as u64);
        for (at, free) in self.model.free.iter().enumerate() {
            assert_eq!(self.buddy.is_free(Pfn::new(at as u64)), *free == Some(true));
        }
    }

    /// All sequences of `depth` operations from here; how many there are.
    fn explore(&self, depth: usize) -> u64 {
        self.agree();
        if depth == 0 {
            return 1;
        }
        let mut sequences = 0;
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            sequences += next.explore(depth - 1);
        };
        for order in 0..=self.top as u8 {
            step(&|next| next.take(order, Mobility::Movable));
            step(&|next| next.take(order, Mobility::Unmovable));
        }
        for nth in 0..self.model.held.len() {
            step(&|next| next.give(nth));
        }
        for bank in [0, 2] {
            step(&|next| next.isolate(bank, !next.model.isolated[bank]));
        }
        sequences
    }

    fn random(mut self, seed: u64, steps: usize) {
        let mut random = Random::new(seed);
        let mut takes_of_8 = 5;
        for step in 0..steps {
            println!("seed {seed}, step {step}");
            if step % 50 == 0 {
                takes_of_8 = 1 + random.below(7);
            }
            let held = self.model.held.len() as u64;
            if random.below(24) == 0 {
                let bank = random.below(self.model.pool.len() as u64 + 1) as usize;
                self.isolate(bank, random.below(2) == 0);
            } else if held > 0 && random.below(8) >= takes_of_8 {
                self.give(random.below(held) as usize);
            } else {
                let order = random.below(u64::from(self.top) + 1) * random.below(2);
                self.take(order as u8, Mobility::ALL[random.below(3) as usize]);
            }
            self.agree();
        }
    }
}

fn pools(kernel: BankPreference, user: BankPreference) -> PoolPlacement {
    PoolPlacement::new(PoolPolicy { kernel, user })
}

const PREFERENCES: [BankPreference; 3] =
    [BankPreference::Recent, BankPreference::Outermost, BankPreference::Fullest];

#[test]
fn every_sequence_on_four_banks_of_four_frames() {
    fn explore<P: Placement + Clone>(placement: P, rule: Rule, depth: usize) {
        let pair = Pair::new(placement, rule, &[(0, 16)], (0, 16), 4, 2);
        assert!(pair.explore(depth) > 8_u64.pow(depth as u32));
    }
    explore(ArrayPlacement, Rule::Array, 5);
    for recent_first in [false, true] {
        explore(ListPlacement::new(recent_first), Rule::List { recent_first }, 5);
    }
    for slack in [0, 3, 4] {
        explore(BoundaryPlacement::new(slack), Rule::Boundary(slack), 5);
    }
    for huge in [0, 1, 3] {
        explore(TreePlacement::new(huge), Rule::Trees(huge), 5);
    }
    for preference in PREFERENCES {
        explore(pools(preference, preference), Rule::Pools, 5);
    }
}

#[test]
fn random_sequences_on_partial_and_crossing_banks() {
    type Zone = (&'static [(u64, u64)], (u64, u64), usize, u8);
    const ZONES: &[Zone] = &[
        (&[(0, 64)], (0, 64), 8, 3),
        (&[(0, 512)], (0, 512), 128, 7),
        (&[(3, 70), (90, 10), (200, 90)], (3, 287), 32, 4),
        (&[(0, 900)], (100, 600), 128, 6),
        (&[(0, 1152)], (0, 1152), 192, 6),
    ];
    for &(areas, zone, bank_frames, top) in ZONES {
        for seed in 0..6 {
            Pair::new(ArrayPlacement, Rule::Array, areas, zone, bank_frames, top).random(seed, 500);
            for recent_first in [false, true] {
                let rule = Rule::List { recent_first };
                Pair::new(ListPlacement::new(recent_first), rule, areas, zone, bank_frames, top)
                    .random(seed, 500);
            }
            for slack in [0, 8, 200] {
                let (placement, rule) = (BoundaryPlacement::new(slack), Rule::Boundary(slack));
                Pair::new(placement, rule, areas, zone, bank_frames, top).random(seed, 500);
            }
            for huge in [0, 2, 9] {
                let (placement, rule) = (TreePlacement::new(huge), Rule::Trees(huge));
                Pair::new(placement, rule, areas, zone, bank_frames, top).random(seed, 500);
            }
            for kernel in PREFERENCES {
                let placement = pools(kernel, PREFERENCES[seed as usize % 3]);
                Pair::new(placement, Rule::Pools, areas, zone, bank_frames, top).random(seed, 500);
            }
        }
    }
}

fn adaptive(banks: u64, policy: PoolPolicy) -> AdaptiveBuddy<Vec<u64>> {
    let geometry = BankLayout::new(Pfn::new(0), 256, Order::known(6)).unwrap();
    let zone = Extent::new(Pfn::new(0), banks * 256);
    with_map(&[(0, banks * 256)], |map| {
        let pools = PoolPlacement::new(policy);
        let words = AdaptiveBuddy::<Vec<u64>>::storage_words(map, zone, geometry, &pools).unwrap();
        AdaptiveBuddy::new(map, zone, geometry, pools, vec![0; words]).unwrap()
    })
}

fn allocate_all(buddy: &mut AdaptiveBuddy<Vec<u64>>, mobility: Mobility) -> Vec<Pfn> {
    std::iter::from_fn(|| buddy.allocate(Order::BASE, mobility)).collect()
}

#[test]
fn candidates_come_emptiest_first_and_each_once() {
    let mut buddy = adaptive(40, PoolPolicy::PACKED);
    let mut random = Random::new(7);
    for frame in allocate_all(&mut buddy, Mobility::Movable) {
        // Banks of all degrees, some full.
        let bank = frame.raw() / 256;
        if random.below(40) < bank.saturating_sub(4) {
            buddy.free(frame, Order::BASE).unwrap();
        }
    }
    let free = |bank: usize| buddy.bank(bank).unwrap().free_frames;
    let listed: Vec<usize> =
        std::iter::successors(buddy.next_candidate(None), |&bank| buddy.next_candidate(Some(bank)))
            .collect();
    let expected = (0..40).filter(|&bank| free(bank) > 0).count();
    assert_eq!(listed.len(), expected);
    let mut unique = listed.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), listed.len());
    assert!(listed.windows(2).all(|pair| free(pair[0]) / 8 >= free(pair[1]) / 8), "{listed:?}");
    assert_eq!(buddy.next_candidate(Some(0)), None, "full");
    assert_eq!(buddy.next_candidate(Some(usize::MAX)), None);
}

#[test]
fn the_policies_differ_in_how_many_banks_they_leave_offline() {
    let offline = |policy| {
        let mut buddy = adaptive(64, policy);
        let mut random = Random::new(3);
        let mut held: Vec<Pfn> = Vec::new();
        let mut sum = 0;
        for round in 0..40 {
            // Between a third and two thirds in use; what is freed is random.
            let wanted = if round % 2 == 0 { 11_000 } else { 5_500 };
            while held.len() < wanted {
                held.extend(buddy.allocate(Order::BASE, Mobility::Movable));
            }
            while held.len() > wanted {
                let frame = held.swap_remove(random.below(held.len() as u64) as usize);
                buddy.free(frame, Order::BASE).unwrap();
            }
            for _ in 0..20_000 {
                let frame = held.swap_remove(random.below(held.len() as u64) as usize);
                buddy.free(frame, Order::BASE).unwrap();
                held.extend(buddy.allocate(Order::BASE, Mobility::Movable));
            }
            sum += buddy.pool_free_frames(BankPool::Offline);
        }
        assert_eq!(buddy.check(), Ok(()));
        sum
    };
    let packed = offline(PoolPolicy::PACKED);
    let paper = offline(PoolPolicy::PAPER);
    assert!(packed >= paper, "{packed} frames offline against {paper}");
}

#[test]
fn moves_are_counted_by_kind() {
    let mut buddy = adaptive(4, PoolPolicy::PACKED);
    let user = allocate_all(&mut buddy, Mobility::Movable);
    assert_eq!((user.len(), buddy.moves().opened_user), (1024, 4));
    // Bank 2 gets the most free frames: the kernel takes it.
    for &frame in user.iter().filter(|frame| frame.raw() % 256 < frame.raw() / 256 % 3 * 40) {
        buddy.free(frame, Order::BASE).unwrap();
    }
    let kernel = buddy.allocate(Order::BASE, Mobility::Unmovable).unwrap();
    assert_eq!(buddy.bank_of(kernel), Some(2));
    assert_eq!(buddy.bank(2).unwrap().pool, Some(BankPool::Kernel));
    assert_eq!(buddy.moves().stolen, 1);
    // Users take what they have first, and borrow last.
    let rest = allocate_all(&mut buddy, Mobility::Movable);
    assert_eq!((rest.len(), buddy.moves().borrowed), (119, 79));
    for frame in user.iter().chain(&rest).filter(|frame| !buddy.is_free(**frame)) {
        if *frame != kernel {
            buddy.clone().free(*frame, Order::BASE).unwrap();
        }
    }
    assert_eq!(buddy.check(), Ok(()));
}

#[test]
fn a_bank_emptied_while_isolated_goes_offline_on_rejoin() {
    let mut buddy = adaptive(3, PoolPolicy::PACKED);
    let frames: Vec<_> =
        (0..300).map(|_| buddy.allocate(Order::BASE, Mobility::Movable).unwrap()).collect();
    let bank = buddy.next_candidate(None).unwrap();
    buddy.isolate_bank(bank).unwrap();
    let inside = |frame: &&Pfn| buddy.bank_of(**frame) == Some(bank);
    let moved: Vec<_> = frames.iter().filter(inside).copied().collect();
    assert!(!moved.is_empty());
    for frame in moved {
        assert_eq!(buddy.next_allocated(bank, Pfn::new(0)), Some(frame));
        assert_eq!(buddy.allocate_own(Order::BASE, BankPool::User), None, "the other bank is full");
        buddy.free(frame, Order::BASE).unwrap();
    }
    assert_eq!(buddy.bank(bank).unwrap().pool, Some(BankPool::User));
    buddy.rejoin_bank(bank).unwrap();
    assert_eq!(buddy.bank(bank).unwrap().pool, Some(BankPool::Offline));
    assert_eq!(buddy.moves().rested_user, 1);
    assert_eq!(buddy.check(), Ok(()));
}

#[test]
fn what_is_allocated_from_the_start_is_the_kernels_until_it_is_freed() {
    let geometry = BankLayout::new(Pfn::new(0), 256, Order::known(6)).unwrap();
    let zone = Extent::new(Pfn::new(0), 512);
    let mut buddy = with_map(&[(0, 512)], |map| {
        let pools = PoolPlacement::default();
        let words = AdaptiveBuddy::<Vec<u64>>::storage_words(map, zone, geometry, &pools).unwrap();
        AdaptiveBuddy::new_allocated(map, zone, geometry, pools, vec![0; words]).unwrap()
    });
    assert_eq!((buddy.free_frames(), buddy.total_frames(), buddy.check()), (0, 512, Ok(())));
    assert_eq!(buddy.allocate(Order::BASE, Mobility::Movable), None);
    // All but the first frame.
    for frame in (1..512).map(Pfn::new) {
        buddy.free(frame, Order::BASE).unwrap();
    }
    assert_eq!(buddy.check(), Ok(()));
    assert_eq!(buddy.bank(0).unwrap().pool, Some(BankPool::Kernel));
    assert_eq!(buddy.bank(1).unwrap().pool, Some(BankPool::Offline));
}

#[test]
fn bad_input_is_named_and_changes_nothing() {
    let mut buddy = adaptive(2, PoolPolicy::PACKED);
    let frame = buddy.allocate(Order::BASE, Mobility::Movable).unwrap();
    let outside = Pfn::new(512);
    assert_eq!(buddy.free(outside, Order::BASE), Err(FrameFreeError::Foreign { frame: outside }));
    let next = Pfn::new(frame.raw() + 1);
    let refused = FrameFreeError::NotAllocated { frame: next };
    assert_eq!(buddy.free(frame, Order::known(1)), Err(refused));
    let (odd, order) = (Pfn::new(u64::MAX - 1), Order::MAX);
    let refused = FrameFreeError::Misaligned { frame: odd, order };
    assert_eq!(buddy.free(odd, order), Err(refused));
    let huge = Extent::new(odd.align_down(order.k()), order.frames());
    let refused = FrameFreeError::Overflow { extent: huge };
    assert_eq!(buddy.free(huge.start, Order::MAX), Err(refused));
    assert_eq!(buddy.allocate(Order::MAX, Mobility::Movable), None);
    assert_eq!(buddy.allocate_own(Order::MAX, BankPool::User), None);
    assert_eq!((buddy.bank(2), buddy.next_allocated(2, Pfn::new(0))), (None, None));
    assert_eq!(buddy.isolate_bank(2), Err(IsolateError::Foreign { frame: outside }));
    assert_eq!(buddy.free_frames(), 511);
    assert_eq!(buddy.check(), Ok(()));

    let zone = Extent::new(Pfn::new(100), 50);
    let geometry = |first| BankLayout::new(Pfn::new(first), 64, Order::known(6)).unwrap();
    with_map(&[(0, 128)], |map| {
        let build = |zone, first, words| {
            BankBuddy::new(map, zone, geometry(first), ArrayPlacement, vec![0; words]).map(|_| ())
        };
        assert_eq!(build(zone, 128, 99), Err(BankLayoutError::Below { frame: Pfn::new(100) }));
        let beyond = Extent::new(Pfn::new(128), 50);
        assert_eq!(build(beyond, 0, 99), Err(BankLayoutError::NoFrame { zone: beyond }));
        let Err(BankLayoutError::Storage { needed_words, given_words: 3 }) = build(zone, 0, 3)
        else {
            panic!("3 words were enough")
        };
        assert_eq!(build(zone, 0, needed_words), Ok(()));
    });
}

/// Table II: bytes of the management structures of a zone of 16 GiB, and of
/// node 0 with its DMA and DMA32 zones (paper: 1920, 68864, 71040, 5696 and
/// 17152, 284928, 293632, 32256).
#[test]
fn structures_of_a_zone_and_of_a_node() {
    const GIB: u64 = 1 << 18;
    let zones = [(0, 1 << 12), (1 << 12, 4 * GIB - (1 << 12)), (4 * GIB, 12 * GIB)];
    let sizes = |build: &dyn Fn(&MemoryMap<'_>, Extent) -> usize| {
        let zone = |&(start, count): &(u64, u64)| {
            with_map(&[(0, 16 * GIB)], |map| build(map, Extent::new(Pfn::new(start), count)))
        };
        [zone(&(0, 16 * GIB)), zones.iter().map(zone).sum()]
    };
    fn bytes<P: Placement>(placement: P, map: &MemoryMap<'_>, zone: Extent) -> usize {
        let words =
            BankBuddy::<Vec<u64>, P>::storage_words(map, zone, BankLayout::PAPER, &placement)
                .unwrap();
        let storage = vec![0; words];
        let buddy = BankBuddy::new(map, zone, BankLayout::PAPER, placement, storage).unwrap();
        assert!(buddy.frame_bytes() as u64 * 100 < 28 * buddy.banks() as u64 * 65_536);
        buddy.structure_bytes()
    }
    let array = sizes(&|map, zone| bytes(ArrayPlacement, map, zone));
    let list = sizes(&|map, zone| bytes(ListPlacement::new(true), map, zone));
    let pools = sizes(&|map, zone| bytes(PoolPlacement::default(), map, zone));
    if cfg!(target_pointer_width = "64") {
        assert_eq!([array, list, pools], [[2144, 3384], [2184, 3504], [5576, 13_680]]);
    }
}
