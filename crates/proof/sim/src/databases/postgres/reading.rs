//! From the words of a text to its statements. What they mean is not known here.

mod procedure;

use super::{
    expressions,
    failure::{Failure, unknown_syntax},
    own,
    sql::{Assigned, Discard, Modes, Node, Statement},
    tokens::{Kind, Token, Tokens, cut},
    words::Words,
};

/// The statements of a text; empty ones are left out. `standard`: see [`cut`].
pub(super) fn statements(sql: &str, standard: bool) -> Result<(Vec<Statement>, Tokens), Failure> {
    let tokens = cut(sql, standard)?;
    let mut found = Vec::new();
    for part in tokens.list.split(|token| token.kind == Kind::Symbol(';')) {
        if !part.is_empty() {
            found.push(statement(sql, part)?);
        }
    }
    Ok((found, tokens))
}

/// The statement of these tokens.
pub(super) fn statement(sql: &str, tokens: &[Token]) -> Result<Statement, Failure> {
    let span = &sql[tokens[0].start..tokens[tokens.len() - 1].end];
    if let Some(node) = own::recognise(span, tokens) {
        return Ok(Statement::in_text(node, sql));
    }
    let mut words = Words { sql, tokens, at: 0 };
    match node(&mut words) {
        Some(node) if words.is_done() => Ok(Statement::in_text(node, sql)),
        _ => Err(unknown_syntax(span)),
    }
}

fn node(words: &mut Words<'_>) -> Option<Node> {
    let Some(Kind::Word(first)) = words.peek().cloned() else { return None };
    if matches!(&*first, "select" | "insert") {
        return expressions::query(words);
    }
    words.at += 1;
    match &*first {
        "begin" => begin(words, "BEGIN"),
        "start" => words.word("transaction").then(|| begin(words, "START TRANSACTION"))?,
        "commit" | "end" => {
            _ = words.word("work") || words.word("transaction");
            Some(Node::Commit)
        }
        "rollback" | "abort" => {
            _ = words.word("work") || words.word("transaction");
            if !words.word("to") {
                return Some(Node::Rollback);
            }
            words.word("savepoint");
            words.name().map(Node::RollbackTo)
        }
        "savepoint" => words.name().map(Node::Savepoint),
        "release" => {
            words.word("savepoint");
            words.name().map(Node::Release)
        }
        "set" => set(words),
        "show" if words.words("time zone") => Some(Node::Show("timezone".into())),
        "show" => words.parameter().map(Node::Show),
        "reset" => reset(words),
        "discard" => discard(words),
        "create" => create(words),
        "drop" => {
            let if_exists = words.word("table").then(|| words.words("if exists"))?;
            Some(Node::Drop { table: words.name()?, if_exists })
        }
        "listen" => words.name().map(Node::Listen),
        "unlisten" if words.symbol('*') => Some(Node::Unlisten(None)),
        "unlisten" => words.name().map(|name| Node::Unlisten(Some(name))),
        "notify" => {
            let channel = words.name()?;
            let payload = if words.symbol(',') { words.text()? } else { String::new() };
            Some(Node::Notify { channel, payload })
        }
        "prepare" => prepare(words),
        "execute" => {
            let name = words.name()?;
            let arguments = if words.is_done() { Vec::new() } else { words.list(expressions::expression)? };
            Some(Node::Execute { name, arguments })
        }
        "deallocate" => deallocate(words),
        "declare" => declare(words),
        "fetch" => fetch(words),
        "close" if words.word("all") => Some(Node::Close(None)),
        "close" => words.name().map(|name| Node::Close(Some(name))),
        "copy" => copy(words),
        "do" => procedure::read(&words.text()?).map(Node::Do),
        _ => None,
    }
}

/// What follows DISCARD.
fn discard(words: &mut Words<'_>) -> Option<Node> {
    Some(Node::Discard(match () {
        () if words.word("all") => Discard::All,
        () if words.word("temp") || words.word("temporary") => Discard::Temp,
        () if words.word("plans") => Discard::Plans,
        () if words.word("sequences") => Discard::Sequences,
        () => return None,
    }))
}

