//! The script language of pgbench, the common part: SQL statements with `:variables`, `\set` with expressions, `\if`,
//! `\sleep`, `\gset`. The same with a command of Redis in each line, or with commands of MongoDB, instead of SQL. What
//! is not supported is an error that says so, with file, line and column.
//!
//! A run's scripts are read once ([`Scripts::new`]); each client then has a [`ScriptClient`] with variables of its own,
//! which goes through one script for each operation: [`ScriptClient::begin`], then [`ScriptClient::next`] until
//! [`Step::End`] or [`Step::Failed`]. The caller sends the requests and waits for the answers.

mod builtin;
mod error;
mod evaluate;
mod expression;
mod mongodb;
mod names;
mod program;
mod redis;
mod request;
mod sql;
mod value;

use std::{borrow::Cow, time::Duration};

use evaluate::{Failure, Scope, evaluate};
use names::Names;
use program::{Amount, Command, Language};
use sql::Piece;
use value::{Scalar, Value};

use crate::{
    plan::{QueryProtocol, Script},
    random::Random,
    record::ErrorKind,
};

pub use builtin::{
    ACCOUNTS, BRANCHES, GET_SET, MONGODB_AGGREGATE, MONGODB_FIND_ONE, MONGODB_INSERT, MONGODB_PING, MONGODB_UPDATE,
    PING, TELLERS,
};
pub use error::ScriptError;
pub use program::Program;
pub use redis::TransactionEffect;
pub use request::Request;
pub use sql::Statement;

/// The longest `\sleep`: a day.
const MAX_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_SCRIPTS: usize = 128;

/// The scripts of a run, their weights, and the variables that they share.
#[derive(Clone, Debug)]
pub struct Scripts {
    names: Names,
    programs: Vec<Program>,
    /// The sums of the weights up to each program.
    weights: Vec<u64>,
    /// The variables of a new client.
    initial: Vec<Value>,
    statements: u32,
    seed: u64,
}

impl Scripts {
    /// Reads the scripts of a run. `variables` are those of the command line (`-D name=value`); they win over `:scale`
    /// and `:random_seed`, which are set by themselves.
    ///
    /// # Errors
    /// The first mistake in a script; a statement that `protocol` cannot carry; no script, or no weight above 0.
    pub fn new(
        scripts: &[(Script, u32)],
        protocol: QueryProtocol,
        scale: u32,
        variables: &[(String, String)],
        seed: u64,
    ) -> Result<Self, ScriptError> {
        let sources: Vec<_> = scripts.iter().map(|(script, share)| (source(script), *share)).collect();
        let scripts = Self::read(&sources, Language::Sql, &[("scale", i64::from(scale))], variables, seed)?;
        for (program, ((_, text), _)) in scripts.programs.iter().zip(&sources) {
            fits(program, text, protocol)?;
        }
        scripts.with_all_variables_set()
    }

    /// The same of scripts that hold commands of Redis: names and texts, with weights. A `:name` that nothing sets is a
    /// part of a key there, and stays as it is.
    ///
    /// # Errors
    /// The first mistake in a script; no script, or no weight above 0.
    pub fn of_redis(
        scripts: &[((String, &str), u32)],
        variables: &[(String, String)],
        seed: u64,
    ) -> Result<Self, ScriptError> {
        Self::read(scripts, Language::Redis, &[], variables, seed)
    }

    /// The same of scripts that hold commands of MongoDB.
    ///
    /// # Errors
    /// The first mistake in a script; no script, or no weight above 0; a variable that is used outside of strings and
    /// never set.
    pub fn of_mongodb(
        scripts: &[((String, &str), u32)],
        variables: &[(String, String)],
        seed: u64,
    ) -> Result<Self, ScriptError> {
        Self::read(scripts, Language::MongoDb, &[], variables, seed)?.with_all_variables_set()
    }

