//! Runs an emulator and follows what its guest says on the serial port.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Runs the emulator to its end and hands each line of its guest to `line`; kills one that is silent
/// for longer than `silence_max`.
///
/// # Errors
/// An emulator that does not start, or is silent for too long.
pub(crate) fn follow(
    emulator: &mut Command,
    silence_max: Duration,
    mut line: impl FnMut(&str),
) -> Result<ExitStatus> {
    let name = emulator.get_program().to_string_lossy().into_owned();
    let mut emulator =
        emulator.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context(name)?;
    let serial = emulator.stdout.take().context("no serial port")?;
    let (send, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(serial).split(b'\n').map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        match lines.recv_timeout(silence_max) {
            Ok(bytes) => line(String::from_utf8_lossy(&bytes).trim_end()),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                emulator.kill()?;
                emulator.wait()?;
                bail!("it was silent for {} s", silence_max.as_secs());
            }
        }
    }
    let status = emulator.wait()?;
    reader.join().map_err(|_| anyhow::anyhow!("its serial port could not be read"))?;
    Ok(status)
}
