//! Reading SELECT and INSERT, and what has a value in them.

use super::{
    sql::{Expression, Item, Node, Read, What},
    tokens::Kind,
    values::Type,
    words::Words,
};

pub(super) fn query(words: &mut Words<'_>) -> Option<Node> {
    if words.words("insert into") {
        let table = words.table()?;
        let values = words.word("values").then(|| words.list(expression))??;
        return Some(Node::Insert { table, values });
    }
    if !words.word("select") {
        return None;
    }
    let start = words.at;
    if let Some(read) = read(words) {
        return Some(Node::Read(read));
    }
    words.at = start;
    let mut items = Vec::new();
    loop {
        items.push(item(words)?);
        if !words.symbol(',') {
            return Some(Node::Select(items));
        }
    }
}

/// A SELECT from a table; `None` if it is not one.
fn read(words: &mut Words<'_>) -> Option<Read> {
    let what = if words.word("count") {
        (words.symbol('(') && words.symbol('*') && words.symbol(')')).then_some(What::Count)?
    } else if words.symbol('*') {
        What::All
    } else {
        let mut columns = Vec::new();
        loop {
            let at = words.place();
            columns.push((words.name()?, at));
            if !words.symbol(',') {
                break What::Columns(columns);
            }
        }
    };
    let table = words.word("from").then(|| words.table())??;
    let filter = if words.word("where") {
        let at = words.place();
        let column = words.name()?;
        words.symbol('=').then(|| Some(Some((column, at, expression(words)?))))??
    } else {
        None
    };
    Some(Read { table, what, filter })
}

fn item(words: &mut Words<'_>) -> Option<Item> {
    let expression = expression(words)?;
    let name = if words.word("as") { words.name()? } else { own_name(&expression) };
    Some(Item { expression, name })
}

/// The name of a column that is given none.
fn own_name(expression: &Expression) -> String {
    match expression {
        Expression::Call { name, .. } => name.clone(),
        Expression::Cast(inner, to) => match own_name(inner) {
            name if name == "?column?" => to.name().into(),
            name => name,
        },
        _ => "?column?".into(),
    }
}

/// Something that has a value.
pub(super) fn expression(words: &mut Words<'_>) -> Option<Expression> {
    let mut left = operand(words)?;
    while words.symbol('/') {
        left = Expression::Divide(Box::new(left), Box::new(operand(words)?));
    }
    Some(left)
}

fn operand(words: &mut Words<'_>) -> Option<Expression> {
    let mut value = primary(words)?;
    while words.peek() == Some(&Kind::Cast) {
        words.at += 1;
        value = Expression::Cast(Box::new(value), type_name(words)?);
    }
    Some(value)
}

fn primary(words: &mut Words<'_>) -> Option<Expression> {
    let at = words.place();
    let negative = words.symbol('-');
    let kind = words.peek()?.clone();
    words.at += 1;
    let value = match kind {
        Kind::Number(number) => match number.parse() {
            Ok(integer) if !number.contains('.') => Expression::Integer(integer),
            _ => Expression::Decimal(number.parse().ok()?),
        },
        Kind::Text(text) => Expression::Text(text, at),
        Kind::Parameter(number) => Expression::Parameter(number),
        Kind::Symbol('(') => {
            let inner = expression(words)?;
            words.symbol(')').then_some(inner)?
        }
        Kind::Word(word) if word == "null" => Expression::Null,
        Kind::Word(word) if word == "true" || word == "false" => Expression::Bool(word == "true"),
        Kind::Word(name) if matches!(&*name, "current_user" | "session_user" | "user") => {
            Expression::Call { name, at, arguments: Vec::new() }
        }
        Kind::Word(name) | Kind::Quoted(name) => {
            let name = if name == "pg_catalog" && words.symbol('.') { words.name()? } else { name };
            Expression::Call { name, at, arguments: words.list(expression)? }
        }
        _ => return None,
    };
    match value {
        Expression::Integer(number) if negative => Some(Expression::Integer(-number)),
        Expression::Decimal(number) if negative => Some(Expression::Decimal(-number)),
        _ if negative => None,
        value => Some(value),
    }
}

pub(super) fn type_name(words: &mut Words<'_>) -> Option<Type> {
    let name = words.name()?;
    let name = if name == "pg_catalog" && words.symbol('.') { words.name()? } else { name };
    match &*name {
        "text" => Some(Type::Text),
        "int" | "integer" | "int4" => Some(Type::Int4),
        "bigint" | "int8" => Some(Type::Int8),
        "bool" | "boolean" => Some(Type::Bool),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::reading::statements, *};

    fn read(sql: &str) -> Node {
        statements(sql, true).unwrap().0.remove(0).node
    }

    #[test]
    fn columns_get_the_names_that_postgresql_gives_them() {
        let sql =
            "SELECT 'x', 'x'::text, $1, pg_sleep(0.5), pg_catalog.set_config('a', 'b', true), 1/0, 2 AS two, true";
        let Node::Select(items) = read(sql) else { panic!("a SELECT") };
        let names: Vec<_> = items.iter().map(|item| &*item.name).collect();
        assert_eq!(names, ["?column?", "text", "?column?", "pg_sleep", "set_config", "?column?", "two", "?column?"]);
    }

    #[test]
    fn tables_are_read_with_a_filter_or_without() {
        let Node::Read(read) = read("SELECT n FROM ledger WHERE who = $1") else { panic!("a SELECT from a table") };
        assert_eq!(read.what, What::Columns(vec![("n".into(), 7)]));
        assert_eq!(read.table.at, 14);
        assert_eq!(read.filter.unwrap(), ("who".into(), 27, Expression::Parameter(1)));
    }
}
