//! Drivers' pools close idle connections, and make them again for the next burst. Seen only where a window has several
//! of both, and little else is asked in between: the server does not tell for how long a connection has been idle.

use super::{Verdict, made, most_coming, time};
use crate::{
    finding::{Finding, Setting, Symptom},
    mongodb::MongoWindow,
};

/// Connections that came anew, at least.
const MIN_CONNECTIONS: u64 = 10;
/// How often the number of connections must fall to half after a quiet time: a deployment does that once.
const MIN_FALLS: u64 = 3;
/// The same as a share of all falls.
const MIN_FALL_SHARE: f64 = 0.5;
/// From this many connections an operation on, clients that connect each time are the reason.
const MAX_PER_OPERATION: f64 = 0.2;

pub(super) fn examine(window: &MongoWindow) -> Verdict {
    let Some((came, asked)) = made(window) else { return Verdict::Absent };
    let sums = &window.sums;
    let falls = sums.idle_falls;
    let ratio = came as f64 / asked.max(1) as f64;
    if came < MIN_CONNECTIONS
        || falls < MIN_FALLS
        || (falls as f64) < MIN_FALL_SHARE * sums.swings.falls as f64
        || ratio > MAX_PER_OPERATION
    {
        return Verdict::Absent;
    }
    let needed = super::busy(window).map_or(2, |level| level.most).clamp(2, sums.fell_from.max(2));
    Verdict::Present(Finding {
        symptom: Symptom::IdleChurn,
        of: most_coming(window),
        evidence: vec![
            format!(
                "the number of connections fell from up to {} to half or less {falls} times, each time after half a second in which hardly \
                 anything was asked",
                sums.fell_from
            ),
            format!("{came} connections were made anew in {}", time(window.lasts().as_millis() as f64)),
        ],
        rules_out: format!(
            "clients do not connect for each operation: {came} connections were made for {asked} operations. And a deployment closes its \
             connections once"
        ),
        setting: Some(Setting { key: "minPoolSize", from: None, to: needed.to_string() }),
        advice: format!(
            "Let the driver's pool keep as many connections as a burst needs (minPoolSize; {needed} had work at once), or make its maxIdleTimeMS \
             longer than the longest quiet time between bursts. Each connection that is made costs a login."
        ),
    })
}
