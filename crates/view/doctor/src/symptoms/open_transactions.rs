//! Open transactions without a statement, as the database shows them: some go on after a pause, and some are never
//! ended.

use admin_api::Activity;

use super::{
    LEAK_LIMIT_MS, LONG_PAUSE_MS, MAX_OVERLONG_SHARE, OVERLONG_LIMIT_MS, PAUSE_ADVICE, Verdict, format_ms,
    format_percent,
};
use crate::{
    finding::{Finding, Setting, Symptom, format_setting_time},
    gauge::Gauge,
    mongodb::{MIN_LONG_PAUSE_MS, MongoWindow},
    postgres::{OriginTally, PostgresOrigin, PostgresWindow},
};

/// Transactions that pause throughout the window, at least.
const MIN_ENDLESS: u64 = 2;
/// The same as a share of the connections of their origin, or of all open transactions.
const MIN_ENDLESS_SHARE: f64 = 0.5;
/// The share of looks at which transactions pause.
const MIN_LOOK_SHARE: f64 = 0.3;
/// The share of busy connections, or of open transactions, that pause.
const MIN_PAUSING_SHARE: f64 = 0.5;
/// On average fewer pausing transactions than this are one alone, which may be a person who works by hand.
const MAX_LONE_SESSIONS: f64 = 1.5;

/// PostgreSQL's own limit on such pauses.
const POSTGRES_SETTING: &str = "idle_in_transaction_session_timeout";
/// The share of busy connections that pause for long.
const MIN_LONG_PAUSE_SHARE: f64 = 0.2;
/// A lone connection must pause for this long.
const MIN_LONE_PAUSE_MS: f64 = 60_000.0;

/// MongoDB's own limit on transactions.
const MONGODB_SETTING: &str = "transactionLifetimeLimitSeconds";
/// The proposed value of that limit.
const PROPOSED_LIFETIME_S: u64 = 30;
/// The share of the pauses seen that went on from one list to the next, 0.1 s later: half of them if each lasts for
/// 200 ms, none if a transaction has many short ones.
const MIN_LASTING_SHARE: f64 = 0.3;

pub(super) fn examine_postgres(window: &PostgresWindow) -> Vec<Verdict> {
    window.tally().origins().map(|(origin, own)| examine_origin(window, origin, own)).collect()
}

fn examine_origin(window: &PostgresWindow, origin: &PostgresOrigin, own: &OriginTally) -> Verdict {
    let Some((_, last)) = window.first_and_last() else { return Verdict::Absent };
    let window_ms = window.duration().as_millis() as f64;
    // A clock that was set makes long pauses of short ones: not the last look alone decides.
    let endless = window.paused_throughout().filter(|backend| origin.is_of(backend) && backend.state_ms >= window_ms);
    let (endless, oldest_ms, pause_ms) = endless.fold((0, 0.0_f64, 0.0_f64), |(count, oldest, pause), backend| {
        (count + 1, oldest.max(backend.transaction_ms.unwrap_or(0.0)), pause.max(backend.state_ms))
    });
    let locked = &window.tally().all.locked;
    let victims = match locked.share_above_zero() {
        share if share > 0.0 => format!(
            "other sessions waited for locks at {} of the looks, {:.1} on average",
            format_percent(share),
            locked.mean()
        ),
        _ => format!("its connections are {} of {}", own.now, last.count_sessions()),
    };
    if endless < MIN_ENDLESS || (endless as f64) < MIN_ENDLESS_SHARE * own.now as f64 {
        return examine_pauses(window, last, origin, own, victims);
    }
    Finding::new(Symptom::Leak, origin.name())
        .evidence(format!(
            "{endless} of its {} connections were in the same transaction throughout, and nothing was asked of them",
            own.now
        ))
        .evidence(format!("the oldest of these transactions began {} ago", format_ms(oldest_ms)))
        .evidence(victims)
        .rules_out("transactions that are slow would have a statement under way, or come to an end: these do neither")
        .setting(Setting::shorten(POSTGRES_SETTING, last.transaction_idle_ms, LEAK_LIMIT_MS))
        .advice(format!(
            "Find where the application leaves without COMMIT or ROLLBACK. Such a transaction keeps its locks, and \
             what \
             it can see cannot be vacuumed. {}",
            describe_limit(last, pause_ms)
        ))
        .into()
}

