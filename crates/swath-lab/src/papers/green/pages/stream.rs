//! Requests of a recording that is read while they are served.

use std::collections::VecDeque;
use std::io::Read;

use swath_trace::container::FileError;
use swath_trace::pages::PageReader;

use crate::papers::green::pages::requests::{HeldBlock, Pairing, ReplayOp, TimedOp};
use crate::papers::green::pages::runs::{OpRun, Requests, Stretch};

/// The most requests of one stretch.
const STRETCH: usize = 64;

/// The requests that a recording's events mean, as [`replay`](crate::papers::green::pages::requests::replay)
/// hands them out. They end at the first event that cannot be read; then there is a [`fault`](Self::fault).
pub struct StreamedRequests {
    events: PageReader<Box<dyn Read + Send>>,
    pairing: Pairing,
    waiting: VecDeque<TimedOp>,
    runs: Vec<OpRun>,
    fault: Option<FileError>,
}

impl StreamedRequests {
    /// Starts with the blocks that were held before, but for those of which `is_there` says that they
    /// need no request.
    pub(crate) fn new(
        events: PageReader<Box<dyn Read + Send>>,
        held: &[HeldBlock],
        blocks_max: usize,
        is_there: impl Fn(HeldBlock) -> bool,
    ) -> Self {
        let (mut pairing, mut waiting) = (Pairing::new(blocks_max), VecDeque::new());
        for &block in held {
            let there = is_there(block);
            pairing.hold(block, &mut |op| {
                if !there || matches!(op.op, ReplayOp::Free { .. }) {
                    waiting.push_back(op);
                }
            });
        }
        Self { events, pairing, waiting, runs: Vec::new(), fault: None }
    }

    /// Returns the reason why the requests ended before the recording did.
    pub fn fault(self) -> Option<FileError> {
        self.fault
    }

    /// Reads events until a request waits, or there are no more.
    fn read(&mut self) {
        while self.waiting.is_empty() && self.fault.is_none() {
            let Some(event) = self.events.next() else { return };
            let Self { pairing, waiting, .. } = self;
            let paired =
                event.and_then(|event| pairing.event(event, &mut |op| waiting.push_back(op)));
            self.fault = paired.err();
        }
    }
}

impl Requests for StreamedRequests {
    /// The next requests that come at one time.
    fn next_stretch(&mut self) -> Option<Stretch<'_>> {
        self.runs.clear();
        self.read();
        let start_us = self.waiting.front()?.time_us;
        while self.runs.len() < STRETCH
            && let Some(first) = self.waiting.front().filter(|op| op.time_us == start_us)
        {
            self.runs.push(OpRun { first: first.op, count: 1 });
            self.waiting.pop_front();
            self.read();
        }
        let count = self.runs.len() as u32;
        Some(Stretch { runs: &self.runs, count, start_us, length_us: 0, ids_from: 0 })
    }
}
