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

/// What threads returned.
pub(crate) struct Ran<T> {
    /// What each returned.
    pub(crate) each: Vec<T>,
    /// True if one of them waited for a processor for more than a twentieth of its time.
    pub(crate) disturbed: bool,
}

/// Runs `work` on so many threads, each with its number.
pub(crate) fn run<T: Send>(
    threads: usize,
    work: impl Fn(usize, &Gate) -> T + Sync,
) -> Result<Ran<T>, String> {
    let gate = Gate { threads, arrived: AtomicUsize::new(0) };
    let ran: Result<Vec<_>, String> = scope(|scope| {
        let (gate, work) = (&gate, &work);
        let timed = move |thread| {
            let before = processor();
            let returned = work(thread, gate);
            let [ran, waited] = processor().zip(before).map_or([0, 0], |(after, before)| {
                [after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])]
            });
            (returned, 20 * waited > ran + waited)
        };
        let started: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || timed(thread))).collect();
        started
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned()))
            .collect()
    });
    let (each, disturbed): (_, Vec<bool>) = ran?.into_iter().unzip();
    Ok(Ran { each, disturbed: disturbed.contains(&true) })
}

/// Nanoseconds for which this thread had a processor, and for which it waited for one, where the
/// system tells ("/proc/PID/schedstat" in the kernel's "Scheduler Statistics").
fn processor() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
    Some([numbers.next()?, numbers.next()?])
}
