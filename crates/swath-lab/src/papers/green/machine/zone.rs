//! A zone under one of the green memory manager's allocators.

use swath_arch::{Extent, Pfn};
use swath_frame::zone::bank::{
    AdaptiveBuddy, ArrayBuddy, BankLayout, BoundaryBuddy, ListBuddy, TreeBuddy,
};
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{LinuxZone, MemoryMap, PageZone, ZoneAllocator};

use crate::papers::green::machine::allocator::{
    AllocatorName, FallbackTally, GreenZone, ZonePlace, linux,
};

/// The allocators that differ within a zone, the baseline first.
pub(crate) const MEASURED: [AllocatorName; 5] = [
    AllocatorName::Linux,
    AllocatorName::BankArray,
    AllocatorName::BankList,
    AllocatorName::Adaptive,
    AllocatorName::AdaptivePacked,
];

fn place<'a>(
    map: &'a MemoryMap<'a>,
    span: Extent,
    bank_frames: u64,
) -> Result<ZonePlace<'a>, String> {
    let banks = BankLayout::new(Pfn::new(0), bank_frames, ORDER_MAX);
    Ok(ZonePlace { map, span, banks: banks.map_err(|error| error.to_string())? })
}

/// A zone of the frames of `map` in `span`, all of them free.
pub(crate) fn zone(
    name: AllocatorName,
    map: &MemoryMap<'_>,
    span: Extent,
    bank_frames: u64,
) -> Result<Box<dyn ZoneAllocator>, String> {
    use AllocatorName as Name;
    let place = place(map, span, bank_frames)?;
    Ok(match name {
        Name::Linux | Name::LinuxMovable | Name::LinuxDefrag | Name::LinuxGuaranteed => {
            Box::new(linux(&place)?)
        }
        Name::Pbs => Box::new(<PageZone<Vec<u64>> as GreenZone>::build(&place, name)?),
        Name::BankArray => Box::new(ArrayBuddy::build(&place, name)?),
        Name::BankList => Box::new(ListBuddy::build(&place, name)?),
        Name::Contiguitas => Box::new(BoundaryBuddy::build(&place, name)?),
        Name::Llfree => Box::new(TreeBuddy::build(&place, name)?),
        Name::Adaptive | Name::AdaptivePacked => Box::new(AdaptiveBuddy::build(&place, name)?),
    })
}

/// Words that such a zone stores its state in, beside its struct.
pub(crate) fn storage_words(
    name: AllocatorName,
    map: &MemoryMap<'_>,
    span: Extent,
    bank_frames: u64,
) -> Result<usize, String> {
    use AllocatorName as Name;
    let place = place(map, span, bank_frames)?;
    match name {
        Name::Pbs => <PageZone<Vec<u64>> as GreenZone>::storage_words(&place, name),
        Name::Linux | Name::LinuxMovable | Name::LinuxDefrag | Name::LinuxGuaranteed => {
            <LinuxZone<_, FallbackTally> as GreenZone>::storage_words(&place, name)
        }
        Name::BankArray => <ArrayBuddy<_> as GreenZone>::storage_words(&place, name),
        Name::BankList => <ListBuddy<_> as GreenZone>::storage_words(&place, name),
        Name::Contiguitas => <BoundaryBuddy<_> as GreenZone>::storage_words(&place, name),
        Name::Llfree => <TreeBuddy<_> as GreenZone>::storage_words(&place, name),
        Name::Adaptive | Name::AdaptivePacked => {
            <AdaptiveBuddy<_> as GreenZone>::storage_words(&place, name)
        }
    }
}
