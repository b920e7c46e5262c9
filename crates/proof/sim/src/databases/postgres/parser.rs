//! Parser of statements.

mod procedure;

use super::{
    expression_parser,
    failure::{Failure, unknown_syntax},
    pooler_statements,
    sql::{Discard, Node, Statement},
    token_reader::TokenReader,
    tokens::{Kind, Token, tokenise},
};

/// The statements of a text. Empty ones are left out.
pub(super) fn statements(sql: &str) -> Result<Vec<Statement>, Failure> {
    let tokens = tokenise(sql)?;
    let parts = tokens.split(|token| token.kind == Kind::Symbol(';')).filter(|part| !part.is_empty());
    parts.map(|part| statement(sql, part)).collect()
}

/// The statement of these tokens.
pub(super) fn statement(sql: &str, tokens: &[Token]) -> Result<Statement, Failure> {
    let span = &sql[tokens[0].start..tokens[tokens.len() - 1].end];
    if let Some(node) = pooler_statements::recognise(span, tokens) {
        return Ok(Statement::in_text(node, sql));
    }
    let mut words = TokenReader { sql, tokens, at: 0 };
    match node(&mut words) {
        Some(node) if words.is_done() => Ok(Statement::in_text(node, sql)),
        _ => Err(unknown_syntax(span)),
    }
}

fn node(words: &mut TokenReader<'_>) -> Option<Node> {
    let Some(Kind::Word(first)) = words.peek().cloned() else { return None };
    if matches!(&*first, "select" | "insert") {
        return expression_parser::query(words);
    }
    words.at += 1;
    match &*first {
        "begin" => {
            words.words("isolation level read committed");
            words.symbol(',');
            words.words("not deferrable");
            Some(Node::Begin)
        }
        "commit" => Some(Node::Commit),
        "rollback" if words.words("to savepoint") => words.name().map(Node::RollbackTo),
        "rollback" => Some(Node::Rollback),
        "savepoint" => words.name().map(Node::Savepoint),
        "release" => words.word("savepoint").then(|| words.name().map(Node::Release))?,
        "set" => set(words),
        "show" => words.parameter().map(Node::Show),
        "reset" => reset(words),
        "discard" => discard(words),
        "create" => create(words),
        "drop" => words.word("table").then(|| words.name().map(Node::Drop))?,
        "listen" => words.name().map(Node::Listen),
        "unlisten" if words.symbol('*') => Some(Node::Unlisten(None)),
        "unlisten" => words.name().map(|name| Node::Unlisten(Some(name))),
        "notify" => {
            let channel = words.name()?;
            let payload = if words.symbol(',') { words.text()? } else { String::new() };
            Some(Node::Notify { channel, payload })
        }
        "prepare" => prepare(words),
        "execute" => words.name().map(Node::Execute),
        "deallocate" => deallocate(words),
        "declare" => declare(words),
        "fetch" => words.name().map(Node::Fetch),
        "close" if words.word("all") => Some(Node::Close(None)),
        "close" => words.name().map(|name| Node::Close(Some(name))),
        "copy" => copy(words),
        "do" => procedure::read(&words.text()?).map(Node::Do),
        _ => None,
    }
}

/// What follows DISCARD.
fn discard(words: &mut TokenReader<'_>) -> Option<Node> {
    Some(Node::Discard(match () {
        () if words.word("all") => Discard::All,
        () if words.word("temp") => Discard::Temp,
        () if words.word("plans") => Discard::Plans,
        () if words.word("sequences") => Discard::Sequences,
        () => return None,
    }))
}

/// What follows CREATE: only a temporary table with a text column `v`.
fn create(words: &mut TokenReader<'_>) -> Option<Node> {
    let temporary = words.word("temp") || words.word("temporary");
    let name = (temporary && words.word("table")).then(|| words.name())??;
    let columns = words.list(|words| Some((words.name()?, words.name()?)))?;
    (columns == [("v".to_owned(), "text".to_owned())]).then_some(Node::CreateTemp(name))
}

