//! The cost of simulated time: see the crate's text for the method.
//!
//! One frame of 1280 × 720 × 4 bytes, 57,600 reads of 64 bytes, row by row
//! (raster) or column by column (vertical): offered to the memory alone, one
//! each cycle, and by a master with an IOMMU in the paper's system.

use swath_arch::PhysAddr;
use swath_hw::dram::{Dram, DramConfig, DramRequest, OfferError};
use swath_hw::system::{System, SystemConfig};
use swath_hw::{Geometry, Mmu, Scheduling, Transaction, WalkOrder};

use crate::random::Random;
use crate::translate::{Traffic, with_tables};

/// The memory alone, queues of 32 entries, under a frame's reads.
pub(crate) fn dram(traffic: Traffic, counted: fn(&mut dyn FnMut())) -> Result<u64, String> {
    dram_reads(&traffic.offsets().collect::<Vec<_>>(), counted)
}

/// The memory alone under as many reads at random within 64 MiB.
pub(crate) fn dram_random(counted: fn(&mut dyn FnMut())) -> Result<u64, String> {
    let mut random = Random::new(1);
    let addresses: Vec<u64> = (0..57_600).map(|_| random.below(1 << 20) * 64).collect();
    dram_reads(&addresses, counted)
}

fn dram_reads(addresses: &[u64], counted: fn(&mut dyn FnMut())) -> Result<u64, String> {
    let scheduling = Scheduling::fr_fcfs(32);
    let mut dram = Dram::new(&DramConfig { scheduling, ..DramConfig::paper() })
        .map_err(|error| error.to_string())?;
    let mut result = Ok(0);
    counted(&mut || result = offer_all(&mut dram, addresses));
    dram.check()?;
    let accepted = result?;
    let reads = dram.stats().total().reads;
    if reads > accepted || accepted != addresses.len() as u64 {
        return Err(format!("{accepted} of {} accepted, {reads} read", addresses.len()));
    }
    Ok(accepted)
}

/// Offers one read each cycle, and waits where its channel has no room.
fn offer_all(dram: &mut Dram, addresses: &[u64]) -> Result<u64, String> {
    let mut now = 0;
    let mut accepted = 0;
    for (id, &addr) in (0..).zip(addresses) {
        let request = DramRequest { id, addr: PhysAddr::new(addr), write: false };
        loop {
            while dram.take_done(now).is_some() {}
            match dram.offer(now, request) {
                Ok(()) => break,
                Err(OfferError::Full { channel }) => {
                    while !dram.has_room(channel, false) {
                        now = dram.next_event().ok_or("a full channel and nothing to come")?;
                        dram.advance(now);
                        while dram.take_done(now).is_some() {}
                    }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        accepted += 1;
        now += 1;
    }
    Ok(accepted)
}

/// A master in the paper's system, its pages in one block or in single frames.
pub(crate) fn system(
    design: &str,
    one_block: bool,
    traffic: Traffic,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    with_tables(design, one_block, |memory, regime| {
        let mmu = Mmu::new(regime, Geometry::default(), WalkOrder::default())
            .map_err(|error| error.to_string())?;
        let reads: Vec<Transaction> =
            traffic.addresses().map(|addr| Transaction { addr, write: false }).collect();
        let system = System::new(&SystemConfig::paper(), [(mmu, reads.iter().copied())])
            .map_err(|error| error.to_string())?;
        let mut system = Some(system);
        let mut stats = None;
        counted(&mut || stats = system.take().map(|system| system.run(memory)));
        let stats = stats.ok_or("the system did not run")?.map_err(|error| error.to_string())?;
        let master = &stats.masters[0];
        if master.reads != reads.len() as u64 || stats.total_cycles < 4 * master.reads {
            return Err(format!("{} reads in {} cycles", master.reads, stats.total_cycles));
        }
        Ok(master.reads)
    })
}
