//! No file of a mebibyte makes the program take more than 256 MiB of memory, run for
//! long, panic, or print a sum that has wrapped.

mod files;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use files::{Hostile, Kind, Shown};

const PROGRAM: &str = env!("CARGO_BIN_EXE_swath");

/// Address space for a command that reads one file.
const READ_MIB: u64 = 256;

/// Address space for a study, whose threads have stacks and whose memory is simulated.
const STUDY_MIB: u64 = 768;

/// A hundred times what the slowest takes alone on a machine.
const SECONDS_MAX: u64 = 300;

/// Runs the program within so much address space, which is more than it takes of memory.
fn run(dir: &Path, mib: u64, args: &[&str]) -> Output {
    let mut command = Command::new("/bin/sh");
    let limited = format!("ulimit -v {} && exec \"$0\" \"$@\"", mib << 10);
    command.args(["-c", &limited, PROGRAM]).args(args).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // One arena for all threads: others reserve 64 MiB each.
    command.env("MALLOC_ARENA_MAX", "1");
    finish(command, &args.join(" "))
}

/// Runs a command to its end, which comes in time.
pub(crate) fn finish(mut command: Command, what: &str) -> Output {
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    let (done, ended) = channel();
    let waiting = thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        let _ = done.send(());
        output
    });
    let in_time = ended.recv_timeout(Duration::from_secs(SECONDS_MAX)).is_ok();
    if !in_time {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    let output = waiting.join().unwrap();
    assert!(in_time, "{what} takes more than {SECONDS_MAX} s");
    output
}

/// An answer, or an error in one line that names the file: no signal and no panic.
fn sane(args: &[&str], file: &str, output: &Output) -> bool {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0) => {
            for wrong in ["inf ", "NaN", "nan "] {
                assert!(!stdout.contains(wrong), "{args:?}: {stdout}");
            }
            true
        }
        Some(1 | 2) => {
            // Memory that no study handles is the machine's fault, not the file's.
            let named = stderr.contains(file) || stderr.contains("memory of");
            assert!(named, "{args:?}: {stderr}");
            assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
            false
        }
        _ => panic!("{args:?}: {}: {stderr}", output.status),
    }
}

fn show(dir: &Path, hostile: &Hostile) {
    let args = ["show", hostile.name];
    let output = run(dir, READ_MIB, &args);
    let said = if sane(&args, hostile.name, &output) { &output.stdout } else { &output.stderr };
    let said = String::from_utf8_lossy(said);
    let (answered, words) = match hostile.shown {
        Shown::Answer(words) => (true, words),
        Shown::Refused(words) => (false, words),
    };
    assert_eq!(output.status.success(), answered, "{args:?}: {said}");
    assert!(said.contains(words), "{args:?}: no {words:?} in {said}");
    if answered {
        let args = ["show", "--json", hostile.name];
        let output = run(dir, READ_MIB, &args);
        assert!(sane(&args, hostile.name, &output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    }
}

/// Every command that reads a recording, over every hostile one.
#[test]
fn hostile_recordings() {
    // HOSTILE_FILES=DIR writes them there and stops: for a look by hand, or a fuzzer's corpus.
    if let Some(dir) = std::env::var_os("HOSTILE_FILES") {
        for hostile in files::all() {
            std::fs::write(Path::new(&dir).join(hostile.name), &hostile.bytes).unwrap();
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let study = ["study", "--quick", "--jobs", "1", "--out", "out"];
    for hostile in files::all() {
        let name = hostile.name;
        assert!(hostile.bytes.len() <= 1 << 20, "{name} has {} bytes", hostile.bytes.len());
        std::fs::write(dir.path().join(name), &hostile.bytes).unwrap();
        let started = std::time::Instant::now();
        show(dir.path(), &hostile);
        let shown = started.elapsed();
        let commands: &[&[&str]] = match hostile.kind {
            // Refused by the same reader, after as many bytes.
            _ if name.starts_with("bomb") => &[],
            Kind::Heap => &[],
            Kind::Pages => &[&["replay", "--allocator", "linux", name]],
            Kind::Snapshot => &[&["pbs-freelist", "--memory", name]],
            Kind::Text => &[&["pbs-tlb-real", "--accesses", name]],
            Kind::Trace => {
                &[&["pbs-tlb-real", "--accesses", name], &["green-working-set", "--accesses", name]]
            }
        };
        for &command in commands {
            let (mib, args) = match command[0] {
                "replay" => (READ_MIB, command.to_vec()),
                _ => (STUDY_MIB, [&study[..], command].concat()),
            };
            sane(&args, name, &run(dir.path(), mib, &args));
        }
        println!("{name}: {} bytes, {shown:?}, all {:?}", hostile.bytes.len(), started.elapsed());
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
}

/// What is read as a whole has a length beyond which it is not.
#[test]
fn plans_without_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let deep = |open: &str, close: &str| {
        format!("about = {}1{}", open.repeat(100_000), close.repeat(100_000))
    };
    let long = "[about]\nstudy = \"x\"\n".to_owned() + &"# comment\n".repeat(110_000);
    let dotted = format!("{} = 1", vec!["a"; 300_000].join("."));
    let tables: String = (0..60_000).map(|table| format!("[a.b{table}]\n")).collect();
    for (name, text, says) in [
        ("long.toml", long, "too large: more than 1048576 bytes"),
        ("arrays.toml", deep("[", "]"), "arrays.toml"),
        ("tables.toml", deep("{a=", "}"), "tables.toml"),
        ("dotted.toml", dotted, "dotted.toml"),
        ("many.toml", tables, "many.toml"),
    ] {
        std::fs::write(place.join(name), text).unwrap();
        for flag in ["--check", "--plan"] {
            let args = ["study", flag, name];
            let output = run(place, READ_MIB, &args);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
            assert!(stderr.contains(says) && !stderr.contains("panicked"), "{args:?}: {stderr}");
        }
    }
    let args = ["study", "--plan", "/dev/zero"];
    let output = run(place, READ_MIB, &args);
    assert!(!sane(&args, "/dev/zero: too large: more than 1048576 bytes", &output));
}

/// A report beside results that somebody else wrote: the page is made of the others.
#[test]
fn hostile_results() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let study = ["study", "pbs-cases", "--quick", "--jobs", "1", "--out", "out"];
    assert!(run(place, STUDY_MIB, &study).status.success());
    let good = std::fs::read_to_string(place.join("out/pbs-cases/results.json")).unwrap();
    let named = |name: &str| good.replace("\"pbs-cases\"", &format!("{name:?}"));
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let numbers = named("numbers").replace(".0", ".0e308");
    let files = [
        ("deep", deep.into_bytes()),
        ("numbers", numbers.into_bytes()),
        ("cut", named("cut").into_bytes()[..200].to_vec()),
        ("zeros", vec![0; 1 << 20]),
        ("long", vec![b' '; (64 << 20) + 1]),
    ];
    for (name, bytes) in &files {
        let place = place.join("out").join(name);
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("results.json"), bytes).unwrap();
    }
    let output = run(place, STUDY_MIB, &study);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    for name in ["deep", "cut", "zeros", "long"] {
        let said = stderr.lines().find(|line| line.contains(&format!("out/{name}/results.json")));
        let said = said.unwrap_or_else(|| panic!("nothing of {name} in {stderr}"));
        assert!(said.contains("left out of the page"), "{said}");
        assert_eq!(name == "long", said.contains("too large"), "{said}");
    }
}
