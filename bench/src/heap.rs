//! TLSF and half-fit beside `rlsf`: instructions of each call on one trace.
//!
//! The trace: xorshift64* with seed 0x9E3779B97F4A7C15 toggles one of 8,192
//! slots at each step, chosen by the upper 13 bits; a slot that becomes used
//! asks for 16·2^(12u) bytes at the usual alignment, u uniform in [0, 1) from
//! the upper 53 bits of the next number. 50,000 steps warm up, 100,000 count.
//!
//! Each contender's calls are two functions of their own that are never inlined, so what is
//! counted is a call from its first instruction to its return. valgrind's lackey
//! prints every instruction and every access to memory of a whole run; a call begins at the
//! function's address and ends where the instruction before it would have gone on. Mean and worst
//! come from the same run, for instructions and for accesses.

use std::alloc::Layout;
use std::io::{BufRead, BufReader};
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::ptr::{
    NonNull, {self},
};

use swath_heap::{ByteAllocator, HalfFit, Headers, Links, Resident, Tlsf, Trusting};

use crate::failure::Failure;
use crate::random::Random;

const SLOTS: usize = 8192;
const WARM_UP: usize = 50_000;
const COUNTED: usize = 100_000;
const ALIGN: usize = 16;

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

/// Mean and worst of malloc, then of free.
type Bounds = [u64; 4];

struct Contender {
    name: &'static str,
    malloc: Malloc,
    free: Free,
    /// Over a pool of that many bytes.
    new: fn(usize) -> *mut (),
    pool_bytes: usize,
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
        bounds: None,
    },
    Contender {
        name: "tlsf",
        malloc: swath_heap_malloc_tlsf,
        free: swath_heap_free_tlsf,
        new: new!(TlsfTrusting),
        pool_bytes: 36 << 20,
        bounds: Some([62, 100, 45, 105]),
    },
    Contender {
        name: "headers",
        malloc: swath_heap_malloc_headers,
        free: swath_heap_free_headers,
        new: new!(TlsfHeaders),
        pool_bytes: 36 << 20,
        bounds: None,
    },
    Contender {
        name: "links",
        malloc: swath_heap_malloc_links,
        free: swath_heap_free_links,
        new: new!(TlsfLinks),
        pool_bytes: 36 << 20,
        bounds: None,
    },
    Contender {
        name: "half",
        malloc: swath_heap_malloc_half,
        free: swath_heap_free_half,
        new: new!(HalfFitTrusting),
        pool_bytes: 56 << 20,
        bounds: Some([48, 65, 32, 64]),
    },
];

