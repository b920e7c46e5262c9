//! The recommendation beside its rivals, once more, before it is told. A curve chooses the highest of many numbers, and
//! what wins such a choice was also lucky; and between its measurements the machine may have changed. Here a few
//! numbers are measured in turn, round by round, each time with new connections, so that all of them meet the same
//! minutes, and only that is compared. What does not stand is replaced by what beat it, which must stand a check of its
//! own. Knows nothing of how the numbers were found.
//!
//! Call order: [`Check::poll_next`], measure it, then [`Check::record`] or [`Check::refused`]; again until there is no
//! next; then [`Check::finish`]. [`drive`] does that with a probe.

use arrivals::Random;

use super::{
    Options, Probe, ProbeError,
    chooser::{Next, WITHIN},
    curve::median,
    result::{CheckPoint, Checked, Visit},
    visit,
};

/// Rounds of a check: half of those of the sweep, ...
const ROUNDS: std::ops::RangeInclusive<u32> = 2..=4;
/// Candidates that are checked: the recommendation, and if that does not stand what beat it.
const MAX_PASSES: u32 = 2;
/// A rival is so many times as large, or as small, if there is one: closer ones do about the same anyway.
const RIVAL: f64 = 2.0;
/// What is less than so many standard errors is no difference.
const ERRORS: f64 = 2.0;
/// The deviation of a median of normal values against that of their mean.
const OF_A_MEDIAN: f64 = 1.2533;

/// What the curve says, for a check.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// The numbers that were tested, in order.
    pub tested: Vec<u32>,
    /// The one that is recommended.
    pub candidate: u32,
    /// The one with the highest throughput.
    pub best: u32,
    /// Relative standard deviation of one measurement.
    pub noise: f64,
}

#[derive(Debug)]
pub struct Check {
    tested: Vec<u32>,
    noise: f64,
    rounds: u32,
    random: Random,
    /// What was to be checked at first.
    first: u32,
    candidate: u32,
    contestants: Vec<u32>,
    pass: u32,
    round: u32,
    /// What is to be measured in this round.
    queue: Vec<u32>,
    visits: Vec<Visit>,
    outcome: Option<Outcome>,
    /// What was handed out and has not been reported.
    outstanding: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Stands,
    Refuted,
    Unfinished,
}

impl Check {
    /// `rounds`: those of the sweep. `None`: nothing else was tested, so there is nothing to be compared with.
    pub fn new(claim: Claim, rounds: u32, seed: u64) -> Option<Self> {
        let contestants = contestants(&claim.tested, claim.candidate, claim.best);
        (contestants.len() > 1).then(|| Self {
            tested: claim.tested,
            noise: claim.noise,
            rounds: (rounds / 2).clamp(*ROUNDS.start(), *ROUNDS.end()),
            random: Random::new(seed ^ 0xc4ec_c4ec),
            first: claim.candidate,
            candidate: claim.candidate,
            contestants,
            pass: 1,
            round: 0,
            queue: Vec::new(),
            visits: Vec::new(),
            outcome: None,
            outstanding: None,
        })
    }

    /// What to measure now; `None`: it is over.
    pub fn poll_next(&mut self) -> Option<Next> {
        assert!(self.outstanding.is_none(), "the last number has not been reported");
        while self.outcome.is_none() && self.queue.is_empty() {
            if self.round == self.rounds {
                self.judge();
                continue;
            }
            self.round += 1;
            self.queue.clone_from(&self.contestants);
            self.random.shuffle(&mut self.queue);
        }
        if self.outcome.is_some() {
            return None;
        }
        self.outstanding = self.queue.pop();
        self.outstanding.map(|clients| Next { clients, round: (self.pass - 1) * self.rounds + self.round })
    }

    /// What was measured at the number handed out last.
    pub fn record(&mut self, visit: Visit) {
        assert!(self.outstanding.take() == Some(visit.clients), "this number was not to be measured");
        self.visits.push(visit);
    }

