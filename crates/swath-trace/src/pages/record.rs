//! Recording what this machine's page allocator does.
//!
//! Linux reports the allocator's work through tracepoints. [`record_pages`] makes
//! itself an instance of the kernel's trace buffer (so that nobody else's
//! tracing is touched), switches six events on in it, limits them to the
//! command and its children or takes them all, and turns the buffer's pages
//! into a recording while the command runs. The instance goes away with its
//! guard, whatever happens; one that a killed process left behind is removed
//! by the next recording.
//!
//! **Order.** Each processor has a buffer of its own, in order of time by the
//! kernel's monotonic clock. An event is written once every processor's buffer
//! has been read beyond its time.
//!
//! **Whose events.** Without the whole system those are recorded that happen
//! while a thread of the command's process tree runs: its own requests and
//! frees, and those of interrupts that came upon it. What kernel threads free on
//! its behalf is not.
//!
//! Specification: the kernel's `Documentation/trace/ftrace.rst` (instances,
//! `set_event_pid`, `event-fork`, `per_cpu/cpuN/trace_pipe_raw`).

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;

use crate::machine::record::CaptureError;

/// Options of a recording.
pub struct PageRecordOptions<'a> {
    /// The events of the whole system instead of the command's alone.
    pub whole_system: bool,
    /// The kernel's buffer for each processor, in KiB.
    pub buffer_kib: u64,
    /// zstd's level, 1 (fast) to 19 (small).
    pub level: i32,
    /// Places where tracefs may be mounted; the first that is there is used.
    pub tracefs: &'a [PathBuf],
    /// Set by a handler of Ctrl-C: the command is ended, and the file has what there was until then.
    pub cancel: Option<&'a AtomicBool>,
    /// Told the events so far, now and then.
    pub progress: &'a mut dyn FnMut(u64),
}

/// The default of [`PageRecordOptions::buffer_kib`]: several seconds of a
/// busy processor, at some 40 bytes to an event.
pub const BUFFER_KIB: u64 = 8192;

/// Returns the places where tracefs is mounted by custom.
pub fn usual_tracefs() -> [PathBuf; 2] {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from)
}

/// Facts of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRecording {
    /// Events written.
    pub events: u64,
    /// Events that the kernel overwrote or dropped, by its own counters.
    pub lost: u64,
    /// From the first event to the last, in microseconds.
    pub duration_us: u64,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Status with which the command ended.
    pub exit: ExitStatus,
    /// True if it was ended before its own end, by [`PageRecordOptions::cancel`].
    pub is_cut: bool,
}

