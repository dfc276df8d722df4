//! The words of a program for the core.

use object::{Object, ObjectSegment};

/// Bytes of the static RAM.
const RAM_BYTES: usize = 1 << 20;

/// Reads an ELF file as the RAM holds it.
///
/// # Errors
/// In words, if there is no such file, or it is no program for this RAM.
pub fn read(file: &str) -> Result<Vec<u32>, String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    let elf = object::File::parse(&*bytes).map_err(|error| error.to_string())?;
    let mut ram = vec![0; RAM_BYTES];
    for segment in elf.segments() {
        let data = segment.data().map_err(|error| error.to_string())?;
        let start = segment.address() as usize;
        let place = ram.get_mut(start..start + data.len()).ok_or("a segment beyond the RAM")?;
        place.copy_from_slice(data);
    }
    Ok(ram
        .chunks_exact(4)
        .map(|word| word.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))
        .collect())
}