    fn read(
        sources: &[((String, &str), u32)],
        language: Language,
        numbers: &[(&str, i64)],
        variables: &[(String, String)],
        seed: u64,
    ) -> Result<Self, ScriptError> {
        let mut names = Names::new();
        let (mut programs, mut weights) = (Vec::new(), Vec::new());
        let (mut statements, mut weight) = (0, 0);
        if sources.len() > MAX_SCRIPTS {
            return Err(ScriptError::of("the scripts", format!("there are more than {MAX_SCRIPTS}")));
        }
        for ((name, text), share) in sources {
            let program = Program::parse(name, text, language, &mut names, statements)?;
            statements += program.statements().count() as u32;
            weight += u64::from(*share);
            programs.push(program);
            weights.push(weight);
        }
        if weight == 0 {
            return Err(ScriptError::of("the scripts", "there is none with a weight above 0"));
        }
        for (name, _) in variables {
            names.intern(name).map_err(|message| ScriptError::of("-D", message))?;
        }
        let mut initial = vec![Value::Unset; names.len()];
        let seeds = [("default_seed", Random::new(seed, u32::MAX).bits() as i64), ("random_seed", seed as i64)];
        for (name, number) in seeds.iter().chain(numbers) {
            let id = names.find(name).expect("it is an automatic variable");
            initial[id.index()] = Value::Scalar(Scalar::Int(*number));
        }
        for (name, value) in variables {
            let id = names.find(name).expect("it was entered above");
            initial[id.index()] = Value::Text(value.as_str().into());
        }
        Ok(Self { names, programs, weights, initial, statements, seed })
    }

    /// Refuses scripts with a variable that is used and never set.
    fn with_all_variables_set(self) -> Result<Self, ScriptError> {
        match self.never_set() {
            Some(name) => Err(ScriptError::of(
                "the scripts",
                format!("the variable :{name} is used and never set: write `\\set {name} ...`, or -D {name}=..."),
            )),
            None => Ok(self),
        }
    }

    /// A variable that is used, and that nothing sets. Only the server knows which ones a `\gset` sets.
    fn never_set(&self) -> Option<&str> {
        let commands = || self.programs.iter().flat_map(|program| &program.commands);
        if commands().any(|command| matches!(command, Command::Sql(statement) if statement.gset().is_some())) {
            return None;
        }
        let mut set: Vec<bool> = self.initial.iter().map(|value| *value != Value::Unset).collect();
        set[Names::CLIENT_ID.index()] = true;
        // The name is there without being used. Only SQL gives it a value, and always does.
        set[Names::SCALE.index()] = true;
        for command in commands() {
            match command {
                Command::Set(id, _) => set[id.index()] = true,
                // Within quotes it need not be one.
                Command::Sql(statement) => statement.pieces.iter().for_each(|piece| {
                    if let Piece::Quoted(id) = piece {
                        set[id.index()] = true;
                    }
                }),
                Command::Request(request) => request.for_each_quoted_variable(&mut |id| set[id.index()] = true),
                _ => {}
            }
        }
        set.iter().position(|set| !set).map(|index| self.names.name_at(index))
    }

    /// The variables and random numbers of one client.
    pub fn client(&self, client: u32) -> ScriptClient {
        let mut values = self.initial.clone();
        if values[Names::CLIENT_ID.index()] == Value::Unset {
            values[Names::CLIENT_ID.index()] = Value::Scalar(Scalar::Int(i64::from(client)));
        }
        let random = Random::new(self.seed, client);
        ScriptClient { values: values.into(), random, program: 0, at: usize::MAX }
    }

    /// The scripts, in the order given.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The number of statements: their numbers are below this.
    pub fn statements(&self) -> u32 {
        self.statements
    }

    fn error(&self, failure: Failure) -> ErrorKind {
        ErrorKind(match failure {
            Failure::Undefined(id) => Cow::Owned(format!("script: the variable :{} is not set", self.names.name(id))),
            Failure::Because(why) => Cow::Owned(format!("script: {why}")),
        })
    }
}