    /// So many clients are not let in any more: the others are compared without them.
    pub fn refused(&mut self) {
        let clients = self.outstanding.take().expect("something was to be measured");
        self.contestants.retain(|&n| n != clients);
        self.queue.retain(|&n| n != clients);
        self.tested.retain(|&n| n != clients);
        if clients == self.candidate || self.contestants.len() < 2 {
            self.outcome = Some(Outcome::Unfinished);
        }
    }

    /// The most measurements that are still to come, for a progress bar.
    pub fn left(&self) -> usize {
        let rounds = ((MAX_PASSES - self.pass) * self.rounds + self.rounds - self.round) as usize;
        if self.outcome.is_some() { 0 } else { self.queue.len() + rounds * self.contestants.len() }
    }

    /// What came out; before it is over: nothing.
    pub fn finish(self) -> Checked {
        let outcome = match self.outcome.unwrap_or(Outcome::Unfinished) {
            Outcome::Stands if self.candidate == self.first => "confirmed",
            Outcome::Stands => "moved",
            Outcome::Refuted => "refuted",
            Outcome::Unfinished => "unfinished",
        };
        let mut numbers: Vec<u32> = self.visits.iter().map(|v| v.clients).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let point = |clients: u32| {
            let mut seen: Vec<f64> =
                self.visits.iter().filter(|v| v.clients == clients).map(|v| v.throughput).collect();
            let visits = u32::try_from(seen.len()).expect("visits are few");
            CheckPoint { clients, visits, throughput: median(&mut seen) }
        };
        Checked {
            outcome: outcome.to_owned(),
            candidate: self.first,
            winner: (self.outcome == Some(Outcome::Stands)).then_some(self.candidate),
            points: numbers.into_iter().map(point).collect(),
            visits: self.visits,
        }
    }

    /// All rounds of a pass are measured: the candidate stands, or what beat it is the next, or nothing stands.
    fn judge(&mut self) {
        let against: Vec<(u32, f64)> = self.contestants.iter().map(|&n| (n, self.against_the_candidate(n))).collect();
        let best = against.iter().map(|a| a.1).fold(f64::NEG_INFINITY, f64::max);
        let promise = -(1.0 - WITHIN).ln();
        if best <= promise + self.margin() {
            self.outcome = Some(Outcome::Stands);
        } else if self.pass == MAX_PASSES {
            self.outcome = Some(Outcome::Refuted);
        } else {
            let good = against.iter().filter(|a| a.1 >= best - promise).map(|a| a.0);
            let winner = against.iter().find(|a| a.1 == best).expect("one is the best").0;
            self.candidate = good.min().unwrap_or(winner);
            self.contestants = contestants(&self.tested, self.candidate, winner);
            (self.pass, self.round) = (self.pass + 1, 0);
        }
    }

    /// The logarithm of this number's throughput against the candidate's in the same round: the median of the rounds of
    /// this pass.
    fn against_the_candidate(&self, clients: u32) -> f64 {
        let before = (self.pass - 1) * self.rounds;
        let of = |round: u32, clients: u32| {
            let visit = self.visits.iter().find(|v| v.round == round && v.clients == clients)?;
            Some(visit.throughput.max(f64::MIN_POSITIVE).ln())
        };
        let rounds = (1..=self.rounds).map(|round| before + round);
        let mut ratios: Vec<f64> =
            rounds.filter_map(|round| Some(of(round, clients)? - of(round, self.candidate)?)).collect();
        median(&mut ratios)
    }

    /// How much of a difference noise explains.
    fn margin(&self) -> f64 {
        let shape = if self.rounds > 2 { OF_A_MEDIAN } else { 1.0 };
        ERRORS * shape * self.noise * (2.0 / f64::from(self.rounds)).sqrt()
    }
}