/// What follows CREATE: only a temporary table with a text column `v`.
fn create(words: &mut Words<'_>) -> Option<Node> {
    let temporary = words.word("temp") || words.word("temporary");
    let name = (temporary && words.word("table")).then(|| words.name())??;
    let columns = words.list(|words| Some((words.name()?, words.name()?)))?;
    (columns == [("v".to_owned(), "text".to_owned())]).then_some(Node::CreateTemp(name))
}

/// What follows PREPARE.
fn prepare(words: &mut Words<'_>) -> Option<Node> {
    let name = words.name()?;
    let types = match words.peek() {
        Some(Kind::Symbol('(')) => words.list(expressions::type_name)?,
        _ => Vec::new(),
    };
    words.word("as").then(|| Some(Node::Prepare { name, types, statement: rest(words)? }))?
}

/// What follows DEALLOCATE.
fn deallocate(words: &mut Words<'_>) -> Option<Node> {
    let start = words.at;
    if words.word("prepare") && words.is_done() {
        words.at = start;
    }
    if words.word("all") {
        return Some(Node::Deallocate(None));
    }
    words.name().map(|name| Node::Deallocate(Some(name)))
}

/// What follows DECLARE.
fn declare(words: &mut Words<'_>) -> Option<Node> {
    let name = words.name()?;
    if !words.word("cursor") {
        return None;
    }
    let hold = words.words("with hold");
    _ = hold || words.words("without hold");
    let statement = words.word("for").then(|| rest(words))??;
    statement.node.is_query().then_some(Node::Declare { name, hold, statement })
}

/// The rest as a statement of its own.
fn rest(words: &mut Words<'_>) -> Option<Box<Statement>> {
    let tokens = words.tokens.get(words.at..).filter(|tokens| !tokens.is_empty())?;
    words.at = words.tokens.len();
    statement(words.sql, tokens).ok().map(Box::new)
}

fn begin(words: &mut Words<'_>, word: &'static str) -> Option<Node> {
    _ = words.word("work") || words.word("transaction");
    Some(Node::Begin { word, modes: modes(words)? })
}

/// What is said of a transaction.
fn modes(words: &mut Words<'_>) -> Option<Modes> {
    let mut modes = Modes::default();
    while !words.is_done() {
        let levels = ["read committed", "read uncommitted", "repeatable read", "serializable"];
        match () {
            () if words.words("isolation level") => {
                modes.level = Some(levels.into_iter().find(|level| words.words(level))?);
            }
            () if words.words("read only") => modes.read_only = Some(true),
            () if words.words("read write") => modes.read_only = Some(false),
            () if words.words("not deferrable") || words.word("deferrable") => modes.deferrable = true,
            () => return None,
        }
        words.symbol(',');
    }
    Some(modes)
}

fn set(words: &mut Words<'_>) -> Option<Node> {
    if words.word("transaction") {
        return modes(words).map(Node::SetTransaction);
    }
    let local = words.word("local");
    if !local && words.word("session") && matches!(words.peek(), Some(Kind::Word(next)) if next == "authorization") {
        words.at -= 1;
    }
    let name = match () {
        () if words.words("time zone") => "timezone".to_owned(),
        () if words.word("names") => "client_encoding".to_owned(),
        () if words.words("session authorization") => "session_authorization".to_owned(),
        () if words.word("role") => "role".to_owned(),
        () => words.parameter()?,
    };
    let direct = matches!(&*name, "timezone" | "client_encoding" | "session_authorization" | "role");
    if !words.symbol('=') && !words.word("to") && !direct {
        return None;
    }
    if words.word("default") || (name == "timezone" && words.word("local")) {
        return Some(Node::Set { name, value: None, local });
    }
    let mut values = Vec::new();
    loop {
        values.push(value(words)?);
        if !words.symbol(',') {
            return Some(Node::Set { name, value: Some(Assigned(values)), local });
        }
    }
}

