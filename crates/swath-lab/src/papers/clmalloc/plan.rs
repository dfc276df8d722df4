//! The plans of the studies on contiguous memory across areas.

use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{Area, AreaSpace};

use crate::study::old::check::{Checked, require};
use crate::study::old::plan::About;

/// Frames of a mebibyte.
pub const MIB_FRAMES: u64 = 256;

/// A machine's memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreasPlan {
    /// Its name in figures.
    pub name: String,
    /// First MiB and length in MiB of each area; what lies between is vacuum.
    pub areas_mib: Vec<(u64, u64)>,
}

impl AreasPlan {
    /// All memory in MiB, also what fits no unit.
    pub fn total_mib(&self) -> u64 {
        self.areas_mib.iter().map(|&(_, len)| len).sum()
    }

    /// Calls `work` with the accelerator's space, in units of 2^`unit` frames.
    ///
    /// # Errors
    /// Areas that make no space, in words.
    pub fn with_space<T>(
        &self,
        unit: Order,
        work: impl FnOnce(AreaSpace<'_>) -> T,
    ) -> Result<T, String> {
        let extent = |&(first, len): &(u64, u64)| {
            Extent::new(Pfn::new(first * MIB_FRAMES), len * MIB_FRAMES)
        };
        let areas: Vec<Extent> = self.areas_mib.iter().map(extent).collect();
        let mut storage = vec![Area::default(); areas.len()];
        let space = AreaSpace::new(&areas, unit, &mut storage);
        Ok(work(space.map_err(|error| error.to_string())?))
    }

    fn check(&self, key: &str) -> Checked {
        let areas = &self.areas_mib;
        let key = format!("{key}.areas_mib");
        require((1..=1024).contains(&areas.len()), &key, || {
            format!("{} areas, not 1 to 1024", areas.len())
        })?;
        for &(first, len) in areas {
            let fits = first < 1 << 20 && (1..=1 << 16).contains(&len);
            require(fits, &key, || format!("{len} MiB at {first}: not 1 to 65536 MiB below 2^20"))?;
        }
        require(self.total_mib() <= 1 << 16, &key, || "more than 65536 MiB".into())?;
        self.with_space(Order::BASE, |_| ()).map_err(|why| (key, why))
    }
}

/// Which requests each allocator serves (Table 2).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AvailabilityPlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the paper's claims are judged, on the first machine.
    pub claims: bool,
    /// log2 of the frames that one bit stands for.
    pub unit_order: u8,
    /// The machines.
    pub machines: Vec<AreasPlan>,
    /// The rows of the table.
    pub requests: Vec<RequestRow>,
    /// Sizes of which as many are asked for as are served.
    pub sizes_mib: Vec<u64>,
}

/// A row of Table 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestRow {
    /// MiB of each request.
    pub mib: u64,
    /// How many there are.
    pub count: u64,
}

impl RequestRow {
    /// Its name in figures.
    pub fn title(self) -> String {
        let Self { mib, count } = self;
        if count == 1 { format!("{mib} MiB") } else { format!("{mib} MiB × {count}") }
    }
}

impl AvailabilityPlan {
    /// What one bit stands for.
    pub fn unit(&self) -> Order {
        Order::new(self.unit_order).unwrap_or(Order::BASE)
    }

    pub(crate) fn check(&self) -> Checked {
        require(self.unit_order <= 8, "unit_order", || {
            format!("{} is more than 8, a MiB", self.unit_order)
        })?;
        let machines = &self.machines;
        require((1..=16).contains(&machines.len()), "machines", || "not 1 to 16".into())?;
        for (at, machine) in machines.iter().enumerate() {
            machine.check("machines")?;
            let twice = machines[..at].iter().any(|other| other.name == machine.name);
            require(!twice, "machines.name", || format!("{:?} stands twice", machine.name))?;
        }
        let requests = &self.requests;
        require((1..=16).contains(&requests.len()), "requests", || "not 1 to 16".into())?;
        for (at, row) in requests.iter().enumerate() {
            let RequestRow { mib, count } = *row;
            require((1..=1 << 16).contains(&mib), "requests.mib", || {
                format!("{mib} is not between 1 and 65536")
            })?;
            require((1..=1 << 16).contains(&count), "requests.count", || {
                format!("{count} is not between 1 and 65536")
            })?;
            require(!requests[..at].contains(row), "requests", || {
                format!("{} stands twice", row.title())
            })?;
        }
        let sizes = &self.sizes_mib;
        require((1..=256).contains(&sizes.len()), "sizes_mib", || "not 1 to 256".into())?;
        require(sizes[0] > 0 && sizes.is_sorted_by(|a, b| a < b), "sizes_mib", || {
            "0, or not ascending".into()
        })?;
        let least = machines.iter().map(AreasPlan::total_mib).min().unwrap_or(0);
        let last = sizes[sizes.len() - 1];
        require(last <= least, "sizes_mib", || format!("{last} of {least} MiB"))
    }
}

/// The same requests in two orders (Fig. 4).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderPlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the paper's claims are judged.
    pub claims: bool,
    /// The machine.
    pub machine: AreasPlan,
    /// The orders, the paper's (a) first and (b) second.
    pub orders: Vec<OrderRow>,
}

/// One order of requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderRow {
    /// Its name in figures.
    pub name: String,
    /// MiB of each request, in order.
    pub requests_mib: Vec<u64>,
}

