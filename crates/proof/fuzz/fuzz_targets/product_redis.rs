//! A client that may send any bytes talks to the real workers and sessions, beside a client whose answers are checked,
//! in front of a model of Redis. The first eight bytes of the input are the seed of the schedule.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sim::product::play_raw(sim::product::redis::play, data));
