//! Reservations over the page buddy system.

use swath_arch::testing::Random;
use swath_frame::testing::reservations::{Model, agree, agree_on, apply, levels, pool, random_op};
use swath_frame::{BuddyConfig, Trusting};

use super::memory::{STEPS_MAX, extent};

/// Orders of the levels, and the orders below them that may be full.
const LEVELS: [(&[u8], &[u8]); 6] = [
    (&[1], &[]),
    (&[3], &[1, 2]),
    (&[6], &[4]),
    (&[1, 2], &[]),
    (&[1, 3, 4], &[]),
    (&[2, 3, 5, 6], &[1]),
];

/// Draws memory and levels, and drives reservations beside a model of sets.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let (orders, suborders) = LEVELS[random.index(LEVELS.len())];
    let levels = levels(orders, suborders);
    let top = levels.top().frames();
    // From a half to four superpages, at any alignment, with a hole.
    let first = extent(random.below(3 * top), top / 2 + random.below(3 * top));
    let second = extent(first.end().raw() + 1 + random.below(top), 1 + random.below(top));
    let configs = [BuddyConfig::BBS, BuddyConfig::PBS_ARMV7, BuddyConfig::PBS_ARMV8];
    let mut pool = pool::<Trusting>(&[first, second], configs[random.index(3)], levels);
    let mut model = Model::new(&[first, second], levels);
    let (mut now, pressure) = (0, random.below(12));
    for step in 0..STEPS_MAX as u64 {
        if random.is_spent() {
            break;
        }
        let op = random_op(&mut random, &model, &mut now, pressure);
        apply(&mut pool, &mut model, &op);
        agree(&pool, &model);
        agree_on(&pool, &model, first.start.raw() + step * 7 % (5 * top));
    }
}
