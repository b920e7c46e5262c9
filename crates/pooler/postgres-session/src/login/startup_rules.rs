//! Which start-up parameters of a client are applied, ignored, or refused, as its listener is configured.

use crate::{ListenerRules, wire::startup::Start};

/// The parameter that other parameters may be in.
const OPTIONS: &str = "options";

/// A start-up parameter that the listener's clients may not send.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct NotAllowed {
    pub(super) name: String,
    /// It was in `options`.
    pub(super) in_options: bool,
}

/// Drops the settings that are ignored. Those of replication connections are all applied.
pub(super) fn restrict(start: &mut Start, rules: &ListenerRules) -> Result<(), NotAllowed> {
    let is_in = |names: &[String], name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if start.replication.is_some() || (rules.allowed_parameters.is_none() && rules.ignored_parameters.is_empty()) {
        return Ok(());
    }
    let ignores_options = is_in(&rules.ignored_parameters, OPTIONS);
    let mut kept = Vec::with_capacity(start.settings.len());
    for (at, (name, value)) in std::mem::take(&mut start.settings).into_iter().enumerate() {
        let in_options = at < start.settings_of_options;
        if is_in(&rules.ignored_parameters, &name) {
            continue;
        }
        if rules.allowed_parameters.as_ref().is_none_or(|allowed| is_in(allowed, &name)) {
            kept.push((name, value));
        } else if !(in_options && ignores_options) {
            return Err(NotAllowed { name, in_options });
        }
    }
    start.settings = kept;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Start {
        let pair = |name: &str| (name.to_owned(), "x".to_owned());
        Start { settings: ["a", "B", "c"].map(pair).to_vec(), settings_of_options: 1, ..Start::default() }
    }

    fn outcome(allowed: Option<&[&str]>, ignored: &[&str], mut start: Start) -> Result<Vec<String>, NotAllowed> {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (allowed_parameters, ignored_parameters) = (allowed.map(list), list(ignored));
        let rules = ListenerRules { allowed_parameters, ignored_parameters, ..ListenerRules::default() };
        restrict(&mut start, &rules).map(|()| start.settings.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn parameters_are_applied_ignored_or_refused_by_name() {
        assert_eq!(outcome(None, &[], start()).unwrap(), ["a", "B", "c"]);
        assert_eq!(outcome(None, &["b"], start()).unwrap(), ["a", "c"]);
        assert_eq!(outcome(Some(&["A", "b"]), &["C"], start()).unwrap(), ["a", "B"]);
        let refused = |name: &str, in_options| NotAllowed { name: name.to_owned(), in_options };
        assert_eq!(outcome(Some(&["b", "c"]), &[], start()), Err(refused("a", true)));
        assert_eq!(outcome(Some(&["a", "b"]), &[], start()), Err(refused("c", false)));
        assert_eq!(outcome(Some(&["b", "c"]), &["options"], start()).unwrap(), ["B", "c"]);
        assert_eq!(outcome(Some(&["a", "b"]), &["options"], start()), Err(refused("c", false)));
        let replication = Start { replication: Some("database".to_owned()), ..start() };
        assert_eq!(outcome(Some(&[]), &["a"], replication).unwrap(), ["a", "B", "c"]);
    }
}
