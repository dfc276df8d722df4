//! Patterns of accesses that a core knows: runs of writes that stream, and strides of loads
//! that are read ahead.
//!
//! **Runs.** Writes at an even, small distance from one another are a run. Once it has covered
//! [so many](crate::ProcessorConfig::stream_after_lines) lines from end to end, its writes
//! stream: the first to each line that misses the first cache takes a place in the write buffer until the
//! second cache has it, or else the memory, and nothing is fetched. The lengths of writes are not
//! known here; a distance of 16 bytes or less is taken for writes without gaps between.
//! (Arm's "read allocate mode": Cortex-A53 TRM, DDI 0500, section 6.2; three lines by default.)
//!
//! **Strides.** Three loads that miss, or meet what was read ahead, at an even distance of up to
//! four lines either way start a stride. From then on each load that keeps to it has the
//! [next lines](crate::ProcessorConfig::prefetch_lines) of the page of 4 KiB brought into both
//! caches. Loads that hit other lines do not disturb it. (Cortex-A7 TRM, DDI 0464, section 6.5.2.)

use swath_arch::{BASE_PAGE_BYTES, PhysAddr};

/// The longest distance of two writes that leave no gap.
const RUN_STEP_MAX: u64 = 16;
/// The longest stride in lines.
const STRIDE_MAX: u64 = 4;
/// Steps alike until a stride is known: three loads.
const STEPS: u32 = 2;

/// The run of writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteRuns {
    after_lines: u64,
    line_bytes: u64,
    /// The first address of the run, the last one, and the distance between writes; 0 before
    /// the second.
    start: u64,
    last: u64,
    step: u64,
    /// The line that goes out now.
    pub(crate) streamed: Option<u64>,
}

impl WriteRuns {
    pub(crate) const fn new(after_lines: u32, line_bytes: u32) -> Self {
        Self {
            after_lines: after_lines as u64,
            line_bytes: line_bytes as u64,
            start: 0,
            last: 0,
            step: 0,
            streamed: None,
        }
    }

    /// Returns true if a write streams. Every write is to be told.
    #[inline]
    pub(crate) fn streams(&mut self, addr: PhysAddr) -> bool {
        if self.after_lines == 0 {
            return false;
        }
        let addr = addr.raw();
        let step = addr.wrapping_sub(self.last);
        if step != self.step || step == 0 {
            let run = (1..=RUN_STEP_MAX).contains(&step);
            self.start = if run { self.last } else { addr };
            self.step = if run { step } else { 0 };
            self.streamed = None;
        }
        self.last = addr;
        let first = self.start.next_multiple_of(self.line_bytes);
        (addr / self.line_bytes * self.line_bytes).saturating_sub(first)
            >= self.after_lines * self.line_bytes
    }
}

/// The stride of loads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strides {
    /// Lines read ahead; none is off.
    pub(crate) lines_ahead: u32,
    page_lines: u64,
    last: u64,
    /// The last distance in lines, as a wrapped number.
    step: u64,
    seen: u32,
}

impl Strides {
    pub(crate) const fn new(lines_ahead: u32, line_bytes: u32) -> Self {
        let page_lines = BASE_PAGE_BYTES / line_bytes as u64;
        Self { lines_ahead, page_lines, last: 0, step: 0, seen: 0 }
    }

    /// Takes note of a load; returns the stride if it has one and keeps to it.
    #[inline]
    pub(crate) fn note(&mut self, line: u64, missed: bool) -> Option<u64> {
        let step = line.wrapping_sub(self.last);
        let kept = step == self.step && step != 0;
        if !(missed || kept && self.seen >= STEPS) {
            return None;
        }
        let short = step.wrapping_add(STRIDE_MAX) <= 2 * STRIDE_MAX && step != 0;
        self.seen = match (kept, short) {
            (_, false) => 0,
            (true, true) => (self.seen + 1).min(STEPS),
            (false, true) => 1,
        };
        (self.last, self.step) = (line, step);
        (self.seen >= STEPS).then_some(step)
    }

    /// The lines ahead of the last load, within its page.
    pub(crate) fn ahead(&self, stride: u64) -> impl Iterator<Item = u64> + use<> {
        let (page_lines, last) = (self.page_lines, self.last);
        (1..=u64::from(self.lines_ahead))
            .map(move |k| last.wrapping_add(stride.wrapping_mul(k)))
            .take_while(move |line| line / page_lines == last / page_lines)
    }
}