fn find(name: &str) -> Result<&'static Contender, Failure> {
    let found = CONTENDERS.iter().find(|contender| contender.name == name);
    found.ok_or_else(|| Failure::Setup(format!("no heap {name:?}")))
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
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut slots: Vec<Option<NonNull<u8>>> = vec![None; SLOTS];
    let mut calls = Calls::default();
    for step in 0..steps {
        let counts = step >= WARM_UP;
        let slot = &mut slots[(random.word() >> 51) as usize];
        if let Some(at) = slot.take() {
            calls.frees += u64::from(counts);
            call(Call::Free(at), counts)?;
        } else {
            let u = (random.word() >> 11) as f64 / (1_u64 << 53) as f64;
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

/// In the child: says where the two functions are and runs the first steps of the trace.
pub(crate) fn measure(name: &str, steps: &str) -> Result<(), Failure> {
    let contender = find(name)?;
    let steps = steps.parse().map_err(|_| Failure::Setup(format!("{steps:?} steps")))?;
    println!("at {} {}", contender.malloc as usize, contender.free as usize);
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

/// What the calls of one function took that count.
#[derive(Clone, Copy, Default)]
struct Tally {
    calls: u64,
    instructions: u64,
    instructions_max: u64,
    accesses_max: u64,
}

/// A call under way.
struct Inside {
    which: usize,
    /// Where it returns to.
    back: u64,
    instructions: u64,
    accesses: u64,
}

/// Follows the calls through lackey's lines.
struct Follower {
    /// Where malloc and free begin.
    entries: [u64; 2],
    inside: Option<Inside>,
    /// Where the last instruction ended.
    end: u64,
    /// Calls so far.
    seen: usize,
    tallies: [Tally; 2],
}

impl Follower {
    fn line(&mut self, line: &[u8]) {
        if let Some(rest) = line.strip_prefix(b"I  ") {
            let Some((addr, len)) = instruction(rest) else { return };
            if self.inside.as_ref().is_some_and(|inside| inside.back == addr) {
                self.finish();
            }
            if let Some(inside) = &mut self.inside {
                inside.instructions += 1;
            } else if let Some(which) = self.entries.iter().position(|&entry| entry == addr) {
                self.inside = Some(Inside { which, back: self.end, instructions: 1, accesses: 0 });
            }
            self.end = addr + len;
        } else if let (Some(inside), [b' ', kind, b' ', ..]) = (&mut self.inside, line) {
            // A modification is a load and a store.
            inside.accesses += match kind {
                b'L' | b'S' => 1,
                b'M' => 2,
                _ => 0,
            };
        }
    }

    fn finish(&mut self) {
        let Some(inside) = self.inside.take() else { return };
        self.seen += 1;
        // Each step is one call.
        if self.seen > WARM_UP {
            let tally = &mut self.tallies[inside.which];
            tally.calls += 1;
            tally.instructions += inside.instructions;
            tally.instructions_max = tally.instructions_max.max(inside.instructions);
            tally.accesses_max = tally.accesses_max.max(inside.accesses);
        }
    }
}

/// Address and length of `ADDRESS,LENGTH`.
fn instruction(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (addr, len) = text.trim_end().split_once(',')?;
    Some((u64::from_str_radix(addr, 16).ok()?, len.parse().ok()?))
}

fn valgrind(tool: &[&str], name: &str, steps: usize) -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Setup(format!("cannot find this program: {error}")))?;
    let mut command = Command::new("valgrind");
    command.args(tool).arg(program).args(["heap-measure", name, &steps.to_string()]);
    command.stdin(Stdio::null());
    Ok(command)
}

/// The numbers behind `label` in what a child printed.
fn numbers<const N: usize>(stdout: &[u8], label: &str) -> Result<[u64; N], Failure> {
    let text = String::from_utf8_lossy(stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    let numbers: Option<Vec<u64>> =
        line.map(|line| line.split(' ').filter_map(|number| number.parse().ok()).collect());
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| wrong("the child did not say what it did"))
}

fn start(error: std::io::Error) -> Failure {
    Failure::Setup(format!("cannot start valgrind: {error}"))
}

/// What malloc and free took, and how many calls of malloc failed.
fn count(name: &str) -> Result<([Tally; 2], u64), Failure> {
    // valgrind loads a program to the same place each time.
    let where_ = valgrind(&["--tool=none", "-q"], name, 0)?.output().map_err(start)?;
    let entries = numbers(&where_.stdout, "at ")?;
    let tool = ["--tool=lackey", "--basic-counts=no", "--trace-mem=yes"];
    let mut command = valgrind(&tool, name, WARM_UP + COUNTED)?;
    // The child's few words do not fill a pipe.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
    let tallies = [Tally::default(); 2];
    let mut follower = Follower { entries, inside: None, end: 0, seen: 0, tallies };
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::with_capacity(1 << 20, stderr);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).map_err(start)? > 0 {
            follower.line(&line);
            line.clear();
        }
    }
    let output = child.wait_with_output().map_err(start)?;
    if !output.status.success() {
        return Err(Failure::Result(format!("{name} ({})", output.status)));
    }
    if numbers(&output.stdout, "at ")? != entries {
        return Err(wrong("valgrind moved the program between two runs"));
    }
    let [mallocs, frees, failures] = numbers(&output.stdout, "calls ")?;
    if follower.tallies.map(|tally| tally.calls) != [mallocs, frees] {
        return Err(wrong("not every call was seen"));
    }
    Ok((follower.tallies, failures))
}

/// Counts every contender and compares those that have bounds with them.
pub(crate) fn run() -> Result<(), Failure> {
    println!(
        "{:<8} {:>8} {:>12} {:>13} {:>10} {:>11} {:>15} {:>13}",
        "heap",
        "failures",
        "malloc mean",
        "malloc worst",
        "free mean",
        "free worst",
        "malloc accesses",
        "free accesses"
    );
    let mut broken = Vec::new();
    for contender in CONTENDERS {
        let (tallies, failures) = count(contender.name)?;
        let mean = |tally: &Tally| tally.instructions as f64 / tally.calls as f64;
        let [malloc, free] = &tallies;
        println!(
            "{:<8} {failures:>8} {:>12.2} {:>13} {:>10.2} {:>11} {:>15} {:>13}",
            contender.name,
            mean(malloc),
            malloc.instructions_max,
            mean(free),
            free.instructions_max,
            malloc.accesses_max,
            free.accesses_max,
        );
        let Some(bounds) = contender.bounds else { continue };
        let worst = |tally: &Tally| tally.instructions_max as f64;
        let counts = [mean(malloc), worst(malloc), mean(free), worst(free)];
        if counts.iter().zip(bounds).any(|(&count, bound)| count > bound as f64) {
            broken.push(format!("{} is over {bounds:?}", contender.name));
        }
        if failures > 0 {
            broken.push(format!("{} failed {failures} times", contender.name));
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(Failure::Result(broken.join(", "))) }
}
