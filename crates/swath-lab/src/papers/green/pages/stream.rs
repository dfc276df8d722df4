//! Requests of a recording that is read while they are served.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use swath_trace::container::FileError;
use swath_trace::pages::PageReader;

use crate::papers::green::pages::requests::{HeldBlock, Pairing, ReplayOp, TimedOp};
use crate::papers::green::pages::runs::{OpRun, Requests, Stretch};

/// The most requests of one stretch.
const STRETCH: usize = 64;

/// Requests that are handed over at once.
const BATCH: usize = 4096;

/// Batches that may wait.
const BATCHES: usize = 4;

/// Requests that were read, or the reason why there are no more.
type Batch = Result<VecDeque<TimedOp>, FileError>;

/// The requests that a recording's events mean, as [`replay`](crate::papers::green::pages::requests::replay)
/// hands them out. They end at the first event that cannot be read; then there is a [`fault`](Self::fault).
///
/// A thread reads ahead, some thousand requests at most, while they are served; it ends when nobody takes them.
pub struct StreamedRequests {
    batches: Receiver<Batch>,
    /// The thread, until its end was seen.
    reader: Option<JoinHandle<()>>,
    waiting: VecDeque<TimedOp>,
    runs: Vec<OpRun>,
    fault: Option<FileError>,
}

impl StreamedRequests {
    /// Starts with the blocks that were held before, but for those of which `is_there` says that they
    /// need no request.
    ///
    /// # Errors
    /// The system's, if it lets no thread begin.
    pub(crate) fn new(
        events: PageReader<Box<dyn Read + Send>>,
        held: &[HeldBlock],
        blocks_max: usize,
        is_there: impl Fn(HeldBlock) -> bool,
    ) -> io::Result<Self> {
        let (mut pairing, mut waiting) = (Pairing::new(blocks_max), VecDeque::new());
        for &block in held {
            let there = is_there(block);
            pairing.hold(block, &mut |op| {
                if !there || matches!(op.op, ReplayOp::Free { .. }) {
                    waiting.push_back(op);
                }
            });
        }
        let (sender, batches) = mpsc::sync_channel(BATCHES);
        let reader = thread::Builder::new()
            .name("recording".to_owned())
            .spawn(move || read(events, pairing, &sender))?;
        Ok(Self { batches, reader: Some(reader), waiting, runs: Vec::new(), fault: None })
    }

    /// Returns the reason why the requests ended before the recording did.
    pub fn fault(self) -> Option<FileError> {
        self.fault
    }

    /// Waits for requests, unless some wait already or there are no more.
    fn fill(&mut self) {
        while self.waiting.is_empty() && self.fault.is_none() {
            match self.batches.recv() {
                Ok(Ok(batch)) => self.waiting = batch,
                Ok(Err(fault)) => self.fault = Some(fault),
                Err(_) => {
                    // Its end is that of the recording, unless it broke off.
                    let ended = self.reader.take().map(JoinHandle::join);
                    if let Some(Err(panic)) = ended {
                        resume_unwind(panic);
                    }
                    return;
                }
            }
        }
    }
}

/// Reads events and hands over their requests, as long as somebody takes them.
fn read(
    events: PageReader<Box<dyn Read + Send>>,
    mut pairing: Pairing,
    batches: &SyncSender<Batch>,
) {
    let mut batch = VecDeque::with_capacity(BATCH);
    for event in events {
        let paired = event.and_then(|event| pairing.event(event, &mut |op| batch.push_back(op)));
        if batch.len() < BATCH && paired.is_ok() {
            continue;
        }
        let full = std::mem::replace(&mut batch, VecDeque::with_capacity(BATCH));
        if batches.send(Ok(full)).is_err() {
            return;
        }
        if let Err(fault) = paired {
            // Whoever took the requests before it takes this, or needs it no more.
            let _ = batches.send(Err(fault));
            return;
        }
    }
    let _ = batches.send(Ok(batch));
}

impl Requests for StreamedRequests {
    /// The next requests that come at one time.
    fn next_stretch(&mut self) -> Option<Stretch<'_>> {
        self.runs.clear();
        self.fill();
        let start_us = self.waiting.front()?.time_us;
        while self.runs.len() < STRETCH
            && let Some(first) = self.waiting.front().filter(|op| op.time_us == start_us)
        {
            self.runs.push(OpRun { first: first.op, count: 1 });
            self.waiting.pop_front();
            self.fill();
        }
        let count = self.runs.len() as u32;
        Some(Stretch { runs: &self.runs, count, start_us, length_us: 0, ids_from: 0 })
    }
}
