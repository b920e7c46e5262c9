//! Clients come, and the system lets Poolhouse accept none.

use super::{ALL_LISTENERS, Verdict};
use crate::{
    finding::{Finding, Symptom},
    pooler::PoolerWindow,
};

pub(super) fn examine(window: &PoolerWindow) -> Verdict {
    let (Some(change), Some(last)) = (window.change(), window.last()) else { return Verdict::Absent };
    if change.accepts_failed == 0 {
        return Verdict::Absent;
    }
    let hard_limit = admin_api::sum(last.listeners.iter().map(|listener| &listener.hard_limit));
    Finding::new(Symptom::NotAccepted, ALL_LISTENERS)
        .evidence(format!("{} times the system refused to accept a client that had come", change.accepts_failed))
        .evidence(format!("{} clients are connected, and hard_limit allows {hard_limit}", last.clients()))
        .rules_out("this is not hard_limit: a client that it turns away is told so, and these wait without a word")
        .advice(
            "The log has the error (cannot accept clients). If it is of too many open files, raise the limit of file \
             descriptors (LimitNOFILE of the service, `ulimit -n`), or lower hard_limit.",
        )
        .into()
}
