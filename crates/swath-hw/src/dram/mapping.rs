//! The choice of channel, rank, bank, row and column by bits of an address.
//!
//! A [`AddressMapping`] is a list of bit fields from the lowest bit upward, without
//! gaps, so that every address has one place and every place one address.
//! Columns count words of the data bus; below them stand the bits of the byte
//! in the word.

use alloc::boxed::Box;
use alloc::vec::Vec;

use swath_arch::PhysAddr;

use crate::dram::timing::{BankIndex, Part};

/// The coordinate that a bit field chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Coordinate {
    /// The byte in a word of the data bus.
    Byte,
    /// The column.
    Column,
    /// The channel.
    Channel,
    /// The rank of the channel.
    Rank,
    /// The bank group of the rank.
    Group,
    /// The bank of the group.
    Bank,
    /// The row of the bank.
    Row,
}

impl Coordinate {
    /// Number of coordinates.
    pub const COUNT: usize = 7;

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Byte, Self::Column, Self::Channel, Self::Rank, Self::Group, Self::Bank, Self::Row];
}

/// Some consecutive bits of an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressField {
    /// The coordinate that they choose. Where two fields choose the same, the higher one
    /// holds the more significant bits.
    pub kind: Coordinate,
    /// Number of bits.
    pub bits: u32,
}

/// The place of a byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Location {
    /// The channel.
    pub channel: u32,
    /// The rank of the channel.
    pub rank: u32,
    /// The bank group of the rank.
    pub group: u32,
    /// The bank of the group.
    pub bank: u32,
    /// The row of the bank.
    pub row: u32,
    /// The column of the row, counted in words of the data bus.
    pub column: u32,
    /// The byte in the word.
    pub byte: u32,
}

/// Reasons why a mapping does not fit the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressMappingError {
    /// The fields of one kind are not as wide as the memory needs.
    #[error("mapping has {bits} bits of {kind:?}, the memory {needed_bits}")]
    Width {
        /// The coordinate of the fields.
        kind: Coordinate,
        /// Width of the fields together.
        bits: u32,
        /// Width that the memory needs.
        needed_bits: u32,
    },
    /// More bits than an address has, or more of one kind than are counted in.
    #[error("a field of {bits} bits of {kind:?}: at most 31 of a kind, 63 in all")]
    Bits {
        /// The coordinate of the field that is too much.
        kind: Coordinate,
        /// Width of the field.
        bits: u32,
    },
    /// The bits below channel, bank and row do not hold a burst: it would be
    /// spread over several places.
    #[error("mapping keeps {together_bytes} bytes together, a burst has {burst_bytes}")]
    Burst {
        /// Bytes that stay together.
        together_bytes: u64,
        /// Bytes of a burst.
        burst_bytes: u32,
    },
    /// An interleave that is no power of two, or less than a burst, or more than a row.
    #[error(
        "channels cannot take turns every {interleave_bytes} bytes: a power of two from a burst to a row"
    )]
    Interleave {
        /// The interleave.
        interleave_bytes: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Segment {
    kind: Coordinate,
    /// The lowest bit of the address.
    at: u32,
    /// The lowest bit of the value.
    shift: u32,
    bits: u32,
}

/// The list of bit fields.
///
/// Invariant: the segments cover the address bits from 0 to `bits` once each,
/// and the value bits of each kind from 0 upward once each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AddressMapping {
    segments: Vec<Segment>,
    bits: u32,
}

impl AddressMapping {
    /// Creates the mapping of these fields, given from the lowest bit upward.
    /// Fields without bits are left out. O(fields).
    ///
    /// # Errors
    /// [`AddressMappingError::Bits`].
    pub fn new(fields: &[AddressField]) -> Result<Self, AddressMappingError> {
        let mut widths = [0u32; Coordinate::COUNT];
        let mut segments = Vec::with_capacity(fields.len());
        let mut at = 0u32;
        for &AddressField { kind, bits } in fields.iter().filter(|field| field.bits > 0) {
            let shift = widths[kind as usize];
            if bits > 31 || shift + bits > 31 || at + bits > 63 {
                return Err(AddressMappingError::Bits { kind, bits });
            }
            segments.push(Segment { kind, at, shift, bits });
            at += bits;
            widths[kind as usize] = shift + bits;
        }
        Ok(Self { segments, bits: at })
    }