impl OrderPlan {
    pub(crate) fn check(&self) -> Checked {
        self.machine.check("machine")?;
        let orders = &self.orders;
        require((2..=8).contains(&orders.len()), "orders", || "not 2 to 8".into())?;
        let sorted = |row: &OrderRow| {
            let mut sizes = row.requests_mib.clone();
            sizes.sort_unstable();
            sizes
        };
        for (at, row) in orders.iter().enumerate() {
            let key = "orders.requests_mib";
            let sizes = &row.requests_mib;
            require((1..=8).contains(&sizes.len()), key, || "not 1 to 8 requests".into())?;
            let fits = sizes.iter().all(|size| (1..=1 << 16).contains(size));
            require(fits, key, || "a request that is not 1 to 65536 MiB".into())?;
            require(sorted(row) == sorted(&orders[0]), key, || "not the same requests".into())?;
            let twice = orders[..at].iter().any(|other| other.name == row.name);
            require(!twice, "orders.name", || format!("{:?} stands twice", row.name))?;
        }
        Ok(())
    }
}

/// What requests cost, from the baseline to the pool (Fig. 6).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyPlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the paper's claims are judged.
    pub claims: bool,
    /// The machine.
    pub machine: AreasPlan,
    /// MiB of each request.
    pub request_mib: u64,
    /// How many requests, one point of the x axis each; ascending.
    pub counts: Vec<u64>,
    /// The same in a quick run.
    pub counts_quick: Vec<u64>,
    /// How often all are made and released; the first time memory is new.
    pub rounds: u32,
    /// The same in a quick run.
    pub rounds_quick: u32,
}

impl LatencyPlan {
    /// How many requests, one point of the x axis each.
    pub fn counts(&self, quick: bool) -> &[u64] {
        if quick { &self.counts_quick } else { &self.counts }
    }

    pub(crate) fn check(&self) -> Checked {
        self.machine.check("machine")?;
        let total = self.machine.total_mib();
        require(total <= 4096, "machine.areas_mib", || {
            format!("{total} MiB, more than 4096, are to be had for real")
        })?;
        require((1..=total).contains(&self.request_mib), "request_mib", || {
            format!("{} of {total} MiB", self.request_mib)
        })?;
        check_ascending("counts", &self.counts, 256)?;
        check_ascending("counts_quick", &self.counts_quick, 256)?;
        require(self.counts_quick[0] == self.counts[0], "counts_quick", || {
            format!("{} is not the first of counts", self.counts_quick[0])
        })?;
        for (key, rounds) in [("rounds", self.rounds), ("rounds_quick", self.rounds_quick)] {
            require((2..=1000).contains(&rounds), key, || {
                format!("{rounds} is not between 2 and 1000")
            })?;
        }
        Ok(())
    }
}

/// Large requests of a C program (Fig. 7).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargePlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the paper's claims are judged.
    pub claims: bool,
    /// Numbers of threads.
    pub threads: Vec<u64>,
    /// The same in a quick run.
    pub threads_quick: Vec<u64>,
    /// How many requests all threads make together, one point of the x axis each.
    pub requests: Vec<u64>,
    /// The same in a quick run.
    pub requests_quick: Vec<u64>,
    /// The least and the largest size in KiB; all between have the same chance.
    pub size_kib: (u64, u64),
    /// Blocks that each thread has at a time.
    pub live: u64,
    /// How often each point is measured; of an odd number the middle counts.
    pub rounds: u32,
    /// The same in a quick run.
    pub rounds_quick: u32,
}

impl LargePlan {
    pub(crate) fn check(&self) -> Checked {
        check_ascending("threads", &self.threads, 64)?;
        check_ascending("threads_quick", &self.threads_quick, 64)?;
        check_ascending("requests", &self.requests, 10_000_000)?;
        check_ascending("requests_quick", &self.requests_quick, 10_000_000)?;
        let (least, most) = self.size_kib;
        require(1 <= least && least <= most && most <= 1 << 16, "size_kib", || {
            format!("{least} to {most} is not within 1 to 65536")
        })?;
        require((1..=64).contains(&self.live), "live", || {
            format!("{} is not between 1 and 64", self.live)
        })?;
        check_rounds(self.rounds, self.rounds_quick)
    }
}

/// Data structures under YCSB's workloads (Fig. 8).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructuresPlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the paper's claims are judged.
    pub claims: bool,
    /// Numbers of threads.
    pub threads: Vec<u64>,
    /// The same in a quick run.
    pub threads_quick: Vec<u64>,
    /// Records of all threads together, and as many operations.
    pub records: u64,
    /// The same in a quick run.
    pub records_quick: u64,
    /// How often each point is measured; of an odd number the middle counts.
    pub rounds: u32,
    /// The same in a quick run.
    pub rounds_quick: u32,
}

impl StructuresPlan {
    pub(crate) fn check(&self) -> Checked {
        check_ascending("threads", &self.threads, 64)?;
        check_ascending("threads_quick", &self.threads_quick, 64)?;
        for (key, records) in [("records", self.records), ("records_quick", self.records_quick)] {
            require((640..=1_000_000).contains(&records), key, || {
                format!("{records} is not between 640 and 1000000")
            })?;
        }
        check_rounds(self.rounds, self.rounds_quick)
    }
}

fn check_rounds(rounds: u32, quick: u32) -> Checked {
    for (key, rounds) in [("rounds", rounds), ("rounds_quick", quick)] {
        require((1..=101).contains(&rounds) && rounds % 2 == 1, key, || {
            format!("{rounds} is not an odd number up to 101")
        })?;
    }
    Ok(())
}

fn check_ascending(key: &str, values: &[u64], most: u64) -> Checked {
    require((1..=16).contains(&values.len()), key, || "not 1 to 16 points".into())?;
    require(values[0] > 0 && values.is_sorted_by(|a, b| a < b), key, || {
        "0, or not ascending".into()
    })?;
    let last = values[values.len() - 1];
    require(last <= most, key, || format!("{last} is more than {most}"))
}
