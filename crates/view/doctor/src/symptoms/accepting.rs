//! Clients come, and the system lets Poolhouse accept none.

use super::Verdict;
use crate::{
    finding::{Finding, Symptom},
    window::Window,
};

pub(super) fn examine(window: &Window) -> Verdict {
    let (Some(change), Some((_, last))) = (window.change(), window.ends()) else { return Verdict::Absent };
    if change.accepts_failed == 0 {
        return Verdict::Absent;
    }
    let here = admin_api::sum(&last.listeners.iter().map(|listener| listener.clients.total()).collect::<Vec<_>>());
    let most = admin_api::sum(&last.listeners.iter().map(|listener| listener.hard_limit).collect::<Vec<_>>());
    Verdict::Present(Finding {
        symptom: Symptom::NotAccepted,
        of: "all listeners".to_owned(),
        evidence: vec![
            format!("{} times the system refused to accept a client that had come", change.accepts_failed),
            format!("{here} clients are connected, and hard_limit allows {most}"),
        ],
        rules_out: "this is not hard_limit: a client that it turns away is told so, and these wait without a word".to_owned(),
        setting: None,
        advice: "The log has the error (cannot accept clients). If it is of too many open files, raise the limit of file descriptors \
                 (LimitNOFILE of the service, `ulimit -n`), or lower hard_limit."
            .to_owned(),
    })
}
