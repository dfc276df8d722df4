//! Theorems: cases, each for all inputs, and the faults that must break them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::fault::{Fault, Site};
use crate::session::{self, Refutation, Stop};

/// The extent of a proof: how much it went through.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Proof {
    /// Cases.
    pub cases: u64,
    /// Paths through the code, in all cases.
    pub paths: u64,
    /// Claims met on them.
    pub claims: u64,
    /// Faults planted, one at a time.
    pub faults: u64,
    /// Those of them that broke the theorem.
    pub refuted: u64,
}

/// Proves the theorem for all cases, each for all inputs; then plants every fault in the
/// code, one at a time, and sees each refuted. `body` runs the code and states its
/// specification by claims.
///
/// `source` is the end of the path of the code: what it calls elsewhere is used, not broken.
/// `equivalents` are the faults that change nothing: a part of what is printed about
/// each. There must be one for each that survives, and none besides.
///
/// # Panics
/// If a claim does not hold, with the input for which it does not; if the code panics or
/// overflows; if nothing is claimed; if a fault is not refuted.
pub fn prove<T: Clone>(
    source: &str,
    cases: impl IntoIterator<Item = T>,
    equivalents: &[&str],
    body: impl Fn(T),
) -> Proof {
    let cases: Vec<T> = cases.into_iter().collect();
    let mut proof = Proof::default();
    let mut sites: Vec<Site> = Vec::new();
    let mut reached: Vec<(&T, Ran)> = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        match run(case, None, &body) {
            Ok(ran) => {
                proof.cases += 1;
                proof.paths += ran.paths;
                proof.claims += ran.claims;
                let is_new =
                    |site: &&Site| site.at.file().ends_with(source) && !sites.contains(site);
                let new: Vec<Site> = ran.sites.iter().filter(is_new).copied().collect();
                sites.extend(new);
                reached.push((case, ran));
            }
            Err(refutation) => panic!("case {number} is refuted: {refutation}"),
        }
    }
    assert!(proof.claims > 0, "the theorem claims nothing");
    println!("holds: {proof:?}");
    // A fault shows only in cases that come by its place; the small ones are asked first.
    reached.sort_by_key(|(_, ran)| ran.paths);
    let mut survivors = Vec::new();
    for &site in &sites {
        for variant in 0..site.operator.variants().len() {
            let fault = Fault { site, variant };
            proof.faults += 1;
            let mut there = reached.iter().filter(|(_, ran)| ran.sites.contains(&site));
            match there.find_map(|(case, _)| run(*case, Some(fault), &body).err()) {
                Some(refutation) => {
                    proof.refuted += 1;
                    println!("{fault}\n    {refutation}");
                }
                None => survivors.push(fault.to_string()),
            }
        }
    }
    assert!(proof.refuted > 0, "no operator on words is under proof here");
    for survivor in &survivors {
        println!("{survivor}\n    changes nothing");
    }
    let is_known = |survivor: &String| equivalents.iter().any(|known| survivor.contains(known));
    let unknown: Vec<&String> = survivors.iter().filter(|survivor| !is_known(survivor)).collect();
    assert!(unknown.is_empty(), "faults that no claim notices: {unknown:#?}");
    for known in equivalents {
        let is_there = survivors.iter().any(|survivor| survivor.contains(known));
        assert!(is_there, "`{known}` names no fault that changes nothing");
    }
    println!("{proof:?}");
    proof
}

/// One case that holds.
struct Ran {
    paths: u64,
    claims: u64,
    sites: Vec<Site>,
}

/// Runs the code once for each path.
fn run<T: Clone>(case: &T, fault: Option<Fault>, body: &impl Fn(T)) -> Result<Ran, Refutation> {
    session::begin(fault);
    let mut paths = 0;
    loop {
        paths += 1;
        let ended = catch_unwind(AssertUnwindSafe(|| body(case.clone())));
        if let Err(payload) = ended {
            match payload.downcast::<Stop>().map(|stop| *stop) {
                Ok(Stop::Infeasible) => {}
                Ok(Stop::Refuted(refutation)) => {
                    session::end();
                    return Err(refutation);
                }
                Err(payload) => {
                    let input = session::with(|session| session.input_of_path());
                    session::end();
                    if fault.is_none() {
                        eprintln!("the panic is for {input:x?}");
                        resume_unwind(payload);
                    }
                    let (claim, at) = ("the code does not panic".into(), "see above".into());
                    return Err(Refutation { claim, at, input });
                }
            }
        }
        if !session::with(|session| session.next_path()) {
            let session = session::end();
            return Ok(Ran { paths, claims: session.claims, sites: session.sites });
        }
    }
}
