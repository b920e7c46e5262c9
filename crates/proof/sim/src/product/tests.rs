//! The simulator of the product itself: it replays.

use super::{Bounds, Play, mongodb, postgres, redis};

fn replays(play: Play, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (first, second) = (play(seed, Bounds::default(), None, false), play(seed, Bounds::default(), None, false));
        assert_eq!((first.steps, first.fingerprint), (second.steps, second.fingerprint), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_schedule_of_postgresql() {
    replays(postgres::play, 1..60);
}

#[test]
fn the_same_seed_gives_the_same_schedule_of_redis() {
    replays(redis::play, 1..60);
}

#[test]
fn the_same_seed_gives_the_same_schedule_of_mongodb() {
    replays(mongodb::play, 1..60);
}
