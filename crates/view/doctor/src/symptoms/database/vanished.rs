//! Sessions whose client may be gone: their answer is not read, or their application has restarted without them. The
//! database cannot tell them from a slow client, or from a connection that is kept and not used.

use admin_api::Backend;

use super::{Verdict, time};
use crate::{
    database::{DatabaseWindow, Origin},
    finding::{Symptom, Undecided},
};

/// Such sessions, at least: a single one may be a terminal.
const MIN_SESSIONS: usize = 2;
/// How long the client has not read an answer.
const MIN_UNREAD_MS: f64 = 10_000.0;
/// How long a session has been idle, while all other sessions of its origin began later.
const MIN_FORGOTTEN_IDLE_MS: f64 = 3_600_000.0;

pub(super) fn examine(window: &DatabaseWindow) -> Vec<Verdict> {
    let mut verdicts = vec![not_taken(window)];
    verdicts.extend(window.origins().map(|(origin, _)| forgotten(window, origin)));
    verdicts
}

fn not_taken(window: &DatabaseWindow) -> Verdict {
    let stuck = window.not_taken_throughout().filter(|backend| backend.state_ms >= MIN_UNREAD_MS);
    let stuck: Vec<_> = stuck.collect();
    let Some(longest) =
        stuck.iter().map(|backend| backend.state_ms).reduce(f64::max).filter(|_| stuck.len() >= MIN_SESSIONS)
    else {
        return Verdict::Absent;
    };
    let first = Origin::of(stuck[0]).name();
    Verdict::Undecided(Undecided {
        between: vec![Symptom::Zombies],
        of: "the whole server".to_owned(),
        seen: vec![
            format!("{} sessions waited at every look for their client to take an answer; one of them is {first}", stuck.len()),
            format!("the longest of these statements began {} ago", time(longest)),
        ],
        needs: "whether these clients live and read slowly, or are frozen or gone: `ss -tnoi` at the database's host shows a growing timer and \
                bytes that nobody acknowledges where they are gone. tcp_user_timeout, and client_connection_check_interval for long statements, \
                end the sessions of those."
            .to_owned(),
    })
}

fn forgotten(window: &DatabaseWindow, origin: &Origin) -> Verdict {
    let Some((_, last)) = window.ends() else { return Verdict::Absent };
    // A session that has been idle for longer than it exists has times of a clock that was set, or compressed ones.
    let is_sound = |backend: &&Backend| backend.state_ms <= backend.age_ms;
    let own =
        last.backends.iter().filter(|backend| origin.is_of(backend) && !backend.address.is_empty()).filter(is_sound);
    let (old, young): (Vec<_>, Vec<_>) =
        own.partition(|backend| backend.state == "idle" && backend.state_ms >= MIN_FORGOTTEN_IDLE_MS);
    let (Some(least), Some(eldest)) = (
        old.iter().map(|backend| backend.state_ms).reduce(f64::min),
        young.iter().map(|backend| backend.age_ms).reduce(f64::max),
    ) else {
        return Verdict::Absent;
    };
    if old.len() < MIN_SESSIONS || eldest >= least {
        return Verdict::Absent;
    }
    Verdict::Undecided(Undecided {
        between: vec![Symptom::Zombies],
        of: origin.name(),
        seen: vec![
            format!("{} of its sessions have been idle for at least {}", old.len(), time(least)),
            format!("its {} others all began after that, the first of them {} ago, as if the application had been started anew", young.len(), time(eldest)),
        ],
        needs: "whether that address still has these connections (`ss -tn` there): if not, their application is gone and has not said so. \
                tcp_keepalives_idle = 60 lets the database find that out within minutes; until then each takes a connection."
            .to_owned(),
    })
}
