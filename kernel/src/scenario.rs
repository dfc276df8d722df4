//! The scenario: first the life of one superpage, step by step, then a million random steps beside a
//! flat model; at last every frame is accounted for.

use core::cell::RefCell;

use swath_arch::{Extent, Order, Pfn, PhysMemory};
use swath_frame::reserve::{ReservationLevels, Reservations};
use swath_frame::{BuddyConfig, FrameAllocator, MemoryMap, PageBuddy};
use swath_vm::{AddressSpace, PageAccess, Pmap, ReverseMap, Sizes, Status};

use crate::machine::{self, FORMAT};
use crate::memory::{DirectMap, Firmware};
use crate::model::Model;
use crate::random::Random;
use crate::vm::{Frames, Kernel, Refused, Space, map_kernel};

/// Superpages of the object.
const SUPERPAGES: u64 = 8;
/// Random steps.
const STEPS: u64 = 1_000_000;
/// Steps of a program before it may be the other's turn: a switch empties the TLB, and would hide what was not.
const TURN: u64 = 64;
/// Steps between two walks of every invariant.
const CHECK_EVERY: u64 = 50_000;

/// The lists of the page buddy system: one for each page size of the format.
const fn lists() -> BuddyConfig {
    match FORMAT {
        swath_arch::Format::ArmV7 => BuddyConfig::PBS_ARMV7,
        _ => BuddyConfig::PBS_ARMV8,
    }
}

/// Runs everything on the memory that the firmware left.
pub fn run(mut firmware: Firmware) {
    let span = firmware.span(machine::kernel());
    let levels = ReservationLevels::usual(FORMAT);
    let superpage = levels.orders()[0];
    let page_count = SUPERPAGES << superpage.k();

    // Storage is cut before the map is made; what the whole of memory would need is enough.
    let mut areas = [Extent::default(); 16];
    let whole = MemoryMap::new(firmware.ranges(), &mut areas).expect("the firmware's map");
    let buddy_words = PageBuddy::<&mut [u64]>::storage_words(&whole, lists());
    let reserve_words = Frames::storage_words(&whole, levels);
    let sizes = Sizes::all(FORMAT);
    let entries = 2 * page_count as u32;
    let reverse_words = ReverseMap::words_needed(span, sizes, Status::InTable, entries).unwrap();
    let buddy_storage = firmware.cut(buddy_words, 0);
    let reserve_storage = firmware.cut(reserve_words, 0);
    let reverse_storage = firmware.cut(reverse_words, 0);
    let resident = firmware.cut(page_count as usize, None::<Pfn>);
    let may_write =
        [firmware.cut(page_count as usize, true), firmware.cut(page_count as usize, true)];
    let values = firmware.cut(page_count as usize, Model::EMPTY);

    let mut areas = [Extent::default(); 16];
    let map = MemoryMap::new(firmware.ranges(), &mut areas).expect("the firmware's map");
    let buddy = PageBuddy::new(&map, lists(), buddy_storage).expect("a page buddy system");
    let frames = Reservations::new(&map, levels, buddy, reserve_storage).expect("reservations");
    let all_free = frames.free_frames();
    say!("{all_free} frames free in {} areas", map.areas().len());
    let frames = RefCell::new(frames);

    let memory = DirectMap { frames: span };
    let new_space = || -> Space<'_> {
        let mut space = AddressSpace::with_superpages(FORMAT, sizes, memory, &frames, &frames)
            .expect("an address space");
        map_kernel(&mut space, span);
        space
    };
    let spaces = [new_space(), new_space()];
    let reverse = ReverseMap::new(span, sizes, Status::InTable, reverse_storage).expect("lists");
    // SAFETY: the space maps all memory at its own address.
    unsafe { machine::load(spaces[0].regime()) };
    let pmap = Pmap::new(reverse);
    let mut kernel =
        Kernel { frames: &frames, spaces, pmap, resident, may_write, loaded: 0, faults: 0, now: 0 };
    kernel.check();
    say!("on our own tables");

    one_superpage(&mut kernel, superpage);
    kernel.check();
    let mut model = Model::new(values);
    random_steps(&mut kernel, &mut model, superpage);
    end(kernel, all_free);
}

