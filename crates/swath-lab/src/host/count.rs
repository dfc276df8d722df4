//! Exact counts of user-mode instructions, without special rights.
//!
//! Hardware counters need rights that a container or a laptop often refuses,
//! and a simulator needs to be installed. Stepping needs neither: a parent may
//! trace its own child. So the program starts itself again as a child. The
//! child holds a [`Marks`] and runs each piece of work between two marks; the
//! parent holds a [`Counter`], lets the child run freely up to a mark, steps
//! it instruction by instruction to the next, and counts. A step costs
//! microseconds, so this suits regions of up to some millions of instructions;
//! a step budget bounds each.
//!
//! ```text
//! child   ready TID          | label, raise | work … | raise | label, raise …
//! parent            seize, go|  run freely  | steps  |       |  run freely
//! ```
//!
//! **What is counted.** The instructions that the marking thread retires in
//! user mode; the kernel's are not, and a system call counts as one. A string
//! instruction with a repeat prefix counts once on x86-64, as its hardware
//! counter has it (a step stops after each repetition; those that stay at the
//! same address are not counted). Instructions of other threads are not seen.
//!
//! **What is subtracted.** The two marks themselves take instructions: the way
//! back from the first `raise`, the call of the work through a pointer, and
//! the way into the second. They are calibrated in the same child by regions
//! whose work is an empty closure, with the same code on the same path, and
//! subtracted ([`Counter::overhead_instructions`]). A region of nothing counts
//! zero, exactly.
//!
//! **What makes it repeatable.** The child starts without address-space
//! randomisation where the kernel permits (copying loops depend on alignment),
//! and a signal to the counted thread waits until its region is over. What is
//! left is the work itself: the same binary on the same processor
//! gives the same count as long as the work does not look at time, chance or
//! its environment.
//!
//! On processors that build atomic operations from a load that reserves and a
//! store that fails when interrupted (ARMv8.0), stepping through such a loop
//! never ends: that comes out as [`CountError::Budget`].

use std::io;
use std::process::ExitStatus;

pub use platform::{Counter, Marks};

/// A counted region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The name that the child gave it.
    pub label: String,
    /// Instructions of the work alone: the marks are subtracted.
    pub instructions: u64,
}

