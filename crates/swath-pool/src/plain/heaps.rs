//! Heaps of the plain pool: how they begin and end.

extern crate std;

use core::mem::take;
use std::vec::Vec;

use crate::plain::pool::{GLOBAL, PlainBlock, PlainPool};
use crate::superblock::class::CLASSES;

impl PlainPool {
    pub(crate) fn attach(&mut self, spared: usize) -> Option<usize> {
        let count = self.heaps.len().saturating_sub(spared);
        let number = (1..count).find(|&number| !self.heaps[number].attached)?;
        self.heaps[number].attached = true;
        Some(number)
    }

    fn flush(&mut self, number: usize) {
        for class in 0..CLASSES {
            while let Some(due) = self.spill(number, class, 0) {
                self.at_mark(number, due);
            }
        }
    }

    pub(crate) fn collect(&mut self, number: usize) {
        self.collect_list(number);
        self.flush(number);
        for class in 0..CLASSES {
            if let Some(current) = self.heaps[number].current[class]
                && self.blocks[&current].used() == 0
            {
                self.heaps[number].current[class] = None;
                self.receive(current);
            }
        }
        self.release_kept(number);
    }

    pub(crate) fn detach(&mut self, number: usize) {
        self.collect_list(number);
        self.flush(number);
        for class in 0..CLASSES {
            let current = self.heaps[number].current[class].take();
            let partial = take(&mut self.heaps[number].partial[class]);
            current.into_iter().chain(partial).for_each(|first| self.receive(first));
            self.heaps[number].sparse[class] = 0;
        }
        let is_left = |(_, block): &(&u32, &PlainBlock)| block.heap == number;
        let full: Vec<u32> = self.blocks.iter().filter(is_left).map(|(&first, _)| first).collect();
        full.into_iter().for_each(|first| self.receive(first));
        self.release_kept(number);
        self.heaps[number].attached = false;
    }

    /// Goes on after a fork with the heap of one thread, or none: all others' superblocks are the global heap's, in the order
    /// of their units, and what they had at hand is free. What had come back is collected.
    pub(crate) fn fork(&mut self, own: usize) {
        let mut cached = Vec::new();
        for (number, heap) in self.heaps.iter_mut().enumerate() {
            heap.list.clear();
            if number != own || own == GLOBAL {
                heap.attached = false;
                heap.partial.iter_mut().for_each(Vec::clear);
                heap.current.fill(None);
                heap.sparse.fill(0);
                cached.extend(heap.caches.iter_mut().flat_map(take));
            }
        }
        for offset in cached {
            self.free_slot(offset);
        }
        let all: Vec<u32> = self.blocks.keys().copied().collect();
        let (mine, others) = all
            .into_iter()
            .partition::<Vec<u32>, _>(|first| own != GLOBAL && self.blocks[first].heap == own);
        for first in others {
            self.collect_block(first);
            self.receive(first);
        }
        for first in mine {
            let collected = self.collect_block(first);
            self.heaps[own].remote += collected as u64;
            if self.blocks[&first].is_due() {
                self.at_mark(own, first);
            }
        }
    }
}
