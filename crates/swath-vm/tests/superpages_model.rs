//! Promotion beside a plain list of pages, which says page by page whether they are alike, and why not; and what
//! is written.

use swath_arch::testing::Random;
use swath_arch::{Attributes, Extent, Format, MemoryKind, Order, PageRange, Pfn, Vpn};
use swath_vm::{DemotedTable, PromoteError, Refusal, Sizes};

use crate::machine::Space;
use crate::superpages::{READ, WRITE, fold_order, join_all, machine, space};

/// A page as it was mapped, and whether it is one of 16 that are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    frame: u64,
    attributes: Attributes,
    is_joined: bool,
}

/// Pages of one order, from the first on.
struct Model {
    first: u64,
    order: Order,
    /// The order of 16 that are joined, if that size is on.
    sixteen: Option<Order>,
    /// The order of a whole table of them, where that is a page.
    fold: Option<Order>,
    pages: Vec<Option<Page>>,
    /// Words on the way to their table.
    ways: u64,
}

impl Model {
    fn page(&self, offset: u64) -> Vpn {
        Vpn::new(self.first + (offset << self.order.k()))
    }

    /// Whether these pages may become one, and how many words say so.
    fn promotes(&self, offset: u64, order: Order) -> (Result<(), Refusal>, u64) {
        let count = order.frames() / self.order.frames();
        let pages = &self.pages[offset as usize..(offset + count) as usize];
        let folds = Some(order) == self.fold;
        let mut words = self.ways;
        if folds {
            words += 1;
            let entries = pages.iter().flatten().count() as u64;
            if entries < count {
                return (Err(Refusal::NotFull { entries }), words);
            }
        }
        words += 1;
        let Some(first) = pages[0] else {
            return (Err(Refusal::NotMapped { page: self.page(offset) }), words);
        };
        let joined = self.sixteen.filter(|_| folds);
        let why = match first {
            Page { is_joined: true, .. } if joined.is_none() => {
                self.sixteen.map(|order| Refusal::Superpage { order })
            }
            Page { is_joined: false, .. } if joined.is_some() => {
                Some(Refusal::Smaller { page: self.page(offset) })
            }
            Page { frame, .. } if frame % order.frames() != 0 => {
                Some(Refusal::Misaligned { frame: Pfn::new(frame) })
            }
            Page { attributes: Attributes { accessed: false, .. }, .. } => {
                Some(Refusal::NotAccessed)
            }
            _ => None,
        };
        if let Some(why) = why {
            return (Err(why), words);
        }
        for i in (1..count).rev() {
            words += 1;
            let like = Page { frame: first.frame + i * self.order.frames(), ..first };
            let at = self.page(offset + i);
            let why = match pages[i as usize] {
                Some(page) if page == like => continue,
                Some(page) if joined.is_some() && page == (Page { is_joined: false, ..like }) => {
                    Refusal::Smaller { page: at }
                }
                Some(_) => Refusal::Different { page: at },
                None => Refusal::NotMapped { page: at },
            };
            return (Err(why), words);
        }
        (Ok(()), words)
    }

    /// Promotes as the space does; true if it did.
    fn promote(&mut self, space: &mut Space<'_>, offset: u64, order: Order) -> bool {
        let count = order.frames() / self.order.frames();
        let offset = offset / count * count;
        let (may, words_read) = self.promotes(offset, order);
        let asked = self.page(offset) + words_read * 7 % order.frames();
        let made = space.promote(asked, order, &mut |_| ());
        let Err(why) = may else {
            let (made, first) = (made.unwrap(), self.pages[offset as usize].unwrap());
            let from = self.sixteen.filter(|_| Some(order) == self.fold).unwrap_or(self.order);
            assert_eq!((made.page, made.from, made.to), (self.page(offset), from, order));
            assert_eq!((made.frame, made.attributes), (Pfn::new(first.frame), first.attributes));
            assert_eq!(made.words_read, words_read, "{order} at {offset}");
            return true;
        };
        let refused = PromoteError::Refused { why, words_read };
        assert_eq!(made, Err(refused), "{order} at {offset}");
        false
    }

    /// Joins the 16 around a page, if they may be.
    fn join(&mut self, space: &mut Space<'_>, offset: u64) -> bool {
        let joins = self.sixteen.is_some_and(|sixteen| self.promote(space, offset, sixteen));
        if joins {
            let group = offset as usize & !15;
            for page in self.pages[group..group + 16].iter_mut().flatten() {
                page.is_joined = true;
            }
        }
        joins
    }

