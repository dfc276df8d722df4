//! Accesses of the unit beside the model's: result, cause, reads of each port, cycles.

use swath_arch::testing::Random;
use swath_arch::{PhysAddr, PhysMemory, SliceMemory, VirtAddr};
use swath_hw::{
    Operation, PageRights, PortReads, RtAccess, RtFault, RtLatency, Rtmmu, UnmappedCause,
};

use crate::port::Port;
use crate::tables::{FIRST, FRAMES, Faulty, Tables};
use crate::unit::{In, Out, Registers, Scheme, Unit};

/// Accesses from one set of tables.
const ACCESSES_OF_TABLES: u64 = 20_000;

/// The ways in which a core and memories behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// The core asks when the last access is over.
    Waiting,
    /// The core asks as soon as the unit has accepted the last access, while its data are on their way.
    Overlapping,
    /// As `Waiting`, with memories that stall and answer late, and words that no memory gives. No
    /// cycles are compared, but that no verdict comes early.
    Stalled,
}

/// The sums over the accesses that were compared.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    pub accesses: u64,
    pub granted: u64,
    pub cycles: u64,
}

/// The bench: a unit, its three memories, the core.
struct Bench<'m> {
    unit: Unit,
    memory: &'m Faulty<'m>,
    ports: [Port; 3],
    latency: RtLatency,
    words_u64: bool,
    stalls: Option<Random>,
    now: u64,
    /// The physical address under way on port 3.
    data: Option<PhysAddr>,
}

/// The verdict of the unit on an access.
struct Verdict {
    at: u64,
    out: Out,
    /// The address that its data are at, if they are granted.
    data: Option<PhysAddr>,
}

impl Bench<'_> {
    /// Runs a cycle; returns what went out, and whether the data that were under way arrived.
    #[inline]
    fn cycle(&mut self, input: &mut In) -> (Out, bool) {
        let now = self.now;
        for (port, seen) in self.ports.iter_mut().zip(&mut input.port) {
            *seen = port.offer(now, self.stalls.as_mut());
        }
        let out = self.unit.step(input);
        let arrived = out.rsp_valid;
        if arrived {
            assert!(self.data.take().is_some(), "an answer to no access");
        }
        for (i, (port, asks)) in self.ports.iter_mut().zip(&out.port).enumerate() {
            let Some(addr) = port.answer(asks) else { continue };
            let latency = if i < 2 {
                self.latency.fast
            } else if asks.data {
                self.latency.data
            } else {
                self.latency.table
            };
            let late = self.stalls.as_mut().map_or(0, |random| random.below(4));
            let addr = PhysAddr::new(addr);
            let word = if asks.data {
                assert!(self.data.is_none(), "two accesses to data at once");
                assert_eq!(asks.write, input.needs == 2, "the direction of an access to data");
                self.data = Some(addr);
                Ok(0)
            } else {
                assert!(!asks.write, "a write to tables");
                port.note(addr.raw());
                if self.words_u64 {
                    self.memory.read_u64(addr)
                } else {
                    self.memory.read_u32(addr).map(u64::from)
                }
            };
            port.serve(now + u64::from(latency) + late, word);
        }
        self.now += 1;
        (out, arrived)
    }

    /// Asks until the verdict. Data of the access before may arrive meanwhile: that cycle is
    /// returned beside it.
    #[inline]
    fn ask(&mut self, addr: VirtAddr, operation: Operation) -> (Verdict, Option<u64>) {
        let mut input = In { vaddr: addr.raw(), valid: true, ..In::default() };
        input.needs = match operation {
            Operation::Read => 1,
            Operation::Write => 2,
            Operation::Fetch => 4,
        };
        let begun = self.now;
        let mut before = None;
        loop {
            let at = self.now;
            assert!(at < begun + 10_000, "no verdict");
            let (out, arrived) = self.cycle(&mut input);
            if arrived {
                before = Some(at);
            }
            if out.ready {
                let data = if out.code == 0 { self.data } else { None };
                return (Verdict { at, out, data }, before);
            }
        }
    }

    /// Waits for the data under way; returns the cycle in which they arrive.
    #[inline]
    fn wait(&mut self) -> u64 {
        let begun = self.now;
        loop {
            let at = self.now;
            assert!(at < begun + 10_000, "no data");
            if self.cycle(&mut In::default()).1 {
                return at;
            }
        }
    }
}

/// Runs accesses and compares each with the model's.
///
/// # Panics
/// At the first difference, with the seed.
pub fn run(scheme: Scheme, latency: RtLatency, pace: Pace, accesses: u64, seed: u64) -> Tally {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    let mut words = vec![0_u64; FRAMES as usize * 512];
    while tally.accesses < accesses {
        for word in &mut words {
            *word = random.word();
        }
        let clean = SliceMemory::new(FIRST, &mut words);
        let mut memory = Faulty { inner: clean, salt: 0 };
        let mut tables = Tables::random(scheme, &memory, &mut random);
        if pace == Pace::Stalled {
            memory.salt = random.word();
        }
        tables.registers.hold_cycles = hold_cycles(scheme, latency);
        let count = ACCESSES_OF_TABLES.min(accesses - tally.accesses);
        run_tables(&tables, scheme, latency, pace, count, &memory, &mut random, &mut tally);
    }
    tally
}

