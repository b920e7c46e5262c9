//! What functions and expressions come to.

use std::time::Duration;

use super::{
    failure::{Failure, no_relation},
    session::{Session, Wait},
    shared::Shared,
    sql::Expression,
    values::{Type, Value},
};

/// Sequences that every database has.
const SEQUENCES: [&str; 2] = ["s", "s2"];

/// Names of functions, the types of their arguments, and of their results.
const FUNCTIONS: [(&str, &[Type], Type); 23] = [
    ("current_setting", &[Type::Text], Type::Text),
    ("current_setting", &[Type::Text, Type::Bool], Type::Text),
    ("set_config", &[Type::Text, Type::Text, Type::Bool], Type::Text),
    ("pg_sleep", &[Type::Float8], Type::Void),
    ("pg_advisory_lock", &[Type::Int8], Type::Void),
    ("pg_advisory_xact_lock", &[Type::Int8], Type::Void),
    ("pg_try_advisory_lock", &[Type::Int8], Type::Bool),
    ("pg_try_advisory_xact_lock", &[Type::Int8], Type::Bool),
    ("pg_advisory_unlock", &[Type::Int8], Type::Bool),
    ("pg_advisory_unlock_all", &[], Type::Void),
    ("pg_backend_pid", &[], Type::Int4),
    ("pg_is_in_recovery", &[], Type::Bool),
    ("pg_notify", &[Type::Text, Type::Text], Type::Void),
    ("nextval", &[Type::Regclass], Type::Int8),
    ("currval", &[Type::Regclass], Type::Int8),
    ("lastval", &[], Type::Int8),
    ("getdatabaseencoding", &[], Type::Name),
    ("convert_to", &[Type::Text, Type::Name], Type::Bytea),
    ("encode", &[Type::Bytea, Type::Text], Type::Text),
    ("current_database", &[], Type::Name),
    ("current_user", &[], Type::Name),
    ("session_user", &[], Type::Name),
    ("user", &[], Type::Name),
];

/// How an expression ends.
pub(super) enum Stop {
    Failed(Failure),
    /// The session waits for something.
    Waits,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What is known of expressions before they are evaluated.
pub(super) struct Analysis<'a> {
    pub(super) sql: &'a str,
    /// Sequences are found without the name of their schema.
    pub(super) sees_public: bool,
    /// Types of parameters; those that nobody has named become what they are used as.
    pub(super) types: &'a mut Vec<Option<Type>>,
}

impl Analysis<'_> {
    /// The type of an expression of which `wanted` is wanted.
    pub(super) fn type_of(&mut self, expression: &Expression, wanted: Option<Type>) -> Result<Type, Failure> {
        Ok(match expression {
            Expression::Text(text, at) => {
                if let Some(kind) = wanted {
                    if kind == Type::Regclass && !(self.sees_public && SEQUENCES.contains(&&**text)) {
                        return Err(no_relation(text).at(self.sql, *at));
                    }
                    Value::read(text, kind).map_err(|failure| failure.at(self.sql, *at))?;
                }
                wanted.unwrap_or(Type::Text)
            }
            Expression::Null => wanted.unwrap_or(Type::Text),
            Expression::Integer(number) if i32::try_from(*number).is_ok() => Type::Int4,
            Expression::Integer(_) => Type::Int8,
            Expression::Decimal(_) => Type::Float8,
            Expression::Bool(_) => Type::Bool,
            Expression::Parameter(number) => {
                let place = number.wrapping_sub(1);
                if place > 65_534 {
                    return Err(Failure::new("42P02", format!("there is no parameter ${number}")));
                }
                if self.types.len() <= place {
                    self.types.resize(place + 1, None);
                }
                *self.types[place].get_or_insert(wanted.unwrap_or(Type::Text))
            }
            Expression::Cast(inner, to) => {
                self.type_of(inner, Some(*to))?;
                *to
            }
            Expression::Divide(left, right) => {
                let left = self.type_of(left, Some(Type::Int4))?;
                let right = self.type_of(right, Some(Type::Int4))?;
                if left == Type::Int8 || right == Type::Int8 { Type::Int8 } else { left }
            }
            Expression::Call { name, at, arguments } => {
                let fits = |known: &&(&str, &[Type], Type)| known.0 == name && known.1.len() == arguments.len();
                let Some((_, wanted, result)) = FUNCTIONS.iter().find(fits) else {
                    let types: Result<Vec<_>, _> = arguments.iter().map(|one| self.type_of(one, None)).collect();
                    let is_unknown = |one: &Expression| {
                        matches!(one, Expression::Text(..) | Expression::Null | Expression::Parameter(_))
                    };
                    let shown = |(kind, one): (Type, &Expression)| {
                        if is_unknown(one) { "unknown" } else { kind.long_name() }
                    };
                    let types: Vec<_> = types?.into_iter().zip(arguments).map(shown).collect();
                    let text = format!("function {name}({}) does not exist", types.join(", "));
                    let hint = "No function matches the given name and argument types. You might need to add explicit type casts.";
                    return Err(Failure::new("42883", text).hint(hint).at(self.sql, *at));
                };
                for (argument, wanted) in arguments.iter().zip(*wanted) {
                    self.type_of(argument, Some(*wanted))?;
                }
                *result
            }
        })
    }
}

