//! The symptoms that a Redis alone shows. It sees connections and since when each has sent no command, and not which
//! client waits for one.

use super::{Verdict, connection_limit, ephemeral_clients, out_of_reach};
use crate::redis::RedisWindow;

/// A server that serves no client has no other trouble.
pub(crate) fn examine(window: &RedisWindow) -> Vec<Verdict> {
    match out_of_reach::examine_redis(window) {
        Verdict::Absent => vec![ephemeral_clients::examine_redis(window), connection_limit::examine_redis(window)],
        out_of_reach => vec![out_of_reach],
    }
}

/// What could not be seen, and where it can be.
pub(crate) fn name_unseen(window: &RedisWindow) -> Vec<String> {
    let Some((_, last)) = window.first_and_last() else { return Vec::new() };
    let lists = &window.tally().lists;
    let mut unseen = vec![
        "whether clients wait for a connection, in a pool of their own or in a pooler: only that one can tell (a pool \
         that is too small)"
            .to_owned(),
        "whether it is saturated, and by which commands: its one thread tells (INFO commandstats, SLOWLOG, LATENCY)"
            .to_owned(),
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
