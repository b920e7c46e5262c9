//! The values of `[pgbouncer]`: what the file says, or the default. Translates nothing.

use std::{collections::HashMap, time::Duration};

use settings::Problem;

use crate::{
    ini::{Ini, SectionName, Setting, Spot},
    known::{Known, find},
    values,
};

/// A setting's value.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    pub value: &'a str,
    /// Where it stands; `None` for a default.
    pub spot: Option<&'a Spot>,
    pub known: &'static Known,
}

impl<'a> Given<'a> {
    /// What the file or a connection string says.
    pub fn new(known: &'static Known, value: &'a str, spot: &'a Spot) -> Self {
        Self { value, spot: Some(spot), known }
    }

    /// The value that holds without the setting.
    pub fn default(known: &'static Known) -> Self {
        Self { value: known.default, spot: None, known }
    }

    /// Whether it asks for what happens without it.
    pub fn is_default(&self) -> bool {
        self.known.is_default(self.value)
    }

    /// The number; 0 for a value that is an error anyway.
    pub fn number(&self) -> i64 {
        values::number(self.value).unwrap_or_default()
    }

    pub fn truth(&self) -> bool {
        self.number() != 0
    }

    /// The time; zero for a value that is an error anyway.
    pub fn time(&self) -> Duration {
        match values::time(self.value) {
            Some(time) => time,
            None => Duration::from_secs(self.number().try_into().unwrap_or_default()),
        }
    }

    /// The time, if it is not switched off by a zero.
    pub fn time_unless_zero(&self) -> Option<Duration> {
        Some(self.time()).filter(|time| !time.is_zero())
    }

    /// The text, if there is one.
    pub fn text(&self) -> Option<&'a str> {
        Some(self.value).filter(|value| !value.is_empty())
    }

    /// The word, in the case of the manual.
    pub fn word(&self) -> &'a str {
        match self.known.kind {
            values::Kind::Word(words) => values::word(words, self.value).unwrap_or(self.value),
            _ => self.value,
        }
    }

    /// The parts of a list with commas.
    pub fn list(&self) -> Vec<String> {
        self.value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }
}

/// The settings of `[pgbouncer]`.
pub struct General<'a>(HashMap<&'a str, &'a Setting>);

impl<'a> General<'a> {
    /// Takes the last value of each setting. A further `[pgbouncer]` sets what has a default back to it, as PgBouncer
    /// does; that is told, because it can hardly be meant.
    pub fn new(ini: &'a Ini, problems: &mut Vec<Problem>, notes: &mut Vec<Problem>) -> Self {
        let mut values: HashMap<&str, &Setting> = HashMap::new();
        let mut sections = ini.general_sections.iter().peekable();
        for (at, setting) in ini.settings.iter().enumerate() {
            while let Some((_, spot)) = sections.next_if(|(before, _)| *before <= at) {
                let lost = set_back(&mut values);
                if !lost.is_empty() {
                    let text = format!("this further [pgbouncer] sets back to their defaults: {}", lost.join(", "));
                    notes.push(ini.locate(Problem::warning(text).hint("write the section once"), spot));
                }
            }
            if setting.section == SectionName::PgBouncer {
                match examine(setting) {
                    Ok(known) => drop(values.insert(known.name, setting)),
                    Err((problem, spot)) => problems.push(ini.locate(problem, spot)),
                }
            }
        }
        Self(values)
    }

    pub fn get(&self, name: &'static str) -> Given<'a> {
        let known = find(SectionName::PgBouncer, name).expect("a setting of the table");
        match self.0.get(name) {
            Some(setting) => Given::new(known, &setting.value, &setting.value_spot),
            None => Given::default(known),
        }
    }

    /// What the file says, in the order of the file.
    pub fn given(&self) -> Vec<Given<'a>> {
        let mut given: Vec<Given<'a>> = self
            .0
            .keys()
            .filter_map(|name| {
                let known = find(SectionName::PgBouncer, name)?;
                Some(self.get(known.name))
            })
            .collect();
        given.sort_by_key(|given| given.spot.map(|spot| (spot.file, spot.span.start)));
        given
    }
}

/// Sets back what has a default, and names it.
fn set_back<'a>(values: &mut HashMap<&'a str, &'a Setting>) -> Vec<&'a str> {
    let has_default = |name: &str| find(SectionName::PgBouncer, name).is_some_and(|known| !known.default.is_empty());
    let mut lost: Vec<&str> = values.keys().copied().filter(|name| has_default(name)).collect();
    lost.sort_unstable();
    values.retain(|name, _| !lost.contains(name));
    lost
}

fn examine(setting: &Setting) -> Result<&'static Known, (Problem, &Spot)> {
    let Some(known) = find(SectionName::PgBouncer, &setting.key) else {
        let problem = Problem::error(format!("unknown parameter: pgbouncer/{}", setting.key.escape_debug()));
        let names: Vec<&str> = crate::known::GENERAL.iter().map(|known| known.name).collect();
        let problem = match settings::nearest(&setting.key, &names) {
            Some(nearest) => problem.hint(format!("did you mean `{nearest}`?")),
            None => problem.hint("PgBouncer 1.26 has no such setting"),
        };
        return Err((problem, &setting.key_spot));
    };
    match known.kind.admits(&setting.value) {
        true => Ok(known),
        false => Err((invalid(known, &setting.value), &setting.value_spot)),
    }
}

/// A value of the wrong kind.
pub fn invalid(known: &Known, value: &str) -> Problem {
    let problem = Problem::error(format!("invalid value \"{}\" for parameter {}", value.escape_debug(), known.name));
    problem.hint(format!("it takes {}", known.kind.describe()))
}