    /// Creates the mapping *row, rank, bank, column, bank group, channel, column*, from the
    /// highest bit to the lowest, where the channels take turns every
    /// `interleave_bytes`.
    ///
    /// With one rank and no bank groups this is the mapping of *Duong and Hur* (Table 3): *Row,
    /// Bank, Column, Channel, Column*. The paper does not give the positions. A transaction of 64
    /// bytes is one burst of [`DDR3_800`](crate::dram::parts::DDR3_800), so 64 is the least
    /// interleave that leaves a column field below the channel, and the one that the simulators'
    /// figures of this crate's tests were taken with (there called Row-Bank-Column-Channel, as
    /// their columns count bursts). For four channels the positions are then
    ///
    /// | bits | 31–17 | 16–15 | 14–8 | 7–6 | 5–3 | 2–0 |
    /// |---|---|---|---|---|---|---|
    /// | choose | row | bank | column, high 7 | channel | column, low 3 | byte |
    ///
    /// Bank groups stand as low as channels do, so that a stream alternates between
    /// groups and meets the short distances (tCCD_S).
    ///
    /// # Errors
    /// [`AddressMappingError::Interleave`], and [`AddressMappingError::Bits`] for a memory beyond
    /// 2^63 bytes.
    pub fn interleaved(
        part: &Part,
        channels: u32,
        ranks: u32,
        interleave_bytes: u64,
    ) -> Result<Self, AddressMappingError> {
        let fits = u64::from(part.burst_bytes())..=part.row_bytes();
        if !interleave_bytes.is_power_of_two() || !fits.contains(&interleave_bytes) {
            return Err(AddressMappingError::Interleave { interleave_bytes });
        }
        let field = |kind, bits| AddressField { kind, bits };
        let byte = part.bus_bytes.trailing_zeros();
        let low = interleave_bytes.trailing_zeros() - byte;
        Self::new(&[
            field(Coordinate::Byte, byte),
            field(Coordinate::Column, low),
            field(Coordinate::Channel, channels.trailing_zeros()),
            field(Coordinate::Group, part.groups.trailing_zeros()),
            field(Coordinate::Column, part.column_bits - low),
            field(Coordinate::Bank, part.banks_per_group.trailing_zeros()),
            field(Coordinate::Rank, ranks.trailing_zeros()),
            field(Coordinate::Row, part.row_bits),
        ])
    }

