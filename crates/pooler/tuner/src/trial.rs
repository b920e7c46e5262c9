//! A trial of a candidate size beside the present one. The two take turns in the order present, candidate, candidate,
//! present. So a drift of the database affects both alike, and the pool changes once a pair. It knows neither clock nor
//! pool, and does not choose sizes.
//!
//! Throughput decides, as the logarithm of the ratio within each pair. A test of ranks ([`ranks`](crate::ranks)) is
//! made at fixed numbers of pairs, which share the probability of an error (Bonferroni). To reject a candidate takes
//! less: the present size is safe, and each pair with a bad candidate costs throughput.

use std::time::Duration;

use crate::{
    evidence::{Evidence, Reason},
    ranks::{self, Middle},
    window::Window,
};

/// The numbers of pairs at which a decision is made.
const DECISION_PAIRS: [usize; 6] = [7, 10, 14, 20, 28, ranks::MAX_DIFFERENCES];
/// The probability that throughput is beyond one end of the interval, at each decision: 5% for all together.
pub const TAIL_PROBABILITY: f64 = 0.05 / DECISION_PAIRS.len() as f64;
/// The smallest gain that counts, as a fraction.
const MIN_GAIN: f64 = 0.01;
/// The fraction of throughput that fewer servers may lose, and still count as doing as much.
const MAX_LOSS_OF_FEWER: f64 = 0.02;
/// The fraction that more servers must be able to gain.
const MIN_WORTHWHILE_GAIN: f64 = 0.02;
/// A candidate is given up after this number of pairs if it loses this fraction in their middle, and half of it in each
/// pair. One stall changes the middle of two pairs, but not that of four: therefore the half.
const CLEAR_LOSS: (usize, f64) = (2, 0.15);
/// The same, if it loses something in each pair.
const LIKELY_LOSS: (usize, f64) = (4, 0.05);
/// Fewer servers do not do as much if clients are in the pool for longer by this fraction.
const MAX_LONGER_STAY: f64 = 0.1;
/// Pairs with more errors of the candidate after which it is given up, unless all pairs together have no more: if
/// errors come anyway, some pairs are bad by chance.
const MAX_ERROR_PAIRS: u32 = 2;
/// Errors in one window that may be chance.
const MAX_CHANCE_ERRORS: u64 = 3;
/// Successive pairs without demand, or in which hardly any hold ends, after which a trial ends.
const MAX_PAIRS_WITHOUT_DEMAND: u32 = 2;
/// If each server in use comes back less often than this in a window on average, a window ends, and a change has
/// settled, only once each has come back.
const MIN_RETURNS: u64 = 4;

/// The size that has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Present,
    Candidate,
}

#[derive(Clone, Debug)]
pub struct Trial {
    present: u32,
    candidate: u32,
    window: Duration,
    max_pairs: usize,
    /// Windows do not end before each server came back.
    waits_for_returns: bool,
    taken: usize,
    /// The number of pairs when the trial began, or was resumed.
    from: usize,
    /// The first window of a pair.
    half: Option<Window>,
    /// By pair: the logarithms of the ratios, candidate to present, of throughput and of the time in the pool.
    gains: Vec<f64>,
    stays: Vec<f64>,
    error_pairs: u32,
    pairs_without_demand: u32,
    at_present: Window,
    at_candidate: Window,
}

impl Trial {
    /// A trial with windows of this time, if servers come back often enough in it by what the window `before` shows,
    /// and with at most `max_pairs` pairs.
    pub fn new(present: u32, candidate: u32, (window, before): (Duration, &Window), max_pairs: usize) -> Self {
        assert_ne!(present, candidate, "a size is not tried beside itself");
        Self {
            present,
            candidate,
            window,
            max_pairs: max_pairs.clamp(DECISION_PAIRS[0], ranks::MAX_DIFFERENCES),
            waits_for_returns: !before.has_returned(MIN_RETURNS),
            taken: 0,
            from: 0,
            half: None,
            gains: Vec::new(),
            stays: Vec::new(),
            error_pairs: 0,
            pairs_without_demand: 0,
            at_present: Window::default(),
            at_candidate: Window::default(),
        }
    }

