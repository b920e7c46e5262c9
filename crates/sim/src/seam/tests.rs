//! A few hundred schedules of each toy, and the proof that each check can fail.

use super::*;
use crate::runner;

fn schedules(toy: Toy, seed: u64, n: u64) {
    let run = |seed| run(seed, None, Some(toy), Fault::None, false);
    let mut ended = [0; 3];
    let result = runner::run(seed, n, run, |tally| ended = [0, 1, 2].map(|i| ended[i] + tally.ended[i]));
    if let Err(violation) = result {
        let toy = format!("{toy:?}").to_lowercase();
        let replay = format!("cargo run -p sim --release -- seam --toy {toy} --seed {} --trace", violation.seed);
        panic!("{}\nreplay with: {replay}", violation.what);
    }
    assert!(ended.iter().all(|&n| n > 0), "every way to end happens: {ended:?}");
}

/// What the checks say to a defect within so many schedules.
fn found(toy: Toy, fault: Fault) -> String {
    let run = |seed| run(seed, None, Some(toy), fault, false);
    match runner::run(1, 300, run, |_| {}) {
        Ok(()) => panic!("{fault:?} in {toy:?} goes unnoticed"),
        Err(violation) => violation.what,
    }
}

fn assert_found(toy: Toy, fault: Fault, words: &[&str]) {
    let what = found(toy, fault);
    assert!(words.iter().any(|w| what.contains(w)), "{fault:?} in {toy:?} is noticed as something else: {what}");
}

const TOYS: [Toy; 3] = [Toy::Exclusive, Toy::Several, Toy::Shared];

#[test]
fn one_server_for_one_client_holds_under_faults() {
    schedules(Toy::Exclusive, 1_000_000, 600);
}

#[test]
fn several_servers_at_a_time_hold_under_faults() {
    schedules(Toy::Several, 2_000_000, 600);
}

#[test]
fn one_server_for_many_clients_holds_under_faults() {
    schedules(Toy::Shared, 3_000_000, 600);
}

#[test]
fn a_reply_to_another_client_is_noticed() {
    for toy in TOYS {
        assert_found(toy, Fault::LeakReply, &["another client", "broken frame", "has gone", "no broken frames"]);
    }
}

#[test]
fn a_server_handed_on_dirty_is_noticed() {
    assert_found(Toy::Exclusive, Fault::DirtyRelease, &["left behind"]);
    assert_found(Toy::Several, Fault::DirtyRelease, &["left behind"]);
    assert_found(Toy::Shared, Fault::DirtyRelease, &["still"]);
}

#[test]
fn a_request_executed_twice_is_noticed() {
    for toy in [Toy::Exclusive, Toy::Shared] {
        assert_found(toy, Fault::SendTwice, &["executed twice", "at work"]);
    }
}

#[test]
fn lost_input_is_noticed() {
    for toy in TOYS {
        let words =
            ["does not come to rest", "never happen", "never answered", "come in order", "broken", "wanted back"];
        assert_found(toy, Fault::LoseInput, &words);
    }
}

#[test]
fn a_request_that_dies_with_its_server_in_silence_is_noticed() {
    for toy in TOYS {
        let words = ["does not come to rest", "never happen", "come in order"];
        assert_found(toy, Fault::SilentLoss, &words);
    }
}

#[test]
fn a_server_that_is_never_given_back_is_noticed() {
    for toy in TOYS {
        assert_found(toy, Fault::KeepServer, &["keeps", "never given back", "shared by nobody", "who has gone"]);
    }
}

#[test]
fn a_share_that_is_kept_after_the_last_reply_is_noticed() {
    assert_found(Toy::Shared, Fault::KeepShare, &["called idle and has a share"]);
    assert_found(Toy::Shared, Fault::SitOnShare, &["and nothing is due to them"]);
}

#[test]
fn more_pins_than_may_be_are_noticed() {
    assert_found(Toy::Exclusive, Fault::PinWithoutBound, &["are kept by their clients"]);
}

#[test]
fn a_pin_that_outlives_its_client_is_noticed() {
    assert_found(Toy::Exclusive, Fault::KeepPin, &["is counted as keeping"]);
}

/// An order to close a connection that nobody had begun yet was taken for void, and the order to make it carried out later: the
/// pool never heard of either again, and lost a place.
#[test]
fn a_close_that_overtakes_its_connect_is_obeyed() {
    run(15_135, Some(200), None, Fault::None, false);
}
