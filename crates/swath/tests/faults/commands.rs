//! The commands that write: recorders, snapshots, and what prints or reports.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno::{
    EACCES, EAGAIN, EINTR, EINVAL, EIO, EMFILE, ENOLCK, ENOMEM, ENOSPC, EPERM, EPIPE,
};

use super::attack::{Attack, EVERY_RENAME, SAID};
use super::room::{Room, names};
use super::stand_ins;

#[test]
fn recorders_of_accesses() {
    let attack = Attack {
        args: &["record", "accesses", "-o", "out/file.swtrace", "true"],
        prints_to_file: false,
        names: &["out/file.swtrace", "valgrind", "processes cannot be followed", "tmp"],
        faults: &[
            ("open", EMFILE),
            ("open", EACCES),
            ("write", ENOSPC),
            ("write_pipe", EPIPE),
            ("read", EIO),
            ("fdatasync", EIO),
            ("pipe", EMFILE),
            ("symlink", ENOSPC),
            ("mkdir", ENOSPC),
            ("flock", ENOLCK),
            ("poll", ENOMEM),
            ("waitid", EINVAL),
            ("ptrace", EPERM),
            ("spawn", EAGAIN),
            ("thread", EAGAIN),
            ("fcntl", EMFILE),
        ],
        calls_max: 25,
    };
    attack.run_on_file(&Room::new(), "300 reads");
}

/// What differs from the recorder of accesses: the library, the writer, the last move.
#[test]
fn recorders_of_heaps() {
    let attack = Attack {
        args: &["record", "heap", "-o", "out/file.swheap", "true"],
        prints_to_file: false,
        names: &["out/file.swheap", "valgrind", "processes cannot be followed", "memfd", "tmp"],
        faults: &[
            ("open", EMFILE),
            ("write", ENOSPC),
            ("write", EINTR),
            ("read", EINTR),
            ("fdatasync", EIO),
            (EVERY_RENAME, EIO),
        ],
        calls_max: 12,
    };
    attack.run_on_file(&Room::new(), "");
}

#[test]
fn recorders_of_pages() {
    let room = Room::new();
    stand_ins::proc(&room);
    stand_ins::tracefs(&room);
    let attack = Attack {
        args: &["record", "pages", "-o", "out/file.swpages", "true"],
        prints_to_file: false,
        names: &[
            "out/file.swpages",
            "/sys/kernel/tracing",
            "/proc/",
            "true",
            "pipe",
            "poll",
            "thread",
        ],
        faults: &[
            ("open", EMFILE),
            ("open", EINTR),
            ("opendir", EMFILE),
            ("write", ENOSPC),
            ("write", EINTR),
            ("read", EIO),
            ("read", EINTR),
            ("mkdir", EACCES),
            ("fdatasync", EIO),
            ("pipe", EMFILE),
            ("poll", ENOMEM),
            ("poll", EINTR),
            ("fcntl", EMFILE),
            ("spawn", EAGAIN),
            ("thread", EAGAIN),
            (EVERY_RENAME, EIO),
        ],
        calls_max: 30,
    };
    // The instance of the trace buffer is there once: a run that left it would have none to make.
    attack.run_on_file(&room, "");
    assert_eq!(names(&room.path("root/sys/kernel/tracing/instances")), [""; 0]);
}

#[test]
fn snapshots() {
    let room = Room::new();
    stand_ins::proc(&room);
    let attack = Attack {
        args: &["snapshot", "-o", "out/file.swsnap"],
        prints_to_file: false,
        names: &["out/file.swsnap", "/proc/"],
        faults: &[
            ("open", EMFILE),
            ("open", EINTR),
            ("read", EIO),
            ("read", EINTR),
            ("write", ENOSPC),
            ("write", EINTR),
            ("fdatasync", EIO),
            (EVERY_RENAME, EIO),
        ],
        calls_max: 25,
    };
    attack.run_on_file(&room, "");
}

