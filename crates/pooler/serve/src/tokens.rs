//! Bearer tokens of Redis over HTTP: lookup by their hashes, and their rate limits.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use redis_session::{Access, OverRate};

use crate::{
    config::Token,
    token_digest::{Digest, digest},
};

/// All tokens of a configuration.
pub struct Tokens(Vec<Entry>);

struct Entry {
    digest: Digest,
    access: Arc<Access>,
    bucket: Option<Mutex<RateBucket>>,
}

/// A token bucket. It holds what one second allows, so that is the largest request.
struct RateBucket {
    rate: u32,
    left: f64,
    since: Instant,
}

impl Tokens {
    /// `user` is the user of tokens that name none.
    pub fn new(tokens: &[Token], user: &str) -> Self {
        let entry = |(index, token): (usize, &Token)| Entry {
            digest: token.digest,
            access: Arc::new(Access {
                name: token.name.as_str().into(),
                user: token.user.as_deref().unwrap_or(user).into(),
                database: token.database,
                rules: token.rules.clone(),
                index,
                fingerprint: token.digest.fingerprint(),
            }),
            bucket: token.rate_limit.map(|rate| Mutex::new(RateBucket::full(rate))),
        };
        Self(tokens.iter().enumerate().map(entry).collect())
    }

    /// The access that a token gives. All tokens are compared, so that the time tells nothing.
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

    /// The same token in this configuration, if it is still there.
    pub fn renewed(&self, before: &Access) -> Option<Arc<Access>> {
        let entry = self.0.iter().find(|entry| entry.access.fingerprint == before.fingerprint)?;
        Some(Arc::clone(&entry.access))
    }

    /// Counts commands against the token's rate.
    ///
    /// # Errors
    /// When the rate is exceeded; nothing is counted then.
    pub fn spend(&self, access: &Access, commands: u32, now: Instant) -> Result<(), OverRate> {
        match self.0.get(access.index).and_then(|entry| entry.bucket.as_ref()) {
            Some(bucket) => bucket.lock().unwrap_or_else(PoisonError::into_inner).take(commands, now),
            None => Ok(()),
        }
    }
}

impl RateBucket {
    fn full(rate: u32) -> Self {
        Self { rate, left: f64::from(rate), since: Instant::now() }
    }

    /// Takes `commands` out, if that many are left. A wait is at most a second.
    fn take(&mut self, commands: u32, now: Instant) -> Result<(), OverRate> {
        if commands > self.rate {
            return Err(OverRate::Burst(self.rate));
        }
        let (rate, needed) = (f64::from(self.rate), f64::from(commands));
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed * rate).min(rate);
        self.since = now;
        if self.left < needed {
            return Err(OverRate::Wait(Duration::from_secs_f64((needed - self.left) / rate)));
        }
        self.left -= needed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_bursts_of_a_second_through_and_nothing_larger() {
        let (mut bucket, start) = (RateBucket::full(10), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert_eq!(bucket.take(10, at(0.0)), Ok(()));
        let Err(OverRate::Wait(wait)) = bucket.take(1, at(0.0)) else { panic!("it is empty") };
        assert!((wait.as_secs_f64() - 0.1).abs() < 0.01, "{wait:?}");
        assert_eq!(bucket.take(5, at(0.6)), Ok(()));
        // However long it waits, so much is never let through, and what is left stays there for others.
        for seconds in [0.7, 10.0, 10_000.0] {
            assert_eq!(bucket.take(11, at(seconds)), Err(OverRate::Burst(10)));
        }
        assert_eq!(bucket.take(10, at(10_000.0)), Ok(()));
        let Err(OverRate::Wait(wait)) = bucket.take(10, at(10_000.0)) else { panic!("it is empty") };
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
    }
}
