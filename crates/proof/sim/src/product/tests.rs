//! The simulator of the product itself: it replays.

use super::{Bounds, Play, mongodb, postgres, redis};

#[test]
fn the_same_seed_gives_the_same_schedule() {
    for (protocol, play) in [("PostgreSQL", postgres::play as Play), ("Redis", redis::play), ("MongoDB", mongodb::play)]
    {
        for seed in 1..60 {
            let [first, second] = [(); 2].map(|()| play(seed, Bounds::default(), None, false));
            assert_eq!((first.steps, first.fingerprint), (second.steps, second.fingerprint), "{protocol}, seed {seed}");
        }
    }
}
