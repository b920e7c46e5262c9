//! Clients connect for a command or two and leave.

use super::{Verdict, time};
use crate::{
    finding::{Finding, Symptom},
    redis::RedisWindow,
};

/// Connections in the window, at least.
const MIN_CONNECTIONS: u64 = 50;
/// From this many connections a command on, clients do not keep their connections.
const MIN_PER_COMMAND: f64 = 0.3;
/// Connections arrive before this share of the looks at least; otherwise it is a burst that passes.
const MIN_ARRIVING_SHARE: f64 = 0.3;
/// The share of the arrived connections that may have stayed.
const MAX_STAYED_SHARE: f64 = 0.5;
/// Commands that a connection makes for itself, before its client asks for anything: a login, and two that name the
/// library.
const OWN_COMMANDS: u64 = 3;
/// Commands that the doctor itself sends for each look.
const COMMANDS_PER_LOOK: u64 = 2;

pub(super) fn examine(window: &RedisWindow) -> Verdict {
    let Some((first, last)) = window.ends() else { return Verdict::Absent };
    let came = last.received.saturating_sub(first.received);
    let all = last.commands.saturating_sub(first.commands);
    let own = OWN_COMMANDS.saturating_mul(came).saturating_add(COMMANDS_PER_LOOK * window.looks() as u64);
    let asked = all.saturating_sub(own);
    let ratio = came as f64 / asked.max(1) as f64;
    // Many come: a new deployment, or pools that grow. Then they stay.
    let more = last.connected.saturating_sub(first.connected);
    if came < MIN_CONNECTIONS
        || window.arrivals() < MIN_ARRIVING_SHARE
        || ratio < MIN_PER_COMMAND
        || more as f64 > MAX_STAYED_SHARE * came as f64
    {
        return Verdict::Absent;
    }
    let lists = window.lists();
    let mut evidence = vec![
        format!("{came} connections were made for {all} commands in {}", time(window.lasts().as_millis() as f64)),
        format!("{} connections were there at first, and {} at the end", first.connected, last.connected),
    ];
    if lists.count > 0 {
        evidence.push(format!("{} of {} connections at the end were younger than that", lists.young, lists.listed));
    }
    Verdict::Present(Finding {
        symptom: Symptom::EphemeralClients,
        of: "all clients".to_owned(),
        evidence,
        rules_out: "this is no growing number of clients: they leave as fast as they come".to_owned(),
        setting: None,
        advice: "Keep connections: make the client outside of the function or request, with its pool. Where that cannot be, put a pooler in front \
                 (`poolhouse serve redis://...`): ordinary commands of all clients share a few connections there. `poolhouse bench` with \
                 --reconnect measures what each connection costs."
            .to_owned(),
    })
}
