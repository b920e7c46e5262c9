//! Execution of statements that only Poolhouse sends: surveys of a session, and DO.

use std::collections::VecDeque;

use super::{
    execute::Done,
    functions::Stop,
    session::{Prepared, Session},
    shared::Shared,
    sql::{Statement, SurveyedStatements},
    values::Value,
};

impl Session {
    /// DO, whose code is a list of statements.
    pub(super) fn procedure(&mut self, shared: &mut Shared, statements: &[Statement]) -> Result<Done, Stop> {
        for statement in statements {
            self.analyse(statement, &[])?;
            _ = self.run(shared, statement, &[], &mut Vec::new())?;
        }
        Ok(Done::new("DO"))
    }

    /// A survey: rows of kind, name and value for what a session has left behind.
    pub(super) fn survey(
        &self,
        shared: &Shared,
        settings: bool,
        names: &[String],
        statements: SurveyedStatements,
    ) -> Done {
        let text = |text: &str| Value::Text(text.to_owned());
        let mut rows = VecDeque::new();
        let mut pin = |there: bool, word: &str| {
            if there {
                rows.push_back(vec![text("p"), text(word), Value::Null]);
            }
        };
        pin(!self.temps.is_empty(), "temporary");
        pin(self.portals.values().any(|portal| portal.hold), "cursor");
        pin(shared.held(self.id).next().is_some(), "lock");
        for channel in &self.channels {
            rows.push_back(vec![text("l"), text(channel), Value::Null]);
        }
        let mut named = self.statements.iter().filter(|(name, _)| !name.is_empty());
        let of_clients = statements == SurveyedStatements::OfClients;
        let asked = |(name, prepared): (&String, &Prepared)| prepared.from_sql || (of_clients && !is_of_pooler(name));
        if statements != SurveyedStatements::None && named.any(asked) {
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

    /// The sources of the values of reported parameters.
    pub(super) fn sources(&self) -> Done {
        let row = |(name, source): (&str, &str)| [name, source, "t"].map(|text| Value::Text(text.to_owned())).to_vec();
        Done::rows("SELECT", self.settings.sources().map(row).collect::<VecDeque<_>>())
    }

    pub(super) fn guarded(&self, mark: &str, names: &[String]) -> Done {
        let row = |name: &String| {
            let value = self.settings.show(name).map_or(Value::Null, |value| hex(&value));
            vec![Value::Text(mark.to_owned()), hex(name), value]
        };
        Done::rows("SELECT", names.iter().map(row).collect::<VecDeque<_>>())
    }
}

/// Whether a statement has a name of the pooler.
fn is_of_pooler(name: &str) -> bool {
    let after = name.strip_prefix("poolhouse_").and_then(|rest| rest.split_at_checked(16));
    after
        .and_then(|(_, number)| number.strip_prefix('_'))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn hex(text: &str) -> Value {
    Value::Text(text.bytes().map(|byte| format!("{byte:02x}")).collect())
}
