//! TLSF and half-fit beside `rlsf`: instructions of each call on one trace.
//!
//! The trace: xorshift64* with seed 0x9E3779B97F4A7C15 toggles one of 8,192
//! slots at each step, chosen by the upper 13 bits; a slot that becomes used
//! asks for 16·2^(12u) bytes at the usual alignment, u uniform in [0, 1) from
//! the upper 53 bits of the next number. 50,000 steps warm up, 100,000 count.
//!
//! Each contender's calls are two functions of their own that are never
//! inlined, so what is counted is a call from its first instruction to its
//! return. The **mean** is callgrind's, with collection switched on inside that
//! function only. The **worst** comes from stepping each counted call
//! (`swath_lab::count`); what the path to the function takes is measured with
//! functions that do nothing, and subtracted. Both count the same instructions.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::process::Command;
use std::ptr::{self, NonNull};

use swath_heap::{ByteAllocator, HalfFit, Headers, Links, Resident, Tlsf, Trusting};
use swath_lab::count::{Counter, Marks};

use crate::Failure;

const SLOTS: usize = 8192;
const WARM_UP: usize = 50_000;
const COUNTED: usize = 100_000;
const ALIGN: usize = 16;
/// The bound of a counted call; the worst takes some hundred.
const STEPS_MAX: u64 = 100_000;

/// The two calls of an allocator on a heap behind a pointer that its `new`
/// made, with a name that callgrind finds.
macro_rules! calls {
    ($heap:ty, $malloc:ident, $free:ident, |$h:ident, $layout:ident| $allocate:expr, |$g:ident, $at:ident| $release:expr) => {
        /// # Safety
        /// `heap` is the contender's, and nobody else uses it meanwhile.
        #[unsafe(no_mangle)]
        #[inline(never)]
        unsafe extern "C" fn $malloc(heap: *mut (), size: usize) -> Option<NonNull<u8>> {
            // SAFETY: the contract of this function.
            let $h = unsafe { &mut *heap.cast::<$heap>() };
            // SAFETY: a power of two; the sizes of the trace are small.
            let $layout = unsafe { Layout::from_size_align_unchecked(size, ALIGN) };
            $allocate
        }

        /// # Safety
        /// As above; `at` came from the other function and is not used again.
        #[unsafe(no_mangle)]
        #[inline(never)]
        unsafe extern "C" fn $free(heap: *mut (), $at: NonNull<u8>) -> bool {
            // SAFETY: the contract of this function.
            let $g = unsafe { &mut *heap.cast::<$heap>() };
            // SAFETY: the same.
            unsafe { $release }
        }
    };
}

macro_rules! ours {
    ($heap:ty, $malloc:ident, $free:ident) => {
        calls!($heap, $malloc, $free, |h, layout| h.allocate(layout).ok(), |h, at| h
            .free(at)
            .is_ok());
    };
}

type TlsfTrusting = Tlsf<'static, Resident, Trusting>;
type TlsfHeaders = Tlsf<'static, Resident, Headers>;
type TlsfLinks = Tlsf<'static, Resident, Links>;
type HalfFitTrusting = HalfFit<'static, Resident, Trusting>;
type Rlsf = rlsf::Tlsf<'static, u32, u32, 28, 32>;

ours!(TlsfTrusting, swath_heap_malloc_tlsf, swath_heap_free_tlsf);
ours!(TlsfHeaders, swath_heap_malloc_headers, swath_heap_free_headers);
ours!(TlsfLinks, swath_heap_malloc_links, swath_heap_free_links);
ours!(HalfFitTrusting, swath_heap_malloc_half, swath_heap_free_half);
calls!(
    Rlsf,
    swath_heap_malloc_rlsf,
    swath_heap_free_rlsf,
    |heap, layout| heap.allocate(layout),
    |heap, at| {
        heap.deallocate(at, ALIGN);
        true
    }
);

