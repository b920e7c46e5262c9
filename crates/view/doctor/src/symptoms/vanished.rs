//! Clients that vanish without a goodbye, or are frozen: a Poolhouse that sends them away sees that they do not end
//! their side in turn.

use admin_api::{Counts, Pooler};

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Symptom, setting_time},
    window::Window,
};

/// Reasons for which idle clients are evicted. For other reasons clients are evicted in the middle of work, or all of
/// them.
const SILENT_EVICTIONS: [&str; 2] = ["soft_limit", "client_idle_time"];
/// Clients in the window that did not answer, at least.
const MIN_UNANSWERED: u64 = 5;
/// The same as a share of all idle clients evicted since the start.
const MIN_UNANSWERED_SHARE: f64 = 0.5;

pub(super) fn examine(window: &Window) -> Verdict {
    let (Some(change), Some(look)) = (window.change(), window.look()) else { return Verdict::Absent };
    let silent = |counts: &Counts| admin_api::sum(SILENT_EVICTIONS.iter().filter_map(|reason| counts.get(*reason)));
    let all = |of: fn(&admin_api::Listener) -> &Counts| {
        admin_api::sum(&look.listeners.iter().map(|listener| silent(of(listener))).collect::<Vec<_>>())
    };
    let now = silent(&change.unanswered);
    let (unanswered, sent) = (all(|listener| &listener.unanswered), all(|listener| &listener.evictions));
    let share = unanswered as f64 / sent.max(1) as f64;
    if look.pooler != Pooler::Poolhouse || now < MIN_UNANSWERED || share < MIN_UNANSWERED_SHARE {
        return Verdict::Absent;
    }
    let accepted = admin_api::sum(look.listeners.iter().map(|listener| &listener.accepted));
    let here = admin_api::sum(&look.listeners.iter().map(|listener| listener.clients.total()).collect::<Vec<_>>());
    let gone = accepted.saturating_sub(here).max(sent);
    let sooner = match look.pools.iter().filter_map(|pool| pool.settings.client_idle_time).reduce(f64::max) {
        Some(ms) => format!("a client_idle_time below the {} that are in force", setting_time(ms)),
        None => "a client_idle_time".to_owned(),
    };
    Verdict::Present(Finding {
        symptom: Symptom::Zombies,
        of: "all listeners".to_owned(),
        evidence: vec![
            format!(
                "{now} clients that were sent away for their silence did not end their side of the connection within 5 s, in {}; since the \
                 start {unanswered} of {sent} ({})",
                time(window.lasts().as_millis() as f64),
                percent(share)
            ),
            format!(
                "of {gone} clients that have gone since the start, {sent} did not leave by themselves but were sent away ({})",
                percent(sent as f64 / gone.max(1) as f64)
            ),
        ],
        rules_out: "these are no idle clients that live: those end their side within a round trip".to_owned(),
        setting: None,
        advice: format!(
            "Whether their hosts are gone, or processes are frozen that will come back, cannot be told from here. Functions that a \
                 platform freezes need a client_idle_time longer than they are kept frozen (310s for most), or they come back to a connection \
                 that has ended. Where hosts vanish, Poolhouse gives up their places by itself; {sooner} makes that sooner."
        ),
    })
}
