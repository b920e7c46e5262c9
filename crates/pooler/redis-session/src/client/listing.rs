//! A SUBSCRIBE, or one of its kin, with more names than are read at once: they are dealt with in the order in which
//! they come.

use seam::{ClientTag, Outbox};

use super::{Client, Taken};
use crate::{Redis, command::Subscription, resp};

#[derive(Clone, Copy, Debug)]
pub(super) struct Listing {
    what: Subscription,
    /// How many names are to come; `None` before the first.
    left: Option<u64>,
}

impl Client {
    /// The command at hand is one.
    pub(super) fn begin_list(&mut self, what: Subscription) -> Taken {
        self.listing = Some(Listing { what, left: None });
        Taken::Yes
    }
}

impl Redis {
    /// Deals with the names that are there. Returns what was taken.
    pub(super) fn list(&self, me: ClientTag, client: &mut Client, bytes: &[u8], full: bool, out: &mut Outbox) -> usize {
        let Some(Listing { what, left }) = client.listing else { unreachable!("seen by the caller") };
        let (mut rest, mut names) = (bytes, Vec::new());
        let begin = |rest: &mut &[u8]| {
            let words = resp::words(rest)?;
            resp::string(rest)?;
            words.checked_sub(1)
        };
        let mut left = left.or_else(|| begin(&mut rest)).unwrap_or(0);
        while left > 0
            && let Some(name) = resp::string(&mut rest)
        {
            names.push(name);
            left -= 1;
        }
        if names.is_empty() {
            if full {
                client.fail(me, "ERR Poolhouse: a name is too long for what Poolhouse has to read of it", out);
            }
            return 0;
        }
        client.listing = (left > 0).then_some(Listing { what, left: Some(left) });
        if let Err(why) = self.change_subscriptions(me, client, what, &names, out) {
            client.say_error(me, &why, out);
        }
        bytes.len() - rest.len()
    }
}