    /// What a page was is another one: its group is not joined any more.
    fn set(&mut self, offset: u64, page: Option<Page>) {
        let group = offset as usize & !15;
        for page in self.pages[group..group + 16].iter_mut().flatten() {
            page.is_joined = false;
        }
        self.pages[offset as usize] = page.map(|page| Page { is_joined: false, ..page });
    }
}

/// A change of a page, which is mapped before and after, or not.
fn change(space: &mut Space<'_>, model: &mut Model, offset: u64, to: Option<Page>) {
    let one = PageRange::new(model.page(offset), model.order.frames());
    match (model.pages[offset as usize], to) {
        (None, None) => return,
        (Some(old), Some(new)) if old.frame == new.frame => {
            if old.attributes != new.attributes {
                space.protect(one, |_| new.attributes, &mut |_| ()).unwrap();
            } else {
                return;
            }
        }
        (old, new) => {
            if let Some(old) = old {
                // A part of it alone cannot go.
                if old.is_joined {
                    let parted = space.demote(one.start, &mut |_| ()).unwrap();
                    assert_eq!(parted.table, DemotedTable::Parted);
                }
                let _ = space.unmap(one).unwrap();
            }
            if let Some(Page { frame, attributes, .. }) = new {
                space.map_page_size(one.start, Pfn::new(frame), model.order, attributes).unwrap();
            }
        }
    }
    model.set(offset, to);
}

/// The orders of base pages and of the largest that one entry above maps: with 16 of them joined, and with all of a
/// table.
const fn orders(format: Format) -> [(u8, Option<u8>, Option<u8>); 2] {
    match format {
        Format::ArmV7 => [(0, Some(4), Some(8)), (8, Some(12), None)],
        Format::ArmV8 => [(0, Some(4), Some(9)), (9, Some(13), Some(18))],
        Format::X86_64 => [(0, None, Some(9)), (9, None, Some(18))],
        Format::Sv39 | Format::Sv48 => [(0, Some(4), Some(9)), (9, None, Some(18))],
    }
}

/// Pages that are alike but for one or a few, near the ends and anywhere: in each format, base pages and larger ones,
/// with 16 joined pages as a size between and without, from frames that are aligned for all, for 16, or for none.
#[test]
fn promotion_agrees_with_a_list_of_pages() {
    let kinds = Format::ALL.into_iter().flat_map(|format| {
        orders(format)
            .into_iter()
            .flat_map(move |orders| [true, false].map(|on| (format, orders, on)))
    });
    for (seed, (format, (k, sixteen, fold), joins)) in (0..).zip(kinds) {
        let (memory, pool) = machine();
        let unit = Order::known(k);
        let (sixteen, fold) = (sixteen.map(Order::known), fold.map(Order::known));
        let sizes = sixteen
            .filter(|_| !joins)
            .map_or(Sizes::all(format), |sixteen| Sizes::all(format).without(sixteen));
        let sixteen = sixteen.filter(|_| joins);
        let Some(whole_order) = fold.or(sixteen) else { continue };
        let mut random = Random::new(seed);
        let count = whole_order.frames() / unit.frames();
        let (mut made, mut refused) = (0, 0);
        for shift in [0, 0, 0, 16, 1] {
            let mut space = space(format, sizes, &memory, &pool);
            let first = 3 * whole_order.frames();
            let frame = 5 * whole_order.frames() + shift * unit.frames();
            let attributes = [READ, WRITE][random.index(2)];
            let whole =
                |i: u64| Page { frame: frame + i * unit.frames(), attributes, is_joined: false };
            let ways = format.levels().len() as u64 - if k == 0 { 1 } else { 2 };
            let pages = vec![None; count as usize];
            let mut model = Model { first, order: unit, sixteen, fold, pages, ways };
            for offset in 0..count {
                change(&mut space, &mut model, offset, Some(whole(offset)));
            }
            for offset in (0..count).step_by(16) {
                model.join(&mut space, offset);
            }
            for _ in 0..150 {
                let mut changed = Vec::new();
                for _ in 0..random.below(4) {
                    let ends = [0, 1, 14, 15, 16, 17, count - 16, count - 3, count - 2, count - 1];
                    let offset = match random.below(2) {
                        0 => ends[random.index(ends.len())].min(count - 1),
                        _ => random.below(count),
                    };
                    let page = whole(offset);
                    let to = match random.below(8) {
                        0 => None,
                        1 => Some(Page { frame: page.frame ^ unit.frames(), ..page }),
                        2 => Some(Page { frame: page.frame + 16 * unit.frames(), ..page }),
                        // Smaller, and the same.
                        3 => {
                            change(&mut space, &mut model, offset, None);
                            Some(page)
                        }
                        kind => {
                            let a = attributes;
                            let attributes = match kind {
                                4 => Attributes { writable: !a.writable, ..a },
                                5 => Attributes { accessed: false, ..a },
                                6 => Attributes { executable: true, ..a },
                                _ => Attributes { memory: MemoryKind::Device, ..a },
                            };
                            Some(Page { attributes, ..page })
                        }
                    };
                    change(&mut space, &mut model, offset, to);
                    changed.push(offset);
                }
                changed.push(random.below(count));
                // As they were changed, and as they were before.
                for turn in 0..2 {
                    for &offset in changed.iter().filter(|_| turn > 0) {
                        change(&mut space, &mut model, offset, Some(whole(offset)));
                    }
                    for &offset in &changed {
                        let joined = model.join(&mut space, offset);
                        *if joined { &mut made } else { &mut refused } += 1;
                    }
                    let Some(fold) = fold else { continue };
                    if model.promote(&mut space, 0, fold) {
                        let demoted = space.demote(model.page(changed[0]), &mut |_| ()).unwrap();
                        assert_eq!(demoted.table, DemotedTable::Recalled);
                        made += 1;
                    } else {
                        refused += 1;
                    }
                }
            }
            space.check().unwrap();
        }
        assert!(made > 100 && refused > 300, "{format:?}, {unit}: {made} made, {refused} refused");
    }
}

