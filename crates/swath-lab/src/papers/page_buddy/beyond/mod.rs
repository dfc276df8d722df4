//! Beyond *Duong and Hur*: what they leave out or for later, in hit rates and some of it in cycles, as
//! one study of several parts, none of which has a claim to judge.
//!
//! | part | file |
//! |---|---|
//! | the plan, and the parts put together | [`study`] |
//! | matrix multiplication in other orders than Table 4's | [`orders`] |
//! | TRAD with the format's large pages (sections II-B and IV-D) | [`large`] |
//! | demand paging, and PCAD's splitting of a block (sections IV-G and V-A) | [`demand`] |
//! | large pages and demand paging in the timed system | [`cycles`] |
//! | a binary buddy for the CPU beside the page buddy for devices (section IV-G) | [`mixed`] |

pub mod cycles;
pub mod demand;
pub mod large;
pub mod mixed;
pub mod orders;
pub mod study;
