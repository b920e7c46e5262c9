//! What a connection had open ends with it, for its driver believed in a load balancer. Whoever comes after it asks
//! until that is seen to.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer::Outcome,
    verdicts::{Next, Verdicts},
};

pub struct Verify {
    pub user: usize,
    pub session: [u8; 16],
    tries: u32,
}

/// Requests that are asked until what was left open is seen to, at most.
const MAX_TRIES: u32 = 200;

impl Verify {
    pub fn new(user: usize, session: [u8; 16]) -> Self {
        Self { user, session, tries: 0 }
    }

    /// What was left is ended by the next server connections that are done with a request: at each host that may be.
    pub fn command(&self, body: &mut Writer<'_>) {
        body.text("find", "numbers").document("filter", |_| {});
        let mode = ["primary", "secondary", "nearest"][self.tries as usize % 3];
        body.document("$readPreference", |preference| _ = preference.text("mode", mode));
    }

    pub fn take(&mut self, outcome: &Outcome, verdicts: &Verdicts<'_>) -> Next {
        self.tries += 1;
        let left = verdicts.real.open_of(self.user, &self.session);
        if left.is_empty() || verdicts.hurt || !matches!(outcome, Outcome::Done { .. }) {
            return Next::Over;
        }
        assert!(self.tries < MAX_TRIES, "left by a connection that has ended: {left:?}");
        Next::Ask(Duration::from_millis(1))
    }
}
