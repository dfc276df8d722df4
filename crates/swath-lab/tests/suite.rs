//! The tests of `swath-lab` in one program: it is linked once, and all of them share the cores.

mod clmalloc;
mod composed;
mod cross_check;
mod cross_check_superpages;
mod green;
mod green_machine;
mod journal;
mod judged;
mod kernel;
mod page_buddy;
mod page_follow;
mod page_load;
mod page_replay;
mod plan;
mod process;
mod reach;
mod regions_meet_rtmmu;
mod report_film;
mod report_page;
mod report_reading;
mod report_results;
mod rt_heap;
mod runs;
mod search;
mod segments_meet_registers;
mod verdicts_small;
