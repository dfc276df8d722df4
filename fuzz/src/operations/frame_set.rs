//! A plain set of frames with low numbers.

/// Frames below so many can be in it.
const FRAMES: u64 = 1024;

/// A flag for each frame.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FrameSet {
    flags: Vec<bool>,
    len: usize,
}

impl FrameSet {
    pub(super) fn new() -> Self {
        Self { flags: vec![false; FRAMES as usize], len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, frame: u64) -> bool {
        frame < FRAMES && self.flags[frame as usize]
    }

    /// Returns true if it was not in it.
    pub(super) fn insert(&mut self, frame: u64) -> bool {
        let is_new = !std::mem::replace(&mut self.flags[frame as usize], true);
        self.len += usize::from(is_new);
        is_new
    }

    /// Returns true if it was in it.
    pub(super) fn remove(&mut self, frame: u64) -> bool {
        let was = self.contains(frame);
        if was {
            self.flags[frame as usize] = false;
            self.len -= 1;
        }
        was
    }

    /// The frames, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.flags).filter(|(_, flag)| **flag).map(|(frame, _)| frame)
    }
}
