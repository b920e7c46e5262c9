//! What a tuner decides, and what a decision rests on, in words. Decides nothing.

use std::{fmt, time::Duration};

use crate::window::Window;

#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    pub from: u32,
    /// The size that the pool is to have for now; the same as `from` where it stays.
    pub to: u32,
    /// The size that is tried from now on.
    pub tries: Option<u32>,
    pub reason: Reason,
    /// What was measured, where something was.
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

/// Why something was decided.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// Another size is tried beside the present one.
    Tries,
    /// The size that was tried has significantly more throughput.
    Better,
    /// Fewer servers do as much; in a search they are kept in mind until it is over.
    Alike,
    /// Fewer servers do as much, and the search is over.
    Fewer,
    /// The size that was tried has less throughput, or clients are in the pool for longer.
    Worse,
    /// More servers gain nothing that is worth them.
    NoGain,
    /// The noise is too large to tell.
    Unclear,
    /// Clients failed, or connections were lost, with the size that was tried or taken last.
    Errors,
    /// Nobody waits any more, or nothing ends, so that nothing can be learned.
    NoDemand,
    /// The pool is paused, or its database out of reach.
    Unfit,
    /// The best size is found.
    Found,
    /// Throughput is no longer what it was when the best size was found: it is searched for again.
    Changed,
    /// The bounds have changed, or clients keep servers that others then lack.
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
            Self::NoDemand => "nobody waits any more, or nothing ends",
            Self::Unfit => "the pool is paused, or its database out of reach",
            Self::Found => "the search is over",
            Self::Changed => "throughput is no longer what it was, so the search begins again",
            Self::Bounds => "the bounds are others now, or clients keep servers",
        }
    }

    /// In a word, for metrics.
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

/// What was measured of two sizes by turns.
#[derive(Clone, PartialEq, Debug)]
pub struct Evidence {
    pub present: u32,
    /// The size that was tried beside it.
    pub candidate: u32,
    pub pairs: u32,
    /// How long each window was at least.
    pub window: Duration,
    /// By which part the candidate's throughput was higher: the middle of the pairs.
    pub gain: Option<f64>,
    /// The interval of that: it lies beyond either end by chance with a probability of at most 1/120.
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
        let ms = |window: &Window| window.hold().as_secs_f64() * 1e3;
        write!(f, "; hold {:.2} ms beside {:.2} ms", ms(at_candidate), ms(at_present))?;
        write!(f, "; errors {} beside {}", at_candidate.errors, at_present.errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_reads_as_a_sentence_and_each_reason_has_a_word_of_its_own() {
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
