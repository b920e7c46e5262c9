//! Sessions that need a server of their own beyond their transactions, and get none.

use super::Verdict;
use crate::{
    finding::{Finding, Symptom},
    window::PoolWindow,
};

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let refused = admin_api::sum(pool.change.pins_refused.values());
    if refused == 0 {
        return Verdict::Absent;
    }
    let listed = |counts: &admin_api::Counts| {
        let of = counts.iter().filter(|(_, count)| **count > 0).map(|(why, count)| format!("{count} for {why}"));
        of.collect::<Vec<_>>().join(", ")
    };
    let kept = match listed(&pool.last.pinned) {
        none if none.is_empty() => "none is kept at the end".to_owned(),
        kept => format!("kept by sessions at the end: {kept}"),
    };
    Verdict::Present(Finding {
        symptom: Symptom::PinsRefused,
        of: pool.name(),
        evidence: vec![
            format!(
                "{refused} times a session needed a server beyond its transaction and got none, as max_pinned had one: {}",
                listed(&pool.change.pins_refused)
            ),
            format!("{kept}, of at most {} servers", pool.size()),
        ],
        rules_out: "the pool is not too small for transactions: what is refused is to keep a server after them".to_owned(),
        setting: None,
        advice: "Clients get an error for it (SQLSTATE 53400 of PostgreSQL). Raise max_pinned, and max_size with it; or give the clients that \
                 need this a database with mode = \"session\"; or change what they do: the word is why (docs/postgresql.md)."
            .to_owned(),
    })
}
