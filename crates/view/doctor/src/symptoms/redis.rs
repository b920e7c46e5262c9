//! What a Redis alone tells. It sees connections and since when each has asked nothing, and not who waits for one.

mod connecting;
mod reach;
mod room;

use super::{Verdict, percent, time};
use crate::redis::RedisWindow;

/// The verdict on each symptom. A server that serves no client has no other trouble.
pub(crate) fn examine(window: &RedisWindow) -> Vec<Verdict> {
    match reach::examine(window) {
        Verdict::Absent => vec![connecting::examine(window), room::examine(window)],
        away => vec![away],
    }
}

/// What could not be seen, and who can see it.
pub(crate) fn unseen(window: &RedisWindow) -> Vec<String> {
    let Some((_, last)) = window.ends() else { return Vec::new() };
    let lists = window.lists();
    let mut unseen = vec![
        "whether clients wait for a connection, in a pool of their own or in a pooler: only that one can tell (a pool that is too small)"
            .to_owned(),
        "whether it is saturated, and by which commands: its one thread tells (INFO commandstats, SLOWLOG, LATENCY)".to_owned(),
    ];
    if let Some(why) = &last.hides_clients {
        unseen.push(format!("whose connections these are, and how long each has been idle: {why}"));
    }
    if lists.left_out > 0 {
        unseen.push(format!("{} connections beyond the first {}", lists.left_out, lists.listed));
    }
    if last.max_clients.is_none() {
        unseen.push("how many connections it takes: neither INFO nor CONFIG GET maxclients tells".to_owned());
    }
    unseen
}