/// What is written besides the word beside the entry is counted: a fold writes the entry, twice where it breaks the
/// old one first, as does a demotion that recalls its table; one that makes the table anew or fixes it up all of
/// that too. 16 joined entries are written twice.
#[test]
fn every_descriptor_written_is_counted() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let mut space = space(format, Sizes::all(format), &memory, &pool);
        let order = fold_order(format);
        let count = order.frames();
        let (page, frame) = (Vpn::new(3 * count), Pfn::new(5 * count));
        let one = if format == Format::X86_64 { 1 } else { 2 };
        let joins = space.sizes().unwrap().contains(Order::known(4));
        space.map(page, Extent::new(frame, count), READ).unwrap();
        let since = std::cell::Cell::new((0, 0));
        let written = |space: &Space<'_>| {
            let now = (space.statistics().descriptor_writes, memory.writes.get());
            let (counted, all) = since.replace(now);
            (now.0 - counted, now.1 - all)
        };
        written(&space);
        if joins {
            space.promote(page, Order::known(4), &mut |_| ()).unwrap();
            assert_eq!(written(&space), (32, 32), "{format:?}");
            space.demote(page, &mut |_| ()).unwrap();
            assert_eq!(written(&space), (32, 32), "{format:?}");
            join_all(&mut space, page.raw(), order);
            written(&space);
        }
        space.promote(page, order, &mut |_| ()).unwrap();
        assert_eq!(written(&space), (one, one + 1), "{format:?}");
        let demoted = space.demote(page, &mut |_| ()).unwrap();
        assert_eq!(demoted.table, DemotedTable::Recalled);
        assert_eq!(written(&space), (one, one + 1), "{format:?}");
        space.promote(page, order, &mut |_| ()).unwrap();
        space.protect(PageRange::new(page, count), |_| WRITE, &mut |_| ()).unwrap();
        written(&space);
        let demoted = space.demote(page, &mut |_| ()).unwrap();
        assert_eq!(demoted.table, DemotedTable::FixedUp);
        // The first entry of the kept table is emptied before the others are written.
        let fixed = one + count + 1;
        assert_eq!(written(&space), (fixed, fixed + 1), "{format:?}");
        let _ = space.unmap(PageRange::new(page, count)).unwrap();
        space.map_page_size(page, frame, order, READ).unwrap();
        written(&space);
        let demoted = space.demote(page, &mut |_| ()).unwrap();
        assert_eq!(demoted.table, DemotedTable::Recreated);
        assert_eq!(written(&space).0, one + count, "{format:?}");
        space.check().unwrap();
    }
}
