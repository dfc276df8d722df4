//! Workloads that a plan composes of masters: recorded programs, and the masters of other workloads.
//!
//! A recorded program becomes a master that goes as fast as it can: each run of its accesses to one line,
//! all reads or all writes, is one transaction, as a line buffer would make of it; no cache stands before
//! it. Its pages are grouped into buffers as its requests are where its TLB alone is measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{BASE_PAGE_BYTES, PageRange, Vpn};
use swath_trace::access::{AccessKind, PageSet, TraceError};

use crate::papers::page_buddy::design::plan::FigureName;
use crate::papers::page_buddy::translation::grouped;
use crate::papers::page_buddy::workload::streams::{
    Category, Master, TRANSACTION_BYTES, Transaction, Workload,
};
use crate::papers::page_buddy::workload::table4::{Shapes, WorkloadName};
use crate::source::real::{InputError, Trace};
use crate::study::bounds::Bounded;
use crate::study::plan::{Refused, require};

/// The most transactions of a recorded program.
pub type TransactionsMax = Bounded<1, { 1 << 24 }>;

/// Those of a program of which a plan does not say it.
const TRANSACTIONS_MAX: TransactionsMax = const { Bounded::new(100_000).unwrap() };

/// A workload of a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixPlan {
    /// Its name in the figures.
    pub name: FigureName,
    /// Its masters, which share nothing but the memory.
    pub masters: Vec<MixMaster>,
}

/// Masters of a workload of a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum MixMaster {
    /// All masters of a workload.
    Workload(WorkloadName),
    /// A recorded program.
    Trace {
        /// A trace file; the shipped one if empty.
        file: String,
        /// The most transactions, from its first on; 100,000 if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        transactions_max: Option<TransactionsMax>,
    },
}

impl MixMaster {
    /// Returns a recorded program.
    pub const fn program(file: String) -> Self {
        Self::Trace { file, transactions_max: None }
    }

    /// Returns a bound on its transactions, and one on its pages.
    fn bounds(&self, shapes: &Shapes) -> (u64, u64) {
        match self {
            Self::Workload(name) => {
                let one = name.build(shapes);
                (one.transactions_max(), one.pages())
            }
            Self::Trace { transactions_max, .. } => {
                let most = transactions_max.unwrap_or(TRANSACTIONS_MAX).get();
                // A program that touched a new page each time, and with each page those of a gap.
                (most, most.saturating_mul(16).min(1 << 20))
            }
        }
    }
}

/// Refuses a workload without masters, and names that stand twice.
///
/// # Errors
/// [`Refused`].
pub(crate) fn check(mixes: &[MixPlan]) -> Result<(), Refused> {
    for (nth, mix) in mixes.iter().enumerate() {
        let name = mix.name.get();
        let twice = mixes[..nth].iter().any(|other| other.name == mix.name);
        let taken = WorkloadName::known().iter().any(|known| known.title() == name);
        require(!twice && !taken, &format!("mixes.{nth}.name"), || {
            format!("there is a workload {name:?} already")
        })?;
        let masters = format!("mixes.{nth}.masters");
        require(!mix.masters.is_empty(), &masters, || "none given".to_owned())?;
        require(mix.masters.len() <= 64, &masters, || "more than 64".to_owned())?;
    }
    Ok(())
}

impl MixPlan {
    /// Returns bounds on its transactions and its pages.
    pub(crate) fn bounds(&self, shapes: &Shapes) -> (u64, u64) {
        let sum = |(transactions, pages): (u64, u64), one: &MixMaster| {
            let (more, further) = one.bounds(shapes);
            (transactions.saturating_add(more), pages.saturating_add(further))
        };
        self.masters.iter().fold((0, 0), sum)
    }

