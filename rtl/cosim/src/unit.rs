//! The simulated units, reached through the shim.

use std::ffi::c_void;

/// The registers of a unit.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Registers {
    pub pages_mask: u64,
    /// Regions, stack ends, helper, stack, data; of nodes the root in the first.
    pub base: [u64; 5],
    pub hold_cycles: u8,
    pub root_level: u8,
}

/// The wires from a memory to its port.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct PortIn {
    pub data: u64,
    pub ready: bool,
    pub valid: bool,
    pub error: bool,
}

/// The wires from a port to its memory.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct PortOut {
    pub addr: u64,
    pub valid: bool,
    /// The word that is offered is taken.
    pub taken: bool,
    pub write: bool,
    /// It is no read of tables.
    pub data: bool,
}

/// All wires into the unit in a cycle.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct In {
    pub vaddr: u64,
    pub valid: bool,
    pub needs: u8,
    pub port: [PortIn; 3],
}

/// All wires out of the unit in the same cycle.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Out {
    pub port: [PortOut; 3],
    pub ready: bool,
    pub code: u8,
    pub level: u8,
    pub rights: u8,
    pub rsp_valid: bool,
}

type New = unsafe extern "C" fn() -> *mut c_void;
type Delete = unsafe extern "C" fn(*mut c_void);
type Reset = unsafe extern "C" fn(*mut c_void, *const Registers);
type Step = unsafe extern "C" fn(*mut c_void, *const In, *mut Out);

unsafe extern "C" {
    fn arrays_new() -> *mut c_void;
    fn arrays_delete(unit: *mut c_void);
    fn arrays_reset(unit: *mut c_void, registers: *const Registers);
    fn arrays_step(unit: *mut c_void, input: *const In, output: *mut Out);
    fn nodes_new() -> *mut c_void;
    fn nodes_delete(unit: *mut c_void);
    fn nodes_reset(unit: *mut c_void, registers: *const Registers);
    fn nodes_step(unit: *mut c_void, input: *const In, output: *mut Out);
    fn page_table_new() -> *mut c_void;
    fn page_table_delete(unit: *mut c_void);
    fn page_table_reset(unit: *mut c_void, registers: *const Registers);
    fn page_table_step(unit: *mut c_void, input: *const In, output: *mut Out);
}

/// The three units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    Arrays,
    Nodes,
    PageTable,
}

/// A unit in simulation.
pub struct Unit {
    handle: *mut c_void,
    delete: Delete,
    reset: Reset,
    step: Step,
}

impl Unit {
    /// Creates a unit that is not reset yet.
    pub fn new(scheme: Scheme) -> Self {
        let (new, delete, reset, step): (New, Delete, Reset, Step) = match scheme {
            Scheme::Arrays => (arrays_new, arrays_delete, arrays_reset, arrays_step),
            Scheme::Nodes => (nodes_new, nodes_delete, nodes_reset, nodes_step),
            Scheme::PageTable => {
                (page_table_new, page_table_delete, page_table_reset, page_table_step)
            }
        };
        // SAFETY: the shim creates an object of its own and asks for nothing.
        let handle = unsafe { new() };
        Self { handle, delete, reset, step }
    }

    /// Resets it, with these registers.
    pub fn reset(&mut self, registers: &Registers) {
        // SAFETY: `handle` is of the shim that `reset` belongs to, as `new` set both, and the
        // registers are laid out as the shim's.
        unsafe { (self.reset)(self.handle, registers) }
    }

    /// Runs one cycle.
    #[inline]
    pub fn step(&mut self, input: &In) -> Out {
        let mut output = Out::default();
        // SAFETY: as in `reset`; the shim writes bytes of 0 and 1 where a `bool` stands, since the
        // signals behind them have one bit.
        unsafe { (self.step)(self.handle, input, &mut output) }
        output
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: `handle` is of the same shim, and nobody uses it after this.
        unsafe { (self.delete)(self.handle) }
    }
}
