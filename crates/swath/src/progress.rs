//! Progress on the terminal, and interrupts.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use swath_lab::study::run::Watch;

/// True once the user has asked to stop.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A bar on standard error, none where that is not a terminal.
pub(crate) struct Bar(pub(crate) ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{msg:18} {bar:40} {pos:>4}/{len:4} {elapsed:>4} left {eta}",
        );
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Says something on standard error, above the bar.
    pub(crate) fn warn(&self, what: &str) {
        self.0.suspend(|| {
            let _ = writeln!(std::io::stderr(), "swath: {what}");
        });
    }
}

impl Watch for Bar {
    fn begin(&self, study: &str, points: u64) {
        self.0.reset();
        self.0.set_length(points);
        self.0.set_message(study.to_owned());
    }

    fn point(&self) {
        self.0.inc(1);
    }

    fn cancelled(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }
}

/// The first Ctrl-C stops at the next point, the second at once.
pub(crate) fn watch_for_interrupts() {
    // Without a handler Ctrl-C still stops the program, and temporary files are
    // all that it can leave.
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}

pub(crate) fn bytes_bar(what: &'static str) -> Bar {
    let bar = Bar::new();
    bar.0.set_message(what);
    bar
}
