//! SUBSCRIBE or a variant with more names than are held at once: the names are subscribed to as they arrive.

use seam::Outbox;

use super::Client;
use crate::{Redis, command::SubscriptionCommand, resp};

#[derive(Clone, Copy, Debug)]
pub(super) struct SubscribedNames {
    what: SubscriptionCommand,
    /// Names that are to come; `None` before the first.
    left: Option<u64>,
}

impl SubscribedNames {
    pub(super) fn new(what: SubscriptionCommand) -> Self {
        Self { what, left: None }
    }
}

impl Redis {
    /// Subscribes to the names that are there. Returns the number of bytes that were consumed, and the names that are
    /// to come; `None` if there are none.
    pub(super) fn read_names(
        &self,
        client: &mut Client,
        SubscribedNames { what, left: before }: SubscribedNames,
        bytes: &[u8],
        full: bool,
        out: &mut Outbox,
    ) -> (usize, Option<SubscribedNames>) {
        let (mut rest, mut names) = (bytes, Vec::new());
        let begin = |rest: &mut &[u8]| {
            let words = resp::take_array_header(rest)?;
            resp::take_string(rest)?;
            words.checked_sub(1)
        };
        let mut left = before.or_else(|| begin(&mut rest)).unwrap_or(0);
        while left > 0
            && let Some(name) = resp::take_string(&mut rest)
        {
            names.push(name);
            left -= 1;
        }
        if names.is_empty() {
            if full {
                client.fail("ERR Poolhouse: a name is too long for what Poolhouse has to read of it", out);
            }
            return (0, Some(SubscribedNames { what, left: before }));
        }
        if let Err(why) = self.change_subscriptions(client, what, &names, out) {
            client.write_error(&why, out);
        }
        (bytes.len() - rest.len(), (left > 0).then_some(SubscribedNames { what, left: Some(left) }))
    }
}
