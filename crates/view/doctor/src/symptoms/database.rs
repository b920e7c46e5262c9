//! What a database alone tells. It sees connections and what they do, and not who waits for one: whether a pool is too
//! small it cannot tell.

mod added_up;
mod connecting;
mod kept;
mod left_open;
pub(super) mod saturated;
mod swinging;
mod vanished;

use super::{PAUSES, Verdict, nested, percent, time};
use crate::database::DatabaseWindow;

/// What is known of each symptom.
pub(crate) fn examine(window: &DatabaseWindow) -> Vec<Verdict> {
    let mut verdicts = vec![connecting::examine(window)];
    let held = left_open::examine(window);
    // Who holds locks for nothing is why others wait for them.
    let is_held = held.iter().any(|verdict| !matches!(verdict, Verdict::Absent));
    verdicts.extend(held);
    verdicts.push(saturated::examine(window, is_held));
    verdicts.push(kept::examine(window));
    verdicts.push(added_up::examine(window));
    verdicts.extend(swinging::examine(window));
    verdicts.push(nested::of_database(window));
    verdicts.extend(vanished::examine(window));
    verdicts
}

/// What could not be seen, and who can see it.
pub(crate) fn unseen(window: &DatabaseWindow) -> Vec<String> {
    let Some((_, last)) = window.ends() else { return Vec::new() };
    let mut unseen = vec![
        "whether clients wait for a connection, in a pool of their own or in a pooler: only that one can tell (a pool that is too small)"
            .to_owned(),
    ];
    unseen.push(
        "clients that are refused, and logins that take long, as after an outage: its views show sessions after their login only".to_owned(),
    );
    if last.is_pooled {
        unseen.push(
            "the pooler that answers at this address: it is the database behind it that was looked at. `poolhouse doctor http://ADMIN` looks at \
             a Poolhouse, postgres://.../pgbouncer at a PgBouncer"
                .to_owned(),
        );
    }
    if last.hidden > 0 {
        unseen.push(format!(
            "what {} connections of other users do, or of all where track_activities is off: GRANT pg_monitor TO the user that looks, or \
             track_activities = on, would show it",
            last.hidden
        ));
    }
    if last.left_out > 0 {
        unseen.push(format!(
            "{} connections beyond the first {}, and so which of all of them come and go",
            last.left_out,
            last.backends.len()
        ));
    }
    if last.sessions.is_none() {
        unseen.push(
            "connections that came and went between two looks: PostgreSQL counts them from version 14 on".to_owned(),
        );
    }
    if last.processors.is_none() {
        unseen.push(format!(
            "whether its processors are busy: {:.1} sessions on average were ready to run, and --processors says on how many",
            window.all().ready.mean()
        ));
    }
    unseen
}
