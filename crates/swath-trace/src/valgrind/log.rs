//! The log of one program, read from a pipe that other processes may hold open.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The longest wait between two looks at whether the program has ended.
const LOOK_EVERY_MS: u16 = 20;

/// Completes a last line that was not: valgrind writes a system call's line
/// in pieces, and `exec` or a signal may end the program between them.
const COMPLETION: &[u8] = b" --> [async] ... \n";

/// Everything that a program's valgrind writes, to the program's end.
///
/// The pipe has no end that could be waited for: a forked process keeps its
/// parent's log open, silently. So the supervisor says when the program has
/// ended, and what is then in the pipe is the rest.
pub(crate) struct Log {
    pipe: PipeReader,
    ended: Arc<AtomicBool>,
    last: u8,
    rest: &'static [u8],
    over: bool,
}

impl Log {
    pub(crate) fn new(pipe: PipeReader, ended: Arc<AtomicBool>) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { pipe, ended, last: b'\n', rest: &[], over: false })
    }

    /// Reads from the pipe; 0 bytes after the program's end.
    fn read_pipe(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            // Looked at before the read: what was written before the end is in the pipe by then.
            let ended = self.ended.load(Ordering::Acquire);
            match self.pipe.read(to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => return done,
            }
            if ended {
                return Ok(0);
            }
            let mut wait = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut wait, PollTimeout::from(LOOK_EVERY_MS)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Log {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        if !self.over {
            let count = self.read_pipe(to)?;
            if count > 0 {
                self.last = to[count - 1];
                return Ok(count);
            }
            self.over = true;
            if self.last != b'\n' {
                self.rest = COMPLETION;
            }
        }
        let count = self.rest.len().min(to.len());
        to[..count].copy_from_slice(&self.rest[..count]);
        self.rest = &self.rest[count..];
        Ok(count)
    }
}