/// The next step of a client.
#[derive(Clone, PartialEq, Debug)]
pub enum Step<'s> {
    /// Send this statement and wait for the answer; text and parameters come from [`ScriptClient::write_query`] or
    /// [`ScriptClient::write_parameter`]. If it wants its row ([`Statement::gset`]), give that to
    /// [`ScriptClient::take_column`].
    Send(&'s Statement),
    /// The same of a command of Redis, whose words come from [`ScriptClient::write_word`], or of MongoDB, which comes
    /// from [`ScriptClient::write_document`].
    Request(&'s Request),
    Sleep(Duration),
    /// The operation has ended.
    End,
    /// The script has failed, and with it the operation.
    Failed(ErrorKind),
}

/// One client's variables, random numbers and position in its script.
#[derive(Clone, Debug)]
pub struct ScriptClient {
    values: Box<[Value]>,
    random: Random,
    program: usize,
    at: usize,
}

impl ScriptClient {
    /// Begins an operation: chooses a script by weight. Variables keep their values from one operation to the next.
    pub fn begin(&mut self, scripts: &Scripts) {
        let total = *scripts.weights.last().expect("there is a script");
        if scripts.programs.len() > 1 {
            let drawn = self.random.below(total);
            self.program = scripts.weights.partition_point(|sum| *sum <= drawn);
        }
        self.at = 0;
    }

    /// Advances to the next statement or pause.
    pub fn next<'s>(&mut self, scripts: &'s Scripts) -> Step<'s> {
        let commands = &scripts.programs[self.program].commands;
        while let Some(command) = commands.get(self.at) {
            self.at += 1;
            match command {
                Command::Sql(statement) => return Step::Send(statement),
                Command::Request(request) => return Step::Request(request),
                Command::Set(id, expression) => match self.evaluate(expression) {
                    Ok(value) => self.values[id.index()] = Value::Scalar(value),
                    Err(failure) => return self.failed(scripts, failure),
                },
                Command::Jump(to) => self.at = *to,
                Command::Unless(condition, to) => match self.evaluate(condition) {
                    Ok(value) if value.truth() => {}
                    Ok(_) => self.at = *to,
                    Err(failure) => return self.failed(scripts, failure),
                },
                Command::Sleep(amount, unit) => match self.amount(amount) {
                    Ok(0) => {}
                    Ok(number) => return Step::Sleep(unit.times(number).min(MAX_SLEEP)),
                    Err(failure) => return self.failed(scripts, failure),
                },
            }
        }
        self.at = usize::MAX;
        Step::End
    }

    /// Appends a statement as it goes in a Query message, with the values of its variables.
    ///
    /// # Errors
    /// A variable that is not set.
    pub fn write_query(&self, scripts: &Scripts, statement: &Statement, out: &mut Vec<u8>) -> Result<(), ErrorKind> {
        self.write_pieces(scripts, &statement.pieces, out)
    }

    /// Appends a word (from 0) of a command of Redis, with the values of its variables.
    ///
    /// # Errors
    /// None, so far.
    pub fn write_word(
        &self,
        scripts: &Scripts,
        request: &Request,
        word: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        self.write_pieces(scripts, request.word(word), out)
    }

    /// Appends a command of MongoDB with the values of its variables, for this database unless it names another.
    ///
    /// # Errors
    /// A variable that stands for a value and is not set.
    pub fn write_document(
        &self,
        scripts: &Scripts,
        request: &Request,
        database: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        match &request.0 {
            request::Words::MongoDb(command) => {
                command.write(database, &mongodb::Variables { client: self, scripts }, out)
            }
            request::Words::Redis(_) => unreachable!("a script is in one language"),
        }
    }

    fn write_pieces(&self, scripts: &Scripts, pieces: &[Piece], out: &mut Vec<u8>) -> Result<(), ErrorKind> {
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(id) | Piece::Quoted(id) => match &self.values[id.index()] {
                    Value::Scalar(scalar) => scalar.write(out),
                    Value::Text(text) => out.extend_from_slice(text.as_bytes()),
                    Value::Unset if matches!(piece, Piece::Quoted(_)) => {
                        out.push(b':');
                        out.extend_from_slice(scripts.names.name(*id).as_bytes());
                    }
                    Value::Unset => return Err(scripts.error(Failure::Undefined(*id))),
                },
            }
        }
        Ok(())
    }

    /// Appends the value of a statement's parameter (from 0) as text; `false`: it is NULL.
    ///
    /// # Errors
    /// A variable that is not set.
    pub fn write_parameter(
        &self,
        scripts: &Scripts,
        statement: &Statement,
        parameter: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, ErrorKind> {
        let id = statement.parameters[parameter];
        match &self.values[id.index()] {
            Value::Scalar(Scalar::Null) => return Ok(false),
            Value::Scalar(scalar) => scalar.write(out),
            Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            Value::Unset => return Err(scripts.error(Failure::Undefined(id))),
        }
        Ok(true)
    }

    /// Takes a column of the row that a statement with `\gset` gave; `value` is `None` for NULL. A column that no
    /// script mentions is left out.
    ///
    /// # Errors
    /// Its value is no UTF-8.
    pub fn take_column(
        &mut self,
        scripts: &Scripts,
        statement: &Statement,
        column: &str,
        value: Option<&[u8]>,
    ) -> Result<(), ErrorKind> {
        let prefix = statement.gset().unwrap_or_default();
        let id = match prefix {
            "" => scripts.names.find(column),
            _ => scripts.names.find(&format!("{prefix}{column}")),
        };
        let Some(id) = id else { return Ok(()) };
        self.values[id.index()] = match value {
            None => Value::Scalar(Scalar::Null),
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Value::Text(text.into()),
                Err(_) => return Err(scripts.error(Failure::Because("a column for \\gset is no UTF-8"))),
            },
        };
        Ok(())
    }

    fn evaluate(&mut self, expression: &expression::Expression) -> Result<Scalar, Failure> {
        evaluate(expression, &mut Scope { values: &self.values, random: &mut self.random })
    }

    fn amount(&mut self, amount: &Amount) -> Result<u64, Failure> {
        let id = match amount {
            Amount::Number(number) => return Ok(*number),
            Amount::Variable(id) => *id,
        };
        match self.evaluate(&expression::Expression::Variable(id))? {
            Scalar::Int(i) => Ok(u64::try_from(i).unwrap_or(0)),
            Scalar::Double(d) if d.is_finite() => Ok(d.max(0.0) as u64),
            _ => Err(Failure::Because("\\sleep needs a number")),
        }
    }

    fn failed<'s>(&mut self, scripts: &Scripts, failure: Failure) -> Step<'s> {
        self.at = usize::MAX;
        Step::Failed(scripts.error(failure))
    }
}

/// The name and the text of a script.
fn source(script: &Script) -> (String, &str) {
    match script {
        Script::SelectOnly => ("select-only".to_owned(), builtin::SELECT_ONLY),
        Script::TpcbLike => ("tpcb-like".to_owned(), builtin::TPCB_LIKE),
        Script::SimpleUpdate => ("simple-update".to_owned(), builtin::SIMPLE_UPDATE),
        Script::File(path, text) => (path.display().to_string(), text),
    }
}

/// Whether the protocol can carry all statements.
fn fits(program: &Program, text: &str, protocol: QueryProtocol) -> Result<(), ScriptError> {
    if protocol == QueryProtocol::Simple {
        return Ok(());
    }
    match program.statements().find_map(|statement| Some((statement.offset, statement.simple_only?))) {
        None => Ok(()),
        Some((offset, why)) => {
            let message = format!("{why}, which only works with --protocol simple");
            Err(ScriptError::at(program.name(), text, offset, message))
        }
    }
}

#[cfg(test)]
mod tests;