    /// The trial, to be resumed later. Its pairs stay valid.
    pub fn paused(self) -> Self {
        let taken = self.taken.next_multiple_of(4);
        Self { taken, from: self.gains.len(), half: None, pairs_without_demand: 0, ..self }
    }

    /// Resumes the trial after a pause, of which this was the last window.
    pub fn resumed(self, before: &Window) -> Self {
        Self { waits_for_returns: self.waits_for_returns || !before.has_returned(MIN_RETURNS), ..self }
    }

    /// Whether there are more pairs than when it began, or was resumed.
    pub fn has_progressed(&self) -> bool {
        self.gains.len() > self.from
    }

    /// The size that the candidate is compared with.
    pub fn present(&self) -> u32 {
        self.present
    }

    pub fn candidate(&self) -> u32 {
        self.candidate
    }

    pub fn window(&self) -> Duration {
        self.window
    }

    /// Whether no window ends, and no change has settled, before each server came back.
    pub fn waits_for_returns(&self) -> bool {
        self.waits_for_returns
    }

    /// The size that has its turn.
    pub fn size(&self) -> u32 {
        match self.turn() {
            Turn::Present => self.present,
            Turn::Candidate => self.candidate,
        }
    }

    /// Takes the window of the size that had its turn. Returns the outcome, if there is one.
    pub fn take(&mut self, window: Window) -> Option<Reason> {
        let turn = self.turn();
        self.taken += 1;
        let Some(other) = self.half.take() else {
            self.half = Some(window);
            return None;
        };
        let (present, candidate) = if turn == Turn::Candidate { (other, window) } else { (window, other) };
        // Servers come back often. The window before was a stall.
        self.waits_for_returns &= !(present.has_returned(MIN_RETURNS) && candidate.has_returned(MIN_RETURNS));
        // While hardly any hold ends, because of a locked table for example, all sizes do as much.
        let stands_still = !present.has_returned(1) && !candidate.has_returned(1);
        if !present.has_demand() || stands_still {
            self.pairs_without_demand += 1;
            return (self.pairs_without_demand >= MAX_PAIRS_WITHOUT_DEMAND).then_some(Reason::NoDemand);
        }
        self.pairs_without_demand = 0;
        self.error_pairs += u32::from(has_more_errors(&candidate, &present));
        // One is added to each, so that a window without ended holds has a logarithm.
        let of = |window: &Window| (window.completed as f64 + 1.0) / window.time.as_secs_f64().max(1e-9);
        let gain = (of(&candidate) / of(&present)).ln();
        self.gains.push(gain);
        // Little's law. With clients that come at a rate, a longer stay is a larger crowd. With clients that come back
        // at once, a larger crowd may only mean that they are back sooner.
        self.stays.push(((candidate.mean_clients() + 1.0) / (present.mean_clients() + 1.0)).ln() - gain);
        self.at_present = self.at_present.plus(&present);
        self.at_candidate = self.at_candidate.plus(&candidate);
        self.verdict()
    }

    /// The measurement so far.
    pub fn evidence(&self) -> Evidence {
        let middle = ranks::middle(&self.gains, TAIL_PROBABILITY);
        let part = |logarithm: f64| logarithm.exp() - 1.0;
        Evidence {
            present: self.present,
            candidate: self.candidate,
            pairs: self.gains.len() as u32,
            window: self.window,
            gain: middle.map(|middle| part(middle.estimate)),
            interval: middle.and_then(|middle| middle.interval).map(|(low, high)| (part(low), part(high))),
            at_present: self.at_present,
            at_candidate: self.at_candidate,
        }
    }

    fn turn(&self) -> Turn {
        match self.taken % 4 {
            0 | 3 => Turn::Present,
            _ => Turn::Candidate,
        }
    }

