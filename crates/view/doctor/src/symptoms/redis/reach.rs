//! A server that answers but serves no client, because it loads its data; or a replica that has lost its primary.

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Symptom},
    redis::RedisWindow,
};

/// The share of looks at which that holds: a single look may meet a restart by chance.
const MIN_LOOK_SHARE: f64 = 0.5;

pub(super) fn examine(window: &RedisWindow) -> Verdict {
    let Some((first, last)) = window.ends() else { return Verdict::Absent };
    let commands = last.commands.saturating_sub(first.commands);
    let connected = format!(
        "{} clients were connected at the end, and {commands} commands were carried out in {}",
        last.connected,
        time(window.lasts().as_millis() as f64)
    );
    if window.loading() >= MIN_LOOK_SHARE {
        return Verdict::Present(Finding {
            symptom: Symptom::OutOfReach,
            of: "the whole server".to_owned(),
            evidence: vec![
                format!("it was reading its data from the disk at {} of the looks: it answers LOADING meanwhile", percent(window.loading())),
                connected,
            ],
            rules_out: "its connections are not used up, and it is not slow: it serves nobody at all".to_owned(),
            setting: None,
            advice: "Wait until it has read its data (INFO persistence tells how much is left), and let clients wait and try again meanwhile; a \
                     replica would have taken over."
                .to_owned(),
        });
    }
    let Some(down) = last.link_down_s.filter(|_| window.cut_off() >= MIN_LOOK_SHARE) else { return Verdict::Absent };
    Verdict::Present(Finding {
        symptom: Symptom::OutOfReach,
        of: "its primary".to_owned(),
        evidence: vec![
            format!(
                "it is a replica, and had no connection to its primary at {} of the looks{}",
                percent(window.cut_off()),
                if down > 0.0 { format!(", for {} by now", time(down * 1e3)) } else { String::new() }
            ),
            connected,
        ],
        rules_out: "it is not out of reach itself: it answers, with old data, or MASTERDOWN where replica-serve-stale-data is no".to_owned(),
        setting: None,
        advice: "Look at the primary, and at what lies between: until they meet, what is written there is not read here.".to_owned(),
    })
}
