//! Tests that have a process to themselves.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// One such process at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Calls `test` in a process of its own, in which `name` is the only test.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os("SWATH_TEST_ALONE").is_some() {
        return test();
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--nocapture"]).env("SWATH_TEST_ALONE", "1");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "no test is called {name}");
}
