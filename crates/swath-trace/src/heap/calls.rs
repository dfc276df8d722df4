//! Calls of the allocator, read off the stores of the preloaded library.
//!
//! [`swath_preload`] says how a call is told. The reader keeps a state for each
//! lane; records of different lanes may be interleaved, those of one may not.

use swath_preload as protocol;

use crate::access::event::{AccessKind, MemoryAccess};

/// One past the last byte that a record's store can begin at.
const WINDOW_END: u64 = protocol::WINDOW_ADDR + protocol::LANES * protocol::LANE_BYTES;

/// Numbers of a record, at most.
const NUMBERS_MAX: usize = 3;

/// Bits of a number that one store tells.
const DIGIT_BITS: u32 = 12;

/// A call, told after it gave memory and before it takes some back. An address
/// of 0 means that it gave none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// The library is there.
    Start,
    Allocated {
        addr: u64,
        size_bytes: u64,
        align_bytes: u64,
        zeroed: bool,
    },
    /// `realloc` begins.
    Resizing {
        addr: u64,
    },
    /// The `realloc` that the thread began has ended.
    Resized {
        addr: u64,
        size_bytes: u64,
    },
    Freed {
        addr: u64,
    },
}

/// A record of which not everything is there yet.
#[derive(Clone, Copy, Default)]
struct Lane {
    /// Number of records begun, modulo [`protocol::SEQUENCE`].
    next: u64,
    open: bool,
    numbers: [u64; NUMBERS_MAX],
    count: usize,
    /// Bits of the current number that are there.
    bits: u32,
}

/// Reads calls off stores.
pub(crate) struct Calls {
    lanes: Vec<Lane>,
    lost: u64,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self { lanes: vec![Lane::default(); protocol::LANES as usize], lost: 0 }
    }

    /// Returns true if this is an access of the library to its window.
    #[inline]
    pub(crate) fn is_report(access: &MemoryAccess) -> bool {
        (protocol::WINDOW_ADDR..WINDOW_END).contains(&access.addr.raw())
    }

    /// Calls of which something is missing, those begun and not ended included.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + self.lanes.iter().filter(|lane| lane.open).count() as u64
    }

    /// Takes an access for which [`is_report`](Self::is_report) holds; gives
    /// the call, with its thread, of which it is the last store. O(1).
    pub(crate) fn take(&mut self, access: MemoryAccess) -> Option<(u32, Call)> {
        let from_start = access.addr.raw().checked_sub(protocol::WINDOW_ADDR)?;
        let (number, offset) =
            (from_start / protocol::LANE_BYTES, from_start % protocol::LANE_BYTES);
        let lane = self.lanes.get_mut(usize::try_from(number).ok()?)?;
        let sound = match (access.kind, access.len_bytes) {
            (AccessKind::Write, 8) => {
                let at = offset / 8;
                let sequence = protocol::SEQUENCE;
                let missing = (at + sequence - lane.next) % sequence;
                self.lost += missing + u64::from(lane.open);
                *lane = Lane { next: (at + 1) % sequence, open: true, ..Lane::default() };
                return None;
            }
            (AccessKind::Write, len @ (1 | 2)) if lane.open => lane.digit(offset, len == 2),
            (AccessKind::Write, 4) if lane.open => {
                lane.open = false;
                match lane.call(offset / 4) {
                    Some(call) => return Some((number as u32, call)),
                    None => false,
                }
            }
            _ => !lane.open,
        };
        if !sound {
            lane.open = false;
            self.lost += 1;
        }
        None
    }
}

impl Lane {
    /// Returns true if there is room for these bits of a number.
    fn digit(&mut self, digit: u64, last: bool) -> bool {
        let Some(number) = self.numbers.get_mut(self.count) else { return false };
        if self.bits >= u64::BITS || digit.leading_zeros() < self.bits {
            return false;
        }
        *number |= digit << self.bits;
        self.bits += DIGIT_BITS;
        if last {
            self.count += 1;
            self.bits = 0;
        }
        true
    }

