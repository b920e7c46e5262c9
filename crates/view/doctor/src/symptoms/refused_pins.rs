//! Sessions that need a server of their own beyond their transactions, and get none.

use super::{Verdict, format_reasons};
use crate::{
    finding::{Finding, Symptom},
    pooler::PoolWindow,
};

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let refused = admin_api::sum(pool.change.pins_refused.values());
    if refused == 0 {
        return Verdict::Absent;
    }
    let pinned = match format_reasons(&pool.last.pinned) {
        none if none.is_empty() => "none is kept at the end".to_owned(),
        pinned => format!("kept by sessions at the end: {pinned}"),
    };
    Finding::new(Symptom::PinsRefused, pool.name())
        .evidence(format!(
            "{refused} times a session needed a server beyond its transaction and got none, as max_pinned had one: {}",
            format_reasons(&pool.change.pins_refused)
        ))
        .evidence(format!("{pinned}, of at most {} servers", pool.size()))
        .rules_out("the pool is not too small for transactions: what is refused is to keep a server after them")
        .advice(
            "Clients get an error for it (SQLSTATE 53400 of PostgreSQL). Raise max_pinned, and max_size with it; or \
             give the clients that need this a database with mode = \"session\"; or change what they do: the word is \
             why (docs/postgresql.md).",
        )
        .into()
}
