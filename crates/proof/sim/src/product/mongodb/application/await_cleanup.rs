//! With a driver configured for a load balancer, the state of a connection ends with it. The next connection sends
//! requests until the pooler has cleaned up.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer_check::{AnswerCheck, Next},
    outcome::Outcome,
};

/// Sends reads until the pooler has cleaned up what an earlier connection left.
pub struct AwaitCleanup {
    pub user: usize,
    pub session: [u8; 16],
    tries: u32,
}

/// Requests by which the state is cleaned up.
const MAX_TRIES: u32 = 200;

impl AwaitCleanup {
    pub fn new(user: usize, session: [u8; 16]) -> Self {
        Self { user, session, tries: 0 }
    }

    /// A read from any host: cleanup happens on a server connection after its next request.
    pub fn command(&self, body: &mut Writer<'_>) {
        body.text("find", "numbers").document("filter", |_| {});
        let mode = ["primary", "secondary", "nearest"][self.tries as usize % 3];
        body.document("$readPreference", |preference| _ = preference.text("mode", mode));
    }

    pub fn on_outcome(&mut self, outcome: &Outcome, check: &AnswerCheck<'_>) -> Next {
        self.tries += 1;
        let left = check.product_database.open_of(self.user, &self.session);
        if left.is_empty() || check.after_fault || !matches!(outcome, Outcome::Done { .. }) {
            return Next::Done;
        }
        assert!(self.tries < MAX_TRIES, "left by a connection that has ended: {left:?}");
        Next::Send(Duration::from_millis(1))
    }
}
