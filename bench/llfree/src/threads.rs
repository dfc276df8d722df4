//! Threads that begin each part of a measurement together.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, yield_now};

/// Where threads wait for each other without sleeping: a thread that has to be woken would begin
/// when the others have ended.
pub(crate) struct Gate {
    threads: usize,
    arrived: AtomicUsize,
}

impl Gate {
    /// Waits until all threads have come here as often as this one.
    pub(crate) fn wait(&self) {
        let before = self.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (before / self.threads + 1) * self.threads;
        until(|| (self.arrived.load(Ordering::Acquire) >= all).then_some(()));
    }
}

/// Asks again and again until there is something.
pub(crate) fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let mut turns = 0_u32;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        turns = turns.wrapping_add(1);
        // Whoever is waited for may need this processor.
        if turns.is_multiple_of(4096) { yield_now() } else { spin_loop() }
    }
}

/// Runs `work` on so many threads, each with its number: what each returned.
pub(crate) fn run<T: Send>(
    threads: usize,
    work: impl Fn(usize, &Gate) -> T + Sync,
) -> Result<Vec<T>, String> {
    let gate = Gate { threads, arrived: AtomicUsize::new(0) };
    scope(|scope| {
        let (gate, work) = (&gate, &work);
        let started: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread, gate))).collect();
        started
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned()))
            .collect()
    })
}
