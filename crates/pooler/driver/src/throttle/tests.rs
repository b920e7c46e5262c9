use super::*;

const HERE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
const START: Time = Time(0);

fn at(ms: u64) -> Time {
    START + Duration::from_millis(ms)
}

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

/// A client that has not said who it is.
fn of(address: Option<IpAddr>) -> Comer<'static> {
    Comer { address, user: None }
}

/// One that allows no failure, and has seen one from there.
fn hot(from: Option<IpAddr>) -> Throttle {
    let throttle = Throttle::new(0);
    assert!(throttle.note_failure(of(from), None, START));
    throttle
}

#[derive(Default)]
struct Login(Option<Box<LoginTicket>>);

impl Login {
    fn may(&mut self, throttle: &Throttle, from: Option<IpAddr>, now: Time) -> bool {
        throttle.try_take_turn(of(from), &mut self.0, now)
    }

    fn fails(&mut self, throttle: &Throttle, from: Option<IpAddr>, now: Time) -> bool {
        throttle.note_failure(of(from), self.0.take().map(|ticket| *ticket), now)
    }

    fn ends(&mut self, throttle: &Throttle) {
        if let Some(ticket) = self.0.take() {
            throttle.end_turn(*ticket);
        }
    }
}

#[test]
fn answers_are_delayed_after_too_many_failures_until_the_window_ends() {
    let throttle = Throttle::new(2);
    assert!(!throttle.note_failure(of(HERE), None, START));
    assert!(!throttle.note_failure(of(HERE), None, START));
    assert!(Login::default().may(&throttle, HERE, START), "the limit is not passed");
    assert!(throttle.note_failure(of(HERE), None, START));
    assert!(!throttle.note_failure(of(HERE), None, START + FAILURE_WINDOW));
    assert_eq!(throttle.failures(), 4);
}

#[test]
fn a_right_password_gets_in_behind_an_address_from_which_others_guess_without_end() {
    let throttle = hot(HERE);
    // A hundred of them guess again as soon as they are told. Then a client comes that knows the password.
    let mut guessers: Vec<(Login, Option<Time>)> = (0..100).map(|_| (Login::default(), None)).collect();
    let (mut friend, mut guesses, mut got_in) = (Login::default(), 0, None);
    for ms in (1_000..31_000).step_by(20) {
        let now = at(ms);
        for (guesser, told) in &mut guessers {
            if told.is_some_and(|told| now < told) {
                continue;
            }
            *told = None;
            if guesser.may(&throttle, HERE, now) {
                assert!(guesser.fails(&throttle, HERE, now), "the answer is kept back");
                *told = Some(now + FAILURE_DELAY);
                guesses += 1;
            }
        }
        if ms >= 5_000 && got_in.is_none() && friend.may(&throttle, HERE, now) {
            friend.ends(&throttle);
            got_in = Some(ms - 5_000);
        }
    }
    let waited = got_in.expect("the right password gets in");
    assert!(waited <= 8_000, "after {waited} ms");
    assert!(guesses <= MAX_LOGINS_PER_LANE * 31, "{guesses} guesses in 30 s");
}

#[test]
fn logins_that_succeed_do_not_wait_for_each_other_behind_an_address_with_few_failures_a_second() {
    let throttle = hot(HERE);
    let mut stale = Login::default();
    for ms in 1..2_000 {
        if ms % 500 == 0 && stale.may(&throttle, HERE, at(ms)) {
            stale.fails(&throttle, HERE, at(ms));
        }
        let mut friend = Login::default();
        assert!(friend.may(&throttle, HERE, at(ms)));
        friend.ends(&throttle);
    }
}

#[test]
fn turns_are_taken_in_order_and_newcomers_overtake_no_other() {
    let throttle = hot(HERE);
    let mut all: Vec<Login> = (0..MAX_LOGINS_PER_LANE + 2).map(|_| Login::default()).collect();
    let now = at(1_500);
    let may: Vec<bool> = all.iter_mut().map(|login| login.may(&throttle, HERE, now)).collect();
    assert!(may[..MAX_LOGINS_PER_LANE].iter().all(|may| *may) && may[MAX_LOGINS_PER_LANE..].iter().all(|may| !*may));
    all[3].ends(&throttle);
    assert!(!Login::default().may(&throttle, HERE, now), "others were first");
    assert!(!all[MAX_LOGINS_PER_LANE + 1].may(&throttle, HERE, now));
    assert!(all[MAX_LOGINS_PER_LANE].may(&throttle, HERE, now));
    assert!(all[0].may(&throttle, HERE, now), "it is still its turn");
}