/// What ends a transaction that is left, where the longest has paused for `pause_ms`.
fn describe_limit(server: &Activity, pause_ms: f64) -> String {
    match server.transaction_idle_ms.filter(|ms| *ms <= LEAK_LIMIT_MS) {
        Some(ms) if pause_ms > ms => format!(
            "{POSTGRES_SETTING} is {} already, and these transactions outlast it: their database, user or session sets \
             it otherwise (`\\drds` of psql shows the first two).",
            format_setting_time(ms)
        ),
        Some(ms) => format!(
            "{POSTGRES_SETTING} is {} already, and ends them once they have paused for so long.",
            format_setting_time(ms)
        ),
        None => "The setting, of the database or of the user, ends it, with an error for the client that left \
                 it."
        .to_owned(),
    }
}

fn examine_pauses(
    window: &PostgresWindow,
    server: &Activity,
    origin: &PostgresOrigin,
    own: &OriginTally,
    victims: String,
) -> Verdict {
    let gauges = &own.gauges;
    let share_of_busy = |gauge: &Gauge| gauge.sum() as f64 / gauges.busy.sum().max(1) as f64;
    let (pausing, long) = (share_of_busy(&gauges.pausing), share_of_busy(&gauges.long_pausing));
    let is_alone = gauges.long_pausing.mean() < MAX_LONE_SESSIONS && gauges.longest_pause_ms < MIN_LONE_PAUSE_MS;
    // The origin's own gauges begin with the look that first saw the origin.
    let look_share = gauges.long_pausing.looks_from(1.0) as f64 / window.looks().max(1) as f64;
    if look_share < MIN_LOOK_SHARE || pausing < MIN_PAUSING_SHARE || long < MIN_LONG_PAUSE_SHARE || is_alone {
        return Verdict::Absent;
    }
    // A limit below what applications pause now would break them; one that only few of them exceed ends those.
    let overlong = gauges.overlong_pausing.sum();
    let are_few = overlong > 0 && overlong as f64 <= MAX_OVERLONG_SHARE * gauges.pausing.sum() as f64;
    let limit = are_few.then(|| Setting::shorten(POSTGRES_SETTING, server.transaction_idle_ms, OVERLONG_LIMIT_MS));
    let working = gauges.working.mean();
    Finding::new(Symptom::TransactionsLeftOpen, origin.name())
        .evidence(format!(
            "{} of its connections that were not idle had nothing asked of them, within a transaction: {:.1} of {:.1} \
             on average",
            format_percent(pausing),
            gauges.pausing.mean(),
            gauges.busy.mean()
        ))
        .evidence(format!(
            "at {} of the looks some had paused for over 200 ms; the longest pause was {}",
            format_percent(look_share),
            format_ms(gauges.longest_pause_ms)
        ))
        .evidence(victims)
        .rules_out(format!("the statements are not slow: {working:.1} connections on average had one under way"))
        .setting(limit.flatten())
        .advice(format!(
            "{PAUSE_ADVICE} Without the pauses {:.0} connections suffice for the same work, where {} are taken up now.",
            working.ceil().max(1.0),
            gauges.busy.max()
        ))
        .into()
}

