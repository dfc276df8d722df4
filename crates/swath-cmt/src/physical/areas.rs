//! The machine's areas of memory, from `/proc/iomem`.

use swath_arch::{BASE_PAGE_BYTES, Extent, Pfn};

use crate::error::PhysicalUnknown;
use crate::physical::file::File;

/// Visits the machine's areas of memory, between which there are vacuums: ascending, in base frames.
///
/// ```
/// let mut frames = 0;
/// match swath_cmt::areas(|area| frames += area.count) {
///     Ok(()) => assert!(frames > 0),
///     // Without CAP_SYS_ADMIN the kernel shows no addresses.
///     Err(swath_cmt::PhysicalUnknown) => assert_eq!(frames, 0),
/// }
/// ```
///
/// # Errors
/// [`PhysicalUnknown`] if the process may not know them.
pub fn areas(mut visit: impl FnMut(Extent)) -> Result<(), PhysicalUnknown> {
    let file = File::open(c"/proc/iomem").ok_or(PhysicalUnknown)?;
    let mut line = IomemLine { bytes: [0; 160], len: 0 };
    let (mut buffer, mut offset, mut any) = ([0; 1024], 0, false);
    while let Some(read @ 1..) = file.read_at(&mut buffer, offset) {
        offset += read as u64;
        for &byte in &buffer[..read] {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            if let Some(area) = line.area() {
                any = true;
                visit(area);
            }
            line.len = 0;
        }
    }
    if any { Ok(()) } else { Err(PhysicalUnknown) }
}

/// One line of `/proc/iomem`, such as `00100000-bfffffff : System RAM`.
struct IomemLine {
    bytes: [u8; 160],
    len: usize,
}

impl IomemLine {
    /// Adds a byte. A line that is too long is none of memory, whose name is short.
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// Returns the whole frames of a range of memory whose addresses the kernel shows.
    fn area(&self) -> Option<Extent> {
        let line = core::str::from_utf8(&self.bytes[..self.len]).ok()?;
        let (range, name) = line.split_once(" : ")?;
        if name != "System RAM" {
            return None;
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) =
            (u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(last, 16).ok()?);
        let (start, end) =
            (first.div_ceil(BASE_PAGE_BYTES), last.checked_add(1)? / BASE_PAGE_BYTES);
        (end > start).then(|| Extent::new(Pfn::new(start), end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(text: &str) -> Option<Extent> {
        let mut line = IomemLine { bytes: [0; 160], len: 0 };
        text.bytes().for_each(|byte| line.push(byte));
        line.area()
    }

    #[test]
    fn lines_of_iomem() {
        let found = area("00001000-0009fbff : System RAM");
        assert_eq!(found, Some(Extent::new(Pfn::new(1), 0x9e)));
        assert_eq!(area("  01000000-01ffffff : Kernel code"), None);
        // Without the right to know, all addresses are zero.
        assert_eq!(area("00000000-00000000 : System RAM"), None);
        assert_eq!(area("100000000-ffffffffffffffff : System RAM"), None);
        assert_eq!(area("5-4 : System RAM"), None);
        assert_eq!(area(&"9".repeat(500)), None);
    }
}