/// Returns the cycles of the register that holds a verdict back.
fn hold_cycles(scheme: Scheme, latency: RtLatency) -> u8 {
    let cycles = match scheme {
        Scheme::PageTable => latency.table,
        _ => latency.table.max(2 * latency.fast),
    };
    u8::try_from(cycles).expect("latencies of fewer than 256 cycles")
}

#[expect(clippy::too_many_arguments, reason = "the parts of one run")]
fn run_tables(
    tables: &Tables,
    scheme: Scheme,
    latency: RtLatency,
    pace: Pace,
    count: u64,
    memory: &Faulty<'_>,
    random: &mut Random,
    tally: &mut Tally,
) {
    let mut unit = Unit::new(scheme);
    let registers: &Registers = &tables.registers;
    unit.reset(registers);
    let mut bench = Bench {
        unit,
        memory,
        ports: Default::default(),
        latency,
        words_u64: scheme == Scheme::Nodes,
        stalls: (pace == Pace::Stalled).then(|| Random::new(random.word())),
        now: 0,
        data: None,
    };
    let mut model = Rtmmu::new(tables.model, latency, None).expect("a unit without a TLB");
    // Of the access before: the cycle in which the model's data arrive.
    let mut awaited: Option<u64> = None;
    for _ in 0..count {
        if random.one_in(6) {
            tables.spoil(memory, random);
        }
        let addr = VirtAddr::new(tables.page(random) << 12 | random.below(4096));
        let operation = [Operation::Read, Operation::Write, Operation::Fetch][random.index(3)];
        let asked = bench.now;
        let mut walk = model.begin(asked, addr, operation);
        walk.finish(memory);
        let expected = model.complete(walk).expect("a walk that is over");
        let (verdict, before) = bench.ask(addr, operation);
        let what =
            || format!("{scheme:?}, {latency:?}, {pace:?}, {addr}, {operation:?}: {expected:?}");

        let data_cycles = expected.result.map_or(0, |_| u64::from(latency.data));
        if pace == Pace::Stalled {
            assert!(verdict.at - asked >= expected.cycles() - data_cycles, "early: {}", what());
        } else {
            assert_eq!(verdict.at, expected.done - data_cycles, "verdict: {}", what());
        }
        if let Some(due) = awaited.take() {
            // An access that needs no port may be refused while data are under way.
            match before {
                Some(at) => assert_eq!(at, due, "data of the access before: {}", what()),
                None => awaited = Some(due),
            }
        }
        compare(&mut bench, &verdict, &expected).unwrap_or_else(|why| panic!("{why}: {}", what()));

        tally.accesses += 1;
        tally.granted += u64::from(expected.result.is_ok());
        if expected.result.is_ok() {
            if pace == Pace::Overlapping {
                awaited = Some(expected.done);
            } else {
                let at = bench.wait();
                assert!(pace == Pace::Stalled || at == expected.done, "data: {}", what());
            }
        } else if awaited.is_some() {
            let at = bench.wait();
            assert_eq!(Some(at), awaited.take(), "data: {}", what());
        }
    }
    if let Some(due) = awaited {
        assert_eq!(bench.wait(), due, "the last data");
    }
    assert!(!bench.ports.iter().any(Port::is_busy), "a port that is never idle");
    tally.cycles += bench.now;
}

/// Compares a verdict with the model's access.
fn compare(bench: &mut Bench<'_>, verdict: &Verdict, expected: &RtAccess) -> Result<(), String> {
    let Verdict { out, data, .. } = verdict;
    let [first, second, third] = &mut bench.ports;
    let (first, second, third) = (first.noted(), second.noted(), third.noted());
    let reads = PortReads {
        regions: first.len() as u64,
        stack: second.len() as u64,
        data: third.len() as u64,
    };
    if reads != expected.reads {
        return Err(format!("reads {reads:?}"));
    }
    let last = |asked: &[u64]| asked.last().copied().map(PhysAddr::new);
    let got = match (out.code, &expected.result) {
        (0, Ok(addr)) => *data == Some(*addr),
        (1, Err(RtFault::OutOfSpace { .. })) => true,
        (code @ 2..=5, Err(RtFault::Unmapped { level, cause, .. })) => {
            let named = match code {
                2 => UnmappedCause::Start,
                3 => UnmappedCause::Stack,
                4 => UnmappedCause::Page,
                _ => UnmappedCause::Entry,
            };
            named == *cause && u32::from(out.level) == *level
        }
        (6, Err(RtFault::Denied { rights, .. })) => {
            let has = |bit: u32| (out.rights >> bit) & 1 != 0;
            *rights == PageRights { read: has(0), write: has(1), execute: has(2) }
        }
        (code, Err(RtFault::Bus { error, .. })) => {
            // The word that the code names is the last that its port asked for.
            let named = match code {
                8 | 9 => last(first),
                10 | 11 => last(second),
                12 => last(third),
                _ => None,
            };
            named == Some(error.addr)
        }
        _ => false,
    };
    if got {
        Ok(())
    } else {
        Err(format!("code {} at level {}, data {data:?}", out.code, out.level))
    }
}
