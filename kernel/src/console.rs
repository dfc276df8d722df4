//! Lines on the machine's serial port.

use core::fmt;

use crate::machine;

/// The serial port.
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(machine::put);
        Ok(())
    }
}

/// Writes a line, formatted as by `format!`, to the serial port.
macro_rules! say {
    ($($arguments:tt)*) => {{
        use core::fmt::Write as _;
        // The port takes every byte.
        let _ = writeln!($crate::console::Serial, $($arguments)*);
    }};
}
