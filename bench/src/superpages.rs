//! Gates on promotion and demotion, in ARMv7 whose section is the talk's: 256
//! pages in one table.

use std::cell::RefCell;

use swath_arch::{Attributes, Extent, Format, Order, PageRange, Pfn, SliceMemory, Vpn};
use swath_frame::{BuddyConfig, ByteRange, HeadOfList, MemoryMap, PageBuddy};
use swath_vm::{
    AddressSpace, DemotedTable, KeptPermissions, PageAccess, Pmap, PromoteError, ReverseMap, Site,
    Sizes, SpaceId, Status,
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
    /// 256 pages of a pmap are folded, with the status flags here.
    PmapPromote(Status),
    /// One page of a pmap's section loses a permission, for which the kept table is put back.
    PmapProtect(Status),
    /// A page is entered, and nothing is promoted.
    Enter,
    /// A page is entered into a space whose superpages are off, while its reservation fills up.
    EnterOff,
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
    let all = Sizes::all(Format::ArmV7);
    let sizes = match measure {
        Measure::Enter | Measure::EnterAndPromote | Measure::EnterAndPromoteFlags => all,
        Measure::EnterOff => Sizes::NONE,
        _ => all.without(Order::known(4)),
    };
    let space = AddressSpace::with_superpages(Format::ArmV7, sizes, &memory, &tables, &tables)
        .map_err(|error| error.to_string())?;
    match measure {
        Measure::Enter => by_pages(Status::InTable, |_| None, space, counted),
        Measure::EnterOff => by_pages(Status::InTable, filled, space, counted),
        Measure::EnterAndPromote => by_pages(Status::InTable, filled, space, counted),
        Measure::EnterAndPromoteFlags => by_pages(Status::InReverseMap, filled, space, counted),
        Measure::PmapPromote(status) => pmap_sections(status, false, space, counted),
        Measure::PmapProtect(status) => pmap_sections(status, true, space, counted),
        _ => by_sections(measure, space, counted),
    }
}

/// What a reservation that fills up would say when this page is there: the order that is full.
fn filled(page: u64) -> Option<Order> {
    match page + 1 {
        done if done % 256 == 0 => Some(SECTION),
        done if done % 16 == 0 => Some(Order::known(4)),
        _ => None,
    }
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

fn pmap(status: Status) -> Result<Pmap<Vec<u64>>, String> {
    let pages = CALLS << SECTION.k();
    let frames = Extent::new(Pfn::new(FIRST), pages);
    let sizes = Sizes::all(Format::ArmV7);
    let words = ReverseMap::words_needed(frames, sizes, status, pages as u32).ok_or("too many")?;
    let reverse = ReverseMap::new(frames, sizes, status, vec![0; words]);
    Ok(Pmap::new(reverse.map_err(|error| error.to_string())?))
}

const fn site(page: Vpn) -> Site {
    Site { space: SpaceId(0), page }
}

fn by_pages(
    status: Status,
    full: fn(u64) -> Option<Order>,
    space: Space<'_>,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let pages = CALLS << SECTION.k();
    let mut pmap = pmap(status)?;
    let sizes = space.sizes().unwrap_or_default();
    let mut spaces = [space];
    let mut spaces = (&mut spaces[..], |_, _| ());
    let mut right = 0;
    counted(&mut || {
        for i in 0..pages {
            let full = full(i);
            let (at, frame) = (site(Vpn::new(FIRST + i)), Pfn::new(FIRST + i));
            let entered = pmap.enter(&mut spaces, at, frame, READ, PageAccess::Read, full);
            let expected = full.filter(|&full| sizes.contains(full)).unwrap_or_default();
            right += u64::from(entered.is_ok_and(|order| order == expected));
        }
    });
    pmap.check(&mut spaces, [SpaceId(0)].into_iter()).map_err(|error| error.to_string())?;
    if right == pages { Ok(pages) } else { Err(format!("{right} of {pages} calls were right")) }
}

/// Promotes each section, and if `protect`, measures not that but that one page of it loses a
/// permission.
fn pmap_sections(
    status: Status,
    protect: bool,
    space: Space<'_>,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let mut pmap = pmap(status)?;
    let mut spaces = [space];
    let mut spaces = (&mut spaces[..], |_, _| ());
    for i in 0..CALLS << SECTION.k() {
        let (at, frame) = (site(Vpn::new(FIRST + i)), Pfn::new(FIRST + i));
        pmap.enter(&mut spaces, at, frame, READ, PageAccess::Read, None)
            .map_err(|error| error.to_string())?;
    }
    let mut right = 0;
    let mut promote = |pmap: &mut Pmap<_>| {
        for page in (0..CALLS).map(section) {
            right += u64::from(pmap.promote(&mut spaces, site(page), Some(SECTION)) == SECTION);
        }
    };
    if !protect {
        counted(&mut || promote(&mut pmap));
    } else {
        promote(&mut pmap);
        right = 0;
        let kept = KeptPermissions { writable: false, executable: false };
        counted(&mut || {
            for page in (0..CALLS).map(section) {
                let range = PageRange::new(page + 35, 1);
                right += u64::from(pmap.protect(&mut spaces, SpaceId(0), range, kept).is_ok());
            }
        });
        right = right.min(pmap.statistics().recalled);
    }
    pmap.check(&mut spaces, [SpaceId(0)].into_iter()).map_err(|error| error.to_string())?;
    if right == CALLS { Ok(CALLS) } else { Err(format!("{right} of {CALLS} calls were right")) }
}
