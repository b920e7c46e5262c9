//! The simulator of the product itself: it replays.

use super::{Bounds, Done, postgres, redis};

fn replays(run: impl Fn(u64, Bounds, bool) -> Done, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (first, second) = (run(seed, Bounds::default(), false), run(seed, Bounds::default(), false));
        assert_eq!((first.steps, first.print), (second.steps, second.print), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_schedule_of_postgresql() {
    replays(postgres::run, 1..60);
}

#[test]
fn the_same_seed_gives_the_same_schedule_of_redis() {
    replays(redis::run, 1..60);
}
