//! A database server has hardly any connection left: because far more are kept than have work, because several pools
//! together take all of them, or because its connections do work.

use super::{Verdict, WHOLE_SERVER, format_duration, format_ms, format_percent};
use crate::{
    finding::{Finding, Setting, Symptom, Undecided},
    gauge::Gauge,
    mongodb::MongoWindow,
    origin::name_largest,
    postgres::PostgresWindow,
    redis::RedisWindow,
};

/// From this share of the allowed connections on, the next instance may find none left.
const MIN_TAKEN_SHARE: f64 = 0.8;
/// The share of looks at which that holds.
const MIN_LOOK_SHARE: f64 = 0.8;
/// At most this share of the connections has ever worked at once.
const MAX_USED_SHARE: f64 = 0.25;
/// The share of connections whose origin and work must be known.
const MIN_KNOWN_SHARE: f64 = 0.9;
/// A connection that has been idle for this long is not needed.
const UNNEEDED_IDLE_MS: f64 = 3_600_000.0;
/// The proposed pool is this many times as large as the most connections ever seen at work at once: looks miss peaks.
const SPARE_FACTOR: u64 = 2;
/// Refused connections, at least.
const MIN_REFUSED: u64 = 3;

/// Limits that add up: from this share of the allowed connections on, none is left for the next instance.
const MIN_EXHAUSTED_SHARE: f64 = 0.95;
/// The share of looks at which that holds.
const MIN_EXHAUSTED_LOOK_SHARE: f64 = 0.5;
/// An origin with more than this share has too high a limit of its own, and nothing adds up.
const MAX_ORIGIN_SHARE: f64 = 0.6;
/// An origin with less than this share does not count among those that add up.
const MIN_ORIGIN_SHARE: f64 = 0.1;
/// The share of the allowed connections that all pools together may have; the rest is for other clients.
const POOLS_SHARE: f64 = 0.9;
/// Origins that are named.
const MAX_NAMED_ORIGINS: usize = 3;

/// Nearly all allowed connections are open at nearly all looks.
fn is_nearly_exhausted(open: &Gauge, allowed: u64) -> bool {
    allowed > 0 && open.share_from(MIN_TAKEN_SHARE * allowed as f64) >= MIN_LOOK_SHARE
}

/// The size of one pool for all clients, of which `used` connections worked at once.
fn spare_size(used: u64) -> u64 {
    used.saturating_mul(SPARE_FACTOR).max(2)
}

fn over_provisioned(limit: &str, key: &'static str, size: u64) -> Finding {
    Finding::new(Symptom::OverProvisioned, WHOLE_SERVER)
        .rules_out(format!("they are not taken up by load: a higher {limit} would only keep more of them idle"))
        .setting(Setting { key, from: None, to: size.to_string() })
}

fn undecided(seen: [String; 2], needs: &str) -> Verdict {
    Undecided::new([Symptom::OverProvisioned, Symptom::ConnectionsRefused], WHOLE_SERVER)
        .all_seen(seen)
        .needs(needs)
        .into()
}

/// The origins of the sessions at the last look, each with its number.
fn sessions_by_origin(window: &PostgresWindow) -> Vec<(String, u64)> {
    window.tally().origins().map(|(origin, own)| (origin.name(), own.now)).collect()
}

pub(super) fn examine_postgres(window: &PostgresWindow) -> Verdict {
    let Some((_, last)) = window.first_and_last() else { return Verdict::Absent };
    let all = &window.tally().all;
    let allowed = last.max_connections.saturating_sub(last.reserved);
    let (open, busy) = (all.sessions.mean(), all.busy.max());
    let seen = last.backends.len() as f64;
    if !is_nearly_exhausted(&all.sessions, allowed)
        || busy as f64 > MAX_USED_SHARE * open
        || seen < MIN_KNOWN_SHARE * (seen + last.hidden.saturating_add(last.left_out) as f64)
    {
        return Verdict::Absent;
    }
    let idle = last.backends.iter().filter(|backend| backend.state == "idle");
    let long = idle.clone().filter(|backend| backend.state_ms >= UNNEEDED_IDLE_MS).count();
    let longest = idle.map(|backend| backend.state_ms).fold(0.0, f64::max);
    let to = spare_size(busy);
    over_provisioned("max_connections", "max_size", to)
        .evidence(format!(
            "{open:.0} of {allowed} connections were taken ({}): {}",
            format_percent(open / allowed as f64),
            name_largest(sessions_by_origin(window).into_iter())
        ))
        .evidence(format!("at most {busy} of them had a statement or a transaction at once"))
        .evidence(format!("{long} have been idle for over an hour, the longest for {}", format_ms(longest)))
        .advice(format!(
            "Let the applications' pools keep fewer, or put one pool in front of the database for all of them, such as \
             `poolhouse serve` with max_size {to}: twice what was ever seen at work at once in {}. Look over a busy \
             hour before you decide. A connection that an application holds between two statements, or while its \
             answer is on a slow way, looks idle from here: its own pool knows.",
            format_duration(window.duration())
        ))
        .into()
}