type Malloc = unsafe extern "C" fn(*mut (), usize) -> Option<NonNull<u8>>;
type Free = unsafe extern "C" fn(*mut (), NonNull<u8>) -> bool;

/// Does nothing, in two instructions: a result and the return.
unsafe extern "C" fn no_malloc(_: *mut (), _: usize) -> Option<NonNull<u8>> {
    None
}

/// The same.
unsafe extern "C" fn no_free(_: *mut (), _: NonNull<u8>) -> bool {
    true
}

/// Instructions of the two functions that do nothing.
const NOTHING: u64 = 2;

/// Mean and worst of malloc, then of free.
type Bounds = [u64; 4];

struct Contender {
    name: &'static str,
    malloc: Malloc,
    free: Free,
    /// Over a pool of that many bytes.
    new: fn(usize) -> *mut (),
    pool_bytes: usize,
    /// Whether each call is stepped, which takes a minute.
    stepped: bool,
    bounds: Option<Bounds>,
}

/// A heap over a pool of its own; both are the child's until it ends.
macro_rules! new {
    ($heap:ty) => {
        |pool_bytes| {
            let heap = Box::leak(Box::new(<$heap>::new()));
            heap.add_pool(pool(pool_bytes)).expect("the pool is long enough");
            ptr::from_mut(heap).cast()
        }
    };
}

fn pool(len_bytes: usize) -> &'static mut [MaybeUninit<u8>] {
    let granules = vec![0_u128; len_bytes / size_of::<u128>()].leak();
    // SAFETY: bytes of the granules, which nobody else has.
    unsafe { std::slice::from_raw_parts_mut(granules.as_mut_ptr().cast(), len_bytes) }
}

const CONTENDERS: &[Contender] = &[
    Contender {
        name: "rlsf",
        malloc: swath_heap_malloc_rlsf,
        free: swath_heap_free_rlsf,
        new: |pool_bytes| {
            let heap = Box::leak(Box::new(Rlsf::new()));
            let _ = heap.insert_free_block(pool(pool_bytes));
            ptr::from_mut(heap).cast()
        },
        pool_bytes: 36 << 20,
        stepped: true,
        bounds: None,
    },
    Contender {
        name: "tlsf",
        malloc: swath_heap_malloc_tlsf,
        free: swath_heap_free_tlsf,
        new: new!(TlsfTrusting),
        pool_bytes: 36 << 20,
        stepped: true,
        bounds: Some([78, 110, 58, 116]),
    },
    Contender {
        name: "headers",
        malloc: swath_heap_malloc_headers,
        free: swath_heap_free_headers,
        new: new!(TlsfHeaders),
        pool_bytes: 36 << 20,
        stepped: false,
        bounds: None,
    },
    Contender {
        name: "links",
        malloc: swath_heap_malloc_links,
        free: swath_heap_free_links,
        new: new!(TlsfLinks),
        pool_bytes: 36 << 20,
        stepped: false,
        bounds: None,
    },
    Contender {
        name: "half",
        malloc: swath_heap_malloc_half,
        free: swath_heap_free_half,
        new: new!(HalfFitTrusting),
        pool_bytes: 56 << 20,
        stepped: true,
        bounds: Some([78, 110, 58, 116]),
    },
];

fn find(name: &str) -> Result<&'static Contender, Failure> {
    let found = CONTENDERS.iter().find(|contender| contender.name == name);
    found.ok_or_else(|| Failure::Setup(format!("no heap {name:?}")))
}

struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// A call of the trace.
enum Call {
    Malloc(usize),
    Free(NonNull<u8>),
}

/// How often each was called while it counted, and how often malloc failed.
#[derive(Default)]
struct Calls {
    mallocs: u64,
    frees: u64,
    failures: u64,
}

