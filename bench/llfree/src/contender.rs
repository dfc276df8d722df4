//! An allocator that several CPUs share, as it is measured: as one of them uses it for one order.

/// A frame allocator that several CPUs share.
pub(crate) trait Shared: Sync {
    /// The allocator as one CPU uses it.
    type Cpu<'a>: Cpu
    where
        Self: 'a;

    /// The allocator as CPU `cpu` uses it for blocks of `order`.
    fn on(&self, cpu: usize, order: u8) -> Result<Self::Cpu<'_>, String>;

    /// Checks the allocator's own invariants, and that so many frames are free. Nobody else may
    /// use it meanwhile.
    fn check(&self, free: u64) -> Result<(), String>;
}

/// An allocator as one CPU uses it for blocks of one order.
pub(crate) trait Cpu {
    /// Takes a block: its first frame.
    fn get(&mut self) -> Option<u64>;

    /// Gives a block back; false if it was refused.
    fn put(&mut self, frame: u64) -> bool;
}

/// A kind of allocator.
pub(crate) trait Contender {
    /// The name in the tables.
    const NAME: &'static str;

    /// The allocator over memory of its own.
    type Shared<'m>: Shared;

    /// Runs `body` with an allocator over the frames from 0 to `frames`, all of them free.
    fn with<T>(
        frames: u64,
        cpus: usize,
        body: impl FnOnce(&Self::Shared<'_>) -> Result<T, String>,
    ) -> Result<T, String>;
}
