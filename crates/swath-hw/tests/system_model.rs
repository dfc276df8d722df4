//! The timed system against a model that looks at everything in every cycle.
//!
//! The model shares the memory and the translating machines with the system, and
//! nothing else: no events, no wake-ups, no bit sets. Each cycle it tries all
//! that could happen, in the order that the system promises. Random
//! systems and streams must show the same events in the same cycles, with pages that are there and
//! with pages that come when they are touched.

use std::collections::{HashSet, VecDeque};

use crate::system_tables::{AT, DATA, PCAD, TRAD, Tables, read, regime, write};
use swath_arch::testing::Random;
use swath_arch::{Coalescing, PhysAddr, PhysMemory, SegmentList, VirtAddr};
use swath_hw::system::{Pace, Paging, System, SystemConfig, SystemErrorCause, SystemEvent};
use swath_hw::system::{Wiring, WriteResponse};
use swath_hw::{
    Cycle, Dram, DramRequest, Geometry, Mmu, OfferError, PendingMiss, SegmentRegisters,
    SharedBuffer, Transaction, Translate, WalkOrder, WritePolicy,
};
use swath_hw::{Hierarchy, HierarchyConfig};

/// A cycle without an event for so long is the end, or there will be none.
const SILENCE: Cycle = 5000;

#[derive(Clone, Copy)]
struct Sent {
    at: Cycle,
    addr: PhysAddr,
    /// A transaction's number, or a walk's.
    what: u64,
    refused: Option<u32>,
}

struct Walking<M> {
    name: u64,
    miss: M,
    addr: VirtAddr,
    waiters: Vec<u64>,
    awaits_page: bool,
}

struct Master<T: Translate> {
    mmu: T,
    stream: Vec<Transaction>,
    next: usize,
    in_flight: HashSet<u64>,
    looked_up: Cycle,
    /// Whether the next transaction has missed while all walkers were busy.
    stalled: bool,
    walks: Vec<Walking<T::Miss>>,
    /// Lines of the descriptor cache, the most recently used one last.
    lines: Vec<u64>,
    /// Requests on their way: reads, writes, walks.
    ports: [VecDeque<Sent>; 3],
    /// Read data that wait: of transactions, of walks.
    returns: [VecDeque<u64>; 2],
}

/// What is on its way to a master.
struct Coming {
    at: Cycle,
    master: usize,
    walk: bool,
    what: u64,
}

/// Pages that are not there at first: the words of their descriptors, by block.
struct Absent {
    fault_cycles: u32,
    blocks: Vec<(u64, Vec<(PhysAddr, u32)>)>,
}

impl Absent {
    /// Unmaps them all.
    fn hide(&self, memory: &impl PhysMemory) {
        for (at, _) in self.blocks.iter().flat_map(|(_, words)| words) {
            memory.write_u32(*at, 0).unwrap();
        }
    }

    /// Maps the block of an address.
    fn bring(&self, addr: VirtAddr, memory: &impl PhysMemory) -> bool {
        let page = addr.page().raw();
        let holds =
            |(first, words): &&(u64, Vec<_>)| (*first..first + words.len() as u64).contains(&page);
        let block = self.blocks.iter().find(holds);
        for &(at, word) in block.iter().flat_map(|(_, words)| words) {
            memory.write_u32(at, word).unwrap();
        }
        block.is_some()
    }
}