fn value(words: &mut Words<'_>) -> Option<String> {
    let sign = if words.symbol('-') { "-" } else { "" };
    let (Kind::Word(value) | Kind::Quoted(value) | Kind::Text(value) | Kind::Number(value)) = words.peek()? else {
        return None;
    };
    let value = format!("{sign}{value}");
    words.at += 1;
    Some(value)
}

fn reset(words: &mut Words<'_>) -> Option<Node> {
    Some(Node::Reset(match () {
        () if words.words("session authorization") => Some("session_authorization".into()),
        () if words.words("time zone") => Some("timezone".into()),
        () if words.word("all") => None,
        () => Some(words.parameter()?),
    }))
}

fn fetch(words: &mut Words<'_>) -> Option<Node> {
    let mut count = Some(1);
    if words.word("all") {
        count = None;
    } else if let Some(Kind::Number(number)) = words.peek() {
        count = Some(number.parse().ok()?);
        words.at += 1;
    } else {
        words.word("next");
    }
    _ = words.word("from") || words.word("in");
    Some(Node::Fetch { name: words.name()?, count })
}

fn copy(words: &mut Words<'_>) -> Option<Node> {
    if words.symbol('(') {
        let end = words.tokens.iter().rposition(|token| token.kind == Kind::Symbol(')'))?;
        let inner = statement(words.sql, words.tokens.get(words.at..end).filter(|tokens| !tokens.is_empty())?).ok()?;
        words.at = end + 1;
        return (words.words("to stdout") && inner.node.is_query()).then(|| Node::CopyOut(Box::new(inner)));
    }
    let table = words.table()?;
    words.words("from stdin").then_some(Node::CopyIn(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Node {
        let (mut statements, _) = statements(sql, true).unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
        assert_eq!(statements.len(), 1, "{sql}");
        statements.remove(0).node
    }

    #[test]
    fn settings_are_read_however_they_are_written() {
        let set = |name: &str, values: &[&str], local| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            Node::Set { name: name.into(), value: Some(Assigned(values)), local }
        };
        assert_eq!(read("SET SESSION \"app\".\"x\" = 'v'"), set("app.x", &["v"], false));
        assert_eq!(read("set local work_mem to 64"), set("work_mem", &["64"], true));
        assert_eq!(read("SET search_path = 'a',\"B\", c"), set("search_path", &["a", "B", "c"], false));
        assert_eq!(read("SET TIME ZONE 'UTC'"), set("timezone", &["UTC"], false));
        assert_eq!(
            read("SET LOCAL SESSION AUTHORIZATION DEFAULT"),
            Node::Set { name: "session_authorization".into(), value: None, local: true }
        );
        assert_eq!(read("SET LOCAL ROLE NONE"), set("role", &["none"], true));
        assert_eq!(read("RESET SESSION AUTHORIZATION"), Node::Reset(Some("session_authorization".into())));
    }

    #[test]
    fn transactions_are_read_with_their_modes() {
        let modes = Modes { level: Some("read committed"), read_only: None, deferrable: true };
        assert_eq!(read("BEGIN ISOLATION LEVEL READ COMMITTED, NOT DEFERRABLE"), Node::Begin { word: "BEGIN", modes });
        let modes = Modes { read_only: Some(true), ..Modes::default() };
        assert_eq!(read("START TRANSACTION READ ONLY"), Node::Begin { word: "START TRANSACTION", modes });
        assert_eq!(read("END WORK"), Node::Commit);
        assert_eq!(read("ABORT"), Node::Rollback);
    }

    #[test]
    fn the_statements_of_a_text_are_told_apart() {
        let (all, _) = statements(" ;SELECT ';' ; /* ; */ COMMIT;", true).unwrap();
        assert_eq!(all.len(), 2);
        assert!(statements("", true).unwrap().0.is_empty());
    }

    #[test]
    fn what_is_not_known_is_said_to_be_so() {
        let failure = statements("SELECT 1; VACUUM ledger", true).unwrap_err();
        assert_eq!(failure, unknown_syntax("VACUUM ledger"));
        assert!(statements("COMMIT what", true).is_err());
    }
}