/// Reasons why nothing was recorded; no file is left, and an older one is untouched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageRecordError {
    /// Not Linux.
    #[error("page events are recorded by Linux's tracefs; this is {os}")]
    Unsupported {
        /// The operating system.
        os: &'static str,
    },
    /// There is no command to run.
    #[error("no command to record")]
    NoCommand,
    /// The rights are missing.
    #[error(
        "{path} is closed to this user: recording page events needs root, for example \
         `sudo swath record pages -- COMMAND` (in a container also `--privileged`)"
    )]
    NotPermitted {
        /// The file that told.
        path: PathBuf,
    },
    /// tracefs is not mounted.
    #[error(
        "no tracefs at {path}: mount it with `mount -t tracefs nodev {path}` (the kernel needs \
         CONFIG_FTRACE and CONFIG_EVENT_TRACING)"
    )]
    NoTracefs {
        /// Place where it is mounted by custom.
        path: PathBuf,
    },
    /// The kernel has no such event.
    #[error("{path} does not exist: this kernel does not report kmem:{event}")]
    NoEvent {
        /// The event.
        event: &'static str,
        /// Its directory in tracefs.
        path: PathBuf,
    },
    /// A text or a page of tracefs is not what the kernel documents.
    #[error("{path}: {what}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Description of the fault.
        what: String,
    },
    /// The machine's zones could not be read.
    #[error("{source}")]
    MachineFacts {
        /// Reason that the system gave.
        #[from]
        source: CaptureError,
    },
    /// The command could not be started.
    #[error("{program}: {source}")]
    Command {
        /// The program.
        program: String,
        /// The system's words.
        source: io::Error,
    },
    /// The command ended and there was no event.
    #[error(
        "nothing was recorded: {program} ended with {status} without a page event (in a container \
         with process numbers of its own, only --system records any)"
    )]
    NothingRecorded {
        /// The program.
        program: String,
        /// Status with which it ended.
        status: ExitStatus,
    },
    /// Ctrl-C before any event.
    #[error("cancelled")]
    Cancelled,
    /// A file of tracefs could not be read or written.
    #[error("{path}: {source}")]
    Trace {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The file cannot be created or written.
    #[error("{}: {source}", path.display())]
    Output {
        /// The file that was asked for.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// A call of the system's failed that is of no file.
    #[error("{call}: {source}")]
    System {
        /// The call, or what it was to make.
        call: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// The output could not be written.
    #[error("{source}")]
    Io {
        /// The system's words.
        #[from]
        source: io::Error,
    },
}

/// Runs `command` (the program and its arguments) and writes the page events
/// meanwhile to `output`, which appears whole or not at all.
///
/// # Errors
/// A [`PageRecordError`]; the command is then ended, the trace instance gone.
pub fn record_pages(
    command: &[OsString],
    output: &Path,
    options: &mut PageRecordOptions<'_>,
) -> Result<PageRecording, PageRecordError> {
    if command.is_empty() {
        return Err(PageRecordError::NoCommand);
    }
    system::record(command, output, options)
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    pub(crate) fn record(
        _: &[OsString],
        _: &Path,
        _: &mut PageRecordOptions<'_>,
    ) -> Result<PageRecording, PageRecordError> {
        Err(PageRecordError::Unsupported { os: std::env::consts::OS })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::{self, File, OpenOptions};
    use std::io::{PipeReader, Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::{Child, Command};
    use std::thread;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::unistd::gettid;
    use swath_arch::{Order, Pfn};

    use super::*;
    use crate::command::{cancelled, close_after, name, program_name};
    use crate::machine::record::read_facts;
    use crate::pages::events::{
        CPUS_MAX, MigrateType, PageChange, PageEvent, ZoneMax, reads_ahead,
    };
    use crate::pages::file::{PageHeader, PageWriter};
    use crate::pages::ring::{Field, PageLayout};

    /// The longest wait between two looks at the outside, in milliseconds.
    const LOOK_EVERY_MS: u16 = 100;

    /// Share of a buffer that wakes the reader, in percent.
    const WAKE_PERCENT: u32 = 10;

    /// Name of the instances, before the process's number.
    const NAME: &str = "swath-";

    /// The events, in the order of [`decode`]'s arms, and their fields.
    const EVENTS: [(&str, &[&str]); 6] = [
        ("mm_page_alloc", &["pfn", "order", "migratetype", "gfp_flags"]),
        ("mm_page_free", &["pfn", "order"]),
        ("mm_page_free_batched", &["pfn"]),
        ("mm_page_pcpu_drain", &["pfn", "order", "migratetype"]),
        ("mm_page_alloc_zone_locked", &["pfn", "order", "migratetype", "percpu_refill"]),
        (
            "mm_page_alloc_extfrag",
            &[
                "pfn",
                "alloc_order",
                "fallback_order",
                "alloc_migratetype",
                "fallback_migratetype",
                "change_ownership",
            ],
        ),
    ];

    /// Events, lost ones by processor, microseconds, how the command ended, and if it was cut.
    type Outcome = (u64, Vec<u64>, u64, ExitStatus, bool);

    pub(crate) fn record(
        command: &[OsString],
        output: &Path,
        options: &mut PageRecordOptions<'_>,
    ) -> Result<PageRecording, PageRecordError> {
        // Nothing is run if nothing could be written.
        let failed = |source| PageRecordError::Output { path: output.to_owned(), source };
        crate::output::prepare(output).map_err(failed)?;
        let mut instance = Instance::new(options)?;
        let head = PageHeader {
            facts: read_facts(Path::new("/proc"))?,
            program: program_name(command),
            whole_system: options.whole_system,
            cpus: instance.cpus(),
        };
        let recorded = crate::output::replace(output, |file| {
            let writer = PageWriter::new(file, &head, options.level)?;
            run(command, &mut instance, writer, options)
        });
        let (events, lost, duration_us, exit, is_cut) = recorded.map_err(|error| match error {
            PageRecordError::Io { source } => failed(source),
            error => error,
        })?;
        let file_bytes = fs::metadata(output).map_err(failed)?.len();
        let lost = lost.iter().sum();
        Ok(PageRecording { events, lost, duration_us, file_bytes, exit, is_cut })
    }

    /// A command that does not outlive its guard.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            // Ended and reaped already, unless something failed.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn run(
        command: &[OsString],
        instance: &mut Instance,
        writer: PageWriter<impl Write>,
        options: &mut PageRecordOptions<'_>,
    ) -> Result<Outcome, PageRecordError> {
        let program = name(command);
        let mut merge = Merge { writer, pending: Vec::new(), seen: 0, base: None, last_us: 0 };
        let child = instance.start(command, options.whole_system);
        let child = child.map_err(|error| match error {
            StartError::Trace(error) => error,
            StartError::Command(source) => {
                PageRecordError::Command { program: program.clone(), source }
            }
        })?;
        let mut running = Running(child);
        // A pipe that ends when the child does, for a poll to see.
        let system = |call| move |source| PageRecordError::System { call, source };
        let (ended, end) = io::pipe().map_err(system("pipe"))?;
        close_after(&running.0, end).map_err(system("thread"))?;
        let is_cut = loop {
            if cancelled(options.cancel) {
                running.0.kill().map_err(system("kill"))?;
                break true;
            }
            let over = instance.wait(&ended).map_err(system("poll"))?;
            let until = instance.read(&mut merge)?;
            merge.write(until)?;
            (options.progress)(merge.writer.count());
            if over {
                break false;
            }
        };
        let status = running.0.wait().map_err(system("wait"))?;
        instance.put("tracing_on", "0")?;
        instance.read(&mut merge)?;
        merge.write(u64::MAX)?;
        let lost = instance.lost()?;
        let (events, duration_us) = (merge.writer.count(), merge.last_us);
        if events == 0 && is_cut {
            return Err(PageRecordError::Cancelled);
        }
        if events == 0 {
            return Err(PageRecordError::NothingRecorded { program, status });
        }
        merge.writer.finish(&lost)?;
        (options.progress)(events);
        Ok((events, lost, duration_us, status, is_cut))
    }

    /// Events of all processors on their way into the file.
    struct Merge<W: Write> {
        writer: PageWriter<W>,
        /// Read and not written, with their times in nanoseconds.
        pending: Vec<(u64, u16, PageChange)>,
        /// The latest time read so far.
        seen: u64,
        /// The first event's time.
        base: Option<u64>,
        last_us: u64,
    }

    impl<W: Write> Merge<W> {
        /// Writes what happened up to `until`. The buffers are runs in order,
        /// which the sort merges.
        fn write(&mut self, until: u64) -> io::Result<()> {
            self.pending.sort_by_key(|&(time, ..)| time);
            let count = self.pending.partition_point(|&(time, ..)| time <= until);
            for (time, cpu, change) in self.pending.drain(..count) {
                let base = *self.base.get_or_insert(time);
                // Nothing comes before what is written already: an interrupt
                // that was under way during two whole reads could be late.
                let time_us = (time.saturating_sub(base) / 1000).max(self.last_us);
                self.last_us = time_us;
                self.writer.push(PageEvent { time_us, cpu, change })?;
            }
            Ok(())
        }
    }

    enum StartError {
        Trace(PageRecordError),
        Command(io::Error),
    }

    /// One processor's buffer.
    struct Buffer {
        cpu: u16,
        dir: PathBuf,
        pages: File,
    }

    /// Facts that tell the events apart and take them to pieces.
    struct Decoder {
        kind: Field,
        events: Vec<(u64, Vec<Field>)>,
    }

    impl Decoder {
        /// `None` for events that are none of ours or name no frame.
        fn decode(&self, bytes: &[u8]) -> Option<Result<PageChange, &'static str>> {
            let kind = self.kind.read(bytes)?;
            let which = self.events.iter().position(|&(id, _)| id == kind)?;
            let fields = &self.events[which].1;
            Some(decode(which, |i| fields.get(i).and_then(|field| field.read(bytes))))
        }
    }

    fn decode(
        which: usize,
        field: impl Fn(usize) -> Option<u64>,
    ) -> Result<PageChange, &'static str> {
        const CUT: &str = "an event that is shorter than its format";
        let get = |i| field(i).ok_or(CUT);
        let order = |i| {
            let order = u8::try_from(get(i)?).ok().and_then(Order::new);
            order.ok_or("an order that cannot be")
        };
        let migrate_type = |i| {
            let number = u8::try_from(get(i)?).ok().and_then(MigrateType::new);
            number.ok_or("a migrate type beyond 7")
        };
        let start = Pfn::new(get(0)?);
        let change = match which {
            0 => {
                let (order, migrate_type) = (order(1)?, migrate_type(2)?);
                let flags = get(3)?;
                let (zone_max, read_ahead) = (ZoneMax::of_flags(flags), reads_ahead(flags));
                // A request that was refused names the highest number.
                if get(0)?.wrapping_add(1) == 0 {
                    PageChange::AllocFailed { order, migrate_type, zone_max }
                } else {
                    PageChange::Alloc { start, order, migrate_type, zone_max, read_ahead }
                }
            }
            1 => PageChange::Free { start, order: order(1)? },
            2 => PageChange::FreeBatched { start },
            3 => PageChange::Drain { start, order: order(1)?, migrate_type: migrate_type(2)? },
            4 => PageChange::Take {
                start,
                order: order(1)?,
                migrate_type: migrate_type(2)?,
                per_cpu: get(3)? != 0,
            },
            _ => PageChange::Fallback {
                start,
                order: order(1)?,
                fallback_order: order(2)?,
                wanted: migrate_type(3)?,
                found: migrate_type(4)?,
                claimed: get(5)? != 0,
            },
        };
        match change.fault() {
            Some(what) => Err(what),
            None => Ok(change),
        }
    }

    /// An instance of the trace buffer of our own. Dropping it removes it.
    struct Instance {
        dir: PathBuf,
        buffers: Vec<Buffer>,
        layout: PageLayout,
        decoder: Decoder,
        page: Vec<u8>,
    }

    fn failed(path: &Path, source: io::Error) -> PageRecordError {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => PageRecordError::NotPermitted { path },
            _ => PageRecordError::Trace { path, source },
        }
    }

    /// Reads a file in large steps: `header_page` gives what does not fit into
    /// the first read to nobody.
    fn text(path: &Path) -> Result<String, PageRecordError> {
        let mut bytes = vec![0; 1 << 16];
        let mut len = 0;
        let mut read = || -> io::Result<String> {
            let mut file = File::open(path)?;
            loop {
                match file.read(&mut bytes[len..]) {
                    Ok(0) => break,
                    Ok(count) => len += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
        };
        read().map_err(|error| failed(path, error))
    }

    fn format_error(path: &Path) -> impl Fn(String) -> PageRecordError {
        move |what| PageRecordError::Format { path: path.to_owned(), what }
    }

    /// The directory of instances in the first tracefs that is there.
    fn instances(options: &PageRecordOptions<'_>) -> Result<PathBuf, PageRecordError> {
        for root in options.tracefs {
            match fs::read_dir(root.join("instances")) {
                Ok(_) => return Ok(root.join("instances")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(root, error)),
            }
        }
        let path = options.tracefs.first().cloned().unwrap_or_default();
        Err(PageRecordError::NoTracefs { path })
    }

    /// Removes what processes left that were killed.
    fn remove_stale(instances: &Path) {
        let Ok(entries) = fs::read_dir(instances) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(NAME));
            let pid = pid.and_then(|pid| pid.split('-').next()?.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    impl Drop for Instance {
        fn drop(&mut self) {
            // It is busy as long as one of its files is open.
            self.buffers.clear();
            let _ = fs::remove_dir(&self.dir);
        }
    }

    impl Instance {
        fn new(options: &PageRecordOptions<'_>) -> Result<Self, PageRecordError> {
            let instances = instances(options)?;
            remove_stale(&instances);
            let dir = (0..).map(|i| instances.join(format!("{NAME}{}-{i}", std::process::id())));
            let mut made = Err(io::ErrorKind::AlreadyExists.into());
            let mut path = PathBuf::new();
            for dir in dir {
                path = dir;
                made = fs::create_dir(&path);
                match &made {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    _ => break,
                }
            }
            made.map_err(|error| failed(&path, error))?;
            // From here on the guard removes it.
            let layout = path.join("events/header_page");
            let mut instance = Self {
                dir: path,
                buffers: Vec::new(),
                layout: PageLayout::default(),
                decoder: Decoder { kind: Field::default(), events: Vec::new() },
                page: Vec::new(),
            };
            instance.put("tracing_on", "0")?;
            instance.layout = PageLayout::parse(&text(&layout)?).map_err(format_error(&layout))?;
            instance.page = vec![0; instance.layout.page_bytes()];
            instance.put("trace_clock", "mono")?;
            instance.put("buffer_size_kb", &options.buffer_kib.to_string())?;
            // Since Linux 5.0; without it a reader is woken by any event.
            if instance.dir.join("buffer_percent").exists() {
                instance.put("buffer_percent", &WAKE_PERCENT.to_string())?;
            }
            instance.put("options/event-fork", "1")?;
            for (event, fields) in EVENTS {
                instance.add(event, fields)?;
            }
            instance.open_buffers()?;
            Ok(instance)
        }

        /// One past the highest processor.
        fn cpus(&self) -> u16 {
            self.buffers.last().map_or(1, |buffer| buffer.cpu + 1)
        }

        fn put(&self, name: &str, value: &str) -> Result<(), PageRecordError> {
            let path = self.dir.join(name);
            let file = OpenOptions::new().write(true).open(&path);
            file.and_then(|mut file| file.write_all(value.as_bytes()))
                .map_err(|error| failed(&path, error))
        }

        fn add(
            &mut self,
            event: &'static str,
            fields: &[&'static str],
        ) -> Result<(), PageRecordError> {
            let dir = self.dir.join("events/kmem").join(event);
            if !dir.exists() {
                return Err(PageRecordError::NoEvent { event, path: dir });
            }
            let path = dir.join("format");
            let format = text(&path)?;
            let wrong = format_error(&path);
            let id = format.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok());
            let id = id.ok_or_else(|| wrong("no ID".into()))?;
            self.decoder.kind = Field::find(&format, "common_type").map_err(&wrong)?;
            let fields = fields.iter().map(|name| Field::find(&format, name));
            let fields = fields.collect::<Result<_, _>>().map_err(&wrong)?;
            self.decoder.events.push((id, fields));
            self.put(&format!("events/kmem/{event}/enable"), "1")
        }

        fn open_buffers(&mut self) -> Result<(), PageRecordError> {
            let per_cpu = self.dir.join("per_cpu");
            let entries = fs::read_dir(&per_cpu).map_err(|error| failed(&per_cpu, error))?;
            for entry in entries {
                let dir = entry.map_err(|error| failed(&per_cpu, error))?.path();
                let name = dir.file_name().and_then(|name| name.to_str());
                let Some(number) = name.and_then(|name| name.strip_prefix("cpu")) else { continue };
                let cpu =
                    number.parse().ok().filter(|&cpu| cpu < CPUS_MAX).ok_or_else(|| {
                        format_error(&dir)("a processor's number beyond 4095".into())
                    })?;
                let path = dir.join("trace_pipe_raw");
                let mut pages = OpenOptions::new();
                pages.read(true).custom_flags(nix::libc::O_NONBLOCK);
                let pages = pages.open(&path).map_err(|error| failed(&path, error))?;
                self.buffers.push(Buffer { cpu, dir, pages });
            }
            self.buffers.sort_by_key(|buffer| buffer.cpu);
            Ok(())
        }

        /// Starts the command, with the buffer on and (unless it is the whole
        /// system's) limited to the command's process tree.
        ///
        /// A child belongs to the tree if the thread that makes it does. So a
        /// thread of its own joins, makes the child, and leaves by ending: the
        /// reader is never part of the recording.
        fn start(&self, command: &[OsString], whole_system: bool) -> Result<Child, StartError> {
            let spawn = || {
                if !whole_system {
                    self.put("set_event_pid", &gettid().to_string()).map_err(StartError::Trace)?;
                }
                self.put("tracing_on", "1").map_err(StartError::Trace)?;
                let mut child = Command::new(&command[0]);
                child.args(&command[1..]).spawn().map_err(StartError::Command)
            };
            let system = |call| move |source| PageRecordError::System { call, source };
            let started = thread::scope(|scope| {
                let spawned = thread::Builder::new().spawn_scoped(scope, spawn);
                spawned.map(thread::ScopedJoinHandle::join)
            });
            let failed = io::Error::other("the thread that starts it failed");
            match started.map_err(system("thread")).map_err(StartError::Trace)? {
                Ok(started) => started,
                Err(_) => Err(StartError::Command(failed)),
            }
        }

        /// Waits until a buffer fills, the command ends (then true), or it is
        /// time to look around.
        fn wait(&self, ended: &PipeReader) -> io::Result<bool> {
            let mut files = vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
            let buffers = self.buffers.iter();
            files.extend(buffers.map(|b| PollFd::new(b.pages.as_fd(), PollFlags::POLLIN)));
            match poll(&mut files, PollTimeout::from(LOOK_EVERY_MS)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(files[0].revents().is_some_and(|events| !events.is_empty()))
        }

        /// Reads every buffer once to its end. Returns the time up to which
        /// nothing is missing: what was the latest before this began, since a
        /// buffer that was read to its end afterwards holds nothing older.
        fn read(&mut self, merge: &mut Merge<impl Write>) -> Result<u64, PageRecordError> {
            let until = merge.seen;
            for buffer in &self.buffers {
                let path = || buffer.dir.join("trace_pipe_raw");
                loop {
                    let len = match (&buffer.pages).read(&mut self.page) {
                        Ok(0) => break,
                        Ok(len) => len,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        Err(error) => return Err(failed(&path(), error)),
                    };
                    let from = merge.pending.len();
                    let mut wrong = None;
                    let missed = self.layout.read(&self.page[..len], &mut |time, bytes| match self
                        .decoder
                        .decode(bytes)
                    {
                        Some(Ok(change)) => merge.pending.push((time, buffer.cpu, change)),
                        Some(Err(what)) => wrong = Some(what.to_owned()),
                        None => {}
                    });
                    let missed = missed.unwrap_or_else(|at| {
                        wrong = Some(format!("a page that contradicts itself at byte {at}"));
                        None
                    });
                    if let Some(what) = wrong {
                        return Err(PageRecordError::Format { path: path(), what });
                    }
                    if let (Some(count), Some(&(time, ..))) = (missed, merge.pending.get(from)) {
                        let change = PageChange::Lost { count };
                        merge.pending.insert(from, (time, buffer.cpu, change));
                    }
                    let last = merge.pending.last().map_or(0, |&(time, ..)| time);
                    merge.seen = merge.seen.max(last);
                }
            }
            Ok(until)
        }

        /// Returns the number of events that each processor's counters say were lost.
        fn lost(&self) -> Result<Vec<u64>, PageRecordError> {
            let mut lost = vec![0; self.cpus().into()];
            for buffer in &self.buffers {
                let path = buffer.dir.join("stats");
                for line in text(&path)?.lines() {
                    let Some((key, value)) = line.split_once(": ") else { continue };
                    if matches!(key, "overrun" | "commit overrun" | "dropped events") {
                        let count: u64 = value
                            .trim()
                            .parse()
                            .map_err(|_| format_error(&path)(format!("{key} is no number")))?;
                        lost[usize::from(buffer.cpu)] += count;
                    }
                }
            }
            Ok(lost)
        }
    }
}