/// Reasons why there is no count.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// Counting is written for Linux only.
    #[error("counting instructions needs Linux (this is {os})")]
    Unsupported {
        /// The operating system that the program was built for.
        os: &'static str,
    },
    /// The machine does not let a process trace its own child: a container's
    /// system call filter, `kernel.yama.ptrace_scope` above 1, or a debugger
    /// that has the child already.
    #[error("this machine does not let a process trace its child (ptrace): {0}")]
    NotAllowed(#[source] io::Error),
    /// The child did not start.
    #[error("the child to be counted did not start: {0}")]
    Spawn(#[source] io::Error),
    /// In the child: nobody counts. The program was started by hand, or the
    /// counter is gone.
    #[error("no counter answers on standard input")]
    NoCounter,
    /// A label with a line break, which the protocol cannot say.
    #[error("the label {0:?} of a region has a line break")]
    Label(String),
    /// The child broke the protocol of the marks.
    #[error("the child does not keep to the protocol of the marks: {0}")]
    Protocol(String),
    /// The child ended before its work was done, or not with success.
    #[error("the counted child ended {}: {status}", place(.region))]
    ChildEnded {
        /// Its end.
        status: ExitStatus,
        /// The region that it was in.
        region: Option<String>,
    },
    /// A region took more steps than allowed. The child is stopped inside it
    /// and can only be dropped.
    #[error("the region {region:?} is longer than {steps_max} steps")]
    Budget {
        /// The region.
        region: String,
        /// The budget.
        steps_max: u64,
    },
    /// The marks alone did not take the same number of instructions each time,
    /// so a count would not be exact.
    #[error("the marks took {first} instructions once and {second} another time")]
    Unsteady {
        /// The calibrated count.
        first: u64,
        /// The one that differs.
        second: u64,
    },
    /// A system call failed that should not.
    #[error("{call}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

fn place(region: &Option<String>) -> String {
    match region {
        Some(label) => format!("inside the region {label:?}"),
        None => "outside of any region".into(),
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::io::{
        BufRead, BufReader, Write, {self},
    };
    use std::marker::PhantomData;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

    use nix::errno::Errno;
    use nix::libc;
    use nix::sched::{
        CpuSet, {self},
    };
    use nix::sys::personality::{
        Persona, {self},
    };
    use nix::sys::ptrace;
    use nix::sys::signal::{
        Signal, {self},
    };
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::{Pid, gettid};

    use super::{CountError, Region};

    /// The mark. Its default action is to be ignored, so a program with marks
    /// in it runs on when nobody traces it; a tracer is told all the same.
    const MARK: Signal = Signal::SIGURG;
    /// The beginning of each line of the protocol: other lines on the child's
    /// standard output are skipped.
    const PREFIX: &str = "swath-count:";
    const GO: &str = "go";
    /// Empty regions that open the protocol: one to touch every page and
    /// symbol on the path, then two that must agree.
    const CALIBRATIONS: usize = 3;

    fn system(call: &'static str) -> impl FnOnce(Errno) -> CountError {
        move |errno| CountError::System { call, source: errno.into() }
    }

    fn pipe(call: &'static str) -> impl FnOnce(io::Error) -> CountError {
        move |source| CountError::System { call, source }
    }

    /// The child's side: marks the regions that the parent counts.
    ///
    /// Standard input and standard output belong to the protocol from
    /// [`Marks::begin`] on: lines of other text are skipped, but a long text
    /// would fill the pipe and stand still, as nobody reads it before the next
    /// mark. Only the thread that began is counted.
    #[derive(Debug)]
    pub struct Marks {
        /// The counted thread must stay the thread that said so.
        _this_thread: PhantomData<*mut ()>,
    }

    impl Marks {
        /// Tells the parent's [`Counter`] which thread to count, waits for it,
        /// and runs the calibration.
        ///
        /// # Errors
        /// [`CountError::NoCounter`] if no counter answers.
        pub fn begin() -> Result<Self, CountError> {
            say(&format!("ready {}", gettid()))?;
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer).map_err(pipe("reading standard input"))?;
            if answer.trim_end() != GO {
                return Err(CountError::NoCounter);
            }
            let mut marks = Self { _this_thread: PhantomData };
            for _ in 0..CALIBRATIONS {
                marks.region("", &mut || ())?;
            }
            Ok(marks)
        }

        /// Runs `work` once between two marks, under the name `label`.
        ///
        /// The closure comes as a reference so that every region, the empty
        /// one of the calibration included, is called by the same code. Give
        /// what it computes to [`std::hint::black_box`], or there may be
        /// nothing left to count.
        ///
        /// # Errors
        /// [`CountError::Label`] for a label of more than one line, before
        /// anything ran; [`CountError::System`] if the counter is gone.
        pub fn region(&mut self, label: &str, work: &mut dyn FnMut()) -> Result<(), CountError> {
            if label.contains(['\n', '\r']) {
                return Err(CountError::Label(label.into()));
            }
            say(&format!("region {label}"))?;
            between_marks(work).map_err(system("raise"))
        }
    }

    /// Never inlined: the calibrated path and the counted one must be one.
    #[inline(never)]
    fn between_marks(work: &mut dyn FnMut()) -> nix::Result<()> {
        signal::raise(MARK)?;
        work();
        signal::raise(MARK)
    }

    fn say(what: &str) -> Result<(), CountError> {
        let mut out = io::stdout().lock();
        // A line break first: whoever wrote before may have left a line open.
        write!(out, "\n{PREFIX}{what}\n")
            .and_then(|()| out.flush())
            .map_err(pipe("writing to standard output"))
    }

    /// The parent's side: counts the regions that the child marks.
    ///
    /// The kernel ties a traced child to the thread that traces it, so a
    /// counter stays on its thread. Dropping it kills the child and leaves no
    /// zombie; so does the end of the thread.
    #[derive(Debug)]
    pub struct Counter {
        child: Child,
        lines: BufReader<ChildStdout>,
        /// The counted thread, once it is traced.
        traced: Option<Pid>,
        /// True if that thread stands still and waits to be resumed.
        stopped: bool,
        /// The end of the process, once it has been reaped.
        ended: Option<ExitStatus>,
        steps_max: u64,
        overhead_instructions: u64,
        _one_cpu: OneCpu,
        _this_thread: PhantomData<*mut ()>,
    }

    /// Holds this thread, and with it a child started meanwhile, on one CPU: a
    /// step hands over between the two, which is up to three times faster
    /// without waking another CPU. A machine that refuses is only slower.
    #[derive(Debug)]
    struct OneCpu {
        before: Option<CpuSet>,
    }

    impl OneCpu {
        fn hold() -> Self {
            let this_thread = Pid::from_raw(0);
            let hold = || {
                let before = sched::sched_getaffinity(this_thread)?;
                let mut one = CpuSet::new();
                one.set(sched::sched_getcpu()?)?;
                sched::sched_setaffinity(this_thread, &one)?;
                nix::Result::Ok(before)
            };
            Self { before: hold().ok() }
        }
    }

    impl Drop for OneCpu {
        fn drop(&mut self) {
            if let Some(before) = &self.before {
                let _ = sched::sched_setaffinity(Pid::from_raw(0), before);
            }
        }
    }

    /// Reasons why the counted thread stops.
    enum Stop {
        Mark,
        Step,
        Signal(Signal),
        /// Something that only a tracer sees, and this one does not need.
        Event,
        Ended(ExitStatus),
    }

    impl Counter {
        /// Starts `command`, which must come to [`Marks::begin`], and
        /// calibrates. No region may take more than `steps_max` steps (one per
        /// instruction and one per repetition of a string instruction).
        ///
        /// Standard input and output of the command are taken for the
        /// protocol; standard error stays as it is set.
        ///
        /// # Errors
        /// [`CountError::NotAllowed`] where tracing is forbidden, and the
        /// others for a child that does not do its part. No child is left.
        pub fn spawn(mut command: Command, steps_max: u64) -> Result<Self, CountError> {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let one_cpu = OneCpu::hold();
            let mut child = without_randomisation(|| command.spawn()).map_err(CountError::Spawn)?;
            let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
            let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
                unreachable!("both pipes were asked for two lines above");
            };
            let mut counter = Self {
                child,
                lines: BufReader::new(stdout),
                traced: None,
                stopped: false,
                ended: None,
                steps_max,
                overhead_instructions: 0,
                _one_cpu: one_cpu,
                _this_thread: PhantomData,
            };

            let ready = match counter.line()? {
                Some(line) => line,
                None => {
                    let status = counter.child.wait().map_err(pipe("wait"))?;
                    counter.ended = Some(status);
                    return Err(CountError::ChildEnded { status, region: None });
                }
            };
            let tid = ready
                .strip_prefix("ready ")
                .and_then(|tid| tid.parse().ok())
                .filter(|&tid| tid > 0)
                .ok_or_else(|| CountError::Protocol(format!("it began with {ready:?}")))?;
            let tid = Pid::from_raw(tid);
            ptrace::seize(tid, ptrace::Options::PTRACE_O_EXITKILL)
                .map_err(|errno| CountError::NotAllowed(errno.into()))?;
            counter.traced = Some(tid);
            writeln!(stdin, "{GO}").map_err(pipe("writing to the child"))?;
            drop(stdin);

            let mut empty = [0; CALIBRATIONS];
            for count in &mut empty {
                match counter.count_region()? {
                    Some((label, instructions)) if label.is_empty() => *count = instructions,
                    other => {
                        let what = format!("{other:?} in place of a calibration");
                        return Err(CountError::Protocol(what));
                    }
                }
            }
            let [_, first, second] = empty;
            if first != second {
                return Err(CountError::Unsteady { first, second });
            }
            counter.overhead_instructions = first;
            Ok(counter)
        }

        /// Instructions of an empty region, which every count leaves out.
        pub fn overhead_instructions(&self) -> u64 {
            self.overhead_instructions
        }

        /// Lets the child run to its next region and counts it; `None` once
        /// the child has ended with success.
        ///
        /// Signals to the counted thread pass; one that arrives inside a region
        /// waits until the region is over, unless the region caused it (a
        /// fault).
        ///
        /// Takes time O(s), s = steps of the region, at some microseconds each.
        ///
        /// # Errors
        /// [`CountError::ChildEnded`] if the child ends inside a region or
        /// without success, [`CountError::Budget`] if the region is too long.
        pub fn next_region(&mut self) -> Result<Option<Region>, CountError> {
            let Some((label, gross)) = self.count_region()? else { return Ok(None) };
            let first = self.overhead_instructions;
            let instructions =
                gross.checked_sub(first).ok_or(CountError::Unsteady { first, second: gross })?;
            Ok(Some(Region { label, instructions }))
        }

        /// The next region's label and its instructions, those of the marks
        /// included.
        fn count_region(&mut self) -> Result<Option<(String, u64)>, CountError> {
            let status = match self.ended {
                Some(status) => Some(status),
                None => self.run_to_mark()?,
            };
            if let Some(status) = status {
                return if status.success() {
                    Ok(None)
                } else {
                    Err(CountError::ChildEnded { status, region: None })
                };
            }
            let line = self.line()?.unwrap_or_default();
            let Some(label) = line.strip_prefix("region ") else {
                return Err(CountError::Protocol(format!("a mark came with {line:?}")));
            };
            let instructions = self.step_to_mark(label)?;
            Ok(Some((label.into(), instructions)))
        }

        /// Lets the child run; gives its status if it ends instead.
        fn run_to_mark(&mut self) -> Result<Option<ExitStatus>, CountError> {
            let mut pass = None;
            loop {
                if self.stopped {
                    let tid = self.tid()?;
                    // Gone in between, by a signal that cannot be caught: the
                    // wait below tells how.
                    resumed(ptrace::cont(tid, pass), "ptrace(CONT)")?;
                }
                pass = match self.wait()? {
                    Stop::Mark => return Ok(None),
                    Stop::Step => Some(Signal::SIGTRAP),
                    Stop::Signal(signal) => Some(signal),
                    // A stop of the whole group is among these; running on is
                    // what keeps the count going.
                    Stop::Event => None,
                    Stop::Ended(status) => return Ok(Some(status)),
                };
            }
        }

        /// Steps from one mark to the next.
        fn step_to_mark(&mut self, label: &str) -> Result<u64, CountError> {
            let tid = self.tid()?;
            let mut instructions = 0;
            let mut held = Vec::new();
            let mut pass = None;
            let mut at = program_counter(tid)?;
            for _ in 0..self.steps_max {
                resumed(ptrace::step(tid, pass.take()), "ptrace(SINGLESTEP)")?;
                match self.wait()? {
                    Stop::Step => {
                        let now = program_counter(tid)?;
                        if now.is_none() || now != at {
                            instructions += 1;
                        }
                        at = now;
                    }
                    Stop::Mark => {
                        for signal in held {
                            signal::kill(self.pid(), signal).map_err(system("kill"))?;
                        }
                        return Ok(instructions);
                    }
                    // The instruction would fault for ever if it were held.
                    Stop::Signal(
                        fault @ (Signal::SIGSEGV
                        | Signal::SIGBUS
                        | Signal::SIGILL
                        | Signal::SIGFPE
                        | Signal::SIGSYS),
                    ) => pass = Some(fault),
                    Stop::Signal(signal) => held.push(signal),
                    Stop::Event => {}
                    Stop::Ended(status) => {
                        return Err(CountError::ChildEnded { status, region: Some(label.into()) });
                    }
                }
            }
            Err(CountError::Budget { region: label.into(), steps_max: self.steps_max })
        }

        /// Waits for the counted thread to stop, or for the process to end.
        fn wait(&mut self) -> Result<Stop, CountError> {
            let tid = self.tid()?;
            let status = loop {
                match waitpid(tid, Some(WaitPidFlag::__WALL)) {
                    Err(Errno::EINTR) => {}
                    other => break other.map_err(system("waitpid"))?,
                }
            };
            self.stopped = true;
            Ok(match status {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => Stop::Step,
                WaitStatus::Stopped(_, MARK) => {
                    // Only a thread that signals itself says so; the same
                    // signal from elsewhere is not a mark.
                    let info = ptrace::getsiginfo(tid).map_err(system("ptrace(GETSIGINFO)"))?;
                    if info.si_code == libc::SI_TKILL { Stop::Mark } else { Stop::Signal(MARK) }
                }
                WaitStatus::Stopped(_, signal) => Stop::Signal(signal),
                WaitStatus::Exited(_, code) => self.reaped(ExitStatus::from_raw(code << 8))?,
                WaitStatus::Signaled(_, signal, _) => {
                    self.reaped(ExitStatus::from_raw(signal as i32))?
                }
                _ => Stop::Event,
            })
        }

        /// The counted thread is gone; the process may have others.
        fn reaped(&mut self, status: ExitStatus) -> Result<Stop, CountError> {
            let alone = self.traced.take() == Some(self.pid());
            let status = if alone { status } else { self.child.wait().map_err(pipe("wait"))? };
            self.ended = Some(status);
            Ok(Stop::Ended(status))
        }

        /// The next line of the protocol; `None` at the end of the pipe.
        fn line(&mut self) -> Result<Option<String>, CountError> {
            let mut line = Vec::new();
            loop {
                line.clear();
                let read = self.lines.read_until(b'\n', &mut line);
                if read.map_err(pipe("reading from the child"))? == 0 {
                    return Ok(None);
                }
                let text = String::from_utf8_lossy(&line);
                if let Some(said) = text.trim_end_matches('\n').strip_prefix(PREFIX) {
                    return Ok(Some(said.into()));
                }
            }
        }

        fn tid(&self) -> Result<Pid, CountError> {
            self.traced.ok_or_else(|| CountError::Protocol("the counted thread has ended".into()))
        }

        fn pid(&self) -> Pid {
            Pid::from_raw(self.child.id().cast_signed())
        }
    }

    impl Drop for Counter {
        fn drop(&mut self) {
            if self.ended.is_some() {
                return;
            }
            // Nothing can be told from here; a child that is gone is the aim.
            let _ = self.child.kill();
            // Its last thread cannot be reaped before the traced one is.
            while self.traced.is_some() && self.wait().is_ok() {}
            if self.ended.is_none() {
                let _ = self.child.wait();
            }
        }
    }

    /// A thread that vanished under the tracer's hand is no error here: the
    /// next wait tells how it ended.
    fn resumed(result: nix::Result<()>, call: &'static str) -> Result<(), CountError> {
        match result {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(system(call)(errno)),
        }
    }

    /// Runs `start` in a thread whose children have fixed addresses. Where a
    /// filter refuses that, the children start all the same.
    fn without_randomisation<T>(start: impl FnOnce() -> T) -> T {
        let before = personality::get().ok();
        if let Some(before) = before {
            let _ = personality::set(before | Persona::ADDR_NO_RANDOMIZE);
        }
        let started = start();
        if let Some(before) = before {
            let _ = personality::set(before);
        }
        started
    }

    /// The thread's place, on processors that repeat one instruction over
    /// several steps. Gone already is no error, as in [`resumed`].
    #[cfg(target_arch = "x86_64")]
    fn program_counter(tid: Pid) -> Result<Option<i64>, CountError> {
        // `struct user` opens with the registers (sys/user.h).
        let rip = std::mem::offset_of!(libc::user_regs_struct, rip);
        match ptrace::read_user(tid, std::ptr::without_provenance_mut(rip)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::ESRCH) => Ok(None),
            Err(errno) => Err(system("ptrace(PEEKUSER)")(errno)),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn program_counter(_: Pid) -> Result<Option<i64>, CountError> {
        Ok(None)
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::convert::Infallible;
    use std::process::Command;

    use super::{CountError, Region};

    fn unsupported<T>() -> Result<T, CountError> {
        Err(CountError::Unsupported { os: std::env::consts::OS })
    }

    /// The child's side: there is none on this system.
    #[derive(Debug)]
    pub struct Marks(Infallible);

    impl Marks {
        /// Always [`CountError::Unsupported`].
        ///
        /// # Errors
        /// Always.
        pub fn begin() -> Result<Self, CountError> {
            unsupported()
        }

        /// Cannot be reached.
        ///
        /// # Errors
        /// None: there is no value to call it on.
        pub fn region(&mut self, _: &str, _: &mut dyn FnMut()) -> Result<(), CountError> {
            match self.0 {}
        }
    }

    /// The parent's side: there is none on this system.
    #[derive(Debug)]
    pub struct Counter(Infallible);

    impl Counter {
        /// Always [`CountError::Unsupported`].
        ///
        /// # Errors
        /// Always.
        pub fn spawn(_: Command, _: u64) -> Result<Self, CountError> {
            unsupported()
        }

        /// Cannot be reached.
        pub fn overhead_instructions(&self) -> u64 {
            match self.0 {}
        }

        /// Cannot be reached.
        ///
        /// # Errors
        /// None: there is no value to call it on.
        pub fn next_region(&mut self) -> Result<Option<Region>, CountError> {
            match self.0 {}
        }
    }
}
