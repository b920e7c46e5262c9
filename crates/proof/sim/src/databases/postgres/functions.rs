//! Types and values of expressions, and the functions that the model knows.

use std::time::Duration;

use super::{
    failure::Failure,
    session::{Session, Wait},
    shared::Shared,
    sql::Expression,
    values::{Type, Value},
};

/// Names of functions, the types of their arguments, and of their results.
const FUNCTIONS: [(&str, &[Type], Type); 8] = [
    ("current_setting", &[Type::Text], Type::Text),
    ("current_setting", &[Type::Text, Type::Bool], Type::Text),
    ("set_config", &[Type::Text, Type::Text, Type::Bool], Type::Text),
    ("pg_sleep", &[Type::Float8], Type::Void),
    ("pg_advisory_lock", &[Type::Int8], Type::Void),
    ("pg_advisory_xact_lock", &[Type::Int8], Type::Void),
    ("pg_advisory_unlock", &[Type::Int8], Type::Bool),
    ("pg_advisory_unlock_all", &[], Type::Void),
];

fn find(name: &str, arguments: &[Expression]) -> Option<&'static (&'static str, &'static [Type], Type)> {
    FUNCTIONS.iter().find(|known| known.0 == name && known.1.len() == arguments.len())
}

/// Why an expression has no value.
pub(super) enum Stop {
    Failed(Failure),
    /// The session waits first.
    Waits,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What is known of a statement's expressions before they are evaluated.
pub(super) struct Analysis<'a> {
    pub(super) sql: &'a str,
    /// Types of parameters. The first use of a parameter determines its type.
    pub(super) types: &'a mut Vec<Option<Type>>,
}

impl Analysis<'_> {
    /// The type of an expression where `wanted` is wanted.
    pub(super) fn type_of(&mut self, expression: &Expression, wanted: Option<Type>) -> Result<Type, Failure> {
        Ok(match expression {
            Expression::Text(text, at) => {
                if let Some(kind) = wanted {
                    Value::read(text, kind).map_err(|failure| failure.at(self.sql, *at))?;
                }
                wanted.unwrap_or(Type::Text)
            }
            Expression::Integer(_) => Type::Int4,
            Expression::Decimal(_) => Type::Float8,
            Expression::Bool(_) => Type::Bool,
            Expression::Parameter(number) => {
                let index = number.wrapping_sub(1);
                if index > 65_534 {
                    return Err(Failure::new("42P02", format!("there is no parameter ${number}")));
                }
                if self.types.len() <= index {
                    self.types.resize(index + 1, None);
                }
                *self.types[index].get_or_insert(wanted.unwrap_or(Type::Text))
            }
            Expression::Divide(left, right) => {
                self.type_of(right, Some(Type::Int4))?;
                self.type_of(left, Some(Type::Int4))?
            }
            Expression::Call { name, at, arguments } => {
                let Some((_, wanted, result)) = find(name, arguments) else {
                    return Err(no_function(name).at(self.sql, *at));
                };
                for (argument, wanted) in arguments.iter().zip(*wanted) {
                    self.type_of(argument, Some(*wanted))?;
                }
                *result
            }
        })
    }
}

/// Fails if an expression divides by zero, as PostgreSQL's planner does.
pub(super) fn check_constants(expression: &Expression) -> Result<(), Failure> {
    match expression {
        Expression::Divide(_, right) if **right == Expression::Integer(0) => {
            Err(Failure::new("22012", "division by zero"))
        }
        _ => Ok(()),
    }
}

impl Session {
    /// Evaluates an expression. A function that waits has to be a whole column, as only the values of whole columns are
    /// kept meanwhile.
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
            Expression::Parameter(number) => {
                let value = arguments.get(number.wrapping_sub(1)).cloned();
                value.ok_or_else(|| Failure::new("42P02", format!("there is no parameter ${number}")))?
            }
            Expression::Divide(left, right) => {
                let left = self.evaluate(shared, left, arguments)?.cast(Type::Int8)?;
                let right = self.evaluate(shared, right, arguments)?.cast(Type::Int8)?;
                match (left, right) {
                    (Value::Int(left), Value::Int(right)) if right != 0 => Value::Int(left.wrapping_div(right)),
                    (Value::Int(_), Value::Int(_)) => return Err(Failure::new("22012", "division by zero").into()),
                    _ => Value::Null,
                }
            }
            Expression::Call { name, arguments: given, .. } => {
                let Some((_, wanted, _)) = find(name, given) else { return Err(no_function(name).into()) };
                let mut values = Vec::new();
                for (one, wanted) in given.iter().zip(*wanted) {
                    values.push(self.evaluate(shared, one, arguments)?.cast(*wanted)?);
                }
                self.call(shared, name, &values)?
            }
        })
    }

    fn call(&mut self, shared: &mut Shared, name: &str, values: &[Value]) -> Result<Value, Stop> {
        Ok(match (name, values) {
            ("current_setting", [Value::Text(name), rest @ ..]) => match self.settings.show(name) {
                Ok(value) => Value::Text(value),
                Err(_) if rest == [Value::Bool(true)] => Value::Null,
                Err(failure) => return Err(failure.into()),
            },
            ("set_config", [Value::Text(name), Value::Text(value), Value::Bool(local)]) => {
                self.settings.set(name, Some(value), *local)?;
                Value::Text(self.settings.show(name)?)
            }
            ("pg_sleep", [Value::Float(seconds)]) => {
                if *seconds <= 0.0 {
                    return Ok(Value::Void);
                }
                self.wait = Some(Wait::Sleep(self.now + Duration::from_secs_f64(*seconds)));
                return Err(Stop::Waits);
            }
            ("pg_advisory_unlock_all", []) => {
                shared.unlock_all(self.id);
                Value::Void
            }
            (_, [Value::Int(number)]) => return self.call_lock(shared, name, *number),
            // The functions are not called with NULL.
            _ => Value::Null,
        })
    }

    fn call_lock(&mut self, shared: &mut Shared, name: &str, number: i64) -> Result<Value, Stop> {
        let key = (self.database.clone(), number);
        if name == "pg_advisory_unlock" {
            let had = shared.unlock(self.id, &key, false);
            if !had {
                self.send_failure(&Failure::warning("01000", "you don't own a lock of type ExclusiveLock"));
            }
            return Ok(Value::Bool(had));
        }
        let of_transaction = name == "pg_advisory_xact_lock";
        if !shared.try_lock(self.id, &key, of_transaction) {
            shared.queue(self.id, &key, of_transaction);
            self.wait = Some(Wait::Lock { key, of_transaction });
            return Err(Stop::Waits);
        }
        if of_transaction {
            self.transaction.locks.push(key);
        }
        Ok(Value::Void)
    }

    /// Notifies at the end of the transaction.
    pub(super) fn notify(&mut self, channel: &str, payload: &str) {
        let new = (channel.to_owned(), payload.to_owned());
        if !self.transaction.notifies.contains(&new) {
            self.transaction.notifies.push(new);
        }
    }
}

fn no_function(name: &str) -> Failure {
    Failure::new("42883", format!("function {name} does not exist"))
}