#[test]
fn a_client_that_says_nothing_in_its_turn_loses_it() {
    let throttle = hot(HERE);
    let mut silent: Vec<Login> = (0..MAX_LOGINS_PER_LANE).map(|_| Login::default()).collect();
    let now = at(1_500);
    assert!(silent.iter_mut().all(|login| login.may(&throttle, HERE, now)));
    let mut friend = Login::default();
    assert!(!friend.may(&throttle, HERE, now));
    assert!(friend.may(&throttle, HERE, now + MAX_TURN_TIME));
    // There is room now, so that it may go on; in a group it would wait anew.
    assert!(silent[0].may(&throttle, HERE, now + MAX_TURN_TIME));
}

#[test]
fn a_client_that_leaves_the_queue_holds_no_other_up() {
    let throttle = hot(HERE);
    let mut all: Vec<Login> = (0..MAX_LOGINS_PER_LANE + 2).map(|_| Login::default()).collect();
    let now = at(1_500);
    all.iter_mut().for_each(|login| {
        login.may(&throttle, HERE, now);
    });
    all[MAX_LOGINS_PER_LANE].ends(&throttle);
    all[0].ends(&throttle);
    assert!(all[MAX_LOGINS_PER_LANE + 1].may(&throttle, HERE, now));
}

#[test]
fn an_ipv6_network_counts_as_one_address_and_a_mapped_address_as_its_own() {
    let throttle = Throttle::new(1);
    assert!(!throttle.note_failure(of(address("2001:db8:1:2::1")), None, START));
    assert!(throttle.note_failure(of(address("2001:db8:1:2:ffff::7")), None, START));
    assert!(!throttle.note_failure(of(address("2001:db8:1:3::1")), None, START), "another network");
    assert!(!throttle.note_failure(of(address("::ffff:10.0.0.5")), None, START));
    assert!(throttle.note_failure(of(address("10.0.0.5")), None, START));
    assert!(
        !throttle.note_failure(of(address("::ffff:10.0.0.6")), None, START),
        "mapped addresses have no network in common"
    );
}

#[test]
fn a_full_table_does_not_switch_the_limit_off() {
    let throttle = Throttle::new(3);
    let many = |n: usize| Some(IpAddr::from([10, (n >> 16) as u8, (n >> 8) as u8, n as u8]));
    for n in 0..MAX_ADDRESSES {
        throttle.note_failure(of(many(n)), None, START);
    }
    let late = address("192.0.2.1");
    let delayed = (0..10).filter(|_| throttle.note_failure(of(late), None, START)).count();
    assert!(delayed >= 7, "{delayed} of 10 answers were delayed");
    let mut logins: Vec<Login> = (0..2 * MAX_LOGINS_PER_LANE).map(|_| Login::default()).collect();
    let may = logins.iter_mut().filter_map(|login| login.may(&throttle, late, START).then_some(())).count();
    assert!(may <= MAX_LOGINS_PER_LANE, "{may} may log in at a time");
    // And there is room again when the windows are over.
    for n in 0..MAX_ADDRESSES {
        throttle.note_failure(of(many(n)), None, START + FAILURE_WINDOW);
    }
    assert!(throttle.lock().records.len() <= MAX_ADDRESSES + ADDRESS_GROUPS as usize);
}

#[test]
fn a_user_who_fails_keeps_no_other_user_of_the_address_waiting() {
    let (throttle, wrong) = (hot(HERE), Comer { address: HERE, user: Some("wrong") });
    assert!(throttle.note_failure(wrong, None, START));
    let mut failing: Vec<Option<Box<LoginTicket>>> = (0..100).map(|_| None).collect();
    let now = at(1_000);
    let admitted = failing.iter_mut().filter_map(|ticket| throttle.try_take_turn(wrong, ticket, now).then_some(()));
    assert_eq!(admitted.count(), MAX_LOGINS_PER_LANE);
    for user in [Some("right"), None] {
        assert!(throttle.try_take_turn(Comer { address: HERE, user }, &mut None, now), "{user:?}");
    }
    // Who it is may become known later.
    let mut ticket = None;
    assert!(throttle.try_take_turn(of(HERE), &mut ticket, now));
    assert!(!throttle.try_take_turn(wrong, &mut ticket, now), "it waits with those that fail");
}
