//! Memory blocks: the parts in which Linux takes memory offline and online.

use std::fs;
use std::io;
use std::path::Path;

use swath_arch::{BASE_PAGE_SHIFT, Extent, Pfn};

use crate::machine::record::CaptureError;

/// A memory block, as `/sys/devices/system/memory` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryBlock {
    /// The number in the folder's name: `memory12`.
    pub number: u64,
    /// Its frames, holes included.
    pub frames: Extent,
    /// Its state: `online`, `offline` or `going-offline`.
    pub state: String,
    /// The kernel's word on whether it can be taken offline at all; it does not look at the frames.
    pub removable: bool,
    /// The zone that it is in, or, offline, the one that it would come to; `none` if its frames
    /// are in more than one.
    pub zone: String,
}

impl MemoryBlock {
    /// Returns true if the system uses its memory.
    pub fn is_online(&self) -> bool {
        self.state == "online"
    }
}

/// The memory blocks of the machine whose `/sys/devices/system/memory` stands at `folder`,
/// ascending by number. O(blocks).
///
/// # Errors
/// [`CaptureError`]; [`CaptureError::NoMemoryBlocks`] if the kernel has none.
pub fn memory_blocks(folder: &Path) -> Result<Vec<MemoryBlock>, CaptureError> {
    let size = folder.join("block_size_bytes");
    let block_bytes = match fs::read_to_string(&size) {
        Ok(text) => hexadecimal(&text, &size)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CaptureError::NoMemoryBlocks { path: folder.to_owned() });
        }
        Err(source) => return Err(CaptureError::Io { path: size, source }),
    };
    let format = |what| CaptureError::Format { path: size.clone(), line: 1, what };
    let block_frames = block_bytes >> BASE_PAGE_SHIFT;
    if !block_frames.is_power_of_two() {
        return Err(format("a block's length is a power of two of at least a page"));
    }
    let failed = |source| CaptureError::Io { path: folder.to_owned(), source };
    let mut blocks = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("memory")?.parse().ok());
        let Some(number) = number else { continue };
        match block(folder, number, block_frames) {
            Ok(block) => blocks.push(block),
            // It went while the folder was read.
            Err(CaptureError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    blocks.sort_by_key(|block| block.number);
    Ok(blocks)
}

fn block(folder: &Path, number: u64, block_frames: u64) -> Result<MemoryBlock, CaptureError> {
    let at = folder.join(format!("memory{number}"));
    let word = |name: &str| {
        let path = at.join(name);
        let text = fs::read_to_string(&path);
        text.map_err(|source| CaptureError::Io { path, source })
    };
    let index = at.join("phys_index");
    let start = hexadecimal(&word("phys_index")?, &index)?
        .checked_mul(block_frames)
        .filter(|start| *start <= u64::MAX >> BASE_PAGE_SHIFT)
        .ok_or(CaptureError::Format { path: index, line: 1, what: "beyond the last address" })?;
    let zones = word("valid_zones")?;
    Ok(MemoryBlock {
        number,
        frames: Extent::new(Pfn::new(start), block_frames),
        state: word("state")?.trim().to_owned(),
        removable: word("removable")?.trim() == "1",
        zone: zones.split_whitespace().next().unwrap_or("none").to_owned(),
    })
}

fn hexadecimal(text: &str, path: &Path) -> Result<u64, CaptureError> {
    u64::from_str_radix(text.trim(), 16).map_err(|_| CaptureError::Format {
        path: path.to_owned(),
        line: 1,
        what: "not a hexadecimal number",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, number: u64, files: &[(&str, &str)]) {
        let at = folder.join(format!("memory{number}"));
        fs::create_dir_all(&at).unwrap();
        for (name, text) in files {
            fs::write(at.join(name), text).unwrap();
        }
    }

    fn whole<'a>(index: &'a str, state: &'a str, zones: &'a str) -> [(&'a str, &'a str); 4] {
        [("phys_index", index), ("state", state), ("removable", "1\n"), ("valid_zones", zones)]
    }

    #[test]
    fn blocks_are_read_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(matches!(memory_blocks(path), Err(CaptureError::NoMemoryBlocks { .. })));
        fs::write(path.join("block_size_bytes"), "8000000\n").unwrap();
        fs::create_dir(path.join("power")).unwrap();
        write(path, 32, &whole("00000020\n", "offline\n", "Normal Movable\n"));
        write(path, 4, &whole("00000004\n", "online\n", "Movable\n"));
        // One that is going away has no files any more.
        write(path, 5, &[]);
        let blocks = memory_blocks(path).unwrap();
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0].frames, Extent::new(Pfn::new(4 << 15), 1 << 15));
        assert!(blocks[0].is_online() && blocks[0].removable && blocks[0].zone == "Movable");
        assert!(!blocks[1].is_online() && blocks[1].number == 32 && blocks[1].zone == "Normal");
    }

    #[test]
    fn what_is_no_number_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for text in ["", "0x80\n", "-8\n", "18000000\n", "800\n", "ffffffffffffffffff\n"] {
            fs::write(path.join("block_size_bytes"), text).unwrap();
            let error = memory_blocks(path).unwrap_err().to_string();
            assert!(error.contains("block_size_bytes, line 1"), "{text:?}: {error}");
        }
        fs::write(path.join("block_size_bytes"), "8000000").unwrap();
        for index in ["", "xyz", "ffffffffffffffff", "ffffffffffff"] {
            write(path, 0, &whole(index, "online", "Normal"));
            let error = memory_blocks(path).unwrap_err().to_string();
            assert!(error.contains("phys_index, line 1"), "{index:?}: {error}");
        }
    }
}
