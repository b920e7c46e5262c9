//! Open transactions without a statement: some go on after a pause, and some are never ended.

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Setting, Symptom},
    mongodb::{MongoWindow, SEEN_PAUSE_MS},
};

/// Ordinary work needs no such pause within a transaction.
const LONG_PAUSE_MS: f64 = 200.0;
/// Transactions without a command throughout the window, at least.
const MIN_ENDLESS: u64 = 2;
/// The same as a share of the open transactions.
const MIN_ENDLESS_SHARE: f64 = 0.5;
/// The share of looks at which open transactions have no command.
const MIN_LOOK_SHARE: f64 = 0.3;
/// The share of open transactions that have no command.
const MIN_PAUSING_SHARE: f64 = 0.5;
/// The share of seen pauses that had lasted for 0.1 s: half of them if each lasts for 200 ms, none if a transaction has
/// many short ones.
const MIN_LASTING_SHARE: f64 = 0.3;
/// On average fewer pausing transactions than this are one alone, which may be a person who works by hand.
const MAX_LONE_SESSIONS: f64 = 1.5;

/// The server's own limit.
const SERVER_SETTING: &str = "transactionLifetimeLimitSeconds";
/// The proposed value of that limit.
const PROPOSED_LIFETIME_S: u64 = 30;

pub(super) fn examine(window: &MongoWindow) -> Verdict {
    let Some((first, last)) = window.ends() else { return Verdict::Absent };
    let Some((before, now)) = first.transactions.zip(last.transactions) else { return Verdict::Absent };
    let sums = &window.sums;
    let (started, ended) = (now.started.saturating_sub(before.started), now.ended.saturating_sub(before.ended));
    let (open, inactive) = (sums.open.mean(), sums.inactive.mean());
    let throughout = match window.has_lists() {
        true => sums.kept_inactive,
        // None began and none ended: they are the same.
        false if started == 0 && ended == 0 => sums.least_inactive.unwrap_or(0),
        false => 0,
    };
    if throughout >= MIN_ENDLESS && throughout as f64 >= MIN_ENDLESS_SHARE * open {
        return leak(window, throughout, (started, ended));
    }
    let seconds = window.lasts().as_secs_f64().max(1e-3);
    // By Little's law: how many pause at a time, over how many come in that time, is how long each pauses, all its
    // pauses together.
    let pause = inactive / (started.max(1) as f64 / seconds) * 1e3;
    let is_long = match (window.has_lists(), sums.pauses) {
        // All pauses that were seen twice had just begun, so their length is unknown.
        (true, 0) => !sums.seen_again && sums.longest_ms >= SEEN_PAUSE_MS,
        (true, pauses) => sums.lasting as f64 >= MIN_LASTING_SHARE * pauses as f64,
        (false, _) => started > 0,
    };
    if sums.inactive.share() < MIN_LOOK_SHARE
        || inactive < MIN_PAUSING_SHARE * open
        || inactive < MAX_LONE_SESSIONS
        || pause < LONG_PAUSE_MS
        || !is_long
    {
        return Verdict::Absent;
    }
    let longest = match (window.has_lists(), sums.pauses) {
        (true, 0) => format!("; the pauses of one came to {}", time(sums.longest_ms)),
        (true, pauses) => format!("; {} of {pauses} pauses that were seen had gone on for 0.1 s or more", sums.lasting),
        (false, _) => String::new(),
    };
    Verdict::Present(Finding {
        symptom: Symptom::TransactionsLeftOpen,
        of: whose(window),
        evidence: vec![
            format!(
                "{} of the open transactions had no command under way: {inactive:.1} of {open:.1} on average",
                percent(inactive / open.max(1e-9))
            ),
            format!("{started} transactions began meanwhile, so each paused for {} altogether{longest}", time(pause)),
        ],
        rules_out: format!(
            "the commands are not slow: {:.1} transactions on average had one under way",
            (open - inactive).max(0.0)
        ),
        setting: None,
        advice: "Commit or abort before calling other services, and let the driver's helper (withTransaction) keep transactions short. Where \
                 the application lacks processors, or is far away (each command is a round trip), that is the pause. Each holds its locks and \
                 keeps old versions of documents in the cache until it ends."
            .to_owned(),
    })
}

/// Who has the most that pause for long.
fn whose(window: &MongoWindow) -> String {
    let most = window.origins().max_by_key(|(_, own)| own.paused).filter(|(_, own)| own.paused > 0);
    most.map_or_else(|| super::UNKNOWN_CLIENTS.to_owned(), |(origin, _)| origin.name())
}

fn leak(window: &MongoWindow, throughout: u64, (started, ended): (u64, u64)) -> Verdict {
    let limit = window.ends().and_then(|(_, last)| last.transaction_lifetime_s);
    let since = match window.has_lists() {
        true => format!("the pauses of one have come to {}", time(window.sums.longest_ms)),
        false => "none of them is told apart from the others, but none ended".to_owned(),
    };
    Verdict::Present(Finding {
        symptom: Symptom::Leak,
        of: whose(window),
        evidence: vec![
            format!("{throughout} transactions were open throughout, and nothing was asked in them"),
            format!("{started} other transactions began meanwhile, and {ended} ended; {since}"),
        ],
        rules_out: "transactions that are slow would have a command under way, or come to an end: these do neither"
            .to_owned(),
        setting: limit.is_none_or(|seconds| seconds > PROPOSED_LIFETIME_S).then(|| Setting {
            key: SERVER_SETTING,
            from: limit.map(|seconds| seconds.to_string()),
            to: PROPOSED_LIFETIME_S.to_string(),
        }),
        advice: format!(
            "Find where the application leaves without a commit or an abort. {}, with an error for who left them; until then they keep their locks.",
            match limit {
                Some(seconds) if seconds <= PROPOSED_LIFETIME_S => {
                    format!("{SERVER_SETTING} is {seconds} already, and ends such transactions after that time")
                }
                Some(seconds) => format!("The server's parameter ends such transactions, now after {seconds} s"),
                None => {
                    "The server's parameter ends such transactions (after 60 s where it is not set)".to_owned()
                }
            }
        ),
    })
}
