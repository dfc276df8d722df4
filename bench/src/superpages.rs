//! Gates on promotion and demotion, in ARMv7 whose section is the talk's: 256
//! pages in one table.

use std::cell::RefCell;

use swath_arch::{Attributes, Extent, Format, Order, PageRange, Pfn, SliceMemory, Vpn};
use swath_frame::{BuddyConfig, ByteRange, HeadOfList, MemoryMap, PageBuddy};
use swath_vm::{
    AddressSpace, DemotedTable, PageAccess, Pmap, PromoteError, ReverseMap, Site, Sizes, SpaceId,
    Status,
};

type Allocator = RefCell<PageBuddy<Vec<u64>, HeadOfList>>;
type Space<'m> = AddressSpace<&'m SliceMemory<'m>, &'m Allocator>;

const TABLES: Extent = Extent::new(Pfn::new(0), 0x200);
const SECTION: Order = Order::known(8);
/// Sections that are promoted or demoted.
const CALLS: u64 = 512;
const FIRST: u64 = 0x4_0000;
/// Readable, and accessed.
const READ: Attributes = Attributes { writable: false, ..Attributes::USER_DATA };

/// What is measured, of each section or of each page of it.
#[derive(Clone, Copy)]
pub(crate) enum Measure {
    /// 256 entries are alike and are folded.
    Promote,
    /// All but one of 256 entries are alike, the second: the longest failure.
    PromoteInVain,
    /// The kept table is put back.
    Recall,
    /// A table is taken and filled with 256 entries.
    Recreate,
    /// A page is entered, and nothing is promoted.
    Enter,
    /// A page is entered; each sixteenth completes a large page and each 256th a
    /// section.
    EnterAndPromote,
    /// The same with flags in the PV entries.
    EnterAndPromoteFlags,
}

/// Measures inside `counted`; how many calls there were.
pub(crate) fn gate(measure: Measure, counted: fn(&mut dyn FnMut())) -> Result<u64, String> {
    let ranges = [ByteRange::of_frames(TABLES)];
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&ranges, &mut areas).map_err(|error| error.to_string())?;
    let config = BuddyConfig::PBS_ARMV7;
    let storage = vec![0; PageBuddy::<Vec<u64>, HeadOfList>::storage_words(&map, config)];
    let allocator = PageBuddy::new(&map, config, storage).map_err(|error| error.to_string())?;
    let tables = RefCell::new(allocator);
    let mut words = vec![0; TABLES.count as usize * 512];
    let memory = SliceMemory::new(TABLES.start, &mut words);
    let by_page = matches!(
        measure,
        Measure::Enter | Measure::EnterAndPromote | Measure::EnterAndPromoteFlags
    );
    let all = Sizes::all(Format::ArmV7);
    let sizes = if by_page { all } else { all.without(Order::known(4)) };
    let space = AddressSpace::with_superpages(Format::ArmV7, sizes, &memory, &tables, &tables)
        .map_err(|error| error.to_string())?;
    if by_page { by_pages(measure, space, counted) } else { by_sections(measure, space, counted) }
}

fn section(i: u64) -> Vpn {
    Vpn::new(FIRST + (i << SECTION.k()))
}

fn by_sections(
    measure: Measure,
    mut space: Space<'_>,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let create = matches!(measure, Measure::Recreate);
    for page in (0..CALLS).map(section) {
        let frame = Pfn::new(page.raw());
        if create {
            space.map_page_size(page, frame, SECTION, READ).map_err(|error| error.to_string())?;
            continue;
        }
        let extent = Extent::new(frame, SECTION.frames());
        space.map(page, extent, READ).map_err(|error| error.to_string())?;
        match measure {
            Measure::PromoteInVain => {
                let second = PageRange::new(Vpn::new(page.raw() + 1), 1);
                let change = |_| Attributes::USER_DATA;
                space.protect(second, change, &mut |_| ()).map_err(|error| error.to_string())?;
            }
            Measure::Recall => {
                space.promote(page, SECTION, &mut |_| ()).map_err(|error| error.to_string())?;
            }
            _ => {}
        }
    }
    let mut right = 0;
    counted(&mut || {
        for page in (0..CALLS).map(section) {
            right += u64::from(match measure {
                Measure::Promote => space.promote(page, SECTION, &mut |_| ()).is_ok(),
                Measure::PromoteInVain => {
                    let refused = space.promote(page, SECTION, &mut |_| ());
                    matches!(refused, Err(PromoteError::Refused { words_read: 258, .. }))
                }
                _ => {
                    let table =
                        if create { DemotedTable::Recreated } else { DemotedTable::Recalled };
                    space.demote(page, &mut |_| ()).is_ok_and(|demoted| demoted.table == table)
                }
            });
        }
    });
    space.check().map_err(|error| error.to_string())?;
    if right == CALLS { Ok(CALLS) } else { Err(format!("{right} of {CALLS} calls were right")) }
}

fn by_pages(
    measure: Measure,
    space: Space<'_>,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let pages = CALLS << SECTION.k();
    let frames = Extent::new(Pfn::new(FIRST), pages);
    let sizes = Sizes::all(Format::ArmV7);
    let words = ReverseMap::words_needed(frames, sizes, pages as u32).ok_or("too many")?;
    let reverse =
        ReverseMap::new(frames, sizes, vec![0; words]).map_err(|error| error.to_string())?;
    let flags = matches!(measure, Measure::EnterAndPromoteFlags);
    let status = if flags { Status::InReverseMap } else { Status::InTable };
    let promote = !matches!(measure, Measure::Enter);
    let mut pmap = Pmap::new(reverse, status);
    let mut spaces = [space];
    let mut spaces = (&mut spaces[..], |_, _| ());
    let mut right = 0;
    counted(&mut || {
        for i in 0..pages {
            // As a reservation that fills up would say.
            let full = match i + 1 {
                _ if !promote => None,
                done if done % 256 == 0 => Some(SECTION),
                done if done % 16 == 0 => Some(Order::known(4)),
                _ => None,
            };
            let site = Site { space: SpaceId(0), page: Vpn::new(FIRST + i) };
            let frame = Pfn::new(FIRST + i);
            let entered = pmap.enter(&mut spaces, site, frame, READ, PageAccess::Read, full);
            right += u64::from(entered.is_ok_and(|order| order == full.unwrap_or_default()));
        }
    });
    pmap.check(&mut spaces, [SpaceId(0)].into_iter()).map_err(|error| error.to_string())?;
    if right == pages { Ok(pages) } else { Err(format!("{right} of {pages} calls were right")) }
}
