//! The operations of a test that random numbers drive, and after which of them all is compared.

/// The most operations of a test, and after which of them all is compared; what an operation
/// returns is compared each time.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Most operations.
    pub most: usize,
    /// 0 if all is compared after each operation, else the logarithm of the distances' growth.
    growth_log2: u32,
}

impl From<usize> for Steps {
    /// All is compared after each operation.
    fn from(most: usize) -> Self {
        Self { most, growth_log2: 0 }
    }
}

impl Steps {
    /// All is compared after the operations 1, 2, 4, 8 and so on, and at the end: for a fuzzer, of
    /// whose inputs each is one more end.
    pub const fn doubling(most: usize) -> Self {
        Self { most, growth_log2: 1 }
    }

    /// All is compared after the operations 1, 4, 16, 64 and so on, and at the end.
    pub const fn quadrupling(most: usize) -> Self {
        Self { most, growth_log2: 2 }
    }

    /// Returns true if all is to be compared after this operation, of which the first is 1.
    pub const fn compares_all(self, step: usize) -> bool {
        match self.growth_log2 {
            0 => true,
            log2 => step.is_power_of_two() && step.trailing_zeros().is_multiple_of(log2),
        }
    }
}

/// A part of `n`, 1 or more, under Miri, where a step takes a thousand times as long.
pub const fn few(n: u64) -> u64 {
    if cfg!(miri) { n.div_ceil(100) } else { n }
}

#[cfg(test)]
mod unit {
    use super::Steps;

    #[test]
    fn distances_grow() {
        let due = |steps: Steps| (1..=20).filter(move |&step| steps.compares_all(step));
        assert!(due(Steps::doubling(20)).eq([1, 2, 4, 8, 16]));
        assert!(due(Steps::quadrupling(20)).eq([1, 4, 16]));
        assert!(due(20.into()).eq(1..=20));
    }
}
