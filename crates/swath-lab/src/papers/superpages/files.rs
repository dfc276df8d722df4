//! Files in the [kernel](crate::papers::superpages::kernel): the page cache, and
//! read-only sections of it entered whole.
//!
//! As FreeBSD runs a program whose file was read before:
//!
//! * **Warm.** The pages of a file are in memory when it is mapped. They were read
//!   through reservations, so they lie in whole superpages wherever a mapping holds one.
//! * **Coloured.** A file's object has a colour, the shift of its page numbers modulo the
//!   largest superpage (`pg_color` of a `vm_object`). The first mapping decides it, and later
//!   ones are aligned if they lie alike. FreeBSD chooses the address after the
//!   colour (`VMFS_SUPER_SPACE`, the run-time linker's `MAP_ALIGNED_SUPER`); a recording
//!   fixes its addresses, so here the colour follows the address, and the two agree the same.
//! * **Entered whole.** The first fault in a clean, read-only superpage whose reservation is
//!   full maps all of it (`pmap_enter_section` in the talk, "direct mapping", "preferred
//!   read-only mappings"): nothing is promoted, and one fault serves it.

use std::ops::Range;

use swath_arch::{Attributes, Pfn, Vpn};
use swath_hw::Translate;
use swath_vm::{MapPagesError, PageAccess, PageSizeError, PmapError, Site};

use crate::papers::superpages::kernel::{Kernel, KernelError, Mapping};

impl<T: Translate> Kernel<'_, T> {
    /// The object of a file that is mapped from page `start` on, its pages in memory, and the
    /// object's index of the first.
    pub(super) fn map_file(
        &mut self,
        file: u64,
        start: u64,
        first_page: u64,
        pages: u64,
    ) -> Result<(u64, u64), KernelError> {
        let largest = self.config.levels.orders().last().map_or(1, |order| order.frames());
        let off = u64::from(!self.config.files_aligned);
        let colour = start.wrapping_sub(first_page).wrapping_add(off) % largest;
        let (object, colour) = self.objects.file(file, colour);
        let index = first_page + colour;
        self.read_file(object, index..index + pages)?;
        Ok((object, index))
    }

    /// Reads what is not in memory yet of a file's pages, before anything is measured.
    fn read_file(&mut self, object: u64, pages: Range<u64>) -> Result<(), KernelError> {
        for index in pages.clone() {
            if self.objects.find(object, index).is_none() {
                self.populate(object, index, pages.clone())?;
            }
        }
        Ok(())
    }

    /// Maps the largest superpage around a page at once, if the mapping shows it read-only
    /// and all its frames are there: `frame` is the page's, of the mapping's own object.
    /// Returns false if there is none.
    pub(super) fn enter_whole(
        &mut self,
        id: usize,
        site: Site,
        (start, mapping): (u64, &Mapping),
        frame: Pfn,
        attributes: Attributes,
    ) -> Result<bool, KernelError> {
        let Some(full) = self.frames.full_order(frame).filter(|_| !mapping.writable) else {
            return Ok(false);
        };
        let shown = start..start + mapping.pages;
        for order in self.config.sizes.iter().rev().filter(|&order| order <= full) {
            let within = site.page.raw() % order.frames();
            let first = site.page.raw() - within;
            let aligned = frame.raw() % order.frames() == within;
            let last = first + order.frames() - 1;
            if !aligned || !shown.contains(&first) || !shown.contains(&last) {
                continue;
            }
            let whole = Site { page: Vpn::new(first), ..site };
            let frames = (Pfn::new(frame.raw() - within), order);
            let entered = self.with_pmap(id, |pmap, spaces| {
                match pmap.enter_superpage(spaces, whole, frames, attributes, PageAccess::Read) {
                    Ok(()) => Ok(true),
                    // Some of it is mapped page by page.
                    Err(PmapError::MapSuperpage(PageSizeError::Map(
                        MapPagesError::AlreadyMapped { .. },
                    ))) => Ok(false),
                    Err(error) => Err(error),
                }
            })?;
            if entered {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
