//! One target, as the list has it.

/// A function that takes any bytes and panics if something is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name, also of its folder in `corpus/`.
    pub name: &'static str,
    /// The code that is attacked, and its judge.
    pub about: &'static str,
    /// Longest input, in bytes.
    pub len_bytes_max: usize,
    /// The target.
    pub run: fn(&[u8]),
}
