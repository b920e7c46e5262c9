//! A client says anything to the real workers and sessions, beside an honest one and before a model of a replica set;
//! the simulator checks what it always does. The first eight bytes decide about the schedule.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sim::product::hear(sim::product::mongodb::play, data));