/// A look at memory is whole, or the command says why it is not.
#[test]
fn looks() {
    let room = Room::new();
    stand_ins::proc(&room);
    for args in [&["inspect", "--processes", "0"][..], &["inspect", "--processes", "0", "--json"]] {
        let args: &'static [&'static str] = args;
        let attack = Attack {
            args,
            prints_to_file: true,
            names: &["/proc", "standard output"],
            faults: &[
                ("open", EMFILE),
                ("open", EINTR),
                ("read", EIO),
                ("read", EINTR),
                ("write", ENOSPC),
                ("write", EINTR),
            ],
            calls_max: 40,
        };
        let mut command = room.command(args);
        command.env("FAULT_ROOT", room.path("root"));
        let looked = room.with_fault(command, ("", EIO), 0).0;
        assert!(looked.status.success(), "{looked:?}");
        let whole = |what: &str| {
            let said = fs::read(room.path(SAID)).unwrap();
            assert!(said == looked.stdout, "{what}: {}", String::from_utf8_lossy(&said));
        };
        attack.run(&room, whole, |_| ());
    }
    // The processes are this machine's: they are looked at without a thread of their own, too.
    let attack = Attack {
        args: &["inspect"],
        prints_to_file: true,
        names: &[],
        faults: &[("thread", EAGAIN)],
        calls_max: 4,
    };
    let whole = |what: &str| {
        let said = fs::read_to_string(room.path(SAID)).unwrap();
        assert!(said.contains("anonymous memory of"), "{what}: {said}");
    };
    attack.run(&room, whole, |what| panic!("{what}: refused"));
}

/// What is printed is whole, or the command says that it is not.
#[test]
fn what_is_printed() {
    let room = Room::new();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swath-lab/data/files.swpages");
    fs::copy(recording, room.path("files.swpages")).unwrap();
    for args in [
        &["replay", "--allocator", "linux", "--rows", "2", "files.swpages"][..],
        &["replay", "--allocator", "linux", "--rows", "2", "--json", "files.swpages"],
        &["show", "files.swpages"],
        &["study", "--list"],
        &["completions", "bash"],
        &["man"],
    ] {
        let args: &'static [&'static str] = args;
        let reads = args.contains(&"files.swpages");
        let attack = Attack {
            args,
            prints_to_file: true,
            names: &["files.swpages", "standard output"],
            faults: if reads {
                &[
                    ("open", EMFILE),
                    ("read", EIO),
                    ("read", EINTR),
                    ("write", ENOSPC),
                    ("write", EIO),
                    ("write", EINTR),
                ]
            } else {
                &[("write", ENOSPC), ("write", EINTR)]
            },
            calls_max: 4,
        };
        let (output, _) = room.with_fault(room.command(args), ("", EIO), 0);
        let whole = |what: &str| {
            assert!(fs::read(room.path(SAID)).unwrap() == output.stdout, "{what}: another output");
        };
        attack.run(&room, whole, |_| ());
    }
}

/// Files below a directory, with their contents.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

/// A report has each study whole, or not at all, and beside it nothing but a journal.
#[test]
fn reports() {
    let room = Room::new();
    let attack = Attack {
        args: &["study", "--quick", "--jobs", "1", "--out", "out/report", "cl-order"],
        prints_to_file: true,
        // The journal's key is of the program, too.
        names: &["out/report", "standard output", "thread", "/swath"],
        faults: &[
            ("open", EMFILE),
            ("open", EACCES),
            ("open", EINTR),
            ("read", EINTR),
            ("write", ENOSPC),
            ("write", EIO),
            ("write", EINTR),
            ("fdatasync", EIO),
            ("fsync", EIO),
            ("rename", EIO),
            ("mkdir", ENOSPC),
            ("opendir", EMFILE),
            ("ftruncate", EIO),
            ("flock", ENOLCK),
            ("thread", EAGAIN),
        ],
        calls_max: 20,
    };
    let report = room.path("out/report");
    let study = report.join("cl-order");
    let output = room.with_fault(room.command(attack.args), ("", EIO), 0).0;
    assert!(output.status.success(), "{output:?}");
    let expected = files(&report);
    fs::remove_dir_all(&report).unwrap();
    let whole = |what: &str| {
        let mut found = files(&report);
        // One that could not be taken away does no harm.
        found.remove(&report.join(".swath/lock"));
        assert!(found.keys().eq(expected.keys()), "{what}: {:?}", found.keys());
        let results = study.join("results.json");
        assert!(found[&results] == expected[&results], "{what}: other results");
        fs::remove_dir_all(&report).unwrap();
    };
    let left = |what: &str| {
        let found = files(&report);
        for path in found.keys().filter(|path| !expected.contains_key(*path)) {
            // A journal is held, and gone on with by the next run.
            let is_to_resume = path.ends_with(".swath/lock")
                || path.extension().is_some_and(|end| end == "journal");
            assert!(is_to_resume, "{what}: {} is left", path.display());
        }
        let of_study = |files: &BTreeMap<PathBuf, Vec<u8>>| {
            files.keys().filter(|path| path.starts_with(&study)).count()
        };
        let count = of_study(&found);
        assert!(count == 0 || count == of_study(&expected), "{what}: {count} files of a study");
        let _ = fs::remove_dir_all(&report);
    };
    attack.run(&room, whole, left);
}
