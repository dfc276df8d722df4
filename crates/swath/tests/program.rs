//! The program `swath` as its user meets it: what it prints, what it writes,
//! and how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use snapbox::cmd::OutputAssert;
use snapbox::file;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_swath");

/// A directory of its own for each test, and the program started there.
struct Room(TempDir);

impl Room {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        // Help is as wide as the terminal; there is none.
        command.env("COLUMNS", "100").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        let output = self.command(args).output().unwrap();
        Ended { args: args.join(" "), output }
    }

    /// A file of this text in the room.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        fs::write(self.path(name), content).unwrap();
        self
    }

    /// Every file below the directory, by its name from there.
    fn files(&self, dir: &str) -> Vec<String> {
        let mut found = vec![];
        let mut pending = vec![self.path(dir)];
        while let Some(at) = pending.pop() {
            for entry in fs::read_dir(&at).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                } else {
                    let name = path.strip_prefix(self.path(dir)).unwrap();
                    found.push(name.to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        found
    }

    /// The files of a report are whole: no temporary file stands beside them,
    /// and each is of the kind that its name says. Journals of studies not finished may stay.
    fn report_is_whole(&self, dir: &str) {
        for name in self.files(dir).into_iter().filter(|name| !name.starts_with(".swath/")) {
            let text = fs::read_to_string(self.path(dir).join(&name)).unwrap();
            let text = text.trim_end();
            let whole = match Path::new(&name).extension().and_then(|e| e.to_str()) {
                Some("json") => serde_json::from_str::<Value>(text).is_ok(),
                Some("html") => text.ends_with("</html>"),
                Some("svg") => text.starts_with("<svg") && text.ends_with("</svg>"),
                Some("csv") => {
                    let fields = |line: &str| csv_fields(line);
                    let columns = fields(text.lines().next().unwrap());
                    text.lines().count() > 1 && text.lines().all(|line| fields(line) == columns)
                }
                _ => false,
            };
            assert!(whole, "{name} is not whole");
        }
    }

    fn results(&self, dir: &str, study: &str) -> Vec<u8> {
        fs::read(self.path(dir).join(study).join("results.json")).unwrap()
    }
}

/// How many fields the row has.
fn csv_fields(line: &str) -> usize {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    reader.records().next().unwrap().unwrap().len()
}

/// The program has ended.
struct Ended {
    args: String,
    output: Output,
}

impl Ended {
    fn stderr(&self) -> &str {
        std::str::from_utf8(&self.output.stderr).unwrap()
    }

    fn stdout(&self) -> &str {
        std::str::from_utf8(&self.output.stdout).unwrap()
    }

    /// All went well, and nothing but what was asked for was said: no progress
    /// bar where no terminal shows it.
    fn succeeds(self) -> Self {
        assert_eq!(self.output.status.code(), Some(0), "{}: {}", self.args, self.stderr());
        assert_eq!(self.stderr(), "", "{}", self.args);
        self
    }

    /// Ends with this code, says each of these, and says it in one message
    /// without a panic.
    fn fails(self, code: i32, says: &[&str]) -> Self {
        assert_eq!(self.output.status.code(), Some(code), "{}: {}", self.args, self.stderr());
        assert!(!self.stderr().contains("panicked"), "{}", self.stderr());
        for said in says {
            assert!(
                self.stderr().contains(said),
                "{}: no {said:?} in\n{}",
                self.args,
                self.stderr()
            );
        }
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.stdout()).unwrap()
    }

    fn golden(self, expected: snapbox::Data) {
        let _: OutputAssert = OutputAssert::new(self.output).success().stdout_eq(expected.raw());
    }
}

/// A file that comes with the project.
fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swath-lab/data").join(name);
    path.to_str().unwrap().to_owned()
}

fn machine() -> String {
    shipped("machine.swsnap")
}

fn trace() -> String {
    shipped("sort.swtrace")
}

