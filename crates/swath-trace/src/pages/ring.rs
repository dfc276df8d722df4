//! The kernel's trace buffer, as `trace_pipe_raw` hands it out: pages of
//! events, each with its time as the distance from the one before.
//!
//! Specification: `events/header_page` and `events/header_event` in tracefs,
//! and each event's own `format`, which say where the fields stand; the
//! kernel's `Documentation/trace/ring-buffer-design.rst`.

/// Place of a field, in bytes from the start of what holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Field {
    /// The first byte.
    pub(crate) offset: usize,
    /// Number of bytes.
    pub(crate) len_bytes: usize,
}

impl Field {
    /// The field `name` in a `format` or `header_page` text.
    ///
    /// # Errors
    /// What is missing or wrong, for a message that names the file.
    pub(crate) fn find(text: &str, name: &str) -> Result<Self, String> {
        let line = text.lines().find(|line| {
            let declared =
                line.trim().strip_prefix("field:").and_then(|rest| rest.split(';').next());
            // `char data[8]` declares the field `data`.
            declared
                .and_then(|field| field.split_whitespace().next_back())
                .is_some_and(|word| word.split('[').next() == Some(name))
        });
        let line = line.ok_or_else(|| format!("no field {name:?}"))?;
        let number = |key: &str| {
            let value = line.split(';').find_map(|part| part.trim().strip_prefix(key));
            let value = value.and_then(|digits| digits.trim().parse::<usize>().ok());
            value.ok_or_else(|| format!("field {name:?} has no {key}"))
        };
        let field = Self { offset: number("offset:")?, len_bytes: number("size:")? };
        let end = field.offset.checked_add(field.len_bytes);
        if end.is_none_or(|end| end > 1 << 20) {
            return Err(format!("field {name:?} is beyond any event"));
        }
        Ok(field)
    }

