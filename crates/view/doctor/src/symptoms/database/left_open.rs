//! Open transactions without a statement: some go on after a pause, and some are never ended.

use admin_api::Activity;

use super::{PAUSES, Verdict, percent, time};
use crate::{
    database::{DatabaseWindow, Origin, OriginWindow},
    finding::{Finding, Setting, Symptom, setting_time},
};

/// The server's own limit on such pauses.
const SERVER_SETTING: &str = "idle_in_transaction_session_timeout";
/// Connections that stay in a transaction throughout the window, at least.
const MIN_ENDLESS: u64 = 2;
/// The same as a share of the connections of their origin.
const MIN_ENDLESS_SHARE: f64 = 0.5;
/// The share of looks at which a connection pauses for long.
const MIN_LOOK_SHARE: f64 = 0.3;
/// The share of connections that are not idle, but pause in a transaction.
const MIN_PAUSING_SHARE: f64 = 0.5;
/// The share of connections that are not idle, but pause for long.
const MIN_LONG_PAUSE_SHARE: f64 = 0.2;
/// On average fewer pausing connections than this are one alone, which may be a person who works by hand.
const MAX_LONE_SESSIONS: f64 = 1.5;
/// A lone connection must pause for this long.
const MIN_LONE_PAUSE_MS: f64 = 60_000.0;
/// A limit that breaks overlong pauses is proposed only if at most this share of the pauses is overlong.
const MAX_OVERLONG_SHARE: f64 = 0.1;
/// The proposed limit where transactions are never ended.
const LEAK_LIMIT_MS: f64 = 30_000.0;
/// The proposed limit where few pauses are overlong.
const OVERLONG_LIMIT_MS: f64 = 5_000.0;

pub(super) fn examine(window: &DatabaseWindow) -> Vec<Verdict> {
    window.origins().map(|(origin, own)| of_origin(window, origin, own)).collect()
}

fn of_origin(window: &DatabaseWindow, origin: &Origin, own: &OriginWindow) -> Verdict {
    let Some((_, last)) = window.ends() else { return Verdict::Absent };
    let lasts = window.lasts().as_millis() as f64;
    // Not by the last look alone: a clock that was set makes long pauses of short ones.
    let kept = window.paused_throughout().filter(|backend| origin.is_of(backend) && backend.state_ms >= lasts);
    let (kept, since, pause) = kept.fold((0, 0.0_f64, 0.0_f64), |(n, ms, pause), backend| {
        (n + 1, ms.max(backend.transaction_ms.unwrap_or(0.0)), pause.max(backend.state_ms))
    });
    let locked = window.all().locked.mean();
    let victims = match window.all().locked.share() {
        share if share > 0.0 => {
            format!("other sessions waited for locks at {} of the looks, {locked:.1} on average", percent(share))
        }
        _ => format!("its connections are {} of {}", own.now, (last.backends.len() as u64).saturating_add(last.hidden)),
    };
    if kept >= MIN_ENDLESS && kept as f64 >= MIN_ENDLESS_SHARE * own.now as f64 {
        return Verdict::Present(Finding {
            symptom: Symptom::Leak,
            of: origin.name(),
            evidence: vec![
                format!(
                    "{kept} of its {} connections were in the same transaction throughout, and nothing was asked of them",
                    own.now
                ),
                format!("the oldest of these transactions began {} ago", time(since)),
                victims,
            ],
            rules_out:
                "transactions that are slow would have a statement under way, or come to an end: these do neither"
                    .to_owned(),
            setting: shorter(last, LEAK_LIMIT_MS),
            advice: format!(
                "Find where the application leaves without COMMIT or ROLLBACK. Such a transaction keeps its locks, and what it can see \
                 cannot be vacuumed. {}",
                ends(last, LEAK_LIMIT_MS, pause)
            ),
        });
    }
    paused(last, origin, own, victims)
}

/// The limit, unless the server has one that is as short.
fn shorter(server: &Activity, to_ms: f64) -> Option<Setting> {
    let from = server.transaction_idle_ms;
    let shorter = from.is_none_or(|ms| ms > to_ms);
    shorter.then(|| Setting { key: SERVER_SETTING, from: from.map(setting_time), to: setting_time(to_ms) })
}

/// What ends a transaction that is left, the longest of which has paused for so long.
fn ends(server: &Activity, to_ms: f64, paused_ms: f64) -> String {
    match server.transaction_idle_ms.filter(|ms| *ms <= to_ms) {
        Some(ms) if paused_ms > ms => format!(
            "{SERVER_SETTING} is {} already, and these transactions outlast it: their database, user or session sets it otherwise (`\\drds` of psql \
             shows the first two).",
            setting_time(ms)
        ),
        Some(ms) => {
            format!(
                "{SERVER_SETTING} is {} already, and ends them once they have paused for so long.",
                setting_time(ms)
            )
        }
        None => "The setting, of the database or of the user, ends it, with an error for who left it.".to_owned(),
    }
}

fn paused(server: &Activity, origin: &Origin, own: &OriginWindow, victims: String) -> Verdict {
    let sums = &own.sums;
    let of_busy = |level: &crate::database::Level| level.sum() as f64 / sums.busy.sum().max(1) as f64;
    let (pausing, long) = (of_busy(&sums.pausing), of_busy(&sums.long_pausing));
    let alone = sums.long_pausing.mean() < MAX_LONE_SESSIONS && sums.longest_pause_ms < MIN_LONE_PAUSE_MS;
    if sums.long_pausing.share() < MIN_LOOK_SHARE || pausing < MIN_PAUSING_SHARE || long < MIN_LONG_PAUSE_SHARE || alone
    {
        return Verdict::Absent;
    }
    let longest = sums.longest_pause_ms;
    let overlong = sums.overlong_pausing.sum();
    let are_few = overlong > 0 && overlong as f64 <= MAX_OVERLONG_SHARE * sums.pausing.sum() as f64;
    Verdict::Present(Finding {
        symptom: Symptom::TransactionsLeftOpen,
        of: origin.name(),
        evidence: vec![
            format!(
                "{} of its connections that were not idle had nothing asked of them, within a transaction: {:.1} of {:.1} on average",
                percent(pausing),
                sums.pausing.mean(),
                sums.busy.mean()
            ),
            format!(
                "at {} of the looks some had paused for over 200 ms; the longest pause was {}",
                percent(sums.long_pausing.share()),
                time(longest)
            ),
            victims,
        ],
        rules_out: format!(
            "the statements are not slow: {:.1} connections on average had one under way",
            sums.working.mean()
        ),
        // A limit below what applications pause now would break them; one that only few of them exceed ends those.
        setting: if are_few { shorter(server, OVERLONG_LIMIT_MS) } else { None },
        advice: format!(
            "{PAUSES} Without the pauses {:.0} connections suffice for the same work, where {} are taken up now.",
            sums.working.mean().ceil().max(1.0),
            sums.busy.most
        ),
    })
}