/// The life of the object's first superpage.
fn one_superpage(kernel: &mut Kernel<'_>, superpage: Order) {
    let count = superpage.frames();
    // Each first read faults, populates the reservation and sees zeroes; the last one promotes.
    for index in 0..count {
        same!(kernel.read(0, index, 8), Ok(0), "page {index} is not clear");
        let expected = if index + 1 == count { superpage } else { kernel.order(0, index).unwrap() };
        same!(kernel.order(0, index), Some(expected), "page {index}");
    }
    same!(kernel.faults, count, "each page faults once");
    let first = kernel.resident[0].unwrap();
    for index in 0..count {
        same!(kernel.order(0, index), Some(superpage), "page {index} is not in the superpage");
        same!(kernel.resident[index as usize], Some(first + index), "frames are contiguous");
        same!(kernel.read(0, index, 8), Ok(0), "page {index} through the superpage");
    }
    same!(kernel.faults, count, "the superpage does not fault");
    same!(kernel.pmap.statistics().promotions > 0, true, "no promotion");

    // What another address shows, the superpage shows: it is the machine that translates.
    for index in 0..count {
        let at = (first + index).address();
        kernel.memory().write_u64(at, 0xabcd_0000 | index).unwrap();
        same!(kernel.read(0, index, 0), Ok(0xabcd_0000 | index as usize), "page {index}");
        kernel.memory().write_u64(at, 0).unwrap();
    }

    // A first write to the read-only superpage demotes it; when every page is written it is whole again.
    let demotions = kernel.pmap.statistics().demotions_write;
    same!(kernel.modified(first + 5), false, "nothing was written");
    same!(kernel.write(0, 5, 0, 55), Ok(()), "a write");
    same!(kernel.pmap.statistics().demotions_write > demotions, true, "no demotion");
    same!(kernel.order(0, 5) < Some(superpage), true, "still a superpage");
    same!(kernel.modified(first + 5), true, "it was written");
    same!(kernel.modified(first + 6), false, "its neighbour was not");
    for index in 0..count {
        same!(kernel.write(0, index, 0, index as usize), Ok(()), "a write");
    }
    same!(kernel.order(0, 0), Some(superpage), "a superpage that is written whole");

    // A second program shares the superpage, and sees what the first wrote.
    for index in 0..count {
        same!(kernel.read(1, index, 0), Ok(index as usize), "page {index} of program 1");
    }
    same!(kernel.order(1, 0), Some(superpage), "a shared superpage");
    same!(kernel.write(0, 9, 0, 999), Ok(()), "a write");
    same!(kernel.read(1, 9, 0), Ok(999), "what the other wrote");

    // Protection of a page within demotes for one program alone, and the machine refuses the write.
    kernel.protect(0, 9, 1, false);
    same!(kernel.write(0, 9, 0, 1), Err(Refused), "a write to a protected page");
    same!(kernel.read(0, 9, 0), Ok(999), "the refused write changed nothing");
    same!(kernel.write(1, 9, 0, 1000), Ok(()), "the other program's write");
    same!(kernel.read(0, 9, 0), Ok(1000), "what the other wrote");
    kernel.protect(0, 9, 1, true);
    same!(kernel.write(0, 9, 0, 9), Ok(()), "a write that is permitted again");

    // Paging out takes the page from both, and its content with the frame.
    same!(kernel.page_out(17), Some(true), "the page was modified");
    same!((kernel.order(0, 17), kernel.order(1, 17)), (None, None), "still mapped");
    same!(kernel.read(1, 17, 0), Ok(0), "a new frame is clear");

    // Whether a page was accessed is in the table: set by the machine, or at its fault.
    let frame = kernel.fill(count);
    kernel.enter(0, count, frame, PageAccess::None);
    same!(kernel.referenced(frame), false, "nobody accessed it");
    let faults = kernel.faults;
    same!(kernel.read(0, count, 0), Ok(0), "a page that was mapped in advance");
    same!(kernel.referenced(frame), true, "it was accessed");
    same!(kernel.faults - faults, u64::from(!machine::SETS_ACCESSED), "who sets the flag");

    for index in 0..=count {
        kernel.page_out(index);
    }
    say!("one superpage: {:?}", kernel.pmap.statistics());
}