/// A candidate and its rivals: the best, and what was tested below and above, not too close.
fn contestants(tested: &[u32], candidate: u32, best: u32) -> Vec<u32> {
    let here = f64::from(candidate);
    let far_below = tested.iter().rev().find(|&&n| f64::from(n) * RIVAL <= here);
    let far_above = tested.iter().find(|&&n| f64::from(n) >= here * RIVAL);
    let below = far_below.or_else(|| tested.iter().find(|&&n| n < candidate));
    let above = far_above.or_else(|| tested.iter().rev().find(|&&n| n > candidate));
    let mut all = vec![candidate];
    for rival in [Some(&best), below, above].into_iter().flatten() {
        if !all.contains(rival) {
            all.push(*rival);
        }
    }
    all
}

/// Carries out a check. `progress` is told the number of clients, how many measurements are done and how many there are
/// at most. What kept it from going on, if anything did, is beside what there is until then.
pub fn drive(
    probe: &mut dyn Probe,
    options: &Options,
    mut check: Check,
    progress: &mut dyn FnMut(u32, usize, usize),
) -> (Checked, Option<ProbeError>) {
    while let Some(next) = check.poll_next() {
        let done = check.visits.len();
        progress(next.clients, done, done + check.left() + 1);
        let at_s = probe.now_s();
        match probe.measure(next.clients, options.warmup, options.duration) {
            Ok(point) => check.record(visit(at_s, next, point)),
            Err(ProbeError::TooMany(_)) => check.refused(),
            Err(error) => return (check.finish(), Some(error)),
        }
    }
    (check.finish(), None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sweep::Point;

    const TESTED: [u32; 6] = [1, 2, 4, 8, 16, 32];

    fn check(candidate: u32, best: u32) -> Check {
        Check::new(Claim { tested: TESTED.to_vec(), candidate, best, noise: 0.03 }, 7, 1).unwrap()
    }

    /// Runs a check over a curve, which may depend on the round.
    fn checked(mut check: Check, curve: impl Fn(u32, u32) -> f64) -> Checked {
        let mut done = 0;
        while let Some(next) = check.poll_next() {
            let (clients, round) = (next.clients, next.round);
            check.record(Visit { clients, round, throughput: curve(clients, round), ..Visit::default() });
            done += 1;
            assert!(done < 100, "a check ends");
        }
        check.finish()
    }

    fn knee(clients: u32, _: u32) -> f64 {
        100.0 * f64::from(clients.min(8))
    }

    #[test]
    fn a_knee_that_stands_is_confirmed_by_itself_its_neighbours_and_the_best_in_three_rounds() {
        let checked = checked(check(8, 32), knee);
        assert_eq!((checked.outcome.as_str(), checked.winner), ("confirmed", Some(8)));
        let points: Vec<(u32, u32)> = checked.points.iter().map(|p| (p.clients, p.visits)).collect();
        assert_eq!(points, [(4, 3), (8, 3), (16, 3), (32, 3)]);
        assert_eq!(checked.points[1].throughput, 800.0);
        for round in 1..=3 {
            let here = checked.visits[(round - 1) * 4..round * 4].iter();
            let mut here: Vec<u32> = here.inspect(|v| assert_eq!(v.round, round as u32)).map(|v| v.clients).collect();
            here.sort_unstable();
            assert_eq!(here, [4, 8, 16, 32], "in turn: each once in each round");
        }
    }

    #[test]
    fn a_knee_that_was_luck_is_refuted_and_what_beat_it_must_stand_too() {
        let checked = checked(check(2, 2), knee);
        assert_eq!((checked.outcome.as_str(), checked.candidate, checked.winner), ("refuted", 2, None));
        let to_four = |clients: u32, _: u32| 100.0 * f64::from(clients.min(4));
        let checked = self::checked(check(2, 2), to_four);
        assert_eq!((checked.outcome.as_str(), checked.candidate, checked.winner), ("moved", 2, Some(4)));
        assert!(checked.points.iter().any(|p| p.clients == 8), "with the rivals of the new one: {:?}", checked.points);
    }

    #[test]
    fn only_what_was_measured_in_the_same_round_is_compared() {
        let slower_and_slower = |clients: u32, round: u32| knee(clients, 0) / f64::from(round * round);
        assert_eq!(checked(check(8, 32), slower_and_slower).outcome, "confirmed");
        let checked = checked(check(4, 8), |clients, round| knee(clients, 0) * f64::from(round));
        assert_eq!((checked.outcome.as_str(), checked.winner), ("moved", Some(8)));
    }

    #[test]
    fn what_noise_explains_refutes_nothing() {
        let mut wrong = 0;
        for seed in 0..200 {
            let random = std::cell::RefCell::new(Random::new(seed));
            let noisy = |clients: u32, _: u32| knee(clients, 0) * (1.0 + 0.03 * random.borrow_mut().normal());
            let check =
                Check::new(Claim { tested: TESTED.to_vec(), candidate: 8, best: 32, noise: 0.03 }, 7, seed).unwrap();
            wrong += usize::from(checked(check, noisy).outcome != "confirmed");
        }
        assert!(wrong <= 4, "{wrong} of 200");
    }

    #[test]
    fn who_is_not_let_in_any_more_is_left_out() {
        let mut check = check(8, 32);
        while let Some(next) = check.poll_next() {
            let (clients, round) = (next.clients, next.round);
            match clients {
                16.. => check.refused(),
                _ => check.record(Visit { clients, round, throughput: knee(clients, 0), ..Visit::default() }),
            }
        }
        let checked = check.finish();
        assert_eq!((checked.outcome.as_str(), checked.points.len()), ("confirmed", 2));
        let mut alone = self::check(8, 8);
        while alone.poll_next().is_some() {
            alone.refused();
        }
        assert_eq!(alone.finish().outcome, "unfinished");
    }

    #[test]
    fn a_single_number_has_no_rivals() {
        assert!(Check::new(Claim { tested: vec![4], candidate: 4, best: 4, noise: 0.03 }, 7, 1).is_none());
        assert_eq!(contestants(&[10, 11, 12], 11, 11), [11, 10, 12], "close ones if there are no others");
        assert_eq!(contestants(&[1, 2, 4, 5, 6, 8, 12], 5, 6), [5, 6, 2, 12]);
    }

    /// Is interrupted at its visit with this number, from 0.
    struct Interrupted(u32);

    impl Probe for Interrupted {
        fn measure(&mut self, clients: u32, _: Duration, _: Duration) -> Result<Point, ProbeError> {
            self.0 = self.0.checked_sub(1).ok_or(ProbeError::Interrupted)?;
            Ok(Point { throughput: knee(clients, 0), ..Point::default() })
        }

        fn now_s(&self) -> f64 {
            0.0
        }
    }

    #[test]
    fn an_interruption_leaves_what_was_measured_until_then() {
        let second = Duration::from_secs(1);
        let options = Options { from: 1, to: 32, rounds: 7, duration: second, warmup: second, seed: 1 };
        let mut shown = Vec::new();
        let run = |visits: u32, shown: &mut Vec<(usize, usize)>| {
            drive(&mut Interrupted(visits), &options, check(8, 32), &mut |_, done, all| shown.push((done, all)))
        };
        let (checked, error) = run(5, &mut shown);
        assert_eq!(
            (checked.outcome.as_str(), checked.visits.len(), error),
            ("unfinished", 5, Some(ProbeError::Interrupted))
        );
        assert_eq!((shown[0], shown[5]), ((0, 24), (5, 24)), "two passes at most");
        let (checked, error) = run(100, &mut shown);
        assert_eq!((checked.outcome.as_str(), checked.visits.len(), error), ("confirmed", 12, None));
    }
}