/// Makes the calls of the trace's first `steps` through `call`, which is told
/// whether they count.
fn trace(
    steps: usize,
    call: &mut dyn FnMut(Call, bool) -> Result<Option<NonNull<u8>>, Failure>,
) -> Result<Calls, Failure> {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    let mut slots: Vec<Option<NonNull<u8>>> = vec![None; SLOTS];
    let mut calls = Calls::default();
    for step in 0..steps {
        let counts = step >= WARM_UP;
        let slot = &mut slots[(random.next() >> 51) as usize];
        if let Some(at) = slot.take() {
            calls.frees += u64::from(counts);
            call(Call::Free(at), counts)?;
        } else {
            let u = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
            let size = (16.0 * (12.0 * u).exp2()) as usize;
            calls.mallocs += u64::from(counts);
            *slot = call(Call::Malloc(size), counts)?;
            calls.failures += u64::from(slot.is_none());
        }
    }
    Ok(calls)
}

fn wrong(what: &str) -> Failure {
    Failure::Result(what.into())
}

/// In the child under callgrind: runs the first steps of the trace.
pub(crate) fn measure(name: &str, steps: &str) -> Result<(), Failure> {
    let contender = find(name)?;
    let steps = steps.parse().map_err(|_| Failure::Setup(format!("{steps:?} steps")))?;
    let heap = (contender.new)(contender.pool_bytes);
    let calls = trace(steps, &mut |call, _| match call {
        // SAFETY: `heap` is used by these two calls only, one after the other.
        Call::Malloc(size) => Ok(unsafe { (contender.malloc)(heap, size) }),
        // SAFETY: the same; the trace frees what it got, once.
        Call::Free(at) => match unsafe { (contender.free)(heap, at) } {
            true => Ok(None),
            false => Err(wrong("a free failed")),
        },
    })?;
    println!("calls {} {} {}", calls.mallocs, calls.frees, calls.failures);
    Ok(())
}

/// In the child under the counter: runs the trace with a region around each
/// call that counts, after two around calls that do nothing.
pub(crate) fn stepped(name: &str) -> Result<(), Failure> {
    let contender = find(name)?;
    let heap = (contender.new)(contender.pool_bytes);
    let setup = |error: swath_lab::count::CountError| Failure::Setup(error.to_string());
    let mut marks = Marks::begin().map_err(setup)?;
    let mut call = |labels: [&str; 2], functions: (Malloc, Free), call: Call| {
        let (mut given, mut freed) = (None, true);
        match call {
            Call::Malloc(size) => {
                // SAFETY: `heap` is used by one call at a time.
                let work = &mut || given = unsafe { (functions.0)(heap, size) };
                marks.region(labels[0], work)
            }
            Call::Free(at) => {
                // SAFETY: the same; the trace frees what it got, once.
                let work = &mut || freed = unsafe { (functions.1)(heap, at) };
                marks.region(labels[1], work)
            }
        }
        .map_err(setup)?;
        if freed { Ok(given) } else { Err(wrong("a free failed")) }
    };
    let nothing = (no_malloc as Malloc, no_free as Free);
    let labels = ["no malloc", "no free"];
    call(labels, nothing, Call::Malloc(1))?;
    call(labels, nothing, Call::Free(NonNull::dangling()))?;
    let functions = (contender.malloc, contender.free);
    trace(WARM_UP + COUNTED, &mut |which, counts| match which {
        _ if counts => call(["malloc", "free"], functions, which),
        // SAFETY: as above.
        Call::Malloc(size) => Ok(unsafe { (contender.malloc)(heap, size) }),
        Call::Free(at) => {
            // SAFETY: as above.
            unsafe { (contender.free)(heap, at) };
            Ok(None)
        }
    })?;
    Ok(())
}

