//! The symptoms that a driver's own pool shows. It tells how many connections are in use and for how long, how many
//! threads wait, and how many connections are created. It does not tell what connections do while they are in use: one
//! that is never given back, and a statement that takes forever, look alike for a while.

use admin_api::{Look, Pooler};

use super::{Verdict, driver_leak, format_ms, idle_churn, waiting_clients};
use crate::{
    finding::{Finding, Symptom},
    pooler::PoolWindow,
};

/// The first symptom explains those that come after it; churn comes beside.
pub(super) fn examine(pool: &PoolWindow<'_>) -> Vec<Verdict> {
    let first = Verdict::first_of(pool, [examine_reach, driver_leak::examine, waiting_clients::examine]);
    vec![first, idle_churn::examine_driver(pool, &describe_made(pool))]
}

/// What no driver's pool tells.
pub(super) fn name_unseen(look: &Look) -> Vec<String> {
    let mut unseen = vec![
        "what connections do while they are taken, and for which locks they wait: the database knows (`poolhouse \
         doctor \
         postgres://...` or mongodb://...)"
            .to_owned(),
        "pools of other processes, and what the database allows all of them together".to_owned(),
    ];
    if look.pools.iter().any(|pool| driver_leak::hides_uses(look.pooler, pool)) {
        let uses = "for how long connections are taken, and so whether they are given back: \
                    hikaricp_connections_usage_seconds is lacking";
        unseen.push(uses.to_owned());
    }
    unseen
}

/// No thread gets a connection.
fn examine_reach(pool: &PoolWindow<'_>) -> Verdict {
    let Some(down_ms) = pool.last.unavailable_ms else { return Verdict::Absent };
    let failed = admin_api::sum(pool.change.failed.values());
    Finding::new(Symptom::OutOfReach, pool.name())
        .evidence(format!("the pool has had no connection for {} although threads ask for one", format_ms(down_ms)))
        .evidence(format!("{} wait, and {failed} gave up or failed while this was looked at", pool.last.waiters))
        .evidence(format!("{} meanwhile", describe_made(pool)))
        .rules_out("the pool is not too small: no thread gets a connection at all")
        .advice(match pool.pooler {
            Pooler::MongoDriver => {
                "The reasons of events connectionClosed and poolCleared, and the driver's server monitoring (SDAM \
                 events), say why the server cannot be reached. What runs into waitQueueTimeoutMS or \
                 serverSelectionTimeoutMS is not tried again by itself."
            }
            _ => {
                "HikariCP's log says why it cannot connect. It tries again by itself; connectionTimeout is how long a \
                 thread waits meanwhile."
            }
        })
        .into()
}

/// How many connections were made, in words.
fn describe_made(pool: &PoolWindow<'_>) -> String {
    let made = pool.change.created;
    match pool.pooler {
        Pooler::HikariCp => format!("{made} connections were made or could not be (HikariCP counts these together)"),
        _ => format!("{made} connections were made"),
    }
}