impl Session {
    /// What can be known before anything is carried out: that a division cannot be.
    pub(super) fn foresee(expression: &Expression, arguments: &[Value]) -> Result<(), Failure> {
        let Expression::Divide(left, right) = expression else { return Ok(()) };
        let value = |side: &Expression| match side {
            Expression::Integer(number) => Some(*number),
            Expression::Parameter(number) => match arguments.get(number.wrapping_sub(1)) {
                Some(Value::Int(number)) => Some(*number),
                _ => None,
            },
            _ => None,
        };
        match (value(left), value(right)) {
            (Some(_), Some(0)) => Err(division_by_zero()),
            _ => Ok(()),
        }
    }

    /// The value of an expression. Of functions that wait there is one in a column, and nothing around it.
    pub(super) fn evaluate(
        &mut self,
        shared: &mut Shared,
        expression: &Expression,
        arguments: &[Value],
    ) -> Result<Value, Stop> {
        Ok(match expression {
            Expression::Text(text, _) => Value::Text(text.clone()),
            Expression::Integer(number) => Value::Int(*number),
            Expression::Decimal(number) => Value::Float(*number),
            Expression::Bool(truth) => Value::Bool(*truth),
            Expression::Null => Value::Null,
            Expression::Parameter(number) => {
                let value = arguments.get(number.wrapping_sub(1)).cloned();
                value.ok_or_else(|| Failure::new("42P02", format!("there is no parameter ${number}")))?
            }
            Expression::Cast(inner, to) => self.evaluate(shared, inner, arguments)?.cast(*to)?,
            Expression::Divide(left, right) => {
                let left = self.evaluate(shared, left, arguments)?.cast(Type::Int8)?;
                let right = self.evaluate(shared, right, arguments)?.cast(Type::Int8)?;
                match (left, right) {
                    (Value::Int(_), Value::Int(0)) => return Err(division_by_zero().into()),
                    (Value::Int(left), Value::Int(right)) => Value::Int(left.wrapping_div(right)),
                    _ => Value::Null,
                }
            }
            Expression::Call { name, arguments: given, .. } => {
                let fits = |known: &&(&str, &[Type], Type)| known.0 == name && known.1.len() == given.len();
                let Some((_, wanted, _)) = FUNCTIONS.iter().find(fits) else {
                    return Err(Failure::new("42883", format!("function {name} does not exist")).into());
                };
                let mut values = Vec::new();
                for (one, wanted) in given.iter().zip(*wanted) {
                    values.push(self.evaluate(shared, one, arguments)?.cast(*wanted)?);
                }
                // They take no NULL, and are not called with one.
                if values.contains(&Value::Null) && !matches!(&**name, "set_config" | "pg_notify") {
                    return Ok(Value::Null);
                }
                self.call(shared, name, &values)?
            }
        })
    }

    fn call(&mut self, shared: &mut Shared, name: &str, values: &[Value]) -> Result<Value, Stop> {
        let text = |place: usize| values.get(place).and_then(Value::text);
        let truth = |place: usize| values.get(place) == Some(&Value::Bool(true));
        let Some(&Value::Int(number)) = values.first() else {
            return self.call_with_texts(shared, name, values, (text(0), text(1)), (truth(1), truth(2)));
        };
        let key = (self.database.clone(), number);
        let of_transaction = name.contains("xact");
        Ok(match name {
            "pg_advisory_lock" | "pg_advisory_xact_lock" => {
                if !shared.try_lock(self.me, &key, of_transaction) {
                    shared.queue(self.me, &key, of_transaction);
                    self.wait = Some(Wait::Lock { key, of_transaction, since: self.now, looked: false });
                    return Err(Stop::Waits);
                }
                if of_transaction {
                    self.transaction.locks.push(key);
                }
                Value::Void
            }
            "pg_try_advisory_lock" | "pg_try_advisory_xact_lock" => {
                let got = shared.try_lock(self.me, &key, of_transaction);
                if got && of_transaction {
                    self.transaction.locks.push(key);
                }
                Value::Bool(got)
            }
            "pg_advisory_unlock" => {
                let had = shared.unlock(self.me, &key, false);
                if !had {
                    self.tell(&Failure::warning("01000", "you don't own a lock of type ExclusiveLock"));
                }
                Value::Bool(had)
            }
            _ => Value::Null,
        })
    }

