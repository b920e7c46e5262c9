//! What a MongoDB alone tells. It sees connections and how many of them work, and not who waits for one: whether a
//! driver's pool is too small it cannot tell.

mod connecting;
mod kept;
mod left_open;
mod saturated;
mod swinging;

use super::{Verdict, percent, time};
use crate::mongodb::MongoWindow;

/// The origin of connections, where the doctor may not see it.
const UNKNOWN_CLIENTS: &str = "all clients";
/// Commands that a connection makes for itself, before its client asks for anything: a hello, and a step of the login.
const OWN_COMMANDS: u64 = 2;

/// What is known of each symptom.
pub(crate) fn examine(window: &MongoWindow) -> Vec<Verdict> {
    let held = left_open::examine(window);
    // Who holds locks for nothing is why others wait for them.
    let is_held = !matches!(held, Verdict::Absent);
    vec![
        connecting::examine(window),
        held,
        saturated::examine(window, is_held),
        kept::examine(window),
        swinging::examine(window),
    ]
}

/// What could not be seen, and who can see it.
pub(crate) fn unseen(window: &MongoWindow) -> Vec<String> {
    let Some((_, last)) = window.ends() else { return Vec::new() };
    let mut unseen = vec![
        "whether operations wait for a connection in a driver's pool: only the driver can tell, by its CMAP events, or a pooler (a pool that \
         is too small)"
            .to_owned(),
    ];
    if last.created.is_none() {
        unseen.push("connections that came and went: this server does not count those it has made".to_owned());
    }
    if last.operations == 0 {
        unseen.push("whether clients connect for each operation: this server does not count operations".to_owned());
    }
    if last.running.is_none() && last.queued.is_none() {
        unseen.push(
            "whether it is saturated: this server does not tell how many operations are under way (a mongos does not, its shards do)"
                .to_owned(),
        );
    }
    if last.available.is_none() || busy(window).is_none() {
        unseen.push(
            "whether more connections are kept than have work: this server does not count what that needs".to_owned(),
        );
    }
    if last.transactions.is_none() {
        unseen.push("transactions that are left open: this server does not tell of transactions".to_owned());
    }
    if let Some(why) = &last.hides_sessions {
        unseen.push(format!("whose connections these are, and for how long transactions have paused: {why}"));
    }
    if window.sums.running.most > 0 && last.processors.is_none() {
        unseen.push(format!(
            "whether its processors are busy: {:.1} operations on average were under way, and --processors says on how many",
            window.sums.running.mean()
        ));
    }
    unseen
}

/// Connections with a command under way, or, of a server that does not count these, operations.
fn busy(window: &MongoWindow) -> Option<&crate::database::Level> {
    let (_, last) = window.ends()?;
    let sums = &window.sums;
    match (last.active, last.running) {
        (Some(_), _) => Some(&sums.active),
        (None, Some(_)) => Some(&sums.running),
        (None, None) => None,
    }
}

/// Connections that were made in the window, and what was asked of it beyond what they ask for themselves; where it
/// counts both.
fn made(window: &MongoWindow) -> Option<(u64, u64)> {
    let (first, last) = window.ends()?;
    // Looking is an operation, too.
    if last.operations == 0 {
        return None;
    }
    let came = last.created?.saturating_sub(first.created?);
    let asked = last.operations.saturating_sub(first.operations);
    let own = OWN_COMMANDS.saturating_mul(came).saturating_add(window.sums.own);
    Some((came, asked.saturating_sub(own)))
}

/// Whose connections came most, as far as that is known.
fn most_coming(window: &MongoWindow) -> String {
    let most = window.origins().max_by_key(|(_, own)| own.came).filter(|(_, own)| own.came > 0);
    most.map_or_else(|| UNKNOWN_CLIENTS.to_owned(), |(origin, _)| origin.name())
}
