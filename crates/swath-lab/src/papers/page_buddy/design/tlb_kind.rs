//! A kind of TLB that another crate brings, with time and without.

use swath_arch::{PhysMemory, Regime, SliceMemory, VirtAddr};
use swath_hw::system::{Paging, System, SystemConfig, SystemEvent};
use swath_hw::translate::translator::access_by_steps;
use swath_hw::{
    Geometry, MmuConfigError, SystemStats, Transaction, Translate, TranslatedAccess,
    TranslationFault, TranslationStats,
};

/// Pages that come on demand.
pub(crate) type Bringing<'a> = Paging<&'a mut dyn FnMut(VirtAddr) -> bool>;

/// Masters in a system.
pub struct Masters<'a, 'b> {
    pub(crate) config: SystemConfig,
    pub(crate) transactions: &'a [Vec<Transaction>],
    pub(crate) memory: &'a SliceMemory<'b>,
}

impl Masters<'_, '_> {
    /// Runs them, each with a translating machine of its own.
    ///
    /// # Errors
    /// A system that cannot be built, a fault, and those of `translating`, in words.
    pub(crate) fn run<T: Translate>(
        &self,
        paging: Option<Bringing<'_>>,
        observe: &mut dyn FnMut(SystemEvent),
        translating: impl Fn() -> Result<T, MmuConfigError>,
    ) -> Result<SystemStats, String> {
        let mut masters = Vec::new();
        for transactions in self.transactions {
            let translating = translating().map_err(|error| error.to_string())?;
            masters.push((translating, transactions.iter().copied()));
        }
        let system = System::new(&self.config, masters).map_err(|error| error.to_string())?;
        match paging {
            None => system.run_observed(self.memory, observe),
            Some(paging) => system.run_paged(self.memory, paging, observe),
        }
        .map_err(|error| error.to_string())
    }
}

/// A TLB that a study can make.
pub trait NewTlb: Translate + Sized + 'static {
    /// Makes one that is empty, with as many entries as `geometry` has.
    ///
    /// # Errors
    /// [`MmuConfigError`].
    fn new(regime: Regime, geometry: Geometry) -> Result<Self, MmuConfigError>;
}

/// A kind of TLB. It stands in the place of a plan's TLB, second TLB and page-walk cache.
#[derive(Clone, Copy, Debug)]
pub struct TlbKind {
    new: fn(Regime, Geometry) -> Result<Box<dyn WithoutTime>, MmuConfigError>,
    run: TimedRun,
}

/// A run of a system's masters, each with a TLB of its own.
type TimedRun = fn(
    &Masters<'_, '_>,
    (Regime, Geometry),
    Option<Bringing<'_>>,
    &mut dyn FnMut(SystemEvent),
) -> Result<SystemStats, String>;

impl TlbKind {
    /// Returns the kind of a type.
    pub fn of<T: NewTlb>() -> Self {
        Self {
            new: |regime, geometry| Ok(Box::new(T::new(regime, geometry)?)),
            run: |masters, (regime, geometry), paging, observe| {
                masters.run(paging, observe, || T::new(regime, geometry))
            },
        }
    }

    /// Returns an empty one for accesses without time.
    pub(crate) fn without_time(
        &self,
        regime: Regime,
        geometry: Geometry,
    ) -> Result<Box<dyn WithoutTime>, MmuConfigError> {
        (self.new)(regime, geometry)
    }

    /// Runs a system's masters, each with one.
    pub(crate) fn with_time(
        &self,
        masters: &Masters<'_, '_>,
        form: (Regime, Geometry),
        paging: Option<Bringing<'_>>,
        observe: &mut dyn FnMut(SystemEvent),
    ) -> Result<SystemStats, String> {
        (self.run)(masters, form, paging, observe)
    }
}

/// A TLB without time.
pub(crate) trait WithoutTime {
    fn access(
        &mut self,
        addr: VirtAddr,
        memory: &dyn PhysMemory,
    ) -> Result<TranslatedAccess, TranslationFault>;

    fn stats(&self) -> TranslationStats;
}

impl<T: Translate> WithoutTime for T {
    fn access(
        &mut self,
        addr: VirtAddr,
        memory: &dyn PhysMemory,
    ) -> Result<TranslatedAccess, TranslationFault> {
        access_by_steps(self, addr, memory)
    }

    fn stats(&self) -> TranslationStats {
        Translate::stats(self)
    }
}