/// What follows PREPARE.
fn prepare(words: &mut TokenReader<'_>) -> Option<Node> {
    let name = words.name()?;
    words.word("as").then(|| Some(Node::Prepare { name, statement: rest(words)? }))?
}

/// What follows DEALLOCATE.
fn deallocate(words: &mut TokenReader<'_>) -> Option<Node> {
    if words.word("all") {
        return Some(Node::Deallocate(None));
    }
    words.name().map(|name| Node::Deallocate(Some(name)))
}

/// What follows DECLARE.
fn declare(words: &mut TokenReader<'_>) -> Option<Node> {
    let name = words.name()?;
    if !words.word("cursor") {
        return None;
    }
    let hold = words.words("with hold");
    let statement = words.word("for").then(|| rest(words))??;
    statement.node.is_query().then_some(Node::Declare { name, hold, statement })
}

/// Parses the rest of the tokens as a statement.
fn rest(words: &mut TokenReader<'_>) -> Option<Box<Statement>> {
    let tokens = words.tokens.get(words.at..).filter(|tokens| !tokens.is_empty())?;
    words.at = words.tokens.len();
    statement(words.sql, tokens).ok().map(Box::new)
}

fn set(words: &mut TokenReader<'_>) -> Option<Node> {
    let local = words.word("local");
    let name = match () {
        () if words.words("session authorization") => "session_authorization".to_owned(),
        () if words.word("role") => "role".to_owned(),
        () => words.parameter()?,
    };
    let direct = matches!(&*name, "session_authorization" | "role");
    if !words.symbol('=') && !words.word("to") && !direct {
        return None;
    }
    if words.word("default") {
        return Some(Node::Set { name, value: None, local });
    }
    let mut values = Vec::new();
    loop {
        values.push(value(words)?);
        if !words.symbol(',') {
            return Some(Node::Set { name, value: Some(values), local });
        }
    }
}

fn value(words: &mut TokenReader<'_>) -> Option<String> {
    let (Kind::Word(value) | Kind::Quoted(value) | Kind::Text(value) | Kind::Number(value)) = words.peek()?.clone()
    else {
        return None;
    };
    words.at += 1;
    Some(value)
}

fn reset(words: &mut TokenReader<'_>) -> Option<Node> {
    Some(Node::Reset(match () {
        () if words.words("session authorization") => Some("session_authorization".into()),
        () if words.word("all") => None,
        () => Some(words.parameter()?),
    }))
}

fn copy(words: &mut TokenReader<'_>) -> Option<Node> {
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

    #[test]
    fn settings_are_read_however_they_are_written() {
        let set = |name: &str, values: &[&str], local| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            Node::Set { name: name.into(), value: Some(values), local }
        };
        let authorization = || "session_authorization".to_owned();
        for (sql, expected) in [
            ("SET \"app\".\"x\" = 'v'", set("app.x", &["v"], false)),
            ("set local work_mem to 64", set("work_mem", &["64"], true)),
            ("SET app.x = 'a',\"B\", c", set("app.x", &["a", "B", "c"], false)),
            ("SET LOCAL SESSION AUTHORIZATION DEFAULT", Node::Set { name: authorization(), value: None, local: true }),
            ("SET LOCAL ROLE NONE", set("role", &["none"], true)),
            ("RESET SESSION AUTHORIZATION", Node::Reset(Some(authorization()))),
            ("BEGIN ISOLATION LEVEL READ COMMITTED, NOT DEFERRABLE", Node::Begin),
        ] {
            assert_eq!(statements(sql).unwrap().remove(0).node, expected, "{sql}");
        }
    }

    #[test]
    fn the_statements_of_a_text_are_separated_and_unknown_ones_are_refused() {
        assert_eq!(statements(" ;SELECT ';' ; /* ; */ COMMIT;").unwrap().len(), 2);
        assert!(statements("").unwrap().is_empty());
        let failure = statements("SELECT 1; VACUUM ledger").unwrap_err();
        assert_eq!(failure, unknown_syntax("VACUUM ledger"));
        assert!(statements("COMMIT what").is_err());
    }
}
