//! Single bits flipped in the words of Quick Fit, in the campaign of [`flips`](crate::flips).

use swath_arch::testing::Random;
use swath_arch::{Extent, Order};
use swath_frame::buddy::QuickFit;
use swath_frame::{
    BestFit, BuddyConfig, Checked, FrameAllocateError, FrameAllocator, FrameFreeError, HeadOfList,
    MemoryMap, PageBuddy, Rule, WordFault,
};

use crate::flips::{AREAS, Refused, Victim, Words, campaign, judge, map};

type Buddy<R> = PageBuddy<Vec<u64>, R, Checked>;
type Quick<'m, R> = QuickFit<'m, Words, Buddy<R>, Checked>;

impl<R: Rule> Victim for Quick<'_, R> {
    fn take(&mut self, random: &mut Random, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused> {
        let corrupt = |fault: Option<WordFault>| fault.map_or(Refused::Fairly, Refused::Corrupt);
        let refused = |error| match error {
            FrameAllocateError::Corrupt(fault) => Refused::Corrupt(fault),
            _ => Refused::Fairly,
        };
        match random.below(6) {
            0 => match self.allocate_frame() {
                Some(frame) => sink(Extent::new(frame, 1)),
                None => return Err(corrupt(self.fault())),
            },
            1 => self.allocate(1 + random.below(40), sink).map_err(refused)?,
            2 => {
                let order = Order::known(random.below(10) as u8);
                sink(self.allocate_aligned(order).map_err(refused)?);
            }
            // Few lengths, so that lists fill and empty.
            _ => match self.allocate_block([1, 2, 3, 7, 30, 90][random.index(6)]) {
                Some(block) => sink(block),
                None => return Err(corrupt(self.fault())),
            },
        }
        Ok(())
    }

    fn give(&mut self, extent: Extent) -> Result<(), Refused> {
        match self.free(extent) {
            Ok(()) => Ok(()),
            Err(FrameFreeError::Corrupt(fault)) => Err(Refused::Corrupt(fault)),
            Err(_) => Err(Refused::Fairly),
        }
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused> {
        while let Some(frame) = self.allocate_frame() {
            sink(Extent::new(frame, 1));
        }
        self.fault().map_or(Ok(()), |fault| Err(Refused::Corrupt(fault)))
    }

    fn find(&self) -> Result<(), WordFault> {
        self.find_fault()
    }
}

fn quick_fit<R: Rule>(name: &str, map: MemoryMap<'_>, config: BuddyConfig) {
    let tally = campaign(name, |words| {
        let storage = vec![0; Buddy::<R>::storage_words(&map, config)];
        let buddy = Buddy::<R>::new(&map, config, storage).expect("as many words as needed");
        let storage = Words::new(Quick::<R>::storage_words(&map));
        words(&storage);
        Quick::<R>::new(map, buddy, storage).expect("as many words as needed")
    });
    judge(name, &tally);
}

#[test]
fn no_flip_breaks_quick_fit() {
    let mut areas = [Extent::default(); AREAS.len()];
    let map = map(&mut areas);
    quick_fit::<BestFit>("quick fit, best fit behind", map, BuddyConfig::PBS_ARMV8);
    quick_fit::<HeadOfList>("quick fit, head of list behind", map, BuddyConfig::PBS_ARMV7);
}