    fn call_with_texts(
        &mut self,
        shared: &mut Shared,
        name: &str,
        values: &[Value],
        (first, second): (Option<String>, Option<String>),
        (second_holds, third_holds): (bool, bool),
    ) -> Result<Value, Stop> {
        let first = first.unwrap_or_default();
        Ok(match name {
            "current_setting" => match self.settings.show(&first) {
                Ok(value) => Value::Text(value),
                Err(_) if second_holds => Value::Null,
                Err(failure) => return Err(failure.into()),
            },
            "set_config" => {
                if values.first() == Some(&Value::Null) {
                    return Err(Failure::new("22004", "SET requires parameter name").into());
                }
                self.settings.set(&first, second.as_deref(), third_holds)?;
                Value::Text(self.settings.show(&first)?)
            }
            "pg_sleep" => {
                let Some(&Value::Float(seconds)) = values.first() else { return Ok(Value::Null) };
                if seconds <= 0.0 {
                    return Ok(Value::Void);
                }
                self.wait = Some(Wait::Sleep(self.now + Duration::from_secs_f64(seconds)));
                return Err(Stop::Waits);
            }
            "pg_advisory_unlock_all" => {
                shared.unlock_all(self.me);
                Value::Void
            }
            "pg_backend_pid" => Value::Int(self.pid.into()),
            "pg_is_in_recovery" => Value::Bool(false),
            "pg_notify" => {
                self.notify(&first, &second.unwrap_or_default())?;
                Value::Void
            }
            "nextval" => {
                self.writes("nextval()")?;
                if !SEQUENCES.contains(&&*first) {
                    return Err(no_relation(&first).into());
                }
                let value = shared.advance(&self.database, &first);
                self.last_values.insert(first.clone(), value);
                self.last_sequence = Some(first);
                Value::Int(value)
            }
            "currval" => self.current_value(&first)?,
            "lastval" => match self.last_sequence.as_ref().and_then(|name| self.last_values.get(name)) {
                Some(value) => Value::Int(*value),
                None => return Err(Failure::new("55000", "lastval is not yet defined in this session").into()),
            },
            "getdatabaseencoding" => Value::Text("UTF8".into()),
            "convert_to" => Value::Bytes(first.into_bytes()),
            "encode" => {
                let Some(Value::Bytes(bytes)) = values.first() else { return Ok(Value::Null) };
                Value::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
            }
            "current_database" => Value::Text(self.database.clone()),
            _ => Value::Text(self.user.clone()),
        })
    }

    /// `currval` of a sequence.
    fn current_value(&self, sequence: &str) -> Result<Value, Failure> {
        match self.last_values.get(sequence) {
            Some(value) => Ok(Value::Int(*value)),
            None if !SEQUENCES.contains(&sequence) => Err(no_relation(sequence)),
            None => {
                let message = format!("currval of sequence \"{sequence}\" is not yet defined in this session");
                Err(Failure::new("55000", message))
            }
        }
    }

    /// Notifies at the end of the transaction.
    pub(super) fn notify(&mut self, channel: &str, payload: &str) -> Result<(), Failure> {
        let long = |what: &str| Err(Failure::new("22023", format!("{what} too long")));
        match () {
            () if channel.is_empty() => return Err(Failure::new("22023", "channel name cannot be empty")),
            () if channel.len() > 63 => return long("channel name"),
            () if payload.len() > 7999 => return long("payload string"),
            () => {}
        }
        let new = (channel.to_owned(), payload.to_owned());
        if !self.transaction.notifies.contains(&new) {
            self.transaction.notifies.push(new);
        }
        Ok(())
    }

    /// What is done in a transaction that only reads.
    pub(super) fn writes(&self, what: &str) -> Result<(), Failure> {
        if !self.transaction.read_only {
            return Ok(());
        }
        Err(Failure::new("25006", format!("cannot execute {what} in a read-only transaction")))
    }
}

fn division_by_zero() -> Failure {
    Failure::new("22012", "division by zero")
}
