//! A session that ends, as its driver says it: with `endSessions`, which is answered at once, or with `killSessions`,
//! behind whose answer nothing of it is open at any host.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer::Outcome,
    verdicts::{Next, Verdicts},
};

/// Looks until hosts have heard of the end of a session, at most; an upstream that is asked for something else may take
/// as long.
const MAX_LOOKS: u32 = 300;

pub struct Leave {
    user: usize,
    session: [u8; 16],
    kills: bool,
    looks: u32,
}

impl Leave {
    pub fn new((user, session): (usize, [u8; 16]), kills: bool) -> Self {
        Self { user, session, kills, looks: 0 }
    }

    pub fn command(&self, body: &mut Writer<'_>) {
        if self.looks > 0 {
            body.int32("ping", 1);
            return;
        }
        body.array(if self.kills { "killSessions" } else { "endSessions" }, |named| {
            named.document("0", |session| _ = session.uuid("id", self.session));
        });
    }

    pub fn take(&mut self, outcome: &Outcome, verdicts: &Verdicts<'_>) -> Next {
        let told = match outcome {
            Outcome::Done { .. } => true,
            Outcome::Refused(refusal) => {
                verdicts.excuse("the end of a session", refusal);
                false
            }
            Outcome::Lost(why) => {
                verdicts.excuse_loss("the end of a session", why);
                false
            }
        };
        let left = verdicts.real.open_of(self.user, &self.session);
        if left.is_empty() || verdicts.hurt || !told {
            return Next::Over;
        }
        assert!(!self.kills, "left by a session that was killed: {left:?}");
        assert!(self.looks < MAX_LOOKS, "left by a session that has ended: {left:?}");
        self.looks += 1;
        Next::Ask(Duration::from_millis(10))
    }
}