/// Several pools, each within its own limit, together have all connections that a PostgreSQL allows.
pub(super) fn examine_sum_of_limits(window: &PostgresWindow) -> Verdict {
    let Some((_, last)) = window.first_and_last() else { return Verdict::Absent };
    let allowed = last.max_connections.saturating_sub(last.reserved);
    let all = &window.tally().all;
    let (taken, busy) = (all.sessions.mean(), all.busy.max());
    let exhausted_share = all.sessions.share_from(MIN_EXHAUSTED_SHARE * allowed as f64);
    let seen = last.backends.len() as f64;
    let hidden = last.hidden.saturating_add(last.left_out) as f64;
    let mut origins = sessions_by_origin(window);
    origins.sort_by_key(|(_, now)| std::cmp::Reverse(*now));
    let largest_share = origins.first().map_or(0.0, |(_, now)| *now as f64 / seen.max(1.0));
    let parts = origins.iter().take_while(|(_, now)| *now as f64 >= MIN_ORIGIN_SHARE * seen).count();
    if allowed == 0
        || exhausted_share < MIN_EXHAUSTED_LOOK_SHARE
        // Where hardly any connection works, that is the symptom.
        || busy as f64 <= MAX_USED_SHARE * taken
        || seen < MIN_KNOWN_SHARE * (seen + hidden)
        || parts < 2
        || largest_share > MAX_ORIGIN_SHARE
    {
        return Verdict::Absent;
    }
    let more = match origins.len().saturating_sub(MAX_NAMED_ORIGINS) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    // Small origins keep what they have.
    let of_parts: u64 = origins.iter().take(parts).map(|(_, now)| *now).sum();
    let for_parts = POOLS_SHARE * allowed as f64 - (seen + hidden - of_parts as f64);
    let each = ((for_parts / parts as f64) as u64).max(1);
    Finding::new(Symptom::LimitsAddUp, WHOLE_SERVER)
        .evidence(format!(
            "{taken:.0} of {allowed} connections were taken, at least {} of them at {} of the looks: the next \
             connection is refused",
            format_percent(MIN_EXHAUSTED_SHARE),
            format_percent(exhausted_share)
        ))
        .evidence(format!(
            "they are of {} origins, none of which has more than {}: {}{more}",
            origins.len(),
            format_percent(largest_share),
            name_largest(origins.iter().cloned())
        ))
        .evidence(format!("up to {busy} of them had a statement or a transaction at once"))
        .rules_out(
            "no single application takes them all, and they are not kept for nothing: each pool is within its own \
             limit, and the sum is not",
        )
        .setting(Setting { key: "max_size", from: None, to: each.to_string() })
        .advice(format!(
            "Give the pools of {parts} origins together {:.0} of the {allowed}, {each} each if they are alike, or put \
             one pool in front of the database for all of them (`poolhouse serve`). `poolhouse plan --instances N \
             --server-limit {} --reserved {}` says whether that is enough for a load. The server's log has the \
             refusals (SQLSTATE 53300): its views do not.",
            for_parts.max(parts as f64),
            last.max_connections,
            last.reserved
        ))
        .into()
}

pub(super) fn examine_mongodb(window: &MongoWindow) -> Verdict {
    let Some((first, last)) = window.first_and_last() else { return Verdict::Absent };
    let Some(available) = last.available else { return Verdict::Absent };
    let refused = last.rejected.unwrap_or(0).saturating_sub(first.rejected.unwrap_or(0));
    let allowed = last.current.saturating_add(available);
    let connections = &window.tally().connections;
    let open = connections.mean();
    let is_nearly_exhausted = is_nearly_exhausted(connections, allowed);
    let taken =
        format!("{open:.0} of {allowed} connections were taken ({})", format_percent(open / allowed.max(1) as f64));
    let refusals = format!("{refused} connections were refused for want of room while this was looked at");
    let Some(busy) = window.busy() else {
        let has_signs = is_nearly_exhausted || refused >= MIN_REFUSED;
        let needs = "how many connections have a command under way: this server does not tell, its log or the drivers' \
                     pools do";
        return if has_signs { undecided([taken, refusals], needs) } else { Verdict::Absent };
    };
    let busy = busy.max();
    match is_nearly_exhausted && busy as f64 <= MAX_USED_SHARE * open {
        true => over_provisioned_mongodb(window, busy, &taken, (refused > 0).then_some(refusals)),
        false if refused >= MIN_REFUSED => Finding::new(Symptom::ConnectionsRefused, WHOLE_SERVER)
            .all_evidence([refusals, taken])
            .evidence(format!("those that came most are of {}", window.tally().name_most_coming()))
            .rules_out(format!(
                "they are not kept for nothing: up to {busy} had a command under way at once, and it is not out of \
                 reach: it answers those that it has"
            ))
            .advice(format!(
                "Put one pool in front of the database for all clients (`poolhouse serve`), or let it take more than \
                 {allowed}: net.maxIncomingConnections, and the descriptors that its process may have."
            ))
            .into(),
        false => Verdict::Absent,
    }
}