    /// The unsigned number that stands there; `None` beyond the end of
    /// `bytes`, or if it has another size than 1, 2, 4 or 8 bytes.
    pub(crate) fn read(self, bytes: &[u8]) -> Option<u64> {
        let bytes = bytes.get(self.offset..self.offset.checked_add(self.len_bytes)?)?;
        Some(match bytes.len() {
            1 => u64::from(bytes[0]),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }
}

/// Layout of the start of a page of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PageLayout {
    time: Field,
    commit: Field,
    data: Field,
}

/// Bits of the commit word: bytes of data, events lost before this page, and
/// their number stands behind the data.
const COMMIT_BYTES: u64 = (1 << 27) - 1;
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;

impl PageLayout {
    /// From the text of `events/header_page`.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let layout = Self {
            time: Field::find(text, "timestamp")?,
            commit: Field::find(text, "commit")?,
            data: Field::find(text, "data")?,
        };
        if layout.time.len_bytes != 8 || !matches!(layout.commit.len_bytes, 4 | 8) {
            return Err("a header of other sizes than any kernel's".into());
        }
        Ok(layout)
    }

    /// The bytes of a whole page: what a read should ask for.
    pub(crate) fn page_bytes(&self) -> usize {
        self.data.offset + self.data.len_bytes
    }

    /// Takes a page apart: `event` gets each event's time in nanoseconds and
    /// its bytes, ascending. Returns how many events were lost before the
    /// page: `Some(0)` if the kernel did not count them.
    ///
    /// # Errors
    /// The byte of the page at which it contradicts itself; the events before
    /// were handed out.
    pub(crate) fn read(
        &self,
        page: &[u8],
        event: &mut impl FnMut(u64, &[u8]),
    ) -> Result<Option<u64>, usize> {
        let base = self.time.read(page).ok_or(self.time.offset)?;
        let commit = self.commit.read(page).ok_or(self.commit.offset)?;
        let start = self.data.offset;
        let len = (commit & COMMIT_BYTES) as usize;
        let data = page.get(start..start + len).ok_or(self.commit.offset)?;
        let mut time = base;
        let mut at = 0;
        while at < data.len() {
            let wrong = start + at;
            let word = |at: usize| {
                let bytes: Option<&[u8]> = data.get(at..at + 4);
                let word = bytes.and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
                word.ok_or(wrong)
            };
            let head = word(at)?;
            // A bit field of C: the first field takes the low bits, or on a
            // machine with the highest byte first the high ones.
            let (kind, delta) = if cfg!(target_endian = "big") {
                (head >> 27, u64::from(head & ((1 << 27) - 1)))
            } else {
                (head & 31, u64::from(head >> 5))
            };
            at += 4;
            match kind {
                // Nothing but padding to the end of the page.
                29 if delta == 0 => break,
                29 => at = at.saturating_add(word(at)? as usize),
                30 => {
                    time = time.wrapping_add(delta | u64::from(word(at)?) << 27);
                    at += 4;
                }
                // The lower 59 bits of a time; the upper ones are the page's.
                31 => {
                    const LOW: u64 = (1 << 59) - 1;
                    time = base & !LOW | (delta | u64::from(word(at)?) << 27) & LOW;
                    at += 4;
                }
                _ => {
                    let len = if kind > 0 {
                        kind as usize * 4
                    } else {
                        // The length counts its own four bytes.
                        let len = word(at)? as usize;
                        at += 4;
                        len.checked_sub(4).ok_or(wrong)?
                    };
                    time = time.wrapping_add(delta);
                    let end = at.checked_add(len).ok_or(wrong)?;
                    event(time, data.get(at..end).ok_or(wrong)?);
                    at = end.next_multiple_of(4);
                }
            }
        }
        if commit & MISSED == 0 {
            return Ok(None);
        }
        let stored = Field { offset: start + len, len_bytes: self.commit.len_bytes };
        let count = if commit & MISSED_STORED != 0 { stored.read(page) } else { None };
        Ok(Some(count.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    fn page(time: u64, flags: u64, data: &[u8]) -> Vec<u8> {
        let commit = flags | data.len() as u64;
        [&time.to_ne_bytes()[..], &commit.to_ne_bytes(), data].concat()
    }

    fn word(kind: u32, delta: u32) -> [u8; 4] {
        let little = kind | delta << 5;
        let big = kind << 27 | delta;
        if cfg!(target_endian = "big") { big.to_ne_bytes() } else { little.to_ne_bytes() }
    }

    type Events = Vec<(u64, Vec<u8>)>;

    fn read(page: &[u8]) -> (Result<Option<u64>, usize>, Events) {
        let layout = PageLayout::parse(HEADER).unwrap();
        let mut events = Vec::new();
        let result = layout.read(page, &mut |time, bytes| events.push((time, bytes.to_vec())));
        (result, events)
    }

    #[test]
    fn every_kind_of_entry() {
        let raw = |number: u32| number.to_ne_bytes();
        let data = [
            &word(1, 5)[..],
            b"four",
            &word(30, 1),
            &raw(1), // 2^27 + 1 later
            &word(0, 2),
            &raw(4 + 6),
            b"sixsix\0\0",
            &word(29, 9),
            &raw(8), // a discarded event of 4 + 4 bytes
            b"gone",
            &word(31, 77),
            &raw(0),
            &word(1, 0),
            b"last",
            &word(29, 0),
            b"no more",
        ]
        .concat();
        let high = 1 << 60;
        let (result, events) = read(&page(high | 100, 0, &data));
        assert_eq!(result, Ok(None));
        let expected = [
            (high | 105, b"four".to_vec()),
            (high + 105 + (1 << 27) + 1 + 2, b"sixsix".to_vec()),
            (high | 77, b"last".to_vec()),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn lost_events() {
        let data = [&word(1, 0)[..], b"four"].concat();
        assert_eq!(read(&page(1, MISSED, &data)).0, Ok(Some(0)));
        let stored = [page(1, MISSED | MISSED_STORED, &data), 7u64.to_ne_bytes().to_vec()].concat();
        assert_eq!(read(&stored).0, Ok(Some(7)));
    }

    #[test]
    fn pages_that_contradict_themselves() {
        assert_eq!(read(&[0; 7]).0, Err(0));
        assert_eq!(read(&[0; 15]).0, Err(8));
        assert_eq!(read(&page(0, 100, &[])).0, Err(8));
        for (data, at) in [
            (&word(2, 0)[..], 16),
            (&[&word(1, 0)[..], b"four", &word(30, 0)].concat(), 24),
            (&[&word(0, 0)[..], &3u32.to_ne_bytes()].concat(), 16),
            (&[&word(0, 0)[..], &u32::MAX.to_ne_bytes()].concat(), 16),
        ] {
            assert_eq!(read(&page(0, 0, data)).0, Err(at), "{data:?}");
        }
    }

    #[test]
    fn fields() {
        let format = "name: x\nID: 5\nformat:\n\tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
            \tfield:char name[4];\toffset:16;\tsize:4;\tsigned:0;\n\tfield:int odd;\toffset:1;\n";
        let pfn = Field { offset: 8, len_bytes: 8 };
        assert_eq!(Field::find(format, "pfn"), Ok(pfn));
        assert_eq!(Field::find(format, "name").unwrap().offset, 16);
        assert!(Field::find(format, "order").unwrap_err().contains("no field"));
        assert!(Field::find(format, "odd").unwrap_err().contains("no size"));
        assert_eq!(pfn.read(&[1; 15]), None);
        assert_eq!(Field { offset: usize::MAX, len_bytes: 8 }.read(&[1; 15]), None);
        assert_eq!(Field { offset: 0, len_bytes: 3 }.read(&[1; 15]), None);
        assert!(
            PageLayout::parse(&HEADER.replace("size:8;\tsigned:1", "size:5;\tsigned:1")).is_err()
        );
        assert_eq!(PageLayout::parse(HEADER).unwrap().page_bytes(), 4096);
    }

    proptest! {
        /// Bytes that no kernel wrote.
        #[test]
        fn random_pages_never_panic(
            time in any::<u64>(),
            flags in any::<u64>(),
            data in prop::collection::vec(any::<u8>(), 0..300),
            plain in any::<bool>(),
        ) {
            let flags = if plain { flags & (MISSED | MISSED_STORED) } else { flags };
            let _ = read(&page(time, flags, &data));
            let _ = read(&data);
        }
    }
}
