//! How an operator has ordered the process to end, other than by a drain.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::signals::Manner;

/// The order to end, once it is given.
#[derive(Default)]
pub struct EndingOrder {
    given: Mutex<Option<Manner>>,
    notify: Notify,
}

impl EndingOrder {
    /// Gives the order. A later one replaces an earlier one that has not been heard.
    pub fn give(&self, how: Manner) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
        self.notify.notify_one();
    }

    /// Waits for an order to end at once.
    pub async fn next_at_once(&self) {
        while self.next().await != Manner::AtOnce {}
    }

    /// Waits for an order. For one waiter at a time.
    pub async fn next(&self) -> Manner {
        loop {
            if let Some(how) = self.given.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return how;
            }
            self.notify.notified().await;
        }
    }
}