    fn verdict(&self) -> Option<Reason> {
        if self.error_pairs >= MAX_ERROR_PAIRS && has_more_errors(&self.at_candidate, &self.at_present) {
            return Some(Reason::Errors);
        }
        let pairs = self.gains.len();
        let lost = |part: f64| (1.0 - part).ln();
        let all_below = |(after, part): (usize, f64), each: f64| {
            pairs == after && self.gains.iter().all(|gain| *gain < each) && self.estimate() < lost(part)
        };
        if all_below(CLEAR_LOSS, lost(CLEAR_LOSS.1 / 2.0)) || all_below(LIKELY_LOSS, 0.0) {
            return Some(Reason::Worse);
        }
        if !DECISION_PAIRS.contains(&pairs) {
            return None;
        }
        let Some(Middle { estimate, interval: Some((low, high)) }) = ranks::middle(&self.gains, TAIL_PROBABILITY)
        else {
            return None;
        };
        let fewer = self.candidate < self.present;
        if low > 0.0 && estimate > MIN_GAIN.ln_1p() {
            return Some(Reason::Better);
        }
        if high < 0.0 && estimate < -MAX_LOSS_OF_FEWER / 2.0 {
            return Some(Reason::Worse);
        }
        if fewer && low > (-MAX_LOSS_OF_FEWER).ln_1p() {
            return Some(if self.is_slow() { Reason::Worse } else { Reason::Alike });
        }
        if !fewer && high < MIN_WORTHWHILE_GAIN.ln_1p() {
            return Some(Reason::NoGain);
        }
        (pairs >= self.max_pairs).then_some(Reason::Unclear)
    }

    fn estimate(&self) -> f64 {
        ranks::middle(&self.gains, TAIL_PROBABILITY).map_or(0.0, |middle| middle.estimate)
    }

    /// Whether clients stay longer with the candidate. If they come at a rate, a queue grows before throughput falls.
    fn is_slow(&self) -> bool {
        ranks::middle(&self.stays, TAIL_PROBABILITY).is_some_and(|middle| middle.estimate > MAX_LONGER_STAY.ln_1p())
    }
}

