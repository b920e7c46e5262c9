//! For how long a client has been idle, or in a transaction, as it sees that itself; and whether the pooler's time-outs
//! agree. It knows no protocol.

use std::time::Duration;

use pool::Time;

/// By how much a time-out may be early in a client's eyes: the time that bytes take.
const MAX_DELIVERY_TIME: Duration = Duration::from_millis(15);
/// By how much an answer may come after its transaction should have ended: a tick of the worker, and the time that
/// bytes take.
const MAX_DELAY: Duration = Duration::from_millis(60);

/// The longest that the pooler goes on doing what a client wanted that has got its answer.
const MAX_AFTERMATH: Duration = Duration::from_millis(50);

/// The time-outs of the pooler; `None` is off.
#[derive(Clone, Copy, Default, Debug)]
pub struct TimeOuts {
    pub idle: Option<Duration>,
    pub transaction: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeOut {
    Idle,
    Transaction,
}

/// What a client knows of its connection's times.
pub struct ClientTimes {
    limits: TimeOuts,
    /// When the last answer ended.
    answered: Time,
    /// If a transaction is open: the times between which it began.
    transaction: Option<(Time, Time)>,
    /// The longest recent wait for an answer, and when that came.
    wait: (Duration, Time),
}

impl ClientTimes {
    pub fn new(limits: TimeOuts, now: Time) -> Self {
        Self { limits, answered: now, transaction: None, wait: (Duration::ZERO, now) }
    }

    /// How long to stay in a transaction to meet its time-out.
    pub fn lingering_time(&self) -> Option<Duration> {
        self.limits.transaction.filter(|_| self.transaction.is_some())
    }

    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Whether an answer that has just come was waited for at least so long.
    pub fn has_waited(&self, time: Duration, now: Time) -> bool {
        self.wait.0 >= time && now - self.wait.1 <= MAX_AFTERMATH
    }

    /// Whether no transaction was open for this time.
    pub fn has_been_idle_for(&self, time: Duration, now: Time) -> bool {
        self.transaction.is_none() && now - self.answered >= time
    }

    /// An answer has ended whose request was sent at `asked` or later. Returns what is wrong.
    pub fn note_answer(&mut self, in_transaction: bool, asked: Time, now: Time) -> Result<(), String> {
        self.answered = now;
        if now - asked >= self.wait.0 || now - self.wait.1 > MAX_AFTERMATH {
            self.wait = (now - asked, now);
        }
        let before = self.transaction.take();
        if !in_transaction {
            return Ok(());
        }
        let (earliest, latest) = *self.transaction.insert(before.unwrap_or((asked, now)));
        match self.limits.transaction {
            Some(limit) if now - latest > limit + MAX_DELAY => {
                Err(format!("a transaction of {:?} goes on, {limit:?} are allowed", now - earliest))
            }
            _ => Ok(()),
        }
    }

    /// Whether this time-out may end the connection. `asked`: when the oldest request without an answer was sent.
    pub fn allow(&self, why: TimeOut, asked: Option<Time>, now: Time) -> bool {
        let (limit, since) = match why {
            TimeOut::Idle => (self.limits.idle, Some(self.answered)),
            TimeOut::Transaction => (self.limits.transaction, self.transaction.map(|(begun, _)| begun).or(asked)),
        };
        let (Some(limit), Some(since)) = (limit, since) else { return false };
        now - since + MAX_DELIVERY_TIME >= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Time {
        Time(0) + MS * ms
    }

    #[test]
    fn time_outs_are_neither_early_nor_late() {
        let limits = TimeOuts { idle: Some(MS * 100), transaction: Some(MS * 200) };
        let mut times = ClientTimes::new(limits, at(0));
        assert!(!times.allow(TimeOut::Idle, None, at(50)) && times.allow(TimeOut::Idle, None, at(100)));
        assert!(!times.allow(TimeOut::Transaction, None, at(900)), "there is no transaction");
        assert!(times.allow(TimeOut::Transaction, Some(at(10)), at(210)), "a request is one, too");
        assert_eq!(times.note_answer(true, at(1000), at(1010)), Ok(()));
        assert!(
            !times.allow(TimeOut::Transaction, None, at(1100)) && times.allow(TimeOut::Transaction, None, at(1200))
        );
        assert_eq!(times.note_answer(true, at(1200), at(1230)), Ok(()));
        assert!(times.note_answer(true, at(1200), at(1300)).is_err());
        assert_eq!(times.note_answer(false, at(1200), at(1900)), Ok(()));
        assert!(!times.is_in_transaction());
    }
}