    /// Reads its programs and builds its workloads.
    ///
    /// # Errors
    /// [`InputError`], which names the file and the byte.
    pub(crate) fn build(&self, shapes: &Shapes) -> Result<Workload, InputError> {
        let (mut buffers, mut masters) = (Vec::new(), Vec::new());
        for one in &self.masters {
            let first = buffers.len();
            let more = match one {
                MixMaster::Workload(name) => name.build(shapes),
                MixMaster::Trace { file, transactions_max } => {
                    let file = (!file.is_empty()).then(|| file.as_ref());
                    let most = transactions_max.unwrap_or(TRANSACTIONS_MAX).get();
                    recorded(self.name.get(), &Trace::new(file), most)?
                }
            };
            buffers.extend(more.buffers);
            masters.extend(more.masters.iter().map(|master| master.moved(first)));
        }
        Ok(Workload { name: self.name.get(), category: Category::Added, buffers, masters })
    }
}

/// A recorded program as the one master of a workload.
fn recorded(name: &'static str, trace: &Trace, most: u64) -> Result<Workload, InputError> {
    let read = lines(trace, most);
    let (lines, pages) = read.map_err(|error| trace.error(&error))?;
    if lines.is_empty() {
        let what = "no access in it".to_owned();
        return Err(InputError { file: trace.name(), what });
    }
    let ranges = grouped(&pages);
    let place = |&(line, write): &(u64, bool)| {
        let page = Vpn::new(line / LINES_PER_PAGE);
        // Each line's page was noted.
        let buffer = ranges.partition_point(|range| range.end() <= page);
        let offset_bytes = line * TRANSACTION_BYTES - ranges[buffer].start.raw() * BASE_PAGE_BYTES;
        Transaction { buffer, offset_bytes, write }
    };
    let masters = vec![Master::listed("program", lines.iter().map(place))];
    let bytes = |range: &PageRange| range.count * BASE_PAGE_BYTES;
    let buffers = ranges.iter().map(bytes).collect();
    Ok(Workload { name, category: Category::Added, buffers, masters })
}

const LINES_PER_PAGE: u64 = BASE_PAGE_BYTES / TRANSACTION_BYTES;

/// The lines of the first transactions of a program, and the pages in which they lie.
fn lines(trace: &Trace, most: u64) -> Result<(Vec<(u64, bool)>, PageSet), TraceError> {
    let (mut lines, mut pages) = (Vec::new(), PageSet::default());
    'accesses: for access in trace.open()? {
        let access = access?;
        let first = access.addr.raw();
        let last = first.saturating_add(u64::from(access.len_bytes) - 1);
        for line in first / TRANSACTION_BYTES..=last / TRANSACTION_BYTES {
            let one = (line, access.kind == AccessKind::Write);
            if lines.last() == Some(&one) {
                continue;
            }
            if lines.len() as u64 >= most {
                break 'accesses;
            }
            lines.push(one);
            pages.insert(PageRange::new(Vpn::new(line / LINES_PER_PAGE), 1))?;
        }
    }
    Ok((lines, pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str, most: u64) -> Workload {
        let file = tempfile::Builder::new().suffix(".txt").tempfile().unwrap();
        std::fs::write(&file, text).unwrap();
        let file = file.path().display().to_string();
        let transactions_max = Some(Bounded::new(most).unwrap());
        let name: FigureName = serde_json::from_str("\"Mine\"").unwrap();
        let masters = vec![MixMaster::Trace { file, transactions_max }];
        MixPlan { name, masters }.build(&Shapes::default()).unwrap()
    }

    #[test]
    fn each_run_of_accesses_to_a_line_is_a_transaction() {
        // Two reads of a line, a write to it, a read across two lines, one of another group of pages.
        let text =
            "0x10000 r 8\n0x10010 r 8\n0x10020 w 8\n0x1003c r 8\n0x900040 r 8\n0x11000 r 1\n";
        let all = program(text, 100);
        assert_eq!(all.buffers, [2 * 4096, 4096]);
        let of = |buffer, offset_bytes, write| Transaction { buffer, offset_bytes, write };
        let expected = [
            of(0, 0, false),
            of(0, 0, true),
            of(0, 0, false),
            of(0, 64, false),
            of(1, 64, false),
            of(0, 4096, false),
        ];
        assert_eq!(all.masters[0].transactions().collect::<Vec<_>>(), expected);
        let few = program(text, 2);
        assert_eq!(few.buffers, [4096]);
        assert_eq!(few.masters[0].transactions().collect::<Vec<_>>(), expected[..2]);
    }
}