/// Instructions of malloc or free, summed over the calls that count, and what
/// the trace did.
fn sum(contender: &Contender, which: &str) -> Result<(u64, Calls), Failure> {
    let function = format!("swath_heap_{which}_{}", contender.name);
    let run = |steps: usize| {
        let steps = steps.to_string();
        let (stdout, collected) = callgrind(&function, &["heap-measure", contender.name, &steps])?;
        let numbers: Vec<u64> = stdout
            .lines()
            .find_map(|line| line.strip_prefix("calls "))
            .map(|line| line.split(' ').filter_map(|number| number.parse().ok()).collect())
            .unwrap_or_default();
        match numbers[..] {
            [mallocs, frees, failures] => Ok((collected, Calls { mallocs, frees, failures })),
            _ => Err(wrong("the child did not say what it did")),
        }
    };
    let (before, _) = run(WARM_UP)?;
    let (all, calls) = run(WARM_UP + COUNTED)?;
    Ok((all - before, calls))
}

/// The worst malloc and the worst free.
fn worst(contender: &Contender) -> Result<[u64; 2], Failure> {
    let setup = |error: swath_lab::count::CountError| Failure::Setup(error.to_string());
    let program = std::env::current_exe()
        .map_err(|error| Failure::Setup(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(program);
    command.args(["heap-stepped", contender.name]);
    let mut counter = Counter::spawn(command, STEPS_MAX).map_err(setup)?;
    let mut most: BTreeMap<String, u64> = BTreeMap::new();
    while let Some(region) = counter.next_region().map_err(setup)? {
        let most = most.entry(region.label).or_default();
        *most = region.instructions.max(*most);
    }
    let of = |label: &str| most.get(label).copied().ok_or_else(|| wrong("a call was not seen"));
    // The way to the function is the same for the one that does nothing.
    let net = |label, nothing| Ok((of(label)? + NOTHING).saturating_sub(of(nothing)?));
    Ok([net("malloc", "no malloc")?, net("free", "no free")?])
}

/// Counts every contender and compares those that have bounds with them.
pub(crate) fn run() -> Result<(), Failure> {
    println!(
        "{:<8} {:>8} {:>12} {:>13} {:>10} {:>11}",
        "heap", "failures", "malloc mean", "malloc worst", "free mean", "free worst"
    );
    let mut broken = Vec::new();
    for contender in CONTENDERS {
        let (mallocs, calls) = sum(contender, "malloc")?;
        let (frees, _) = sum(contender, "free")?;
        let means = [mallocs as f64 / calls.mallocs as f64, frees as f64 / calls.frees as f64];
        let worst = if contender.stepped { Some(worst(contender)?) } else { None };
        let shown = worst.map_or(["-".into(), "-".into()], |worst| worst.map(|n| n.to_string()));
        println!(
            "{:<8} {:>8} {:>12.2} {:>13} {:>10.2} {:>11}",
            contender.name, calls.failures, means[0], shown[0], means[1], shown[1]
        );
        let Some(bounds) = contender.bounds else { continue };
        let [malloc_worst, free_worst] = worst.unwrap_or_default().map(|count| count as f64);
        let counts = [means[0], malloc_worst, means[1], free_worst];
        if counts.iter().zip(bounds).any(|(&count, bound)| count > bound as f64) {
            broken.push(format!("{} is over {bounds:?}", contender.name));
        }
        if calls.failures > 0 {
            broken.push(format!("{} failed {} times", contender.name, calls.failures));
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(Failure::Result(broken.join(", "))) }
}

/// Runs this program under callgrind, collecting inside `function` only: what
/// it printed, and the instructions.
fn callgrind(function: &str, args: &[&str]) -> Result<(String, u64), Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Setup(format!("cannot find this program: {error}")))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={function}"))
        .arg(program)
        .args(args)
        .output()
        .map_err(|error| Failure::Setup(format!("cannot start valgrind: {error}")))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Failure::Result(format!("{args:?} ({}):\n{stderr}", output.status)));
    }
    // "==PID== Collected : N"
    let collected = stderr
        .lines()
        .find_map(|line| line.split("== Collected :").nth(1))
        .and_then(|count| count.trim().parse().ok())
        .filter(|&count| count > 0)
        .ok_or_else(|| Failure::Result(format!("{function} was not counted:\n{stderr}")))?;
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), collected))
}