/// Whether a candidate had more than twice as many errors, and more than may be chance.
fn has_more_errors(candidate: &Window, present: &Window) -> bool {
    candidate.errors > MAX_CHANCE_ERRORS + 2 * present.errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{Gauge, Sample};
    use pool::Time;
    use random::Random;

    const WINDOW: Duration = Duration::from_secs(4);

    /// A window with these holds, errors, and clients in the pool.
    fn window(completed: u64, errors: u64, in_use: u32, waiters: u32) -> Window {
        let mut gauge = Gauge::default();
        let sample =
            |completed, errors| Sample { completed, errors, in_use, waiters, is_working: true, ..Sample::default() };
        gauge.observe(&sample(0, 0), WINDOW, false, Time(0));
        gauge.observe(&sample(completed, errors), WINDOW, false, Time(4_000_000_000)).unwrap()
    }

    fn trial(present: u32, candidate: u32) -> Trial {
        Trial::new(present, candidate, (WINDOW, &window(5000, 0, present, 9)), 40)
    }

    /// The outcome of a trial with these windows of each size, and the number of pairs.
    fn outcome(trial: &mut Trial, mut of: impl FnMut(u32) -> Window) -> (Reason, usize) {
        loop {
            let size = trial.size();
            if let Some(reason) = trial.take(of(size)) {
                return (reason, trial.gains.len());
            }
            assert!(trial.taken < 200, "no end");
        }
    }

    /// A window with 5,000 holds, these clients in the pool, and 30 more that keep their servers.
    fn window_with_pinned(in_use: u32, waiters: u32) -> Window {
        let mut gauge = Gauge::default();
        let sample = |completed| Sample {
            completed,
            in_use: 30 + in_use,
            pinned: 30,
            waiters,
            is_working: true,
            ..Sample::default()
        };
        gauge.observe(&sample(0), WINDOW, false, Time(0));
        gauge.observe(&sample(5000), WINDOW, false, Time(4_000_000_000)).unwrap()
    }

    fn noisy(random: &mut Random, mean: f64, deviation: f64) -> Window {
        window((mean * (1.0 + deviation * random.normal())).max(0.0) as u64, 0, 20, 30)
    }

    #[test]
    fn the_size_changes_once_a_pair() {
        let mut trial = self::trial(20, 16);
        let turns: Vec<u32> = (0..8)
            .map(|_| {
                let size = trial.size();
                assert_eq!(trial.take(window(100, 0, size, 5)), None);
                size
            })
            .collect();
        assert_eq!(turns, [20, 16, 16, 20, 20, 16, 16, 20]);
    }

    #[test]
    fn a_clear_gain_is_found_in_the_fewest_pairs_and_a_clear_loss_in_two() {
        let mut random = Random::new(7);
        let mut trial = self::trial(20, 16);
        let gain = |size| if size == 16 { 5500.0 } else { 5000.0 };
        assert_eq!(outcome(&mut trial, |size| noisy(&mut random, gain(size), 0.02)), (Reason::Better, 7));
        let evidence = trial.evidence();
        assert!((evidence.gain.unwrap() - 0.1).abs() < 0.03 && evidence.interval.unwrap().0 > 0.0, "{evidence}");
        let mut trial = self::trial(20, 10);
        let loss = |size| if size == 10 { 2500.0 } else { 5000.0 };
        assert_eq!(outcome(&mut trial, |size| noisy(&mut random, loss(size), 0.05)), (Reason::Worse, 2));
    }

    #[test]
    fn without_a_difference_fewer_servers_do_as_much_and_more_gain_nothing() {
        let mut random = Random::new(9);
        let fewer: Vec<_> =
            (0..50).map(|_| outcome(&mut trial(20, 16), |_| noisy(&mut random, 5000.0, 0.02)).0).collect();
        assert!(fewer.iter().filter(|reason| **reason == Reason::Alike).count() >= 35, "{fewer:?}");
        assert!(fewer.iter().filter(|reason| **reason == Reason::Better).count() <= 3, "{fewer:?}");
        let outcomes: Vec<_> =
            (0..50).map(|_| outcome(&mut trial(20, 25), |_| noisy(&mut random, 5000.0, 0.02)).0).collect();
        assert!(outcomes.iter().filter(|reason| **reason == Reason::NoGain).count() >= 40, "{outcomes:?}");
    }

    #[test]
    fn chance_seldom_makes_a_candidate_better() {
        let mut random = Random::new(3);
        let wrong = (0..400)
            .filter(|_| {
                let trial = &mut self::trial(20, 25);
                outcome(trial, |_| noisy(&mut random, 5000.0, 0.08)).0 == Reason::Better
            })
            .count();
        assert!(wrong <= 24, "{wrong} of 400, and 5% are allowed");
    }

    #[test]
    fn one_stall_does_not_give_a_size_up() {
        // The candidate's second window meets a stall, and its first one has a little less.
        let mut trial = self::trial(20, 16);
        let mut windows = [5000, 4950, 500, 5000].into_iter().map(|completed| window(completed, 0, 16, 20));
        assert!(windows.all(|window| trial.take(window).is_none()), "{}", trial.evidence());
        // Nor does it among the first four pairs, in all of which the candidate has a little less.
        let mut pairs = [[5000, 4950], [4950, 5000]].into_iter().cycle().take(2).flatten();
        assert!(pairs.all(|completed| trial.take(window(completed, 0, 16, 20)).is_none()), "{}", trial.evidence());
        let mut trial = self::trial(20, 16);
        let mut windows = [5000, 4100, 4100, 5000].into_iter();
        assert_eq!(windows.find_map(|completed| trial.take(window(completed, 0, 16, 20))), Some(Reason::Worse));
    }

    #[test]
    fn a_size_with_errors_is_given_up() {
        let mut trial = self::trial(20, 25);
        let with_errors = |size| window(5000, if size == 25 { 10 } else { 0 }, size, 9);
        assert_eq!(outcome(&mut trial, with_errors), (Reason::Errors, 2));
    }

    #[test]
    fn errors_with_both_sizes_seldom_reject_a_candidate() {
        let mut random = Random::new(11);
        // Two in each window on average, at random.
        let mut errors = move || {
            let (mut at, mut count) = (random.exponential(), 0);
            while at < 2.0 {
                (at, count) = (at + random.exponential(), count + 1);
            }
            count
        };
        let mut noise = Random::new(12);
        let wrong = (0..200).filter(|_| {
            let completed = |noise: &mut Random| (5000.0 * (1.0 + 0.08 * noise.normal())) as u64;
            let trial = &mut self::trial(20, 25);
            outcome(trial, |_| window(completed(&mut noise), errors(), 20, 30)).0 == Reason::Errors
        });
        let wrong = wrong.count();
        assert!(wrong <= 10, "{wrong} of 200, and 5% are allowed");
    }

    #[test]
    fn fewer_servers_with_a_growing_queue_do_not_do_as_much() {
        let mut trial = self::trial(20, 16);
        let queue = |size| window(5000, 0, size, if size == 16 { 60 } else { 10 });
        assert_eq!(outcome(&mut trial, queue), (Reason::Worse, 7));
        let mut trial = self::trial(20, 16);
        // As many clients as before: those that are not served wait.
        assert_eq!(outcome(&mut trial, |size| window(5000, 0, size, 50 - size)), (Reason::Alike, 7));
        // They are faster, and so more of them are back: 23 in the pool with 5,000 in a window stay as long as 26 with
        // 5,750. One pair in seven has a stall, so that it is not certain that fewer do more.
        let mut trial = self::trial(20, 16);
        let mut pairs = 0;
        let back_at_once = |size| {
            pairs += u32::from(size == 16);
            if size == 16 { window(if pairs == 3 { 4_950 } else { 5_750 }, 0, 16, 10) } else { window(5000, 0, 20, 3) }
        };
        assert_eq!(outcome(&mut trial, back_at_once).0, Reason::Alike);
    }

    #[test]
    fn clients_that_keep_their_servers_do_not_hide_a_queue() {
        // 26 in the pool instead of 21.
        let queue = |size| if size == 46 { window_with_pinned(16, 10) } else { window_with_pinned(20, 1) };
        assert_eq!(outcome(&mut trial(50, 46), queue), (Reason::Worse, 7));
    }

    #[test]
    fn a_database_that_stands_still_gives_no_decision() {
        assert_eq!(outcome(&mut trial(20, 16), |size| window(3, 0, size, 30)).0, Reason::NoDemand);
        // With one of the sizes only, it says something.
        let stops = |size| window(if size == 25 { 0 } else { 5000 }, 0, size, 30);
        assert_eq!(outcome(&mut trial(20, 25), stops), (Reason::Worse, 2));
    }

    #[test]
    fn a_trial_waits_for_servers_that_seldom_come_back() {
        let waits_for_returns =
            |completed| Trial::new(20, 16, (WINDOW, &window(completed, 0, 20, 9)), 40).waits_for_returns();
        assert_eq!([waits_for_returns(0), waits_for_returns(79), waits_for_returns(80)], [true, true, false]);
        let mut resumed = trial(20, 16).paused().resumed(&window(79, 0, 20, 9));
        assert!(resumed.waits_for_returns());
        // That was a stall.
        (0..2).for_each(|_| assert_eq!(resumed.take(window(5000, 0, resumed.size(), 9)), None));
        assert!(!resumed.waits_for_returns());
    }

    #[test]
    fn without_demand_there_is_no_verdict() {
        let mut trial = self::trial(20, 16);
        assert_eq!(outcome(&mut trial, |_| window(5000, 0, 10, 0)).0, Reason::NoDemand);
        assert_eq!(trial.evidence().gain, None);
    }
}