    /// Returns the fields, from the lowest bit upward.
    pub fn fields(&self) -> impl Iterator<Item = AddressField> + '_ {
        self.segments.iter().map(|&Segment { kind, bits, .. }| AddressField { kind, bits })
    }

    /// Address bits that are mapped.
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// Tests that the mapping is one of `channels` channels of `ranks` ranks
    /// of `part`. O(fields).
    ///
    /// # Errors
    /// [`AddressMappingError::Width`] and [`AddressMappingError::Burst`].
    pub fn validate(
        &self,
        part: &Part,
        channels: u32,
        ranks: u32,
    ) -> Result<(), AddressMappingError> {
        for kind in Coordinate::ALL {
            let needed_bits = match kind {
                Coordinate::Byte => part.bus_bytes.trailing_zeros(),
                Coordinate::Column => part.column_bits,
                Coordinate::Channel => channels.trailing_zeros(),
                Coordinate::Rank => ranks.trailing_zeros(),
                Coordinate::Group => part.groups.trailing_zeros(),
                Coordinate::Bank => part.banks_per_group.trailing_zeros(),
                Coordinate::Row => part.row_bits,
            };
            let bits: u32 = self
                .segments
                .iter()
                .filter(|segment| segment.kind == kind)
                .map(|segment| segment.bits)
                .sum();
            if bits != needed_bits {
                return Err(AddressMappingError::Width { kind, bits, needed_bits });
            }
        }
        let together = self
            .segments
            .iter()
            .find(|segment| !matches!(segment.kind, Coordinate::Byte | Coordinate::Column))
            .map_or(self.bits, |segment| segment.at);
        let together_bytes = 1 << together;
        if together_bytes < u64::from(part.burst_bytes()) {
            let burst_bytes = part.burst_bytes();
            return Err(AddressMappingError::Burst { together_bytes, burst_bytes });
        }
        Ok(())
    }

    /// Returns the place of `addr`; `None` above the memory. O(fields).
    #[inline]
    pub fn locate(&self, addr: PhysAddr) -> Option<Location> {
        let addr = addr.raw();
        if addr >> self.bits != 0 {
            return None;
        }
        let mut values = [0u32; Coordinate::COUNT];
        for &Segment { kind, at, shift, bits } in &self.segments {
            let value = (addr >> at) as u32 & ((1 << bits) - 1);
            values[kind as usize] |= value << shift;
        }
        let [byte, column, channel, rank, group, bank, row] = values;
        Some(Location { channel, rank, group, bank, row, column, byte })
    }

    /// Returns what finds the channel, the bank and the row of an address with one step for each
    /// field that chooses them. O(fields).
    pub(crate) fn decoder(&self, part: &Part) -> Decoder {
        let pieces = |kinds: &[(Coordinate, u32)]| {
            let mut pieces = Vec::new();
            for &(of, first_bit) in kinds {
                let own = self.segments.iter().filter(|segment| segment.kind == of);
                pieces.extend(own.map(|&Segment { at, shift, bits, .. }| Piece {
                    at,
                    mask: (1 << bits) - 1,
                    shift: first_bit + shift,
                }));
            }
            Chooser::new(&pieces)
        };
        let group_bit = part.banks_per_group.trailing_zeros();
        let rank_bit = part.banks().trailing_zeros();
        Decoder {
            channel: pieces(&[(Coordinate::Channel, 0)]),
            bank: pieces(&[
                (Coordinate::Bank, 0),
                (Coordinate::Group, group_bit),
                (Coordinate::Rank, rank_bit),
            ]),
            row: pieces(&[(Coordinate::Row, 0)]),
            bits: self.bits,
        }
    }

    /// Returns the address of a place, of which bits that the mapping lacks are
    /// dropped. The inverse of [`locate`](Self::locate). O(fields).
    pub fn address(&self, location: &Location) -> PhysAddr {
        let Location { channel, rank, group, bank, row, column, byte } = *location;
        let values = [byte, column, channel, rank, group, bank, row];
        PhysAddr::new(self.segments.iter().fold(0, |addr, &Segment { kind, at, shift, bits }| {
            let value = u64::from(values[kind as usize] >> shift) & ((1u64 << bits) - 1);
            addr | value << at
        }))
    }
}

/// A field of an address that chooses some bits of a number.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: u32,
    mask: u32,
    shift: u32,
}

/// The channel of an address, its bank on the channel, and its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BankRow {
    pub(crate) channel: u32,
    pub(crate) bank: BankIndex,
    pub(crate) row: u32,
}

/// A coordinate as the fields of an address that choose it: most often one.
#[derive(Clone, Debug)]
struct Chooser {
    first: Piece,
    more: Box<[Piece]>,
}

impl Piece {
    #[inline]
    fn of(self, addr: u64) -> u32 {
        ((addr >> self.at) as u32 & self.mask) << self.shift
    }
}

impl Chooser {
    fn new(pieces: &[Piece]) -> Self {
        match pieces {
            [] => Self { first: Piece { at: 0, mask: 0, shift: 0 }, more: Box::default() },
            [first, more @ ..] => Self { first: *first, more: more.into() },
        }
    }

    #[inline]
    fn of(&self, addr: u64) -> u32 {
        let first = self.first.of(addr);
        if self.more.is_empty() {
            return first;
        }
        self.more.iter().fold(first, |value, piece| value | piece.of(addr))
    }
}

/// An [`AddressMapping`] as a memory asks it for each request.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    channel: Chooser,
    bank: Chooser,
    row: Chooser,
    bits: u32,
}

impl Decoder {
    /// Returns the place of `addr`; `None` above the memory. O(fields that choose it).
    #[inline]
    pub(crate) fn place(&self, addr: PhysAddr) -> Option<BankRow> {
        let addr = addr.raw();
        if addr >> self.bits != 0 {
            return None;
        }
        let [channel, bank, row] = [&self.channel, &self.bank, &self.row].map(|by| by.of(addr));
        Some(BankRow { channel, bank, row })
    }
}
