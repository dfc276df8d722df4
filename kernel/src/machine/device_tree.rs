//! The memory that a flattened device tree names (Devicetree Specification, section 3.4).

use hermit_dtb::Dtb;

use crate::memory::Firmware;

/// Returns the memory of the tree at `address`, without what lies in `taken`. Addresses and lengths
/// have two cells each, as the root of the emulated boards says.
///
/// # Safety
/// If a device tree begins at the address, all of it must be there, and nobody may write to it.
pub unsafe fn memory(address: usize, taken: (u64, u64)) -> Firmware {
    let tree = core::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the caller's promise.
    let tree = unsafe { Dtb::from_raw(tree) }.expect("the firmware leaves a device tree");
    let mut firmware = Firmware::new();
    for node in tree.enum_subnodes("/").filter(|node| node.starts_with("memory@")) {
        // The longest name of the boards here has 26 bytes.
        let mut path = [0; 32];
        let len = 1 + node.len();
        path[0] = b'/';
        path[1..len].copy_from_slice(node.as_bytes());
        let path = core::str::from_utf8(&path[..len]).expect("a name is a string");
        let ranges = tree.get_property(path, "reg").expect("memory has a place");
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("two cells"));
        for range in ranges.chunks_exact(16) {
            firmware.add(number(&range[..8]), number(&range[8..]), taken);
        }
    }
    firmware
}
