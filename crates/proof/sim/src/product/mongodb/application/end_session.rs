//! The end of a session: with `endSessions`, which is answered at once, or with `killSessions`, after whose answer the
//! session has nothing open at any host.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer_check::{AnswerCheck, Next},
    outcome::Outcome,
};

/// Pings until the hosts have ended the session.
const MAX_PINGS: u32 = 300;

pub struct EndSession {
    user: usize,
    session: [u8; 16],
    kills: bool,
    pings: u32,
}

impl EndSession {
    pub fn new((user, session): (usize, [u8; 16]), kills: bool) -> Self {
        Self { user, session, kills, pings: 0 }
    }

    /// Writes the command that ends the session; after it was sent, pings.
    pub fn command(&self, body: &mut Writer<'_>) {
        if self.pings > 0 {
            body.int32("ping", 1);
            return;
        }
        body.array(if self.kills { "killSessions" } else { "endSessions" }, |named| {
            named.document("0", |session| _ = session.uuid("id", self.session));
        });
    }

    pub fn on_outcome(&mut self, outcome: &Outcome, check: &AnswerCheck<'_>) -> Next {
        let acknowledged = match outcome {
            Outcome::Done { .. } => true,
            Outcome::Refused(refusal) => {
                check.allow_error("the end of a session", refusal);
                false
            }
            Outcome::Lost(why) => {
                check.allow_disconnect("the end of a session", why);
                false
            }
        };
        let left = check.product_database.open_of(self.user, &self.session);
        if left.is_empty() || check.after_fault || !acknowledged {
            return Next::Done;
        }
        assert!(!self.kills, "left by a session that was killed: {left:?}");
        assert!(self.pings < MAX_PINGS, "left by a session that has ended: {left:?}");
        self.pings += 1;
        Next::Send(Duration::from_millis(10))
    }
}