/// Runs the streams; gives the events, who still waits for a line at the end, and the faults.
fn model<T: Translate, M: PhysMemory>(
    config: &SystemConfig,
    masters: Vec<(T, Vec<Transaction>)>,
    memory: &M,
    absent: &Absent,
) -> (Vec<SystemEvent>, Option<(usize, u64)>, u64) {
    let bus = &config.interconnect;
    let iommu = &config.iommu;
    let beats = 64 / Cycle::from(bus.beat_bytes);
    let mut dram = Dram::new(&config.dram).unwrap();
    let mut requests: Vec<(usize, bool, u64)> = Vec::new();
    let mut masters: Vec<Master<T>> = masters
        .into_iter()
        .map(|(mmu, stream)| Master {
            mmu,
            stream,
            next: 0,
            in_flight: HashSet::new(),
            looked_up: 0,
            stalled: false,
            walks: Vec::new(),
            lines: Vec::new(),
            ports: Default::default(),
            returns: Default::default(),
        })
        .collect();
    let count = masters.len();
    let channel_of = |master: usize| match bus.wiring {
        Wiring::Shared => 0,
        Wiring::PerMaster => master,
    };
    let mut written = HashSet::new();
    let is_shared = |addr: VirtAddr| {
        config.shared.iter().any(|buffer| {
            let start = buffer.start.raw();
            (start..start + buffer.len_bytes).contains(&addr.raw())
        })
    };
    let mut events = Vec::new();
    let mut coming: Vec<Coming> = Vec::new();
    let mut read_free = vec![0; count];
    let mut write_free = vec![0; count];
    let mut last_return = vec![2 * count - 1; count];
    let mut last_port = 3 * count - 1;
    let mut names = 0;
    let mut faults = 0;
    let mut last_change = 0;
    let mut now = 0;
    let send = |port: &mut VecDeque<Sent>, sent: Cycle, addr, what| {
        let at = sent + Cycle::from(bus.request_cycles);
        let at = port.back().map_or(at, |last| at.max(last.at));
        port.push_back(Sent { at, addr, what, refused: None });
    };
    while now < last_change + SILENCE {
        // What the memory has done.
        dram.advance(now);
        while let Some(done) = dram.take_done(now) {
            last_change = now;
            let (master, walk, what) = requests[done.id as usize];
            if !done.write {
                masters[master].returns[usize::from(walk)].push_back(what);
            } else if bus.write_response == WriteResponse::Written {
                let at = now + Cycle::from(bus.response_cycles);
                coming.push(Coming { at, master, walk, what });
            }
        }
        // Read data onto their channels, each queue in its turn.
        for channel in 0..count {
            if read_free[channel] > now {
                continue;
            }
            let turns = (1..=2 * count).map(|turn| (last_return[channel] + turn) % (2 * count));
            for queue in turns {
                let (master, walk) = (queue / 2, queue % 2 == 1);
                if channel_of(master) != channel {
                    continue;
                }
                if let Some(what) = masters[master].returns[usize::from(walk)].pop_front() {
                    let walking = masters[master].walks.iter().find(|walk| walk.name == what);
                    let took = match walking.filter(|_| walk && iommu.descriptor_lines == 0) {
                        Some(walking) => {
                            walking.miss.next_read_bytes().div_ceil(bus.beat_bytes.into())
                        }
                        None => beats,
                    };
                    read_free[channel] = now + took;
                    last_return[channel] = queue;
                    let at = read_free[channel] + Cycle::from(bus.response_cycles);
                    coming.push(Coming { at, master, walk, what });
                    break;
                }
            }
        }
        // What arrives at the masters.
        let (mut later, mut answered) = (Vec::new(), Vec::new());
        for Coming { at, master: index, walk, what } in std::mem::take(&mut coming) {
            assert!(at >= now);
            if at > now {
                later.push(Coming { at, master: index, walk, what });
                continue;
            }
            last_change = now;
            let master = &mut masters[index];
            if !walk {
                assert!(master.in_flight.remove(&what));
                let transaction = master.stream[what as usize];
                events.push(SystemEvent::Completed {
                    cycle: now,
                    master: index,
                    number: what,
                    transaction,
                });
                if transaction.write {
                    written.insert(transaction.addr);
                }
                continue;
            }
            let place = master.walks.iter().position(|walk| walk.name == what).unwrap();
            let walking = &mut master.walks[place];
            let step = if walking.awaits_page {
                walking.awaits_page = false;
                assert!(absent.bring(walking.addr, memory));
                walking.miss = master.mmu.begin(walking.addr).unwrap();
                Ok(None)
            } else {
                touch(&mut master.lines, walking.miss.next_read(), iommu.descriptor_lines);
                master.mmu.step(&mut walking.miss, memory)
            };
            let found = match step {
                Ok(found) => found,
                Err(fault) => {
                    assert!(master.mmu.complete(walking.addr, &walking.miss, Err(fault)).is_err());
                    walking.awaits_page = true;
                    faults += 1;
                    let at = now + Cycle::from(absent.fault_cycles);
                    answered.push(Coming { at, master: index, walk, what });
                    continue;
                }
            };
            let mut frame = None;
            match found {
                None => {
                    let read = walking.miss.next_read();
                    if master.lines.contains(&(read.raw() / 64)) {
                        touch(&mut master.lines, read, iommu.descriptor_lines);
                        let at = now + Cycle::from(iommu.descriptor_cycles);
                        answered.push(Coming { at, master: index, walk, what });
                    } else {
                        send(&mut master.ports[2], now, read, what);
                    }
                    if iommu.early_regular {
                        frame = walking.miss.known().map(|(frame, _)| frame);
                    }
                }
                Some(resolved) => {
                    let addr = walking.addr;
                    let access = master.mmu.complete(addr, &walking.miss, Ok(resolved)).unwrap();
                    frame = Some(access.addr.frame());
                }
            }
            if let Some(frame) = frame {
                for number in std::mem::take(&mut walking.waiters) {
                    let Transaction { addr, write } = master.stream[number as usize];
                    let at = PhysAddr::new(frame.address().raw() + addr.page_offset());
                    send(&mut master.ports[usize::from(write)], now, at, number);
                }
            }
            if found.is_some() {
                master.walks.remove(place);
                master.stalled = false;
            }
        }
        coming = later;
        coming.append(&mut answered);
        // What the masters issue.
        for (index, master) in masters.iter_mut().enumerate() {
            let Some(&transaction) = master.stream.get(master.next) else { continue };
            let counts = |number: &&u64| {
                !config.outstanding_each
                    || master.stream[**number as usize].write == transaction.write
            };
            let in_flight = master.in_flight.iter().filter(counts).count();
            let full = in_flight == config.outstanding_max as usize;
            let pace = config.paces.get(index).copied().flatten();
            let paced =
                pace.is_some_and(|pace| master.next as u64 * pace.cycles / pace.transactions > now);
            let behind_miss = !iommu.hit_under_miss && !master.walks.is_empty();
            let Transaction { addr, write } = transaction;
            let too_early = !write && is_shared(addr) && !written.contains(&addr);
            if full || paced || behind_miss || master.stalled || too_early {
                continue;
            }
            let number = master.next as u64;
            let (access, more) = master.mmu.lookup(addr);
            let end = now + Cycle::from(iommu.lookup_cycles) + Cycle::from(more);
            master.looked_up = master.looked_up.max(end);
            if let Some(access) = access {
                let port = &mut master.ports[usize::from(write)];
                send(port, master.looked_up, access.addr, number);
            } else if let Some(walk) =
                master.walks.iter_mut().find(|walk| walk.addr.page() == addr.page())
            {
                walk.waiters.push(number);
            } else if master.walks.len() == iommu.walks_max as usize {
                master.stalled = true;
                continue;
            } else {
                let miss = master.mmu.begin(addr).unwrap();
                names += 1;
                let read = miss.next_read();
                if master.lines.contains(&(read.raw() / 64)) {
                    touch(&mut master.lines, read, iommu.descriptor_lines);
                    let at = master.looked_up + Cycle::from(iommu.descriptor_cycles);
                    coming.push(Coming { at, master: index, walk: true, what: names });
                } else {
                    send(&mut master.ports[2], master.looked_up, read, names);
                }
                let waiters = vec![number];
                master.walks.push(Walking { name: names, miss, addr, waiters, awaits_page: false });
            }
            last_change = now;
            master.in_flight.insert(number);
            master.next += 1;
            events.push(SystemEvent::Issued { cycle: now, master: index, number, transaction });
        }
        // One request into the memory, each port in its turn.
        for turn in 1..=3 * count {
            let port = (last_port + turn) % (3 * count);
            let (index, kind) = (port / 3, port % 3);
            let (write, walk) = (kind == 1, kind == 2);
            let free = &mut write_free[channel_of(index)];
            let Some(head) = masters[index].ports[kind].front_mut() else { continue };
            let room = head.refused.is_none_or(|channel| dram.has_room(channel, write));
            if head.at > now || write && *free > now || !room {
                continue;
            }
            let request = DramRequest { id: requests.len() as u64, addr: head.addr, write };
            match dram.offer(now, request) {
                Ok(()) => {}
                Err(OfferError::Full { channel }) => {
                    head.refused = Some(channel);
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            let Sent { addr, what, .. } = masters[index].ports[kind].pop_front().unwrap();
            requests.push((index, walk, what));
            if write {
                *free = now + beats;
                if bus.write_response == WriteResponse::Accepted {
                    let at = *free + Cycle::from(bus.response_cycles);
                    coming.push(Coming { at, master: index, walk, what });
                }
            }
            events.push(SystemEvent::Accepted { cycle: now, master: index, addr, write, walk });
            last_port = port;
            last_change = now;
            break;
        }
        now += 1;
    }
    let waiting = masters.iter().position(|master| master.next < master.stream.len());
    (events, waiting.map(|index| (index, masters[index].next as u64)), faults)
}

/// Makes the line of `read` the most recently used one of so many.
fn touch(lines: &mut Vec<u64>, read: PhysAddr, most: u32) {
    let line = read.raw() / 64;
    lines.retain(|&other| other != line);
    lines.push(line);
    let over = lines.len().saturating_sub(most as usize);
    lines.drain(..over);
}

fn pick<V: Copy>(random: &mut Random, values: &[V]) -> V {
    values[random.index(values.len())]
}

fn random_config(random: &mut Random) -> SystemConfig {
    let mut config = SystemConfig::paper();
    config.outstanding_max = pick(random, &[1, 2, 5, 16]);
    config.outstanding_each = random.below(3) == 0;
    let pace = |random: &mut Random| {
        let (transactions, cycles) = (1 + random.below(5), random.below(90));
        (random.below(4) == 0).then_some(Pace { transactions, cycles })
    };
    config.paces = (0..random.below(3)).map(|_| pace(random)).collect();
    config.iommu.descriptor_lines = pick(random, &[0, 0, 1, 2, 8]);
    config.iommu.descriptor_cycles = 1 + random.below(4) as u32;
    config.iommu.lookup_cycles = random.below(4) as u32;
    config.iommu.walks_max = pick(random, &[1, 1, 2, 3]);
    config.iommu.hit_under_miss = random.below(2) == 0;
    config.iommu.early_regular = random.below(2) == 0;
    config.interconnect.beat_bytes = pick(random, &[8, 16, 16, 64]);
    config.interconnect.request_cycles = random.below(4) as u32;
    config.interconnect.response_cycles = random.below(4) as u32;
    config.interconnect.wiring = pick(random, &[Wiring::Shared, Wiring::PerMaster]);
    config.interconnect.write_response =
        pick(random, &[WriteResponse::Written, WriteResponse::Accepted]);
    config.dram.scheduling.entries = pick(random, &[1, 2, 4, 16]);
    if random.below(2) == 0 {
        config.dram.scheduling.writes = WritePolicy::Watermark { entries: 4, high: 3, low: 1 };
    }
    config
}

/// A stream that goes on, jumps and steps down, over three MiB.
fn random_stream(random: &mut Random, len: u64) -> Vec<Transaction> {
    let writes = random.below(3);
    let reach = pick(random, &[0x4000, 0x40_000, 0x300_000]);
    let mut at = random.below(reach);
    (0..len)
        .map(|_| {
            at = match random.below(6) {
                0 => random.below(reach),
                1 => at + 0x1400,
                2 => at,
                _ => at + 64,
            } % reach;
            let at = at & !63;
            if random.below(2) < writes { write(at) } else { read(at) }
        })
        .collect()
}

fn compare<T: Translate>(
    config: &SystemConfig,
    masters: impl Fn() -> Vec<(T, Vec<Transaction>)>,
    tables: &Tables<'_>,
    absent: &Absent,
) -> (bool, u64) {
    absent.hide(&tables.memory);
    let (expected, waiting, faults) = model(config, masters(), &tables.memory, absent);
    absent.hide(&tables.memory);
    let streams = masters().into_iter().map(|(mmu, stream)| (mmu, stream.into_iter()));
    let mut events = Vec::new();
    let system = System::new(config, streams).unwrap();
    let observe = |event| events.push(event);
    let result = if absent.blocks.is_empty() {
        system.run_observed(&tables.memory, observe)
    } else {
        let fault_cycles = absent.fault_cycles;
        let bring = |addr| absent.bring(addr, &tables.memory);
        system.run_paged(&tables.memory, Paging { fault_cycles, bring }, observe)
    };
    if let Ok(stats) = &result {
        let counted = stats.masters.iter().map(|master| master.translation.walk.faults);
        assert_eq!(counted.sum::<u64>(), faults);
    }
    for (at, (ours, theirs)) in events.iter().zip(&expected).enumerate() {
        assert_eq!(ours, theirs, "event {at} of {config:?}");
    }
    assert_eq!(events.len(), expected.len());
    match (result, waiting) {
        (Ok(_), None) => (true, faults),
        (Err(error), Some(waiting)) => {
            assert_eq!((error.master, error.transaction), waiting);
            assert_eq!(error.cause, SystemErrorCause::NeverWritten);
            (false, faults)
        }
        (result, waiting) => panic!("{:?} against {waiting:?}", result.err()),
    }
}

#[test]
fn random_systems_show_the_same_events_in_the_same_cycles() {
    let mut ended = 0;
    let mut walks = 0;
    let mut registers = 0;
    let mut faults = 0;
    for seed in 1..=200_u64 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let coalescing: Coalescing = pick(&mut random, &[TRAD, PCAD, AT]);
        let mut words = Vec::new();
        let tables = Tables::new(&mut words);
        // The same pages in a list, between the root and the leaves.
        let list = SegmentList { root: PhysAddr::new(0x4000) };
        let mut page = 0;
        let mut entries = 0;
        let mut absent = Absent { fault_cycles: 1 + random.below(700) as u32, blocks: Vec::new() };
        let share = pick(&mut random, &[0, 2, 4]);
        while page < 0x300 {
            let count = 1 + random.below(12).min(0x2ff - page);
            let frame = 0x100 + random.below(0x1000);
            match coalescing {
                AT => tables.map_anchors(page, frame, count, DATA),
                _ => tables.map(page, frame, count, DATA),
            }
            let words = [page, page + count, frame, 1];
            for (at, word) in (list.entry(entries).raw()..).step_by(8).zip(words) {
                tables.memory.write_u64(PhysAddr::new(at), word).unwrap();
            }
            if random.below(4) < share {
                let word = |i: u64| {
                    let at = PhysAddr::new(Tables::leaf(page + i));
                    (at, tables.memory.read_u32(at).unwrap())
                };
                absent.blocks.push((page, (0..count).map(word).collect()));
            }
            page += count;
            entries += 1;
        }
        tables.memory.write_u64(list.count(), entries).unwrap();
        let mut config = random_config(&mut random);
        if random.below(2) == 0 {
            let start = VirtAddr::new(random.below(0x40) << 12);
            config.shared = vec![SharedBuffer { start, len_bytes: 64 << random.below(9) }];
        }
        let count = 1 + random.below(4);
        let mut streams = Vec::new();
        for _ in 0..count {
            let len = random.below(400);
            streams.push(random_stream(&mut random, len));
        }
        // A master that writes what is shared, so that most of the others end.
        for buffer in &config.shared {
            let lines = buffer.len_bytes / 64;
            streams.push((0..lines).map(|n| write(buffer.start.raw() + 64 * n)).collect());
        }
        let geometry = Geometry::fully_associative(pick(&mut random, &[1, 4, 32]));
        let order = pick(&mut random, &[WalkOrder::RegularFirst, WalkOrder::AnchorFirst]);
        let of = HierarchyConfig {
            l1: geometry.into(),
            l2: Geometry { sets: 4, ways: 2, index_shift: 2 }.into(),
            l2_cycles: random.below(5) as u32,
            walk_cache_entries: random.below(3) as u32,
            order,
        };
        let with = |stream: &Vec<Transaction>| stream.clone();
        let way = random.below(4);
        let (all, faulted) = if way == 0 {
            let count = pick(&mut random, &[1, 4, 32, 256]);
            let unit = || SegmentRegisters::new(list, count).unwrap();
            registers += 1;
            compare(
                &config,
                || streams.iter().map(|s| (unit(), with(s))).collect(),
                &tables,
                &absent,
            )
        } else if way == 1 {
            let hierarchy = || Hierarchy::new(regime(coalescing), &of).unwrap();
            compare(
                &config,
                || streams.iter().map(|s| (hierarchy(), with(s))).collect(),
                &tables,
                &absent,
            )
        } else {
            let mmu = || Mmu::new(regime(coalescing), geometry, order).unwrap();
            compare(
                &config,
                || streams.iter().map(|s| (mmu(), with(s))).collect(),
                &tables,
                &absent,
            )
        };
        ended += u32::from(all);
        faults += faulted;
        walks += u32::from(coalescing == AT);
    }
    assert!(ended > 150 && walks > 30, "{ended} ended, {walks} with anchors");
    assert!(registers > 30, "{registers} with segment registers");
    assert!(faults > 1000, "{faults} faults");
}