    /// The call of this code, if it has as many numbers as are there.
    fn call(&self, code: u64) -> Option<Call> {
        let [a, b, c] = self.numbers;
        let none = 1;
        Some(match (code, self.count, self.bits) {
            (protocol::START, 0, 0) => Call::Start,
            (protocol::MALLOC, 2, 0) => {
                Call::Allocated { addr: b, size_bytes: a, align_bytes: none, zeroed: false }
            }
            (protocol::CALLOC, 2, 0) => {
                Call::Allocated { addr: b, size_bytes: a, align_bytes: none, zeroed: true }
            }
            // glibc rounds up what is no power of two, and so is what it gave.
            (protocol::ALIGNED, 3, 0) => {
                let align_bytes = a.checked_next_power_of_two()?;
                Call::Allocated { addr: c, size_bytes: b, align_bytes, zeroed: false }
            }
            (protocol::FREE, 1, 0) => Call::Freed { addr: a },
            (protocol::REALLOC, 1, 0) => Call::Resizing { addr: a },
            (protocol::REALLOCATED, 2, 0) => Call::Resized { addr: b, size_bytes: a },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use swath_arch::VirtAddr;

    use super::*;

    fn store(lane: u64, offset: u64, len_bytes: u16) -> MemoryAccess {
        let addr = protocol::WINDOW_ADDR + lane * protocol::LANE_BYTES + offset;
        MemoryAccess::new(VirtAddr::new(addr), len_bytes, AccessKind::Write).unwrap()
    }

    /// Returns what the library stores, written anew from its description.
    fn record(lane: u64, n: u64, numbers: &[u64], code: u64) -> Vec<MemoryAccess> {
        let mut stores = vec![store(lane, n % protocol::SEQUENCE * 8, 8)];
        for &number in numbers {
            let mut rest = number;
            while rest >= 4096 {
                stores.push(store(lane, rest % 4096, 1));
                rest /= 4096;
            }
            stores.push(store(lane, rest, 2));
        }
        stores.push(store(lane, code * 4, 4));
        stores
    }

    fn read(stores: &[MemoryAccess]) -> (Vec<(u32, Call)>, u64) {
        let mut calls = Calls::new();
        let told = stores.iter().filter_map(|&store| calls.take(store)).collect();
        (told, calls.lost())
    }

    proptest! {
        #[test]
        fn numbers_of_any_size(size in any::<u64>().prop_flat_map(|v| (0u32..64).prop_map(move |s| v >> s)), addr in any::<u64>(), lane in 0..protocol::LANES) {
            let stores = record(lane, 0, &[size, addr], protocol::MALLOC);
            let call = Call::Allocated { addr, size_bytes: size, align_bytes: 1, zeroed: false };
            prop_assert_eq!(read(&stores), (vec![(lane as u32, call)], 0));
        }

        /// Whatever is stored: no panic, and no more calls than stores that end one.
        #[test]
        fn any_stores(raw in prop::collection::vec((0..protocol::LANES * 4, 0u64..4096, 0usize..5), 0..300)) {
            let stores: Vec<_> =
                raw.iter().map(|&(lane, offset, len)| store(lane % 3, offset, [1, 2, 4, 8, 16][len])).collect();
            let ends = stores.iter().filter(|store| store.len_bytes == 4).count();
            prop_assert!(read(&stores).0.len() <= ends);
        }
    }

    #[test]
    fn lanes_are_interleaved() {
        let one = record(0, 0, &[0x7000_1234], protocol::FREE);
        let other = record(9, 0, &[24, 0x5000_0000], protocol::CALLOC);
        let mixed: Vec<_> = (0..one.len().max(other.len()))
            .flat_map(|i| [one.get(i), other.get(i)].into_iter().flatten().copied())
            .collect();
        let calls = read(&mixed);
        let zeroed =
            Call::Allocated { addr: 0x5000_0000, size_bytes: 24, align_bytes: 1, zeroed: true };
        assert_eq!(calls.1, 0);
        assert_eq!(calls.0.len(), 2);
        assert!(calls.0.contains(&(0, Call::Freed { addr: 0x7000_1234 })));
        assert!(calls.0.contains(&(9, zeroed)));
    }

    /// A record without one of its stores is a lost call or a call less; what
    /// follows is read again.
    #[test]
    fn missing_stores_are_counted() {
        let freed = Call::Freed { addr: 0xdead_beef };
        let whole: Vec<_> = (0..3 * protocol::SEQUENCE)
            .flat_map(|n| record(1, n, &[0xdead_beef], protocol::FREE))
            .collect();
        assert_eq!(read(&whole).1, 0);
        let one = record(1, 0, &[0], protocol::FREE).len() + 2;
        for missing in 5 * one..6 * one {
            let mut stores = whole.clone();
            stores.remove(missing);
            let (calls, lost) = read(&stores);
            let right = calls.iter().filter(|&&(_, call)| call == freed).count() as u64;
            // Without one of its digits a number is another one.
            let wrong = calls.len() as u64 - right;
            assert_eq!((right, wrong + lost), (3 * protocol::SEQUENCE - 1, 1), "store {missing}");
        }
    }

    #[test]
    fn what_is_no_record() {
        let bad: [&[MemoryAccess]; 6] = [
            &[store(0, 0, 8)],
            &[store(0, 0, 8), store(0, protocol::MALLOC * 4, 4)],
            &[store(0, 0, 8), store(0, 99 * 4, 4)],
            &[store(0, 0, 8), store(0, 7, 1), store(0, protocol::START * 4, 4)],
            &[store(0, 0, 8), store(0, 0, 16)],
            &[store(0, 8, 8), store(0, protocol::START * 4, 4)],
        ];
        for (i, stores) in bad.iter().enumerate() {
            assert_eq!(read(stores).1, 1, "case {i}");
        }
        let long = [vec![store(0, 0, 8)], vec![store(0, 4095, 1); 6]].concat();
        assert_eq!(read(&long), (vec![], 1));
    }
}
