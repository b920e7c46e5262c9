//! Clients that wait for a server and are to be told so after a while. It knows no session and sends nothing.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use seam::ClientTag;

/// Marks the keys of posts that are about waiting.
const KEY_MARK: u64 = 1 << 60;

#[derive(Default)]
pub(crate) struct WaitNotices {
    now_ms: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// By the key of the client's post: when it is due.
    by_key: HashMap<u64, (u64, ClientTag)>,
    due: BTreeSet<(u64, u64)>,
}

/// The key of posts to the client with this secret.
pub(crate) fn key_of(secret: u64) -> u64 {
    KEY_MARK | u64::from((secret ^ (secret >> 32)) as u32)
}

/// Whether a post with this key is about waiting.
pub(crate) fn is_about_waiting(key: u64) -> bool {
    key & !u64::from(u32::MAX) == KEY_MARK
}

impl WaitNotices {
    /// A client begins to wait, and is to be told so after this time.
    pub(crate) fn begin(&self, me: ClientTag, secret: u64, after_ms: u64) {
        let (key, due) = (key_of(secret), self.now_ms.load(Relaxed) + after_ms);
        let mut waiting = self.lock();
        if let Some((before, _)) = waiting.by_key.insert(key, (due, me)) {
            waiting.due.remove(&(before, key));
        }
        waiting.due.insert((due, key));
    }

    /// The client waits no more.
    pub(crate) fn end(&self, secret: u64) {
        let key = key_of(secret);
        let mut waiting = self.lock();
        if let Some((due, _)) = waiting.by_key.remove(&key) {
            waiting.due.remove(&(due, key));
        }
    }

    /// The clients that are to be told now, with the keys of their posts.
    pub(crate) fn take_due(&self, now_ms: u64) -> Vec<(ClientTag, u64)> {
        self.now_ms.fetch_max(now_ms, Relaxed);
        let mut waiting = self.lock();
        let mut found = Vec::new();
        while let Some((due, key)) = waiting.due.first().copied().filter(|(due, _)| *due <= now_ms) {
            waiting.due.remove(&(due, key));
            found.extend(waiting.by_key.remove(&key).map(|(_, client)| (client, key)));
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_once_and_only_while_it_waits() {
        let notices = WaitNotices::default();
        notices.take_due(1000);
        let [one, two] = [ClientTag(1), ClientTag(2)];
        notices.begin(one, 11, 500);
        notices.begin(two, 22, 500);
        assert!(notices.take_due(1499).is_empty());
        notices.end(22);
        assert_eq!(notices.take_due(1500), [(one, key_of(11))]);
        assert!(notices.take_due(9000).is_empty());
        notices.begin(one, 11, 500);
        notices.begin(one, 11, 900);
        assert!(notices.take_due(9500).is_empty());
        assert_eq!(notices.take_due(9900).len(), 1);
    }
}
