//! What is said of a pool that is too small: the size that the load seen wanted, and what has not been seen.

use admin_api::Pooler;

use super::{MAX_GROWTH, Verdict};
use crate::{
    finding::{Finding, Key, Setting, Symptom},
    pooler::PoolWindow,
};

/// The pool may have more servers, and the database can do with them.
pub(super) fn pool_too_small(pool: &PoolWindow<'_>, evidence: Vec<String>, rules_out: String) -> Verdict {
    let max = pool.last.max_size;
    // By Little's law the servers in use and the waiting clients are what would be in use if no client waited. Where
    // clients wait for an answer before they ask again, there will be fewer.
    let wanted = pool.mean(|step| step.is_exhausted().then_some(step.wanted() as f64)).unwrap_or(max as f64);
    let to = (wanted.ceil() as u64).min(max.saturating_mul(MAX_GROWTH)).max(max.saturating_add(1));
    let setting = Setting { key: pool.key(Key::MaxSize), from: Some(max.to_string()), to: to.to_string() };
    let is_tuned = pool.last.tuning.is_some();
    let tuning = match is_tuned {
        true => {
            " max_size = \"auto\" is in force and tries larger sizes by itself, up to auto_max_size: raise that if it \
             is reached."
        }
        false => "",
    };
    Finding::new(Symptom::PoolTooSmall, pool.name())
        .all_evidence(evidence)
        .rules_out(rules_out)
        // The tuner sets a size that is tuned.
        .setting((!is_tuned).then_some(setting))
        .advice(format!(
            "At the load seen {wanted:.0} clients had or wanted a server at once.{tuning}{} Look again after the \
             change: \
             what the database does with more connections has not been seen. `poolhouse sweep` measures it, and its \
             own \
             limit must allow them.",
            advise_on_pauses(pool)
        ))
        .into()
}

/// A driver's pool does not tell whether a connection that is taken has anything to do.
fn advise_on_pauses(pool: &PoolWindow<'_>) -> &'static str {
    match pool.pooler {
        Pooler::HikariCp => {
            " Ask the database first (`poolhouse doctor postgres://...`): if threads keep connections while they do \
             something else, a larger pool only hides that."
        }
        Pooler::MongoDriver => {
            " Ask the database first (`poolhouse doctor mongodb://...`): if connections are kept while nothing is \
             asked, \
             a larger pool only hides that."
        }
        Pooler::Poolhouse | Pooler::PgBouncer => "",
    }
}
