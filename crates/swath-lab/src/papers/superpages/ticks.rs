//! The timer's interrupts in the [kernel](crate::papers::superpages::kernel): pages of its own that
//! take entries of the TLB.

use swath_arch::{Attributes, PageRange, Vpn};
use swath_hw::Translate;
use swath_hw::processor::MemoryAccess;
use swath_trace::access::MapBacking;
use swath_vm::{PageAccess, Site};

use crate::papers::superpages::kernel::{Kernel, KernelError, space_id};

/// The kernel's pages lie from here on, one in two.
const KERNEL_PAGE: u64 = 0xf_8000;
/// The file whose pages they are.
const KERNEL_FILE: u64 = u64::MAX;

impl<T: Translate> Kernel<'_, T> {
    /// The timer's interrupt, while a process runs.
    pub(super) fn tick(&mut self, id: usize, pages: u64) -> Result<(), KernelError> {
        self.stats.ticks += 1;
        for nth in 0..pages {
            let page = Vpn::new(KERNEL_PAGE + 2 * nth);
            let access = MemoryAccess::read(page.address());
            // The kernel's pages do not fault; here they are entered when they are first touched.
            if self.processors.core().access(self.memory, &access).is_err() {
                self.enter_kernel_page(id, page)?;
                let made = self.processors.core().access(self.memory, &access);
                made.map_err(|exception| KernelError::Machine(format!("a tick: {exception:?}")))?;
            }
        }
        Ok(())
    }

    fn enter_kernel_page(&mut self, id: usize, page: Vpn) -> Result<(), KernelError> {
        let backing = MapBacking::File { file: KERNEL_FILE, first_page: page.raw() };
        if self.mapping_at(id, page)?.is_none() {
            self.map(id, PageRange::new(page, 1), false, false, backing)?;
        }
        let Some((_, mapping)) = self.mapping_at(id, page)? else { return Ok(()) };
        let found = self.objects.find(mapping.object, mapping.index);
        let (_, frame) = found.ok_or(KernelError::OutOfMemory("a page of the kernel"))?;
        let site = Site { space: space_id(id), page };
        let attributes = Attributes { writable: false, executable: false, ..Attributes::USER_DATA };
        self.with_pmap(id, |pmap, spaces| {
            pmap.enter(spaces, site, frame, attributes, PageAccess::Read, None)
        })?;
        Ok(())
    }
}
