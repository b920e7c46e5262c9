//! Clients connect for a transaction or two and leave.

use admin_api::{Activity, Change};

use super::{ALL_LISTENERS, Verdict, format_duration, format_percent};
use crate::{
    finding::{Finding, Symptom},
    mongodb::MongoWindow,
    pooler::PoolerWindow,
    postgres::PostgresWindow,
    redis::RedisWindow,
};

/// Connections in the window, at least.
const MIN_NEW_CONNECTIONS: u64 = 50;
/// From this many connections a transaction on, clients do not keep their connections.
const MIN_PER_TRANSACTION: f64 = 0.3;
/// Connections arrive before this share of the looks at least; otherwise it is a burst that passes.
const MIN_ARRIVING_SHARE: f64 = 0.3;
/// The share of the arrived connections that may have stayed.
const MAX_STAYED_SHARE: f64 = 0.5;
/// Where logins are not counted, short-lived clients are missed between two looks. Then this many new clients suffice,
/// if new ones are there at [`MIN_SEEN_ARRIVING_SHARE`] of the looks.
const MIN_SEEN_CLIENTS: u64 = 15;
/// See [`MIN_SEEN_CLIENTS`].
const MIN_SEEN_ARRIVING_SHARE: f64 = 0.6;

/// Transactions that each connection to a PostgreSQL makes before its client sends anything.
const POSTGRES_TRANSACTIONS_PER_CONNECTION: u64 = 1;
/// Transactions of the doctor itself for each look at a PostgreSQL.
const POSTGRES_TRANSACTIONS_PER_LOOK: u64 = 2;
/// Commands that each connection to a Redis sends before its client does: a login, and two that name the library.
const REDIS_COMMANDS_PER_CONNECTION: u64 = 3;
/// Commands of the doctor itself for each look at a Redis.
const REDIS_COMMANDS_PER_LOOK: u64 = 2;

const RULES_OUT: &str = "this is no growing number of clients: they leave as fast as they come";

/// Connections that came in a window, and the work of their clients.
struct ConnectionArrivals {
    came: u64,
    /// Transactions, operations or commands.
    work: u64,
    /// The share of looks before which connections had come.
    share: f64,
    /// Connections at the first look, and at the last.
    before: u64,
    after: u64,
}

impl ConnectionArrivals {
    /// Connections keep coming, each does hardly any work, and they leave again. Connections of a new deployment, or of
    /// a pool that grows, stay.
    fn are_ephemeral(&self) -> bool {
        let stayed = self.after.saturating_sub(self.before);
        self.came >= MIN_NEW_CONNECTIONS
            && self.share >= MIN_ARRIVING_SHARE
            && self.came as f64 / self.work.max(1) as f64 >= MIN_PER_TRANSACTION
            && stayed as f64 <= MAX_STAYED_SHARE * self.came as f64
    }

    fn describe_ends(&self) -> String {
        format!("{} connections were there at first, and {} at the end", self.before, self.after)
    }
}

pub(super) fn examine_pooler(window: &PoolerWindow) -> Verdict {
    let (Some(change), Some((first, last))) = (window.change(), window.first_and_last()) else {
        return Verdict::Absent;
    };
    if let Some(brief) = change.brief {
        return examine_brief(window, &change, brief);
    }
    // A session that is refused a server of its own ends, and its client comes again: that is another finding.
    let refused = admin_api::sum(change.pools.values().flat_map(|pool| pool.pins_refused.values()));
    let arrivals = ConnectionArrivals {
        came: change.logins,
        work: window.transactions(),
        share: window.arrival_share(),
        before: first.clients(),
        after: last.clients(),
    };
    let ConnectionArrivals { came, work: transactions, before, after, .. } = arrivals;
    if refused as f64 > MAX_STAYED_SHARE * came as f64 || transactions == 0 || !arrivals.are_ephemeral() {
        return Verdict::Absent;
    }
    Finding::new(Symptom::EphemeralClients, ALL_LISTENERS)
        .evidence(format!(
            "{came} clients logged in for {transactions} transactions in {}",
            format_duration(window.duration())
        ))
        .evidence(format!("{before} clients were here at first, and {after} at the end"))
        .rules_out(RULES_OUT)
        .advice(
            "Open the connection outside of the function or request, and keep it. Until then Poolhouse takes these \
             logins off the database; what is left is the client's own handshake, which `poolhouse bench` with \
             --no-reuse measures.",
        )
        .into()
}

