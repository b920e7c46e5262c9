//! The decisions of a tuner, their reasons and their evidence, in words.

use std::{fmt, time::Duration};

use crate::window::Window;

#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    pub from: u32,
    /// The size that the pool is to have now; `from` if it stays.
    pub to: u32,
    /// The size that is tried beside it from now on.
    pub tries: Option<u32>,
    pub reason: Reason,
    /// The measurement, if there was one.
    pub evidence: Option<Evidence>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tries, self.from == self.to) {
            (Some(tried), _) => write!(f, "{} servers, and {tried} are tried beside them", self.from)?,
            (None, true) => write!(f, "{} servers: {}", self.from, self.reason.sentence())?,
            (None, false) => write!(f, "{} servers instead of {}: {}", self.to, self.from, self.reason.sentence())?,
        }
        self.evidence.iter().try_for_each(|evidence| write!(f, " ({evidence})"))
    }
}

/// The reason of a decision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// Another size is tried beside the present one.
    Tries,
    /// The candidate has significantly more throughput.
    Better,
    /// Fewer servers do as much. They become the result when the search ends, unless a better size is found.
    Alike,
    /// The search has ended, and fewer servers do as much.
    Fewer,
    /// The candidate has less throughput, or clients are in the pool for longer.
    Worse,
    /// More servers gain too little.
    NoGain,
    /// The noise is too large for a decision.
    Unclear,
    /// Clients failed, or connections were lost, with the candidate or the last size.
    Errors,
    /// No client waits any more, or no hold ends, so nothing can be measured.
    NoDemand,
    /// The pool is paused, or its database out of reach.
    Unfit,
    /// The search has ended.
    Found,
    /// Throughput differs from that of the time when the size was found: the search begins again.
    Changed,
    /// The limits have changed, or clients hold servers that others then lack.
    Bounds,
}

impl Reason {
    pub const ALL: [Self; 13] = [
        Self::Tries,
        Self::Better,
        Self::Alike,
        Self::Fewer,
        Self::Worse,
        Self::NoGain,
        Self::Unclear,
        Self::Errors,
        Self::NoDemand,
        Self::Unfit,
        Self::Found,
        Self::Changed,
        Self::Bounds,
    ];

    fn sentence(self) -> &'static str {
        match self {
            Self::Tries => "another size is tried",
            Self::Better => "the size that was tried does more",
            Self::Alike => "fewer do as much, which counts when a search is over",
            Self::Fewer => "the search is over, and fewer do as much",
            Self::Worse => "the size that was tried does worse",
            Self::NoGain => "more gain nothing",
            Self::Unclear => "the noise is too large to tell",
            Self::Errors => "errors have risen",
            Self::NoDemand => "no client waits any more, or nothing ends",
            Self::Unfit => "the pool is paused, or its database out of reach",
            Self::Found => "the search is over",
            Self::Changed => "throughput is no longer what it was, so the search begins again",
            Self::Bounds => "the bounds are others now, or clients keep servers",
        }
    }

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tries => "tries",
            Self::Better => "better",
            Self::Alike => "alike",
            Self::Fewer => "fewer",
            Self::Worse => "worse",
            Self::NoGain => "no_gain",
            Self::Unclear => "unclear",
            Self::Errors => "errors",
            Self::NoDemand => "no_demand",
            Self::Unfit => "unfit",
            Self::Found => "found",
            Self::Changed => "changed",
            Self::Bounds => "bounds",
        }
    }
}

/// The measurement of two sizes by turns.
#[derive(Clone, PartialEq, Debug)]
pub struct Evidence {
    pub present: u32,
    /// The size that was tried beside it.
    pub candidate: u32,
    pub pairs: u32,
    /// The shortest time of a window.
    pub window: Duration,
    /// By which fraction the candidate's throughput was higher: the middle of the pairs.
    pub gain: Option<f64>,
    /// Its confidence interval. The gain is beyond either end with a probability of at most 1/120.
    pub interval: Option<(f64, f64)>,
    /// All windows of the present size.
    pub at_present: Window,
    /// All windows of the candidate.
    pub at_candidate: Window,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { present, candidate, pairs, at_present, at_candidate, .. } = self;
        write!(f, "{candidate} servers beside {present} in {pairs} pairs of windows of {:?}", self.window)?;
        if let Some(gain) = self.gain {
            write!(f, ": throughput {:+.1}%", 100.0 * gain)?;
        }
        if let Some((low, high)) = self.interval {
            write!(f, " ({:+.1}% to {:+.1}%)", 100.0 * low, 100.0 * high)?;
        }
        write!(f, ", {:.0}/s beside {:.0}/s", at_candidate.throughput(), at_present.throughput())?;
        let ms = |window: &Window| window.mean_hold().as_secs_f64() * 1e3;
        write!(f, "; hold {:.2} ms beside {:.2} ms", ms(at_candidate), ms(at_present))?;
        write!(f, "; errors {} beside {}", at_candidate.errors, at_present.errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_reads_as_a_sentence_and_each_reason_has_its_own_name() {
        let window = |completed, ms| Window {
            time: Duration::from_secs(10),
            completed,
            held: Duration::from_millis(completed * ms),
            ..Window::default()
        };
        let evidence = Evidence {
            present: 20,
            candidate: 16,
            pairs: 7,
            window: Duration::from_secs(4),
            gain: Some(0.0812),
            interval: Some((0.05, 0.113)),
            at_present: window(1000, 20),
            at_candidate: window(1081, 15),
        };
        assert_eq!(
            evidence.to_string(),
            "16 servers beside 20 in 7 pairs of windows of 4s: throughput +8.1% (+5.0% to +11.3%), 108/s beside 100/s; \
             hold 15.00 ms beside 20.00 ms; errors 0 beside 0"
        );
        let step = Step { from: 20, to: 16, tries: None, reason: Reason::Better, evidence: Some(evidence) };
        assert!(
            step.to_string()
                .starts_with("16 servers instead of 20: the size that was tried does more (16 servers beside")
        );
        let step = Step { to: 20, tries: Some(16), reason: Reason::Tries, evidence: None, ..step };
        assert_eq!(step.to_string(), "20 servers, and 16 are tried beside them");
        let mut words: Vec<_> = Reason::ALL.map(Reason::as_str).into();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
