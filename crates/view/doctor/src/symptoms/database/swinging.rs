//! An application's pool closes idle connections, and makes them again for the next burst. Seen only where a window has
//! several of both.

use super::{Verdict, time};
use crate::{
    database::{DatabaseWindow, Origin, OriginWindow},
    finding::{Finding, Setting, Symptom},
};

/// Connections closed after they had been idle, at least.
const MIN_IDLE_CLOSES: u64 = 10;
/// The same as a share of all closed connections.
const MIN_IDLE_CLOSE_SHARE: f64 = 0.5;
/// How often the number of connections must fall to half: a deployment does that once.
const MIN_FALLS: u64 = 3;

pub(super) fn examine(window: &DatabaseWindow) -> Vec<Verdict> {
    window.origins().map(|(origin, own)| of_origin(window, origin, own)).collect()
}

fn of_origin(window: &DatabaseWindow, origin: &Origin, own: &OriginWindow) -> Verdict {
    if own.went_idle < MIN_IDLE_CLOSES
        || own.came < MIN_IDLE_CLOSES
        || (own.went_idle as f64) < MIN_IDLE_CLOSE_SHARE * own.went as f64
        || own.swings.falls < MIN_FALLS
    {
        return Verdict::Absent;
    }
    let idle = own.idle_before_ms / own.went_idle as f64;
    let most = own.sums.sessions.most;
    let needed = own.sums.busy.most.max(2);
    Verdict::Present(Finding {
        symptom: Symptom::IdleChurn,
        of: origin.name(),
        evidence: vec![
            format!(
                "{} of the {} connections that went had been idle for {} on average when they were last seen; {} came anew in {}",
                own.went_idle,
                own.went,
                time(idle),
                own.came,
                time(window.lasts().as_millis() as f64)
            ),
            format!("their number rose to up to {most} and fell to half or less {} times", own.swings.falls),
        ],
        rules_out: "clients do not connect for each transaction: these connections went after they had been idle, not after their work. And a \
                    deployment closes them once"
            .to_owned(),
        setting: Some(Setting { key: "min_size", from: None, to: needed.to_string() }),
        advice: format!(
            "Let the application's pool keep as many connections as a burst needs ({needed} had work at once), or make its idle limit longer \
             than the longest quiet time between bursts. The setting is Poolhouse's; HikariCP calls it minimumIdle, MongoDB's drivers \
             minPoolSize."
        ),
    })
}
