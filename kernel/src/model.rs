//! The flat model: what each page of the object holds, whoever maps it however.

use swath_arch::PhysMemory;

use crate::vm::{Kernel, Refused};

/// A page, as the model has it.
#[derive(Clone, Copy)]
pub struct Content {
    /// Its first word; its last word is the complement.
    value: usize,
    /// It was written since it was last clean.
    dirty: bool,
}

/// All pages of the object.
pub struct Model<'k> {
    pages: &'k mut [Content],
}

/// The last word of a page.
const LAST: usize = 4096 - size_of::<usize>();

impl<'k> Model<'k> {
    /// A page that was never written.
    pub const EMPTY: Content = Content { value: 0, dirty: false };

    /// Pages that were never written.
    pub fn new(pages: &'k mut [Content]) -> Self {
        Self { pages }
    }

    /// Counts the pages.
    pub fn len(&self) -> u64 {
        self.pages.len() as u64
    }

    /// What the last word of a page is.
    fn last(value: usize) -> usize {
        if value == 0 { 0 } else { !value }
    }

    /// Reads both words as the program. A page that was paged out comes back with what it held.
    pub fn read(&mut self, kernel: &mut Kernel<'_>, space: usize, index: u64) {
        self.bring(kernel, index);
        let Content { value, .. } = self.pages[index as usize];
        same!(kernel.read(space, index, 0), Ok(value), "page {index} of program {space}");
        same!(kernel.read(space, index, LAST), Ok(Self::last(value)), "page {index}, its end");
    }

    /// Writes both words as the program, if it may.
    pub fn write(&mut self, kernel: &mut Kernel<'_>, space: usize, index: u64, value: usize) {
        self.bring(kernel, index);
        if !kernel.may_write[space][index as usize] {
            same!(kernel.write(space, index, 0, value), Err(Refused), "page {index} is protected");
            return;
        }
        same!(kernel.write(space, index, 0, value), Ok(()), "page {index} of program {space}");
        same!(kernel.write(space, index, LAST, Self::last(value)), Ok(()), "page {index}, its end");
        self.pages[index as usize] = Content { value, dirty: true };
    }

    /// Pages the page out: the model is what swap space would be.
    pub fn page_out(&mut self, kernel: &mut Kernel<'_>, index: u64) {
        let content = &mut self.pages[index as usize];
        if let Some(modified) = kernel.page_out(index) {
            same!(modified, content.dirty, "page {index} on its way out");
            content.dirty = false;
        }
    }

    /// Launders the page.
    pub fn clean(&mut self, kernel: &mut Kernel<'_>, index: u64) {
        let Some(frame) = kernel.resident[index as usize] else { return };
        let content = &mut self.pages[index as usize];
        same!(kernel.modified(frame), content.dirty, "page {index}");
        same!(kernel.clean(frame), content.dirty, "page {index} laundered");
        same!(kernel.modified(frame), false, "page {index} is clean");
        content.dirty = false;
    }

    /// Gives the page a frame with what it held, if it has none.
    fn bring(&mut self, kernel: &mut Kernel<'_>, index: u64) {
        if kernel.resident[index as usize].is_some() {
            return;
        }
        let frame = kernel.fill(index).address();
        let Content { value, .. } = self.pages[index as usize];
        for (at, word) in [(0, value), (LAST, Self::last(value))] {
            let at = swath_arch::PhysAddr::new(frame.raw() + at as u64);
            match size_of::<usize>() {
                8 => kernel.memory().write_u64(at, word as u64),
                _ => kernel.memory().write_u32(at, word as u32),
            }
            .expect("a frame is memory");
        }
    }
}
