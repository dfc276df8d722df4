//! The bounded form of every target: its stored corpus, and mutations of it for a moment.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use swath_arch::testing::Random;

use crate::target::Target;

/// Time for which mutations are tried after the corpus, unless `SWATH_FUZZ_SECONDS` says more.
const MUTATIONS: Duration = Duration::from_millis(700);

/// Runs every input of the target's corpus, and mutations of them.
pub(crate) fn attack(target: &Target) {
    let name = target.name;
    let corpus = corpus(name);
    for (file, bytes) in &corpus {
        assert!(bytes.len() <= target.len_bytes_max, "{file} is longer than the target allows");
        run(target, bytes, file);
    }
    let seconds = std::env::var("SWATH_FUZZ_SECONDS").ok();
    let length =
        seconds.map_or(MUTATIONS, |text| Duration::from_secs(text.parse().expect("seconds")));
    let seed = std::env::var("SWATH_FUZZ_SEED").map_or(1, |text| text.parse().expect("a number"));
    let mut random = Random::new(seed);
    let (start, mut executions) = (Instant::now(), 0_u64);
    while start.elapsed() < length {
        let mut input = corpus[random.index(corpus.len())].1.clone();
        for _ in 0..1 + random.below(4) {
            mutate(&mut input, &corpus, &mut random);
        }
        input.truncate(target.len_bytes_max);
        run(target, &input, &format!("mutation {executions} of seed {seed}"));
        executions += 1;
    }
    println!("{name}: {} inputs, {executions} mutations of seed {seed}", corpus.len());
    assert!(executions > 0, "no mutation was tried");
}

/// Reads the stored inputs, which are never none, in the order of their names.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut corpus: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            (path.display().to_string(), std::fs::read(&path).expect("a file"))
        })
        .collect();
    assert!(!corpus.is_empty(), "{folder:?} is empty");
    corpus.sort();
    corpus
}

/// Runs one input; one that fails is stored, and its place told.
fn run(target: &Target, input: &[u8], what: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("fuzz-{}-finding", target.name));
        std::fs::write(&path, input).expect("storing the finding");
        eprintln!("{}: {what} fails; stored as {}", target.name, path.display());
        resume_unwind(panic);
    }
}

/// Numbers at which things end.
const BORDERS: [u64; 10] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// Changes the input in one place.
fn mutate(input: &mut Vec<u8>, corpus: &[(String, Vec<u8>)], random: &mut Random) {
    let at = random.index(input.len() + 1);
    match random.below(8) {
        0..=1 if at < input.len() => input[at] ^= 1 << random.below(8),
        2 if at < input.len() => input[at] = random.word() as u8,
        3 => input.insert(at, random.word() as u8),
        4 => {
            let end = (at + 1 + random.index(16)).min(input.len());
            input.drain(at.min(end)..end);
        }
        5 => {
            let bytes = BORDERS[random.index(BORDERS.len())].to_le_bytes();
            let len = 1 << random.below(4);
            let end = (at + len).min(input.len());
            input.splice(at..end, bytes[..len].iter().copied());
        }
        6 => {
            let other = &corpus[random.index(corpus.len())].1;
            let from = random.index(other.len() + 1);
            let to = from + random.index(other.len() + 1 - from);
            input.splice(at..at, other[from..to].iter().copied());
        }
        _ => {
            let end = (at + random.index(64)).min(input.len());
            let piece = input[at..end].to_vec();
            let to = random.index(input.len() + 1);
            input.splice(to..to, piece);
        }
    }
}