pub(super) fn examine_mongodb(window: &MongoWindow) -> Verdict {
    let Some((first, last)) = window.first_and_last() else { return Verdict::Absent };
    let Some((before, now)) = first.transactions.zip(last.transactions) else { return Verdict::Absent };
    let tally = &window.tally().transactions;
    let (started, ended) = (now.started.saturating_sub(before.started), now.ended.saturating_sub(before.ended));
    let (open, inactive) = (tally.open.mean(), tally.inactive.mean());
    let throughout = match window.tally().has_lists() {
        true => tally.inactive_throughout,
        // No transaction began and none ended: they are the same.
        false if started == 0 && ended == 0 => tally.min_inactive.unwrap_or(0),
        false => 0,
    };
    if throughout >= MIN_ENDLESS && throughout as f64 >= MIN_ENDLESS_SHARE * open {
        return leak_of_mongodb(window, throughout, started, ended);
    }
    let seconds = window.duration().as_secs_f64().max(1e-3);
    // By Little's law: the transactions that pause at a time, over those that come in that time, is how long each
    // pauses, all its pauses together.
    let pause_ms = inactive / (started.max(1) as f64 / seconds) * 1e3;
    let is_long = match (window.tally().has_lists(), tally.pauses) {
        // All pauses that were seen twice had just begun, so their length is unknown.
        (true, 0) => !tally.are_listed_twice && tally.longest_ms >= MIN_LONG_PAUSE_MS,
        (true, pauses) => tally.lasting as f64 >= MIN_LASTING_SHARE * pauses as f64,
        (false, _) => started > 0,
    };
    if tally.inactive.share_above_zero() < MIN_LOOK_SHARE
        || inactive < MIN_PAUSING_SHARE * open
        || inactive < MAX_LONE_SESSIONS
        || pause_ms < LONG_PAUSE_MS
        || !is_long
    {
        return Verdict::Absent;
    }
    let longest = match (window.tally().has_lists(), tally.pauses) {
        (true, 0) => format!("; the pauses of one came to {}", format_ms(tally.longest_ms)),
        (true, pauses) => {
            format!("; {} of {pauses} pauses that were seen had gone on for 0.1 s or more", tally.lasting)
        }
        (false, _) => String::new(),
    };
    Finding::new(Symptom::TransactionsLeftOpen, window.tally().name_most_paused())
        .evidence(format!(
            "{} of the open transactions had no command under way: {inactive:.1} of {open:.1} on average",
            format_percent(inactive / open.max(1e-9))
        ))
        .evidence(format!(
            "{started} transactions began meanwhile, so each paused for {} altogether{longest}",
            format_ms(pause_ms)
        ))
        .rules_out(format!(
            "the commands are not slow: {:.1} transactions on average had one under way",
            (open - inactive).max(0.0)
        ))
        .advice(
            "Commit or abort before calling other services, and let the driver's helper (withTransaction) keep \
             transactions short. Where the application lacks processors, or is far away (each command is a round \
             trip), that is the pause. Each holds its locks and keeps old versions of documents in the cache until it \
             ends.",
        )
        .into()
}

fn leak_of_mongodb(window: &MongoWindow, throughout: u64, started: u64, ended: u64) -> Verdict {
    let limit = window.series().last().and_then(|last| last.transaction_lifetime_s);
    let since = match window.tally().has_lists() {
        true => format!("the pauses of one have come to {}", format_ms(window.tally().transactions.longest_ms)),
        false => "none of them is told apart from the others, but none ended".to_owned(),
    };
    let is_longer = limit.is_none_or(|seconds| seconds > PROPOSED_LIFETIME_S);
    let proposed = Setting {
        key: MONGODB_SETTING,
        from: limit.map(|seconds| seconds.to_string()),
        to: PROPOSED_LIFETIME_S.to_string(),
    };
    let ends = match limit {
        Some(seconds) if !is_longer => {
            format!("{MONGODB_SETTING} is {seconds} already, and ends such transactions after that time")
        }
        Some(seconds) => format!("The server's parameter ends such transactions, now after {seconds} s"),
        None => "The server's parameter ends such transactions (after 60 s where it is not set)".to_owned(),
    };
    Finding::new(Symptom::Leak, window.tally().name_most_paused())
        .evidence(format!("{throughout} transactions were open throughout, and nothing was asked in them"))
        .evidence(format!("{started} other transactions began meanwhile, and {ended} ended; {since}"))
        .rules_out("transactions that are slow would have a command under way, or come to an end: these do neither")
        .setting(is_longer.then_some(proposed))
        .advice(format!(
            "Find where the application leaves without a commit or an abort. {ends}, with an error for the clients \
             that left them; \
             until then they keep their locks."
        ))
        .into()
}