/// Random steps of two programs and of the kernel, each seen by the machine's own translation.
fn random_steps(kernel: &mut Kernel<'_>, model: &mut Model<'_>, superpage: Order) {
    let mut random = Random::new(1);
    let page_count = model.len();
    let mut hoard = None;
    let mut space = 0;
    for step in 0..STEPS {
        if step % TURN == 0 {
            space = random.below(2) as usize;
        }
        let index = random.below(page_count);
        match random.below(10_000) {
            0..5_000 => model.read(kernel, space, index),
            5_000..9_900 => model.write(kernel, space, index, random.next() as usize),
            // All of a superpage, in order: so superpages arise.
            9_900..9_910 => {
                let start = index & !(superpage.frames() - 1);
                let writes = random.below(2) == 0;
                if writes {
                    kernel.protect(space, start, superpage.frames(), true);
                }
                for index in start..start + superpage.frames() {
                    if writes {
                        model.write(kernel, space, index, random.next() as usize);
                    } else {
                        model.read(kernel, space, index);
                    }
                }
            }
            9_910..9_935 => {
                let count = 1 + random.below(64).min(page_count - index - 1);
                kernel.unmap(space, index, count);
            }
            // A superpage as a whole.
            9_935..9_940 => {
                kernel.unmap(space, index & !(superpage.frames() - 1), superpage.frames());
            }
            9_940..9_960 => {
                let count = 1 + random.below(8).min(page_count - index - 1);
                kernel.protect(space, index, count, random.below(3) > 0);
            }
            9_960..9_980 => model.page_out(kernel, index),
            // Half of the pages lose their frames and somebody else takes these and all others but a
            // few, so that reservations are broken up; or gives them back.
            9_980 => match hoard.take() {
                Some(taken) => free(kernel, taken),
                None => {
                    for index in (0..page_count).filter(|_| random.below(2) == 0) {
                        model.page_out(kernel, index);
                    }
                    hoard = Some(take(kernel, 2 * superpage.frames()));
                }
            },
            _ => model.clean(kernel, index),
        }
        // What the programs lack, they take from the hoard or from themselves.
        while kernel.frames.borrow().free_frames() < superpage.frames() {
            match hoard.take() {
                Some(taken) => free(kernel, taken),
                None => model.page_out(kernel, random.below(page_count)),
            }
        }
        if step % CHECK_EVERY == 0 {
            kernel.check();
        }
    }
    if let Some(taken) = hoard {
        free(kernel, taken);
    }
    say!("{STEPS} steps, {} faults: {:?}", kernel.faults, kernel.pmap.statistics());
    say!("{:?}", kernel.frames.borrow().counters());
}

/// Frames that somebody else holds: the longest runs that there were.
type Hoard = [Extent; 64];

/// Takes free frames until no more than `leave` are left, or the hoard is full.
fn take(kernel: &mut Kernel<'_>, leave: u64) -> Hoard {
    let mut hoard = [Extent::default(); 64];
    let mut frames = kernel.frames.borrow_mut();
    for place in &mut hoard {
        let wanted = frames.free_frames().saturating_sub(leave).min(512);
        if wanted > 0
            && let Some(block) = frames.allocate_block(wanted)
        {
            *place = block;
        }
    }
    hoard
}

/// Frees what was taken.
fn free(kernel: &mut Kernel<'_>, hoard: Hoard) {
    for block in hoard.into_iter().filter(|block| block.count > 0) {
        kernel.frames.borrow_mut().free(block).expect("the block was taken");
    }
}

/// Ends both programs; every frame must be free again.
fn end(mut kernel: Kernel<'_>, all_free: u64) {
    for index in 0..kernel.resident.len() as u64 {
        kernel.page_out(index);
    }
    kernel.check();
    same!(kernel.pmap.reverse().used_entries(), 0, "PV entries in use");
    machine::leave();
    let Kernel { frames, spaces, .. } = kernel;
    drop(spaces);
    same!(frames.borrow().reserved_frames(), 0, "frames are still reserved");
    same!(frames.borrow().free_frames(), all_free, "frames are lost");
    frames.borrow().check().expect("reservations are sound");
}
