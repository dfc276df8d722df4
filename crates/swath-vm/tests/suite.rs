//! The tests of `swath-vm` in one program: it is linked once, and all of them share the cores.

mod contiguity;
mod faults;
mod golden;
mod machine;
mod migrate;
mod model;
mod page_buddy;
mod pmap_model;
mod pmap_move;
mod relocate;
mod superpage_faults;
mod superpages;
mod superpages_kept;
mod superpages_model;
mod units;
mod whole_machine;