fn over_provisioned_mongodb(window: &MongoWindow, busy: u64, taken: &str, refusals: Option<String>) -> Verdict {
    let named = match window.tally().name_largest_origins() {
        unknown if unknown.is_empty() => String::new(),
        named => format!(": {named}"),
    };
    let watching = window.series().last().map_or(0, |last| last.watching);
    let watching =
        (watching > 0).then(|| format!("{watching} of them are those on which drivers wait for news of the topology"));
    let to = spare_size(busy);
    over_provisioned("net.maxIncomingConnections", "maxPoolSize", to)
        .evidence(format!("{taken}{named}"))
        .evidence(format!("at most {busy} of them had a command under way at once"))
        .all_evidence(watching)
        .all_evidence(refusals)
        .advice(format!(
            "Let the drivers' pools keep fewer (maxPoolSize and minPoolSize are for each process, so {to} is what all \
             of them need together; maxIdleTimeMS closes what is idle), or put one pool in front of the database for \
             all of them, such as `poolhouse serve` with max_size {to}: twice what was ever seen at work at once in \
             {}. Look over a busy hour before you decide.",
            format_duration(window.duration())
        ))
        .into()
}

pub(super) fn examine_redis(window: &RedisWindow) -> Verdict {
    let Some((first, last)) = window.first_and_last() else { return Verdict::Absent };
    let refused = last.rejected.saturating_sub(first.rejected);
    let connected = &window.tally().connected;
    let open = connected.mean();
    let (is_nearly_exhausted, taken) = match last.max_clients {
        Some(max) => (
            is_nearly_exhausted(connected, max),
            format!("{open:.0} of {max} connections were taken ({})", format_percent(open / max.max(1) as f64)),
        ),
        None => (false, format!("{open:.0} connections were taken")),
    };
    if !is_nearly_exhausted && refused < MIN_REFUSED {
        return Verdict::Absent;
    }
    let refusals = format!(
        "{refused} connections were refused because there were too many, some of them before {} of the looks",
        format_percent(window.refusing_share())
    );
    let lists = &window.tally().lists;
    let all = lists.listed.saturating_add(lists.left_out);
    if lists.count == 0 || (lists.listed as f64) < MIN_KNOWN_SHARE * all as f64 {
        let needs = "for how long each connection has asked nothing: CLIENT LIST, which this user may not ask, or \
                     which would be too long";
        return undecided([taken, refusals], needs);
    }
    let used = lists.max_used;
    match is_nearly_exhausted && used as f64 <= MAX_USED_SHARE * open {
        true => over_provisioned_redis(window, &taken, (refused > 0).then_some(refusals)),
        false if refused >= MIN_REFUSED => Finding::new(Symptom::ConnectionsRefused, WHOLE_SERVER)
            .all_evidence([refusals, taken])
            .evidence(format!("those that it has: {}", lists.name_largest_origins()))
            .rules_out(format!(
                "they are not kept for nothing: {used} of {} had asked something within a second, waited in a command, \
                 or had subscribed; and it is not out of reach: it answers those that it has",
                lists.listed
            ))
            .advice(
                "Put a pooler in front (`poolhouse serve redis://...`), where ordinary commands of all clients share a \
                 few connections, or raise maxclients and the descriptors that its process may have.",
            )
            .into(),
        false => Verdict::Absent,
    }
}

fn over_provisioned_redis(window: &RedisWindow, taken: &str, refusals: Option<String>) -> Verdict {
    let lists = &window.tally().lists;
    let to = spare_size(lists.max_used);
    over_provisioned("maxclients", "max_size", to)
        .evidence(format!("{taken}: {}", lists.name_largest_origins()))
        .evidence(format!(
            "at most {} of them had asked anything within a second, waited in a command, or had subscribed",
            lists.max_used
        ))
        .evidence(format!(
            "{} have asked nothing for over an hour, the longest for {}",
            lists.long_idle,
            format_ms(lists.longest_idle_s as f64 * 1e3)
        ))
        .all_evidence(refusals)
        .advice(format!(
            "Let the applications' pools keep fewer, or put one pool in front for all of them, such as `poolhouse \
             serve redis://...` with max_size {to}: twice what was ever seen in use at once in {}, and ordinary \
             commands share connections there. Redis's own `timeout` closes what is idle. Look over a busy hour before \
             you decide.",
            format_duration(window.duration())
        ))
        .into()
}
