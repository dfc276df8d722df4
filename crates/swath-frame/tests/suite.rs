//! The tests of `swath-frame` in one program: it is linked once, and all of them share the cores.

mod bank_conformance;
mod bank_model;
mod bitmap;
mod every_state;
mod flips;
mod flips_frames;
mod flips_front;
mod flips_reservations;
mod flips_segments;
mod flips_zones;
mod front;
mod linux;
mod linux_conformance;
mod linux_follow;
mod machine;
mod map;
mod page_buddy;
mod pages_conformance;
mod quick_fit;
mod reservation;
mod reservation_model;
mod runs;
mod segment;
mod segment_migrate;
mod segment_paper;
mod segment_small;