/// PgBouncer does not count logins. But a client that is there at one look only has not stayed for long.
fn examine_brief(window: &PoolerWindow, change: &Change, brief: u64) -> Verdict {
    let (came, share) = (change.logins, window.arrival_share());
    let enough = came >= MIN_NEW_CONNECTIONS && share >= MIN_ARRIVING_SHARE
        || came >= MIN_SEEN_CLIENTS && share >= MIN_SEEN_ARRIVING_SHARE;
    if !enough || (came - brief.min(came)) as f64 > MAX_STAYED_SHARE * came as f64 {
        return Verdict::Absent;
    }
    let transactions = window.transactions();
    Finding::new(Symptom::EphemeralClients, "all clients")
        .evidence(format!(
            "{came} new clients were seen in {}, and {brief} of them were gone at the next look; those that came and \
             went between two looks are not among them",
            format_duration(window.duration())
        ))
        .evidence(format!(
            "new ones were there at {} of the looks; {transactions} transactions ended meanwhile",
            format_percent(share)
        ))
        .rules_out("this is no deployment, whose clients stay, and no burst, which passes")
        .advice(
            "Open the connection outside of the function or request, and keep it. Until then PgBouncer takes these \
             logins off the database.",
        )
        .into()
}

pub(super) fn examine_postgres(window: &PostgresWindow) -> Verdict {
    let Some((first, last)) = window.first_and_last() else { return Verdict::Absent };
    let tally = window.tally();
    let seen = admin_api::sum(tally.origins().map(|(_, own)| &own.came));
    let came = tally.begun.unwrap_or(seen).max(seen);
    let own_transactions = came
        .saturating_mul(POSTGRES_TRANSACTIONS_PER_CONNECTION)
        .saturating_add(POSTGRES_TRANSACTIONS_PER_LOOK * window.looks() as u64);
    let sessions = Activity::count_sessions;
    let arrivals = ConnectionArrivals {
        came,
        work: tally.ended.saturating_sub(own_transactions),
        share: window.series().arrival_share(),
        before: sessions(first),
        after: sessions(last),
    };
    if !arrivals.are_ephemeral() {
        return Verdict::Absent;
    }
    let most = tally.origins().max_by_key(|(_, own)| own.came).filter(|(_, own)| own.came > 0);
    let most = most.map_or_else(|| "all clients".to_owned(), |(origin, _)| origin.name());
    Finding::new(Symptom::EphemeralClients, most)
        .evidence(format!(
            "{came} connections {} for {} transactions in {}",
            if tally.begun.is_some() { "were made" } else { "were seen" },
            arrivals.work,
            format_duration(window.duration())
        ))
        .evidence(arrivals.describe_ends())
        .rules_out(RULES_OUT)
        .advice(
            "Keep connections: open them outside of the function or request, or in a pool of the application. Where \
             that cannot be, put a pooler in front (`poolhouse serve`): it takes these logins off the database. Each \
             costs it a process; `poolhouse bench` with --reconnect measures what.",
        )
        .into()
}

pub(super) fn examine_mongodb(window: &MongoWindow) -> Verdict {
    let (Some((first, last)), Some((came, work))) = (window.first_and_last(), window.connections_and_commands()) else {
        return Verdict::Absent;
    };
    let share = window.series().arrival_share();
    let arrivals = ConnectionArrivals { came, work, share, before: first.current, after: last.current };
    if !arrivals.are_ephemeral() {
        return Verdict::Absent;
    }
    Finding::new(Symptom::EphemeralClients, window.tally().name_most_coming())
        .evidence(format!(
            "{came} connections were made for {work} operations in {}, not counting what connections ask for \
             themselves",
            format_duration(window.duration())
        ))
        .evidence(arrivals.describe_ends())
        .rules_out(RULES_OUT)
        .advice(
            "Make one MongoClient for a process and keep it, outside of the function or request: each has a pool of \
             its own, and up to two connections to watch the server beside. Where processes live briefly, put a pooler \
             in front (`poolhouse serve mongodb://...`): it takes these logins off the database; `poolhouse bench` \
             with --reconnect measures what each costs.",
        )
        .into()
}

pub(super) fn examine_redis(window: &RedisWindow) -> Verdict {
    let Some((first, last)) = window.first_and_last() else { return Verdict::Absent };
    let came = last.received.saturating_sub(first.received);
    let commands = last.commands.saturating_sub(first.commands);
    let own_commands = REDIS_COMMANDS_PER_CONNECTION
        .saturating_mul(came)
        .saturating_add(REDIS_COMMANDS_PER_LOOK * window.looks() as u64);
    let arrivals = ConnectionArrivals {
        came,
        work: commands.saturating_sub(own_commands),
        share: window.series().arrival_share(),
        before: first.connected,
        after: last.connected,
    };
    if !arrivals.are_ephemeral() {
        return Verdict::Absent;
    }
    let lists = &window.tally().lists;
    let young = (lists.count > 0)
        .then(|| format!("{} of {} connections at the end were younger than that", lists.young, lists.listed));
    Finding::new(Symptom::EphemeralClients, "all clients")
        .evidence(format!(
            "{came} connections were made for {commands} commands in {}",
            format_duration(window.duration())
        ))
        .evidence(arrivals.describe_ends())
        .all_evidence(young)
        .rules_out(RULES_OUT)
        .advice(
            "Keep connections: make the client outside of the function or request, with its pool. Where that cannot \
             be, put a pooler in front (`poolhouse serve redis://...`): ordinary commands of all clients share a few \
             connections there. `poolhouse bench` with --reconnect measures what each connection costs.",
        )
        .into()
}
