//! The check of a regime against the ranges that `swath-arch` documents.

use swath_arch::{BASE_PAGE_SHIFT, Coalescing, ContiguityField, Order, PhysAddr, Regime};

use crate::tlb::geometry::GeometryError;

/// Reasons why a translating machine cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MmuConfigError {
    /// The TLB's form.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The root is not aligned to [`Format::root_order`](swath_arch::Format::root_order).
    #[error("root table at {root} is misaligned")]
    Root {
        /// The root.
        root: PhysAddr,
    },
    /// A width of [`ContiguityField::Beside`] that does not fit the format.
    #[error("{bits} bits of contiguity do not fit the format")]
    Bits {
        /// The width.
        bits: u8,
    },
    /// An anchor distance that is not 2^1 to 2^16.
    #[error("anchor distance 2^{distance}: 2^1 to 2^16")]
    Distance {
        /// The distance.
        distance: Order,
    },
    /// A page-walk cache of more than
    /// [`Hierarchy::WALK_CACHE_ENTRIES_MAX`](crate::translate::hierarchy::Hierarchy::WALK_CACHE_ENTRIES_MAX).
    #[error("{entries} entries of a page-walk cache: at most 1024")]
    WalkCache {
        /// Its entries.
        entries: u32,
    },
}

/// Checks a regime against the ranges that `swath-arch` documents, and gives
/// the anchor distance, [`Order::BASE`] without one.
pub(crate) fn check_regime(regime: &Regime) -> Result<Order, MmuConfigError> {
    let format = regime.format;
    if !regime.root.is_aligned(BASE_PAGE_SHIFT + format.root_order().k()) {
        return Err(MmuConfigError::Root { root: regime.root });
    }
    let (field, distance) = match regime.coalescing {
        Coalescing::None => return Ok(Order::BASE),
        Coalescing::Pcad(field) => (field, Order::BASE),
        Coalescing::Anchor { field, distance } => {
            if !(1..=16).contains(&distance.k()) {
                return Err(MmuConfigError::Distance { distance });
            }
            (field, distance)
        }
    };
    match field {
        ContiguityField::Beside { bits }
            if bits == 0 || u32::from(bits) > format.beside_half_bits() =>
        {
            Err(MmuConfigError::Bits { bits })
        }
        _ => Ok(distance),
    }
}
