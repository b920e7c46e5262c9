//! Who may ask over HTTP: bearer tokens by their hashes, and how fast they may ask.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use redis::Access;

use crate::{
    config::Token,
    token_digest::{Digest, digest},
};

/// All tokens of a configuration.
pub struct Tokens(Vec<Entry>);

struct Entry {
    digest: Digest,
    access: Arc<Access>,
    bucket: Option<Mutex<Bucket>>,
}

/// What a token may still ask for at once: it fills up with what a second allows.
struct Bucket {
    rate: f64,
    left: f64,
    since: Instant,
}

impl Tokens {
    /// Those that are configured. `user` is whose servers they use that name nobody.
    pub fn new(tokens: &[Token], user: &str) -> Self {
        let entry = |(index, token): (usize, &Token)| Entry {
            digest: token.digest,
            access: Arc::new(Access {
                name: token.name.as_str().into(),
                user: token.user.as_deref().unwrap_or(user).into(),
                database: token.database,
                rules: token.rules.clone(),
                index,
            }),
            bucket: token.rate_limit.map(|rate| Mutex::new(Bucket::full(f64::from(rate)))),
        };
        Self(tokens.iter().enumerate().map(entry).collect())
    }

    /// Whose token it is. All are compared, so that the time tells nothing.
    pub fn find(&self, token: &[u8]) -> Option<Arc<Access>> {
        let shown = digest(token);
        let mut found = None;
        for entry in &self.0 {
            if entry.digest.is(shown) {
                found = Some(&entry.access);
            }
        }
        found.cloned()
    }

    /// Counts commands. `Some`: there is no room for them before that time has passed.
    pub fn spend(&self, access: &Access, commands: u32, now: Instant) -> Option<Duration> {
        let bucket = self.0.get(access.index)?.bucket.as_ref()?;
        bucket.lock().unwrap_or_else(PoisonError::into_inner).take(f64::from(commands), now)
    }
}

impl Bucket {
    fn full(rate: f64) -> Self {
        Self { rate, left: rate, since: Instant::now() }
    }

    /// A request of more than a second's commands has to wait for a full bucket, and leaves it in debt.
    fn take(&mut self, commands: f64, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed * self.rate).min(self.rate);
        self.since = now;
        let needed = commands.min(self.rate);
        if self.left >= needed {
            self.left -= commands;
            return None;
        }
        Some(Duration::from_secs_f64((needed - self.left) / self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_bursts_of_a_second_through() {
        let (mut bucket, start) = (Bucket::full(10.0), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert_eq!(bucket.take(10.0, at(0.0)), None);
        let wait = bucket.take(1.0, at(0.0)).expect("it is empty");
        assert!((wait.as_secs_f64() - 0.1).abs() < 0.01, "{wait:?}");
        assert_eq!(bucket.take(5.0, at(0.6)), None);
        // More than a second's worth goes through from time to time, and is paid for.
        assert!(bucket.take(50.0, at(1.0)).is_some());
        assert_eq!(bucket.take(50.0, at(3.0)), None);
        let wait = bucket.take(1.0, at(3.0)).expect("it is in debt");
        assert!(wait > Duration::from_secs(4), "{wait:?}");
    }
}
