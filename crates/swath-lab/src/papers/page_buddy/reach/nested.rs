//! A guest's program: its pages lie in the guest's memory, and that in blocks of the host's.

use swath_arch::{BusError, Extent, PageRange, Pfn, PhysAddr, PhysMemory, Regime, Vpn};
use swath_frame::{BuddyConfig, HeadOfList};
use swath_hw::{Geometry, Nested, TlbOutcome};
use swath_vm::Sizes;

use crate::papers::page_buddy::design::Scheme;
use crate::papers::page_buddy::reach::sparse::SparseMemory;
use crate::papers::page_buddy::reach::ways::{Met, frame_of, moved, with_table};
use crate::papers::page_buddy::translation::{
    Hardware, MeasureError, Program, failed, room_below, serve, table_extent,
};
use crate::source::memory::{Random, Source};

/// The allocators of the guest and of the host, and the contiguity that both tables tell of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Both {
    /// Its name in the figures.
    pub(crate) name: &'static str,
    guest: Whose,
    host: Whose,
    scheme: Scheme,
}

/// One of the two allocators of the plan.
#[derive(Clone, Copy, Debug)]
enum Whose {
    Bbs,
    Pbs,
}

/// What is compared.
pub(crate) const ALL: [Both; 5] = [
    Both { name: "4 KiB pages", guest: Whose::Bbs, host: Whose::Bbs, scheme: Scheme::Trad },
    Both { name: "PCAD on BBS", guest: Whose::Bbs, host: Whose::Bbs, scheme: Scheme::Pcad },
    Both { name: "PBS in the guest", guest: Whose::Pbs, host: Whose::Bbs, scheme: Scheme::Pcad },
    Both { name: "PBS in the host", guest: Whose::Bbs, host: Whose::Pbs, scheme: Scheme::Pcad },
    Both { name: "PBS in both", guest: Whose::Pbs, host: Whose::Pbs, scheme: Scheme::Pcad },
];

/// The state of memory, alike in guest and host: the size of its free blocks, how many frames are free for each
/// that is requested, and the share of memory that is free.
pub(crate) type State = (u64, f64, f64);

/// The guest's memory, as its system writes it.
struct GuestMemory<'a> {
    blocks: &'a [(Vpn, Extent)],
    memory: &'a SparseMemory,
}

impl GuestMemory<'_> {
    fn at(&self, addr: PhysAddr, len_bytes: u32) -> Result<PhysAddr, BusError> {
        let frame = frame_of(self.blocks, Vpn::new(addr.frame().raw()));
        Ok(moved(addr, frame.ok_or(BusError { addr, len_bytes })?))
    }
}

impl PhysMemory for GuestMemory<'_> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        self.memory.read_u32(self.at(addr, 4)?)
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.memory.read_u64(self.at(addr, 8)?)
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        self.memory.write_u32(self.at(addr, 4)?, value)
    }

    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.memory.write_u64(self.at(addr, 8)?, value)
    }
}

/// Serves requests in memory of such a state.
fn blocks_of(
    requests: &[PageRange],
    orders: BuddyConfig,
    (block_frames, per_requested, share): State,
    random: &mut Random,
) -> Result<Vec<(Vpn, Extent)>, MeasureError> {
    let pages: u64 = requests.iter().map(|request| request.count).sum();
    let free_frames = (pages as f64 * per_requested).ceil() as u64;
    let source = Source::blocks(block_frames, free_frames, share);
    let mut allocator = source.prepare::<HeadOfList>(orders, random)?;
    let mut blocks = Vec::new();
    for request in requests {
        blocks.extend(serve(*request, &mut allocator)?);
    }
    Ok(blocks)
}

/// Measures a program in a guest whose memory the host gave whole, before it began.
pub(crate) fn measure(
    both: Both,
    hardware: &Hardware,
    host_tlb: Option<Geometry>,
    (bbs, pbs): (BuddyConfig, BuddyConfig),
    (program, state): (&Program, State),
    random: &mut Random,
) -> Result<Met, MeasureError> {
    let orders = |whose| match whose {
        Whose::Bbs => bbs,
        Whose::Pbs => pbs,
    };
    let guest_blocks = blocks_of(&program.requests, orders(both.guest), state, random)?;
    // The guest has its data below and its tables behind them.
    let data_end = guest_blocks.iter().map(|(_, block)| block.end().raw()).max().unwrap_or(0);
    let room = table_extent(u64::MAX, &program.requests).count;
    let guest_tables = Extent::new(Pfn::new(data_end), room);
    let guest_memory = PageRange::new(Vpn::new(0), data_end + room);
    let host_blocks = blocks_of(&[guest_memory], orders(both.host), state, random)?;
    let tables = table_extent(hardware.frames, &[guest_memory]);
    room_below(tables, &host_blocks)?;

    let (format, memory) = (hardware.format, SparseMemory::default());
    let as_guest = GuestMemory { blocks: &host_blocks, memory: &memory };
    let told = |blocks| (hardware.coalescing(both.scheme, blocks), Sizes::NONE);
    with_table(format, told(&host_blocks), &host_blocks, tables, &memory, |host, _| {
        let guest = (told(&guest_blocks), guest_tables);
        with_table(format, guest.0, &guest_blocks, guest.1, &as_guest, |guest, _| {
            run(hardware, host_tlb, (guest, host), program, &memory)
        })
    })
}

/// Lets each master's accesses go through a unit of its own.
fn run(
    hardware: &Hardware,
    host_tlb: Option<Geometry>,
    (guest, host): (Regime, Regime),
    program: &Program,
    memory: &SparseMemory,
) -> Result<Met, MeasureError> {
    let mut met = Met::default();
    for master in &program.masters {
        let unit = Nested::new(guest, host, hardware.tlb, host_tlb).map_err(failed)?;
        let mut unit = unit.replacing(hardware.replacement);
        master.visit(&mut |addr| {
            let found = unit.access(addr, memory);
            let found = found.map_err(|fault| failed(format_args!("{addr}: {fault}")))?;
            met.accesses += 1;
            met.waited += u64::from(matches!(found.outcome, TlbOutcome::Miss(_)));
            Ok(())
        })?;
        let stats = unit.stats();
        met.reads += stats.guest_reads + stats.host_reads;
    }
    Ok(met)
}
