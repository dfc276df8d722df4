//! LLFree with a reservation for each CPU, in its authors' plain classes: blocks below 2 MiB, and
//! those from there on.

use llfree::util::Align;
use llfree::{Alloc, Classing, FrameId, Init, LLFree, MetaData, Request};

use crate::contender::{Contender, Cpu, Shared};

/// LLFree.
pub(crate) struct Theirs;

/// Zeroed bytes, of which some are aligned as LLFree wants its metadata.
struct Metadata {
    bytes: Vec<u8>,
    len: usize,
}

impl Metadata {
    fn new(len: usize) -> Self {
        // None of the three may be empty.
        let len = len.max(1);
        Self { bytes: vec![0; len + align_of::<Align>()], len }
    }

    fn aligned(&mut self) -> &mut [u8] {
        let from = self.bytes.as_ptr().align_offset(align_of::<Align>());
        &mut self.bytes[from..from + self.len]
    }
}

impl Contender for Theirs {
    const NAME: &'static str = "LLFree";

    type Shared<'m> = Peer<'m>;

    fn with<T>(
        frames: u64,
        cpus: usize,
        body: impl FnOnce(&Self::Shared<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let frames = usize::try_from(frames).map_err(|error| error.to_string())?;
        let (classing, _) = Classing::simple(cpus);
        let sizes = LLFree::metadata_size(&classing, frames);
        let [mut local, mut trees, mut lower] =
            [sizes.local, sizes.trees, sizes.lower].map(Metadata::new);
        let metadata =
            MetaData { local: local.aligned(), trees: trees.aligned(), lower: lower.aligned() };
        let allocator = LLFree::new(frames, Init::FreeAll, &classing, metadata)
            .map_err(|error| format!("{error:?}"))?;
        body(&Peer { allocator, cpus })
    }
}

/// LLFree with so many CPUs.
pub(crate) struct Peer<'m> {
    allocator: LLFree<'m>,
    cpus: usize,
}

impl<'m> Shared for Peer<'m> {
    type Cpu<'a>
        = TheirCpu<'a, 'm>
    where
        Self: 'a;

    fn on(&self, cpu: usize, order: u8) -> Result<Self::Cpu<'_>, String> {
        let (_, request) = Classing::simple(self.cpus);
        Ok(TheirCpu { allocator: &self.allocator, request: request(order.into(), cpu) })
    }

    fn check(&self, free: u64) -> Result<(), String> {
        self.allocator.validate();
        let counted = [self.allocator.stats().free_frames, self.allocator.tree_stats().free_frames];
        if counted.map(|count| count as u64) == [free; 2] {
            Ok(())
        } else {
            Err(format!("{counted:?} frames are free, not {free}"))
        }
    }
}

/// LLFree as one CPU uses it for one order.
pub(crate) struct TheirCpu<'a, 'm> {
    allocator: &'a LLFree<'m>,
    request: Request,
}

impl Cpu for TheirCpu<'_, '_> {
    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.allocator.get(None, self.request).ok().map(|(frame, _)| frame.0 as u64)
    }

    #[inline(always)]
    fn put(&mut self, frame: u64) -> bool {
        self.allocator.put(FrameId(frame as usize), self.request).is_ok()
    }
}
