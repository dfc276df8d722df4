//! Work without the interpreter's lock, which an interrupt ends.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use swath_lab::study::run::Watch;

/// How long the interpreter may wait before it sees a signal.
const LOOK: Duration = Duration::from_millis(100);

/// An observer that stops a study when the interpreter was interrupted.
#[derive(Default)]
pub(crate) struct Interrupt(AtomicBool);

impl Watch for Interrupt {
    fn begin(&self, _: &str, _: u64) {}
    fn point(&self) {}
    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Does work on a thread of its own, as Python handles signals on the one that calls. An interrupt
/// ends the work at its next point.
///
/// # Errors
/// Those of the work, of a signal's handler, and `RuntimeError` for a fault of Swath itself.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Interrupt) -> PyResult<T> + Send,
) -> PyResult<T> {
    let interrupt = &Interrupt::default();
    thread::scope(|scope| {
        let (done, mut results) = mpsc::channel();
        let worker = scope.spawn(move || {
            // Nobody waits any more after an interrupt.
            let _ = done.send(work(interrupt));
        });
        loop {
            let waited;
            (waited, results) = py.detach(move || (results.recv_timeout(LOOK), results));
            match waited {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(signal) = py.check_signals() {
                        interrupt.0.store(true, Ordering::Relaxed);
                        py.detach(move || drop(worker.join()));
                        return Err(signal);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = worker.join().err().unwrap_or_else(|| Box::new(""));
                    return Err(fault(&*panic));
                }
            }
        }
    })
}

fn fault(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    PyRuntimeError::new_err(format!("a fault of Swath, please report it: {text}"))
}