/// The plan of a built-in study with one line's beginning replaced by a line.
fn plan(study: &str, from: &str, to: &str) -> String {
    let head = format!("study = {study:?}");
    let entries = swath_lab::study::registry::entries();
    let text = entries.map(|(_, entry)| entry.plan).find(|plan| plan.contains(&head)).unwrap();
    let found = text.lines().filter(|line| line.starts_with(from)).count();
    assert!(found > 0, "no line begins with {from:?}");
    let lines = text.lines().map(|line| if line.starts_with(from) { to } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn help_and_list() {
    let room = Room::new();
    room.run(&["--help"]).succeeds().golden(file!["golden/help.txt"]);
    room.run(&["study", "--help"]).succeeds().golden(file!["golden/help-study.txt"]);
    room.run(&["study", "--list"]).succeeds().golden(file!["golden/list.txt"]);
    assert_eq!(room.files(""), [""; 0]);
}

#[test]
fn show_what_is_shipped() {
    let room = Room::new();
    room.run(&["show", &machine()]).succeeds().golden(file!["golden/show-machine.txt"]);
    room.run(&["show", &trace()]).succeeds().golden(file!["golden/show-trace.txt"]);
    room.run(&["show", "--json", &trace()]).succeeds().golden(file!["golden/show-trace.json"]);
    let json = room.run(&["show", "--json", &machine()]).succeeds().json();
    assert_eq!(json["facts"]["total_frames"], 6_171_021);
    assert_eq!(json["summary"]["free"]["sum"], 4_457_419);
}

#[test]
fn a_study_is_written_whole() {
    let room = Room::new();
    let ended = room.run(&["study", "pbs-cases", "--out", "out"]).succeeds();
    assert!(ended.stdout().contains("43 of 43 worked examples hold"), "{}", ended.stdout());
    assert!(ended.stdout().ends_with("open out/index.html\n"), "{}", ended.stdout());
    let files = room.files("out");
    for wanted in ["index.html", "pbs-cases/results.json", "pbs-cases/fig-6.csv"] {
        assert!(files.iter().any(|file| file == wanted), "no {wanted} in {files:?}");
    }
    assert!(!room.path("out/.swath").exists(), "nothing of the work is left");
    room.report_is_whole("out");
    // The same over what is there, from elsewhere, word for word.
    let before = room.results("out", "pbs-cases");
    let out = room.path("out");
    room.run(&["study", "pbs-cases", "--out", out.to_str().unwrap(), "--jobs", "1"]).succeeds();
    assert_eq!(room.results("out", "pbs-cases"), before);
    assert_eq!(room.files("out"), files);
    // Another study joins the first on one page.
    room.run(&["study", "pbs-tlb-real", "--out", "out", "--quick"]).succeeds();
    room.report_is_whole("out");
    let page = fs::read_to_string(room.path("out/index.html")).unwrap();
    assert!(page.contains("pbs-cases") && page.contains("pbs-tlb-real"));
}

#[test]
fn json_for_machines() {
    let room = Room::new();
    let json = room.run(&["study", "pbs-cases", "--json", "--out", "out"]).succeeds().json();
    assert_eq!(json["index"], "out/index.html");
    let [study] = json["studies"].as_array().unwrap().as_slice() else { panic!("{json}") };
    assert_eq!(study["study"], "pbs-cases");
    assert_eq!(study["verdicts"]["examples"], serde_json::json!({ "hold": 43, "of": 43 }));
    assert_eq!(json["verdicts"], study["verdicts"]);
    let results = fs::read(room.path(study["results"].as_str().unwrap())).unwrap();
    let results: Value = serde_json::from_slice(&results).unwrap();
    assert_eq!(results["study"], "pbs-cases");
    assert_eq!(results["claims"].as_array().unwrap().len(), 43);
}

/// Plan and seed alone decide, not the number of threads.
#[test]
fn results_are_a_function_of_plan_and_seed() {
    let room = Room::new();
    let run = |out: &str, more: &[&str]| {
        let args = ["study", "pbs-widths", "--quick", "--out", out];
        room.run(&[&args, more].concat()).succeeds();
        room.results(out, "pbs-widths")
    };
    let one = run("one", &["--jobs", "1"]);
    assert!(one == run("two", &["--jobs", "2"]));
    let seeded = run("seeded", &["--seed", "2"]);
    assert!(one != seeded);
    let numbers = |bytes: &[u8]| {
        let results: Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(results["seed"], results["plan"]["about"]["seed"]);
        (results["seed"].as_u64().unwrap(), results["series"].clone())
    };
    let ((one, series), (two, others)) = (numbers(&one), numbers(&seeded));
    assert_eq!((one, two), (1, 2));
    assert_ne!(series, others, "the seed changes nothing");
}

#[test]
fn real_input_in_place_of_the_plans() {
    let room = Room::new();
    let results =
        |study: &str| -> Value { serde_json::from_slice(&room.results("out", study)).unwrap() };
    let args = ["study", "pbs-freelist", "--quick", "--memory", &machine(), "--out", "out"];
    room.run(&args).succeeds();
    let freelist = results("pbs-freelist");
    assert_eq!(freelist["plan"]["real_memory"], "machine.swsnap");
    let nodes = |design: &str| {
        let series = freelist["series"].as_array().unwrap();
        let one = series.iter().find(|one| one["design"] == design).unwrap();
        one["points"][0][1].as_f64().unwrap()
    };
    // Every free extent is at least one node, and PBS cuts fewer of them.
    assert!(nodes("BBS") > nodes("PBS") && nodes("PBS") >= 51_361.0);

    let args = ["--accesses", &trace(), "--memory", &machine()];
    room.run(&[&["study", "pbs-tlb", "--quick", "--out", "out"], &args[..]].concat()).succeeds();
    let tlb = results("pbs-tlb");
    for one in tlb["series"].as_array().unwrap() {
        for point in one["points"].as_array().unwrap() {
            let y = point[1].as_f64().unwrap();
            assert!(y >= 0.0 && (one["y"] != "tlb_hit_rate" || y <= 1.0), "{one}");
        }
    }
    for claim in tlb["claims"].as_array().unwrap() {
        assert_eq!(claim["verdict"], "not-comparable", "claims are about the paper's input");
    }
    room.report_is_whole("out");
}

#[test]
fn export_for_other_simulators() {
    let room = Room::new();
    let path = room.path("trace.txt");
    let out = path.to_str().unwrap();
    room.run(&["export", "rotated-display", "--design", "pcad", "-o", out]).succeeds();
    let text = std::fs::read_to_string(&path).unwrap();
    // Every line of the image, and the reads of its walks before them.
    assert!(text.lines().count() > 57_600);
    let mut last = 0;
    for line in text.lines() {
        let mut words = line.split(' ');
        assert!(words.next().unwrap().starts_with("0x"), "{line}");
        assert_eq!(words.next(), Some("READ"), "{line}");
        let cycle: u64 = words.next().unwrap().parse().unwrap();
        assert!(cycle >= last, "{line}");
        last = cycle;
    }
    let other = room.path("other.txt");
    let out = other.to_str().unwrap();
    let ramulator = ["export", "image-blending", "--format", "ramulator", "-o", out];
    room.run(&ramulator).succeeds();
    let text = std::fs::read_to_string(&other).unwrap();
    let stores = text.lines().filter(|line| line.starts_with("ST 0x")).count();
    assert_eq!(stores, 57_600);
    // The same requests as addresses alone, which are accesses that every study reads.
    let addresses = room.path("addresses.txt");
    let out = addresses.to_str().unwrap();
    room.run(&["export", "image-blending", "--format", "text", "-o", out]).succeeds();
    let written = std::fs::read_to_string(&addresses).unwrap();
    let as_text = |line: &str| match line.split_once(' ') {
        Some(("LD", addr)) => format!("{addr} r"),
        Some((_, addr)) => format!("{addr} w"),
        None => unreachable!("{line}"),
    };
    assert!(written.lines().eq(text.lines().map(as_text)));
    let nowhere = room.path("nothing.txt");
    let out = nowhere.to_str().unwrap();
    let channel = ["export", "rotated-display", "--channel", "1", "-o", out];
    room.run(&channel).fails(2, &["--channel", "drampower"]);
    let far = ["export", "rotated-display", "--format", "drampower", "--channel", "4", "-o", out];
    room.run(&far).fails(1, &["no channel 4 of 4"]);
    room.run(&["export", "rotated-display", "--plan", "none.toml", "-o", out])
        .fails(2, &["none.toml"]);
    room.run(&["export", "sorting", "-o", out]).fails(2, &["sorting", "rotated-display"]);
    room.run(&["export", "rotated-display", "--design", "XY", "-o", out]).fails(2, &["XY", "TRAD"]);
    assert!(!nowhere.exists());
}

/// The commands of a channel as DRAMPower reads them: a row is opened before it is read, closed before
/// another is opened, and as much is read as was asked for.
#[test]
fn export_of_commands_for_an_energy_tool() {
    let room = Room::new();
    let (mut bursts, mut channels) = (0, Vec::new());
    for channel in ["0", "1", "2", "3"] {
        let path = room.path("commands.trace");
        let out = path.to_str().unwrap();
        let format = ["--format", "drampower", "--channel", channel, "-o", out];
        let args: Vec<&str> = ["export", "matrix-transpose"].into_iter().chain(format).collect();
        room.run(&args).succeeds();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut open = std::collections::BTreeSet::new();
        let mut last = 0;
        for line in text.lines() {
            let [cycle, command, bank] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let (cycle, bank): (u64, u32) = (cycle.parse().unwrap(), bank.parse().unwrap());
            assert!(cycle >= last && bank < 4, "{line}");
            last = cycle;
            match command {
                "ACT" => assert!(open.insert(bank), "{line}: a row is open"),
                "PRE" => assert!(open.remove(&bank), "{line}: no row is open"),
                "PREA" => open.clear(),
                "RD" | "WR" => {
                    assert!(open.contains(&bank), "{line}: no row is open");
                    bursts += 1;
                }
                "REF" => assert!(open.is_empty(), "{line}: a row is open"),
                "END" => assert_eq!(text.lines().next_back(), Some(line)),
                _ => panic!("{line}"),
            }
        }
        assert!(text.contains(",REF,") && text.ends_with(",END,0\n"));
        channels.push(text);
    }
    assert_ne!(channels[0], channels[1]);
    // All that the memory was asked for, less the reads that a queued write answered.
    let path = room.path("requests.txt");
    let out = path.to_str().unwrap();
    room.run(&["export", "matrix-transpose", "-o", out]).succeeds();
    let requests = std::fs::read_to_string(&path).unwrap().lines().count();
    assert!(bursts <= requests && requests < bursts + requests / 10, "{bursts} of {requests}");
}

#[test]
fn wrong_arguments() {
    let room = Room::new();
    room.run(&["study", "pbs-nothing"]).fails(2, &["pbs-nothing", "pbs-cases"]);
    room.run(&["study", "pbs-tbl"]).fails(2, &["pbs-tbl", "did you mean pbs-tlb?"]);
    room.run(&["study", "--plan", "nowhere.toml"]).fails(2, &["nowhere.toml"]);
    room.run(&["study", "--jobs", "0"]).fails(2, &["--jobs"]);
    room.run(&["study", "--quick", "--full"]).fails(2, &["--quick", "--full"]);
    room.run(&["study", "--unknown-free"]).fails(2, &["--memory"]);
    room.run(&["study", "--seed", "x"]).fails(2, &["--seed"]);
    room.run(&["study", "--nonsense"]).fails(2, &["--nonsense"]);
    room.run(&[]).fails(2, &["Usage"]);
    assert_eq!(room.files(""), [""; 0]);
}

#[test]
fn a_wrong_plan_names_the_key() {
    let cases = [
        ("pbs-tlb", "tlb_ways", "tlb_banks = 32", "tlb_banks"),
        ("pbs-tlb", "tlb_ways", "tlb_ways = 3", "machine.tlb_ways"),
        ("pbs-tlb", "tlb_ways", "tlb_ways = 0", "tlb_ways"),
        ("pbs-tlb", "tlb_entries", "tlb_entries = 0", "tlb_entries"),
        ("pbs-tlb", "contiguity_bits", "contiguity_bits = 40", "machine.contiguity_bits"),
        ("pbs-tlb", "contiguity_bits", "contiguity_bits = \"wide\"", "contiguity_bits"),
        ("pbs-tlb", "format", "format = \"armv9\"", "armv9"),
        ("pbs-tlb", "free_share", "free_share = 0", "free_share"),
        ("pbs-tlb", "free_share", "free_shore = 0.5", "free_shore"),
        ("pbs-tlb", "repeats ", "repeats = \"many\"", "repeats"),
        ("pbs-tlb", "repeats ", "repeats = 0", "repeats"),
        ("pbs-tlb", "repeats ", "", "repeats"),
        ("pbs-freelist", "free_share", "free_share = 1.0", "free_share"),
        ("pbs-freelist", "request_frames", "request_frames = 5000", "request_frames"),
        ("pbs-cases", "request_frames", "request_frames = 9", "fig_8.request_frames"),
        ("pbs-cases", "study", "study = \"../elsewhere\"", "about.study"),
        ("pbs-cases", "kind", "kind = \"magic\"", "magic"),
        ("pbs-widths", "widths", "widths = [17]", "widths"),
    ];
    let room = Room::new();
    for (study, from, to, key) in cases {
        room.file("wrong.toml", plan(study, from, to));
        let args = ["study", "--plan", "wrong.toml", "--out", "out", "--quick"];
        room.run(&args).fails(2, &["wrong.toml", key]);
        assert!(!room.path("out").exists(), "{to}: something is written");
    }
    room.file("wrong.toml", b"\xff\xfe");
    room.run(&["study", "--plan", "wrong.toml"]).fails(2, &["wrong.toml"]);
}

#[test]
fn a_plan_of_ones_own() {
    let room = Room::new();
    room.file("mine.toml", plan("pbs-cases", "study", "study = \"mine\""));
    room.run(&["study", "--plan", "mine.toml", "--out", "out"]).succeeds();
    assert!(room.path("out/mine/results.json").exists());
    room.report_is_whole("out");
}

#[test]
fn a_truncated_trace_names_the_byte() {
    let room = Room::new();
    let whole = fs::read(trace()).unwrap();
    for len in [0, 1, 4, 20, whole.len() / 2, whole.len() - 1] {
        room.file("cut.swtrace", &whole[..len]);
        let study = ["study", "pbs-tlb-real", "--quick", "--accesses", "cut.swtrace"];
        for args in [&study[..], &["show", "cut.swtrace"]] {
            let ended = room.run(args).fails(1, &["cut.swtrace"]);
            let where_from = if len == 0 { "empty".to_owned() } else { format!("byte {len}") };
            assert!(ended.stderr().contains(&where_from), "{len}: {}", ended.stderr());
            assert_eq!(ended.stdout(), "");
        }
    }
    // ChampSim's records are 64 bytes each, and their kind is in the name.
    room.file("cut.champsim", [0; 100]);
    room.run(&["show", "cut.champsim"]).fails(1, &["cut.champsim"]);
    room.run(&["show", "none.swtrace"]).fails(1, &["none.swtrace"]);
    assert!(!room.path("report").exists());
}

#[test]
fn a_damaged_snapshot_names_the_byte() {
    let room = Room::new();
    let whole = fs::read(machine()).unwrap();
    let args = ["study", "pbs-freelist", "--quick", "--memory", "bad.swsnap"];
    for len in [0, 1, 10, 1000, whole.len() / 2, whole.len() - 1] {
        room.file("bad.swsnap", &whole[..len]);
        room.run(&args).fails(1, &["bad.swsnap", "byte"]);
    }
    // A bit turned anywhere in the content is seen.
    for at in [0, 9, 600, whole.len() / 3, whole.len() - 9, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        room.file("bad.swsnap", damaged);
        room.run(&args).fails(1, &["bad.swsnap"]);
    }
    room.file("bad.swsnap", [&whole[..], b"more"].concat());
    room.run(&args).fails(1, &["bad.swsnap", "byte"]);
    fs::remove_file(room.path("bad.swsnap")).unwrap();
    room.run(&args).fails(1, &["bad.swsnap"]);
    assert!(!room.path("report").exists());
}

#[test]
fn a_place_that_cannot_be_written() {
    let room = Room::new();
    room.file("taken", "a file");
    room.run(&["study", "pbs-cases", "--out", "taken"]).fails(2, &["taken"]);
    assert_eq!(fs::read(room.path("taken")).unwrap(), b"a file");
}

/// Ctrl-C in the middle of a study: the study before it stands whole in the
/// report, of the interrupted one there is nothing.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_leaves_nothing_half_written() {
    use std::io::Read as _;
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    for signals in [&[Signal::SIGINT][..], &[Signal::SIGTERM], &[Signal::SIGINT; 2]] {
        let room = Room::new();
        let mut child = room
            .command(&["study", "pbs-cases", "pbs-tlb", "--full", "--out", "out", "--jobs", "2"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        // The first study is said to be done, so the second has begun.
        let mut said = [0; 9];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"pbs-cases");
        assert!(child.try_wait().unwrap().is_none(), "too short a study to be interrupted");
        for &signal in signals {
            kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        }
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                panic!("{signals:?} do not end the study");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(status.code(), Some(130), "{signals:?}: {stderr}");
        // The second does not wait for a word.
        assert!(stderr == "swath: interrupted\n" || signals.len() == 2 && stderr.is_empty());
        let mut files = room.files("out");
        files.retain(|file| !file.starts_with(".swath/"));
        let pages = ["index.html", "pbs-cases.html"];
        let finished =
            |file: &String| file.starts_with("pbs-cases/") || pages.contains(&file.as_str());
        assert!(files.iter().all(finished), "{files:?}");
        // The page over the finished study is there unless the second signal ended all.
        let page = files.iter().any(|file| file == "index.html");
        assert!(page || signals.len() == 2, "{files:?}");
        assert!(files.iter().any(|file| file == "pbs-cases/results.json"), "{files:?}");
        room.report_is_whole("out");
    }
}

#[test]
fn inspect_says_what_blocks_huge_pages() {
    let room = Room::new();
    room.run(&["inspect", &machine()]).succeeds().golden(file!["golden/inspect-machine.txt"]);
    let json = room.run(&["inspect", "--json", &machine()]).succeeds().json();
    let pages = &json["pages"]["huge"];
    let count = |key: &str| pages[key].as_u64().unwrap();
    let sum: u64 = ["free", "in_use", "movable", "unsettled", "blocked"].map(count).iter().sum();
    assert_eq!((count("places"), sum), (12_287, 12_287));
    assert_eq!(json["frames"]["free"], 4_457_419);
    assert_eq!(json["folios"], Value::Null);
    let failed = room.run(&["inspect", &trace()]).output;
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("machine snapshot"), "{failed:?}");
}

/// With the rights it goes on until it is interrupted; without them it says so.
#[cfg(target_os = "linux")]
#[test]
fn inspect_watches_this_machine() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use std::io::{BufRead, BufReader};
    let room = Room::new();
    let mut child = room
        .command(&["inspect", "--watch", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let views: Vec<Value> =
        lines.take(2).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    if views.len() == 2 {
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    match views.as_slice() {
        [] => assert!(said.contains("CAP_SYS_ADMIN") || said.contains("PAGE_MONITOR"), "{said}"),
        [first, second] => {
            assert!(output.status.success(), "{output:?}");
            let places = |view: &Value| view["pages"]["huge"]["places"].as_u64().unwrap();
            assert_eq!(places(first), places(second));
        }
        _ => panic!("it ended by itself: {said}"),
    }
}

/// A reader that has seen enough, as `head` does, is no reason to panic.
#[cfg(unix)]
#[test]

fn a_closed_pipe_is_no_panic() {
    let room = Room::new();
    let mut child = room
        .command(&["show", &machine()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
