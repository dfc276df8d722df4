//! The objects of the [kernel](crate::papers::superpages::kernel): who owns the frames of pages.
//!
//! A mapping shows an object. An object may shadow another, whose pages show
//! where it has none of its own: that is how a written copy lies over what is
//! shared. Each has as many users as mappings and shadows that show it; a
//! file's object has the page cache as one more, so its pages stay.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use swath_arch::{Extent, Pfn};

#[derive(Debug)]
struct Object {
    frames: HashMap<u64, Pfn, FixedState>,
    /// The object that it hides where it has a page of its own.
    shadows: Option<u64>,
    users: u64,
}

/// All objects, by number.
///
/// Invariant: every object has a user.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    all: HashMap<u64, Object, FixedState>,
    /// The objects of files and their colours, by the files' numbers.
    files: HashMap<u64, (u64, u64), FixedState>,
    next: u64,
}

impl Objects {
    /// A new object with one user, over `shadows`, whose user it becomes in the
    /// place of its maker.
    pub(crate) fn make(&mut self, shadows: Option<u64>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.all.insert(id, Object { frames: HashMap::default(), shadows, users: 1 });
        id
    }

    /// The object of a file, with one more user, and its colour, which is `colour` if
    /// the file has no object yet.
    pub(crate) fn file(&mut self, file: u64, colour: u64) -> (u64, u64) {
        let known = match self.files.get(&file) {
            Some(&known) => known,
            None => {
                let made = (self.make(None), colour);
                self.files.insert(file, made);
                made
            }
        };
        self.share(known.0);
        known
    }

    /// One user more.
    pub(crate) fn share(&mut self, id: u64) {
        if let Some(object) = self.all.get_mut(&id) {
            object.users += 1;
        }
    }

    /// One user less. The last one's going gives the frames to `free`, those that
    /// follow one another together, and takes a user from what it shadowed.
    pub(crate) fn release<E>(
        &mut self,
        id: u64,
        mut free: impl FnMut(Extent) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let Some(object) = self.all.get_mut(&id) else { break };
            object.users = object.users.saturating_sub(1);
            if object.users > 0 {
                break;
            }
            let Some(object) = self.all.remove(&id) else { break };
            let mut frames: Vec<Pfn> = object.frames.into_values().collect();
            frames.sort_unstable();
            for run in frames.chunk_by(|a, b| a.raw() + 1 == b.raw()) {
                free(Extent::new(run[0], run.len() as u64))?;
            }
            next = object.shadows;
        }
        Ok(())
    }

    /// The nearest object on the way down the shadows that has the page, and its
    /// frame. O(shadows).
    pub(crate) fn find(&self, object: u64, index: u64) -> Option<(u64, Pfn)> {
        let mut next = Some(object);
        while let Some(id) = next {
            let object = self.all.get(&id)?;
            if let Some(&frame) = object.frames.get(&index) {
                return Some((id, frame));
            }
            next = object.shadows;
        }
        None
    }

    /// Gives a page of an object its frame.
    pub(crate) fn put(&mut self, object: u64, index: u64, frame: Pfn) {
        if let Some(object) = self.all.get_mut(&object) {
            object.frames.insert(index, frame);
        }
    }

    /// Frames of all objects. O(objects).
    pub(crate) fn count_frames(&self) -> u64 {
        self.all.values().map(|object| object.frames.len() as u64).sum()
    }
}
