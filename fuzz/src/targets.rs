//! The list of all targets.

#[cfg(feature = "parsers")]
use crate::parsers;
use crate::target::Target;
use crate::{hardware, operations};

/// Returns the target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// One line for each target; and, of each, a bounded attack as a test.
macro_rules! targets {
    ($($(#[$with:meta])? $name:ident, $len_bytes_max:literal, $run:path, $about:literal;)+) => {
        /// Every target.
        pub const TARGETS: &[Target] = &[$(
            $(#[$with])?
            Target {
                name: stringify!($name),
                about: $about,
                len_bytes_max: $len_bytes_max,
                run: $run,
            },
        )+];

        #[cfg(test)]
        mod bounded {
            $(
                $(#[$with])?
                #[test]
                fn $name() {
                    let target = super::find(stringify!($name)).expect("in the list");
                    crate::bounded::attack(target);
                }
            )+
        }
    };
}

targets! {
    #[cfg(feature = "parsers")] snapshot, 2048, parsers::snapshot::run, "Machine snapshots: what is read is written and read again";
    #[cfg(feature = "parsers")] accesses, 2048, parsers::accesses::run, "Swath's own access traces, with events: likewise";
    #[cfg(feature = "parsers")] lackey, 2048, parsers::lackey::run, "valgrind's lackey: line by line as a reader of a few lines does";
    #[cfg(feature = "parsers")] champsim, 2048, parsers::champsim::run, "ChampSim's records: field by field as the format says";
    #[cfg(feature = "parsers")] compressed, 2048, parsers::compressed::run, "Traces of any format below gzip, xz or zstd, in any pieces";
    #[cfg(feature = "parsers")] page_events, 2048, parsers::page_events::run, "Recordings of page events: written and read again";
    #[cfg(feature = "parsers")] heap_events, 2048, parsers::heap_events::run, "Recordings of heap events: written and read again, and summed up";
    #[cfg(feature = "parsers")] plans, 8192, parsers::plans::run, "Plans of all studies, as text and with single values changed";
    #[cfg(feature = "parsers")] results, 8192, parsers::results::run, "results.json and host.json: read, drawn, written and read again";
    page_buddy, 1024, operations::page_buddy::run, "BBS and PBS with both rules: a set of frames, and the definition of nodes";
    ranges, 1024, operations::page_buddy::ranges, "Contiguous requests and memory that comes and goes, both tiers: a set of frames";
    quick_fit, 1024, operations::quick_fit::run, "Quick Fit over the page buddy system: a set of frames";
    linux_zone, 1024, operations::linux_zone::run, "Linux's zone: a state for each frame";
    page_zone, 1024, operations::page_zone::run, "The page buddy system as a zone's allocator: a state for each frame";
    bank_zone, 1024, operations::bank_zone::run, "The bank-aware zones, array, list and pools: a state for each frame";
    segments, 1024, operations::segments::run, "Segments across areas, all four rules: flags and loops";
    reservations, 1024, operations::reservations::run, "Reservations of one to four levels: plain sets";
    address_space, 1024, operations::address_space::run, "Address spaces, all formats, all coalescings: the hardware's walker and TLBs";
    pmap, 1024, operations::pmap::run, "Mappings of two spaces, all formats, superpages: the hardware's walker and TLBs";
    migration, 1024, operations::migration::run, "Banks emptied while memory fails: contents, the hardware's walker and TLBs";
    dram, 1024, hardware::dram::run, "Memory with time, all parts: one that tries every command in every cycle; its traces";
    regions, 1024, operations::regions::run, "Real-time regions, arrays and nodes: the RTMMU";
    heap, 1024, operations::heap::run, "TLSF and half-fit in every tier: a map of the bytes in use";
    front, 1024, operations::front::run, "The per-CPU front over three page buddies: sets of frames";
    machine, 1024, operations::machine::run, "Machines of four kinds of zones, hotplug: a state for each frame and unit";
    pool, 1024, operations::pool::run, "The buffer pool, two heaps, a source that fails: a map of the bytes in use";
    c_interface, 1024, operations::c_interface::run, "The C interface with null and foreign objects: sets of frames, a map of bytes";
    c_pmap, 512, operations::c_interface::pmap, "Mappings through the C interface, all formats: Rust's, call by call, and the same tables";
    cmt, 1024, operations::cmt::run, "cmt_malloc in C and in Rust, two threads, wrong pointers: a map of the bytes in use";
}
