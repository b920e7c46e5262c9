//! Carrying out what only Poolhouse asks for: surveys of a session, and procedural code.

use std::collections::VecDeque;

use super::{
    execute::Done,
    failure::Failure,
    functions::Stop,
    session::{Prepared, Session},
    shared::Shared,
    sql::{Procedural, Statements},
    values::Value,
};

impl Session {
    pub(super) fn procedure(&mut self, shared: &mut Shared, steps: &[Procedural]) -> Result<Done, Stop> {
        for step in steps {
            match step {
                Procedural::Run(statement) => {
                    self.analyse(statement, &[])?;
                    _ = self.run(shared, statement, &[], &mut Vec::new())?;
                }
                Procedural::Raise { code, message, hint } => {
                    let failure = Failure::new(code, message.clone());
                    let failure = failure.context("PL/pgSQL function inline_code_block line 1 at RAISE");
                    return Err(match hint {
                        Some(hint) => failure.hint(hint.clone()).into(),
                        None => failure.into(),
                    });
                }
            }
        }
        Ok(Done::new("DO"))
    }

    /// What Poolhouse wants to know of a session.
    pub(super) fn survey(&self, shared: &Shared, settings: bool, names: &[String], statements: Statements) -> Done {
        let text = |text: &str| Value::Text(text.to_owned());
        let mut rows = VecDeque::new();
        let mut pin = |there: bool, word: &str| {
            if there {
                rows.push_back(vec![text("p"), text(word), Value::Null]);
            }
        };
        pin(!self.temps.is_empty(), "temporary");
        pin(self.portals.values().any(|portal| portal.hold), "cursor");
        pin(shared.held(self.me).next().is_some(), "lock");
        for channel in &self.channels {
            rows.push_back(vec![text("l"), text(channel), Value::Null]);
        }
        let mut named = self.statements.iter().filter(|(name, _)| !name.is_empty());
        let of_clients = statements == Statements::OfClients;
        let asked = |(name, prepared): (&String, &Prepared)| prepared.from_sql || (of_clients && !is_of_pooler(name));
        if statements != Statements::None && named.any(asked) {
            rows.push_back(vec![text("p"), text("prepare"), Value::Null]);
        }
        if settings {
            for (name, value) in self.settings.of_session() {
                rows.push_back(vec![text("s"), hex(name), hex(&value)]);
            }
            for name in names {
                let value = self.settings.show(name).map_or(Value::Null, |value| hex(&value));
                rows.push_back(vec![text("s"), hex(name), value]);
            }
        }
        Done::rows("SELECT", rows)
    }

    /// Where the values of what is reported come from.
    pub(super) fn sources(&self) -> Done {
        let row = |(name, source): (&str, &str)| [name, source, "t"].map(|text| Value::Text(text.to_owned())).to_vec();
        Done::rows("SELECT", self.settings.sources().map(row).collect::<VecDeque<_>>())
    }

    /// What these settings are.
    pub(super) fn guarded(&self, mark: &str, names: &[String]) -> Done {
        let row = |name: &String| {
            let value = self.settings.show(name).map_or(Value::Null, |value| hex(&value));
            vec![Value::Text(mark.to_owned()), hex(name), value]
        };
        Done::rows("SELECT", names.iter().map(row).collect::<VecDeque<_>>())
    }
}

/// Whether Poolhouse gives such names.
fn is_of_pooler(name: &str) -> bool {
    let after = name.strip_prefix("poolhouse_").and_then(|rest| rest.split_at_checked(16));
    after
        .and_then(|(_, number)| number.strip_prefix('_'))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A text as the numbers of its bytes.
fn hex(text: &str) -> Value {
    Value::Text(text.bytes().map(|byte| format!("{byte:02x}")).collect())
}
