//! Every state of small allocators, and every operation in each.
//!
//! From the allocator with all frames free, every operation is tried in every state that
//! is reached, until no new one is. So every sequence of operations of any length is
//! covered; those of four are counted. Beside each allocator goes a naive model that knows
//! which frames are out, and judges what every operation returns.
//!
//! How many frames there are is what a test of some seconds allows:
//!
//! | allocator | frames | states | what their number grows with |
//! |---|---|---|---|
//! | page buddy systems and the binary one, in one word | 12 | 4,096 | sets of free frames: the state is one for each |
//! | quick fit, over the binary one and over best fit | 7 | 44,459 | the order of blocks on each list: 8 frames have 347,979 states, and 9 single ones lie on theirs in a million ways |
//! | Linux's zone, one pageblock and two | 8 | 125,524 and 108,143 | the order of each list, mobilities |
//! | the array of banks, two banks | 8 | 2,857 | open words, isolation |
//! | Adaptive-Buddy, two banks, as the paper's and packed | 8 | 36,724 and 22,048 | the same, pools and their order |
//! | the global bitmap | 12 units | 75,025 | ways to cut runs into segments |

mod frames;
mod segments;
mod walk;
mod zones;
