//! The symptoms that a PostgreSQL alone shows. It sees connections and what they do, and not which client waits for
//! one: whether a pool is too small it cannot tell.

use super::{
    Verdict, connection_limit, ephemeral_clients, idle_churn, open_transactions, pool_of_pools, saturated_server,
    zombies,
};
use crate::postgres::PostgresWindow;

pub(crate) fn examine(window: &PostgresWindow) -> Vec<Verdict> {
    let mut verdicts = vec![ephemeral_clients::examine_postgres(window)];
    let open = open_transactions::examine_postgres(window);
    // Open transactions that do nothing hold the locks for which others wait.
    let is_explained = open.iter().any(|verdict| !verdict.is_absent());
    verdicts.extend(open);
    verdicts.push(saturated_server::examine_postgres(window, is_explained));
    verdicts.push(connection_limit::examine_postgres(window));
    verdicts.push(connection_limit::examine_sum_of_limits(window));
    verdicts.extend(idle_churn::examine_postgres(window));
    verdicts.push(pool_of_pools::examine_postgres(window));
    verdicts.extend(zombies::examine_postgres(window));
    verdicts
}

/// What could not be seen, and where it can be.
pub(crate) fn name_unseen(window: &PostgresWindow) -> Vec<String> {
    let Some((_, last)) = window.first_and_last() else { return Vec::new() };
    let mut unseen = vec![
        "whether clients wait for a connection, in a pool of their own or in a pooler: only that one can tell (a pool \
         that is too small)"
            .to_owned(),
        "clients that are refused, and logins that take long, as after an outage: its views show sessions after their \
         login only"
            .to_owned(),
    ];
    if last.is_pooled {
        let pooler = "the pooler that answers at this address: it is the database behind it that was looked at. \
            `poolhouse doctor http://ADMIN` looks at a Poolhouse, postgres://.../pgbouncer at a PgBouncer";
        unseen.push(pooler.to_owned());
    }
    if last.hidden > 0 {
        unseen.push(format!(
            "what {} connections of other users do, or of all where track_activities is off: GRANT pg_monitor TO the \
             user that looks, or track_activities = on, would show it",
            last.hidden
        ));
    }
    if last.left_out > 0 {
        unseen.push(format!(
            "{} connections beyond the first {}, and so which of all of them come and go",
            last.left_out,
            last.backends.len()
        ));
    }
    if last.sessions.is_none() {
        let brief = "connections that came and went between two looks: PostgreSQL counts them from version 14 on";
        unseen.push(brief.to_owned());
    }
    if last.processors.is_none() {
        unseen.push(format!(
            "whether its processors are busy: {:.1} sessions on average were ready to run, and --processors says on \
             how \
             many",
            window.tally().all.ready.mean()
        ));
    }
    unseen
}
