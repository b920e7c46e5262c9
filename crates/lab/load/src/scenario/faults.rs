//! `[[fault]]`: what goes wrong on the way to the target.

use arrivals::{Fault, Window};
use settings::Section;

use crate::plan;

/// Faults that a run may have.
const MAX_FAULTS: usize = 32;

const KEYS: &[&str] = &["kind", "delay", "jitter", "first", "length", "every", "idle"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Delay,
    Stall,
    BlackHole,
    Forget,
    Cut,
}

/// Reads the faults of a file, a variant, or the published durations.
pub(super) fn read(section: &Section<'_>) -> Vec<Fault> {
    let tables = section.tables("fault", &[KEYS]);
    if tables.len() > MAX_FAULTS {
        section.error("fault", format!("more than {MAX_FAULTS} faults"));
        return Vec::new();
    }
    tables.iter().filter_map(fault).collect()
}

fn fault(section: &Section<'_>) -> Option<Fault> {
    let kinds = [
        ("delay", Kind::Delay),
        ("stall", Kind::Stall),
        ("black-hole", Kind::BlackHole),
        ("forget", Kind::Forget),
        ("cut", Kind::Cut),
    ];
    let kind = match section.choice("kind", &kinds) {
        Some(kind) => kind,
        None => {
            if !section.has("kind") {
                section
                    .error("", "[[fault]] needs a `kind`: \"delay\", \"stall\", \"black-hole\", \"forget\" or \"cut\"");
            }
            return None;
        }
    };
    let name = kinds.iter().find(|(_, other)| *other == kind).map_or("", |(name, _)| name);
    let may_have: &[&'static str] = match kind {
        Kind::Delay => &["delay", "jitter"],
        Kind::Stall => &["delay", "first", "length", "every"],
        Kind::BlackHole => &["first", "length", "every"],
        Kind::Forget => &["idle"],
        Kind::Cut => &["first", "every"],
    };
    for key in KEYS.iter().copied().filter(|key| *key != "kind" && section.has(key) && !may_have.contains(key)) {
        section.error(key, format!("a fault of the kind \"{name}\" has no `{key}`"));
    }
    let delay = section.duration_on("delay");
    if delay.is_none() && may_have.contains(&"delay") && !section.has("delay") {
        section.error("", format!("a fault of the kind \"{name}\" needs a `delay`"));
    }
    match kind {
        Kind::Delay => Some(Fault::Delay { delay: delay?, jitter: section.duration_on("jitter").unwrap_or_default() }),
        Kind::Stall => Some(Fault::Stall { delay: delay?, window: window(section, name)? }),
        Kind::BlackHole => Some(Fault::BlackHole { window: window(section, name)? }),
        Kind::Forget => {
            if !section.has("idle") {
                section.error(
                    "",
                    "a fault of the kind \"forget\" needs an `idle`: for how long a connection may be silent",
                );
            }
            Some(Fault::Forget { idle: section.duration_on("idle")? })
        }
        Kind::Cut => {
            let (first, every) = (section.duration_on("first"), section.duration_on("every"));
            if first.is_none() && every.is_none() {
                section.error("", "a cut needs `first` or `every`");
            }
            Some(Fault::Cut { window: plan::cut(first, every) })
        }
    }
}

fn window(section: &Section<'_>, kind: &str) -> Option<Window> {
    let every = section.duration_on("every");
    let length = section.duration_on("length");
    if !section.has("length") {
        section.error("", format!("a fault of the kind \"{kind}\" needs a `length`"));
    }
    plan::window(section.duration_on("first"), length?, every).map_err(|message| section.error("every", message)).ok()
}
