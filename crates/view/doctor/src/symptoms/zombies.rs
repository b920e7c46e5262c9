//! Clients that vanish without closing, or are frozen: their connections stay.

use admin_api::{Backend, Counts, Listener, Pooler};

use super::{ALL_LISTENERS, Verdict, WHOLE_SERVER, format_duration, format_ms, format_percent};
use crate::{
    finding::{Finding, Symptom, Undecided, format_setting_time},
    pooler::PoolerWindow,
    postgres::{PostgresOrigin, PostgresWindow},
};

/// Reasons for which idle clients are evicted. For other reasons clients are evicted in the middle of work, or all of
/// them.
const SILENT_EVICTIONS: [&str; 2] = ["soft_limit", "client_idle_time"];
/// Clients in the window that did not answer, at least.
const MIN_UNANSWERED: u64 = 5;
/// The same as a share of all idle clients evicted since the start.
const MIN_UNANSWERED_SHARE: f64 = 0.5;

/// Sessions of a PostgreSQL, at least: a single one may be a terminal.
const MIN_SESSIONS: usize = 2;
/// How long the client has not read an answer.
const MIN_UNREAD_MS: f64 = 10_000.0;
/// How long a session has been idle, while all other sessions of its origin began later.
const MIN_FORGOTTEN_IDLE_MS: f64 = 3_600_000.0;

/// A Poolhouse that evicts such clients sees that they do not end their side in turn.
pub(super) fn examine_pooler(window: &PoolerWindow) -> Verdict {
    let (Some(change), Some(look)) = (window.change(), window.last()) else { return Verdict::Absent };
    let count_silent =
        |counts: &Counts| admin_api::sum(SILENT_EVICTIONS.iter().filter_map(|reason| counts.get(*reason)));
    let sum_silent = |of: fn(&Listener) -> &Counts| {
        look.listeners.iter().map(|listener| count_silent(of(listener))).fold(0, u64::saturating_add)
    };
    let now = count_silent(&change.unanswered);
    let (unanswered, evicted) =
        (sum_silent(|listener| &listener.unanswered), sum_silent(|listener| &listener.evictions));
    let share = unanswered as f64 / evicted.max(1) as f64;
    if look.pooler != Pooler::Poolhouse || now < MIN_UNANSWERED || share < MIN_UNANSWERED_SHARE {
        return Verdict::Absent;
    }
    let accepted = admin_api::sum(look.listeners.iter().map(|listener| &listener.accepted));
    let gone = accepted.saturating_sub(look.clients()).max(evicted);
    let sooner = match look.pools.iter().filter_map(|pool| pool.settings.client_idle_time).reduce(f64::max) {
        Some(ms) => format!("a client_idle_time below the {} that are in force", format_setting_time(ms)),
        None => "a client_idle_time".to_owned(),
    };
    Finding::new(Symptom::Zombies, ALL_LISTENERS)
        .evidence(format!(
            "{now} clients that were sent away for their silence did not end their side of the connection within 5 s, \
             in {}; since the start {unanswered} of {evicted} ({})",
            format_duration(window.duration()),
            format_percent(share)
        ))
        .evidence(format!(
            "of {gone} clients that have gone since the start, {evicted} did not leave by themselves but were sent \
             away \
             ({})",
            format_percent(evicted as f64 / gone.max(1) as f64)
        ))
        .rules_out("these are no idle clients that live: those end their side within a round trip")
        .advice(format!(
            "Whether their hosts are gone, or processes are frozen that will come back, cannot be told from here. \
             Functions that a platform freezes need a client_idle_time longer than they are kept frozen (310s for \
             most), or they come back to a connection that has ended. Where hosts vanish, Poolhouse gives up their \
             places by itself; {sooner} makes that sooner."
        ))
        .into()
}

/// Sessions whose answer is not read, or whose application has restarted without them. The database cannot tell them
/// from a slow client, or from a connection that is kept and not used.
pub(super) fn examine_postgres(window: &PostgresWindow) -> impl Iterator<Item = Verdict> {
    let forgotten = window.tally().origins().map(|(origin, _)| examine_forgotten(window, origin));
    std::iter::once(examine_unread(window)).chain(forgotten)
}

fn examine_unread(window: &PostgresWindow) -> Verdict {
    let unread: Vec<&Backend> =
        window.unread_throughout().filter(|backend| backend.state_ms >= MIN_UNREAD_MS).collect();
    let (Some(first), true) = (unread.first(), unread.len() >= MIN_SESSIONS) else { return Verdict::Absent };
    let longest_ms = unread.iter().map(|backend| backend.state_ms).fold(0.0, f64::max);
    Undecided::new([Symptom::Zombies], WHOLE_SERVER)
        .seen(format!(
            "{} sessions waited at every look for their client to take an answer; one of them is {}",
            unread.len(),
            PostgresOrigin::of(first).name()
        ))
        .seen(format!("the longest of these statements began {} ago", format_ms(longest_ms)))
        .needs(
            "whether these clients live and read slowly, or are frozen or gone: `ss -tnoi` at the database's host \
             shows \
             a growing timer and bytes that are not acknowledged where they are gone. tcp_user_timeout, and \
             client_connection_check_interval for long statements, end their sessions.",
        )
        .into()
}

fn examine_forgotten(window: &PostgresWindow, origin: &PostgresOrigin) -> Verdict {
    let Some(last) = window.series().last() else { return Verdict::Absent };
    // A session that has been idle for longer than it exists has times of a clock that was set, or compressed ones.
    let is_sound = |backend: &&Backend| backend.state_ms <= backend.age_ms;
    let own = last.backends.iter().filter(|backend| origin.is_of(backend) && !backend.address.is_empty());
    let (old, young): (Vec<_>, Vec<_>) =
        own.filter(is_sound).partition(|backend| backend.state == "idle" && backend.state_ms >= MIN_FORGOTTEN_IDLE_MS);
    let (Some(least_idle), Some(eldest)) = (
        old.iter().map(|backend| backend.state_ms).reduce(f64::min),
        young.iter().map(|backend| backend.age_ms).reduce(f64::max),
    ) else {
        return Verdict::Absent;
    };
    if old.len() < MIN_SESSIONS || eldest >= least_idle {
        return Verdict::Absent;
    }
    Undecided::new([Symptom::Zombies], origin.name())
        .seen(format!("{} of its sessions have been idle for at least {}", old.len(), format_ms(least_idle)))
        .seen(format!(
            "its {} others all began after that, the first of them {} ago, as if the application had been started anew",
            young.len(),
            format_ms(eldest)
        ))
        .needs(
            "whether that address still has these connections (`ss -tn` there): if not, their application is gone and \
             has not said so. tcp_keepalives_idle = 60 lets the database find that out within minutes; until then each \
             takes a connection.",
        )
        .into()
}
