//! Buffered bytes that know their offset, and the numbers of Swath's own
//! files: the one way in for every format this crate reads.
//!
//! Memory is bounded by the buffer, whatever the bytes say: nothing is ever
//! allocated by a length that was read.

use std::io::{self, Read};

/// Size of the buffer: large enough that a refill costs nothing per item,
/// small enough to stay in the second-level cache.
const BUFFER_BYTES: usize = 256 << 10;

/// The most bytes a number takes: ten groups of seven bits hold 64.
const VARINT_BYTES_MAX: usize = 10;

/// Reasons why a number cannot be read.
#[derive(Debug)]
pub(crate) enum NumberError {
    /// The source failed.
    Io(io::Error),
    /// The bytes end within the number.
    Truncated,
    /// More than 64 bits, or padded with needless zeros.
    Malformed,
}

/// A source of bytes with a buffer and the offset of its next byte.
pub(crate) struct Input<R> {
    source: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes consumed before `buffer[0]`.
    base: u64,
    ended: bool,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(source: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { source, buffer, start: 0, end: 0, base: 0, ended: false }
    }

    /// Bytes consumed so far: the offset of the next byte.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Returns the bytes that are buffered and not consumed.
    #[inline]
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The source, for what only the caller knows about it.
    pub(crate) fn source(&self) -> &R {
        &self.source
    }

    /// Buffers at least `want_bytes` (at most [`BUFFER_BYTES`]), or all that is
    /// left where the source ends earlier.
    #[inline]
    pub(crate) fn fill(&mut self, want_bytes: usize) -> io::Result<&[u8]> {
        if self.end - self.start < want_bytes && !self.ended {
            self.refill(want_bytes)?;
        }
        Ok(self.buffered())
    }

    #[cold]
    fn refill(&mut self, want_bytes: usize) -> io::Result<()> {
        debug_assert!(want_bytes <= BUFFER_BYTES);
        self.buffer.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        while self.end < want_bytes {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Drops `count` buffered bytes.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start = (self.start + count).min(self.end);
    }

    /// The next byte.
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, NumberError> {
        let Some(&byte) = self.fill(1).map_err(NumberError::Io)?.first() else {
            return Err(NumberError::Truncated);
        };
        self.consume(1);
        Ok(byte)
    }

    /// The next number: groups of seven bits, the lowest first, bit 7 set on
    /// all but the last (LEB128). On an error nothing is consumed.
    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, NumberError> {
        let bytes = self.fill(VARINT_BYTES_MAX).map_err(NumberError::Io)?;
        let mut value = 0;
        for (i, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
            let group = u64::from(byte & 0x7f);
            value |= group << (7 * i);
            if byte & 0x80 == 0 {
                let overflows = i == VARINT_BYTES_MAX - 1 && group > 1;
                if overflows || (i > 0 && group == 0) {
                    return Err(NumberError::Malformed);
                }
                self.consume(i + 1);
                return Ok(value);
            }
        }
        Err(if bytes.len() < VARINT_BYTES_MAX {
            NumberError::Truncated
        } else {
            NumberError::Malformed
        })
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill(1)?;
        let count = bytes.len().min(to.len());
        to[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Appends `value` as [`Input::number`] reads it.
#[inline]
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Folds the sign into bit 0, so that small differences of either sign are
/// small numbers.
#[inline]
pub(crate) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

/// The inverse of [`zigzag`].
#[inline]
pub(crate) fn unzigzag(folded: u64) -> u64 {
    (folded >> 1) ^ (folded & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(values in prop::collection::vec(any::<u64>().prop_flat_map(|v| (0u32..64).prop_map(move |s| v >> s)), 0..200)) {
            let mut bytes = Vec::new();
            for &value in &values {
                put_number(&mut bytes, value);
                prop_assert_eq!(unzigzag(zigzag(value)), value);
            }
            let mut input = Input::new(&bytes[..]);
            for &value in &values {
                prop_assert_eq!(input.number().unwrap(), value);
            }
            prop_assert_eq!(input.offset(), bytes.len() as u64);
            prop_assert!(matches!(input.number(), Err(NumberError::Truncated)));
        }
    }

    #[test]
    fn malformed_numbers() {
        let read = |bytes: &[u8]| Input::new(bytes).number();
        assert_eq!(
            read(&[0xff; 9].iter().copied().chain([1]).collect::<Vec<_>>()).unwrap(),
            u64::MAX
        );
        for bad in [
            &[0x80, 0][..],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0xff; 11],
        ] {
            assert!(matches!(read(bad), Err(NumberError::Malformed)), "{bad:?}");
        }
        assert!(matches!(read(&[0x80]), Err(NumberError::Truncated)));
        assert_eq!(zigzag(1u64.wrapping_neg()), 1);
        assert_eq!(zigzag(1), 2);
    }

    /// Small and large steps over more than a buffer give back every byte.
    #[test]
    fn refills_keep_the_offset() {
        let bytes: Vec<u8> = (0..3 * BUFFER_BYTES as u32 + 7).map(|i| (i % 251) as u8).collect();
        let mut input = Input::new(&bytes[..]);
        let mut at = 0;
        while at < bytes.len() {
            let got = input.fill(64).unwrap();
            let step = got.len().min(1 + at % 97);
            assert_eq!(got[..step], bytes[at..at + step]);
            input.consume(step);
            at += step;
            assert_eq!(input.offset(), at as u64);
        }
        assert!(input.fill(1).unwrap().is_empty());
    }
}
