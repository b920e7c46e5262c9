//! No client gets a server: the database cannot be reached, or an operator has paused or drained the pool.

use admin_api::Pooler;

use super::{Verdict, WHOLE_SERVER, format_clients, format_duration, format_ms, format_percent};
use crate::{
    finding::{Finding, Symptom, Undecided},
    pooler::PoolWindow,
    redis::RedisWindow,
};

/// The share of looks at which a Redis serves no client, or has lost its primary: a single look may meet a restart by
/// chance.
const MIN_LOOK_SHARE: f64 = 0.5;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let (failed, waiters) = (admin_api::sum(pool.change.failed.values()), pool.last.waiters);
    if pool.last.paused && waiters > 0 {
        return paused(pool);
    }
    if pool.last.drained {
        return drained(pool);
    }
    let Some(down_ms) = pool.last.unavailable_ms else { return Verdict::Absent };
    // PgBouncer tells of no attempt: only its waiting clients do. An attempt of Poolhouse's that failed is trouble
    // although no client waits now: a name that a client made up is no outage.
    let is_known = pool.pooler == Pooler::Poolhouse && pool.last.last_error.is_some();
    if !is_known && pool.last.created == 0 && failed == 0 && waiters == 0 {
        return Verdict::Absent;
    }
    let outage = format!("there has been no connection to {} for {}", pool.last.address, format_ms(down_ms));
    match pool.pooler {
        _ if pool.hides_pause => Undecided::new([Symptom::OutOfReach, Symptom::Paused], pool.name())
            .seen(outage)
            .seen(describe_waiters(pool))
            .needs(
                "PgBouncer's log, which says why it cannot connect, or that an operator paused all databases: this \
                 one's \
                 console does not (newer ones have SHOW STATE)",
            )
            .into(),
        Pooler::Poolhouse => down_behind_poolhouse(pool, outage),
        _ => down_behind_pgbouncer(pool, outage),
    }
}

fn paused(pool: &PoolWindow<'_>) -> Verdict {
    Finding::new(Symptom::Paused, pool.name())
        .evidence("an operator paused it")
        .evidence(describe_waiters(pool))
        .rules_out("neither the pool nor the database is slow: nothing is let through")
        .advice(match pool.pooler {
            Pooler::Poolhouse => "`poolhouse ctl ADMIN_URL resume` ends the pause.",
            _ => "RESUME on PgBouncer's console ends the pause.",
        })
        .into()
}

/// An operator has ordered it, and may have forgotten that.
fn drained(pool: &PoolWindow<'_>) -> Verdict {
    Finding::new(Symptom::Drained, pool.name())
        .evidence("an operator drains it: every client that comes for it is refused")
        .evidence(match pool.last.clients {
            0 => "no client of it is left".to_owned(),
            here => format!("{} still", format_clients(here, "is here", "are here")),
        })
        .rules_out("the database is not out of reach: Poolhouse lets no client in")
        .advice("`poolhouse ctl ADMIN_URL resume` ends the drain.")
        .into()
}

fn describe_waiters(pool: &PoolWindow<'_>) -> String {
    let waits = format_clients(pool.last.waiters, "waits", "wait");
    format!("{waits}, the first of them for {}", format_ms(pool.last.oldest_wait_ms.unwrap_or(0.0)))
}

fn down_behind_poolhouse(pool: &PoolWindow<'_>, outage: String) -> Verdict {
    let of_outage = ["unavailable", "refused"].iter().filter_map(|reason| pool.change.failed.get(*reason));
    let failed = admin_api::sum(of_outage);
    let error = pool.last.last_error.as_deref().unwrap_or("no attempt has ended yet");
    Finding::new(Symptom::OutOfReach, pool.name())
        .evidence(outage)
        .evidence(format!("the last attempt ended with: {error}"))
        .evidence(format!(
            "in the {} that were looked at, {failed} check-outs failed for want of a connection; {} at the end",
            format_duration(pool.duration),
            format_clients(pool.last.waiters, "waits", "wait")
        ))
        .rules_out("the pool is not too small: no client gets a server at all")
        .advice(
            "Poolhouse tries again by itself, at most 5 s apart. If the error is one of configuration (password, \
             name), \
             change that and reload.",
        )
        .into()
}

fn down_behind_pgbouncer(pool: &PoolWindow<'_>, outage: String) -> Verdict {
    Finding::new(Symptom::OutOfReach, pool.name())
        .evidence(outage)
        .evidence(format!("the first client has waited for {}", format_ms(pool.last.oldest_wait_ms.unwrap_or(0.0))))
        .evidence(format!("{}, and no server works for any client", format_clients(pool.last.waiters, "waits", "wait")))
        .rules_out("the pool is not too small: no client gets a server at all")
        .advice(
            "PgBouncer's log says why it cannot connect. It tries again after server_login_retry (15 s). Another limit \
             of its own (max_db_connections) that other pools use up looks the same from here.",
        )
        .into()
}

/// A Redis that answers but serves no client, because it loads its data; or a replica that has lost its primary.
pub(super) fn examine_redis(window: &RedisWindow) -> Verdict {
    let Some((first, last)) = window.first_and_last() else { return Verdict::Absent };
    let (loading_share, cut_off_share) = (window.tally().loading_share(), window.tally().cut_off_share());
    let connected = format!(
        "{} clients were connected at the end, and {} commands were carried out in {}",
        last.connected,
        last.commands.saturating_sub(first.commands),
        format_duration(window.duration())
    );
    if loading_share >= MIN_LOOK_SHARE {
        return Finding::new(Symptom::OutOfReach, WHOLE_SERVER)
            .evidence(format!(
                "it was reading its data from the disk at {} of the looks: it answers LOADING meanwhile",
                format_percent(loading_share)
            ))
            .evidence(connected)
            .rules_out("its connections are not used up, and it is not slow: it serves no client at all")
            .advice(
                "Wait until it has read its data (INFO persistence tells how much is left), and let clients wait and \
                 try again meanwhile; a replica would have taken over.",
            )
            .into();
    }
    let Some(down_s) = last.link_down_s.filter(|_| cut_off_share >= MIN_LOOK_SHARE) else { return Verdict::Absent };
    let down = if down_s > 0.0 { format!(", for {} by now", format_ms(down_s * 1e3)) } else { String::new() };
    Finding::new(Symptom::OutOfReach, "its primary")
        .evidence(format!(
            "it is a replica, and had no connection to its primary at {} of the looks{down}",
            format_percent(cut_off_share)
        ))
        .evidence(connected)
        .rules_out(
            "it is not out of reach itself: it answers, with old data, or MASTERDOWN where replica-serve-stale-data is \
             no",
        )
        .advice(
            "Look at the primary, and at what lies between: until they meet, what is written there is not read here.",
        )
        .into()
}
