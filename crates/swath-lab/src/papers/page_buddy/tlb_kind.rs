//! A kind of TLB that another crate brings, with time and without.

use swath_arch::{Regime, SliceMemory, VirtAddr};
use swath_hw::translate::translator::access_by_steps;
use swath_hw::{
    Geometry, MmuConfigError, SystemEvent, SystemStats, Translate, TranslatedAccess,
    TranslationFault, TranslationStats,
};

use crate::papers::page_buddy::timed::{Bringing, Masters};
use crate::papers::page_buddy::translation::{MeasureError, failed};

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
) -> Result<SystemStats, MeasureError>;

impl TlbKind {
    /// Returns the kind of a type.
    pub fn of<T: NewTlb>() -> Self {
        Self {
            new: |regime, geometry| Ok(Box::new(T::new(regime, geometry)?)),
            run: |masters, (regime, geometry), paging, observe| {
                masters.run(paging, observe, || T::new(regime, geometry).map_err(failed))
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
    ) -> Result<SystemStats, MeasureError> {
        (self.run)(masters, form, paging, observe)
    }
}

/// A TLB without time.
pub(crate) trait WithoutTime {
    fn access(
        &mut self,
        addr: VirtAddr,
        memory: &SliceMemory<'_>,
    ) -> Result<TranslatedAccess, TranslationFault>;

    fn stats(&self) -> TranslationStats;
}

impl<T: Translate> WithoutTime for T {
    fn access(
        &mut self,
        addr: VirtAddr,
        memory: &SliceMemory<'_>,
    ) -> Result<TranslatedAccess, TranslationFault> {
        access_by_steps(self, addr, memory)
    }

    fn stats(&self) -> TranslationStats {
        Translate::stats(self)
    }
}
