//! The symptoms that a MongoDB alone shows. It sees connections and how many of them work, and not which operation
//! waits for one: whether a driver's pool is too small it cannot tell.

use super::{Verdict, connection_limit, ephemeral_clients, idle_churn, open_transactions, saturated_server};
use crate::mongodb::MongoWindow;

pub(crate) fn examine(window: &MongoWindow) -> Vec<Verdict> {
    let open = open_transactions::examine_mongodb(window);
    // Open transactions that do nothing hold the locks for which others wait.
    let is_explained = !open.is_absent();
    vec![
        ephemeral_clients::examine_mongodb(window),
        open,
        saturated_server::examine_mongodb(window, is_explained),
        connection_limit::examine_mongodb(window),
        idle_churn::examine_mongodb(window),
    ]
}

/// What could not be seen, and where it can be.
pub(crate) fn name_unseen(window: &MongoWindow) -> Vec<String> {
    let Some((_, last)) = window.first_and_last() else { return Vec::new() };
    let mut unseen = vec![
        "whether operations wait for a connection in a driver's pool: only the driver can tell, by its CMAP events, or \
         a pooler (a pool that is too small)"
            .to_owned(),
    ];
    let hidden = [
        (last.created.is_none(), "connections that came and went: this server does not count those it has made"),
        (last.operations == 0, "whether clients connect for each operation: this server does not count operations"),
        (
            last.running.is_none() && last.queued.is_none(),
            "whether it is saturated: this server does not tell how many operations are under way (a mongos does not, \
             its shards do)",
        ),
        (
            last.available.is_none() || window.busy().is_none(),
            "whether more connections are kept than have work: this server does not count what that needs",
        ),
        (last.transactions.is_none(), "transactions that are left open: this server does not tell of transactions"),
    ];
    unseen.extend(hidden.into_iter().filter(|(is_hidden, _)| *is_hidden).map(|(_, what)| what.to_owned()));
    if let Some(why) = &last.hides_sessions {
        unseen.push(format!("whose connections these are, and for how long transactions have paused: {why}"));
    }
    let running = &window.tally().running;
    if running.max() > 0 && last.processors.is_none() {
        unseen.push(format!(
            "whether its processors are busy: {:.1} operations on average were under way, and --processors says on how \
             many",
            running.mean()
        ));
    }
    unseen
}
