//! Parser of SELECT, INSERT and expressions.

use super::{
    sql::{Expression, Item, Node, Read},
    token_reader::TokenReader,
    tokens::Kind,
};

pub(super) fn query(words: &mut TokenReader<'_>) -> Option<Node> {
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

/// `SELECT count(*)` from a table; `None` if it is not one.
fn read(words: &mut TokenReader<'_>) -> Option<Read> {
    if !(words.word("count") && words.symbol('(') && words.symbol('*') && words.symbol(')') && words.word("from")) {
        return None;
    }
    let table = words.table()?;
    let mut filter = None;
    if words.word("where") {
        let at = words.place();
        let column = words.name()?;
        filter = Some((column, at, words.symbol('=').then(|| expression(words))??));
    }
    Some(Read { table, filter })
}

fn item(words: &mut TokenReader<'_>) -> Option<Item> {
    let expression = expression(words)?;
    let name = own_name(&expression);
    Some(Item { expression, name })
}

/// The name of a column that is given none.
fn own_name(expression: &Expression) -> String {
    match expression {
        Expression::Call { name, .. } => name.clone(),
        _ => "?column?".into(),
    }
}

pub(super) fn expression(words: &mut TokenReader<'_>) -> Option<Expression> {
    let mut left = operand(words)?;
    while words.symbol('/') {
        left = Expression::Divide(Box::new(left), Box::new(operand(words)?));
    }
    Some(left)
}

fn operand(words: &mut TokenReader<'_>) -> Option<Expression> {
    let at = words.place();
    let kind = words.peek()?.clone();
    words.at += 1;
    Some(match kind {
        Kind::Number(number) => match number.parse() {
            Ok(integer) if !number.contains('.') => Expression::Integer(integer),
            _ => Expression::Decimal(number.parse().ok()?),
        },
        Kind::Text(text) => Expression::Text(text, at),
        Kind::Parameter(number) => Expression::Parameter(number),
        Kind::Word(word) if word == "true" || word == "false" => Expression::Bool(word == "true"),
        Kind::Word(name) | Kind::Quoted(name) => {
            let name = if name == "pg_catalog" && words.symbol('.') { words.name()? } else { name };
            Expression::Call { name, at, arguments: words.list(expression)? }
        }
        Kind::Symbol(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::parser::statements, *};

    fn read(sql: &str) -> Node {
        statements(sql).unwrap().remove(0).node
    }

    #[test]
    fn columns_get_the_names_that_postgresql_gives_them() {
        let sql = "SELECT 'x', $1, pg_sleep(0.5), pg_catalog.set_config('a', 'b', true), 1/0, true";
        let Node::Select(items) = read(sql) else { panic!("a SELECT") };
        let names: Vec<_> = items.iter().map(|item| &*item.name).collect();
        assert_eq!(names, ["?column?", "?column?", "pg_sleep", "set_config", "?column?", "?column?"]);
    }

    #[test]
    fn rows_of_a_table_are_counted_with_a_filter_or_without() {
        let Node::Read(read) = read("SELECT count(*) FROM ledger WHERE who = $1") else { panic!("a count") };
        assert_eq!(read.table.at, 21);
        assert_eq!(read.filter.unwrap(), ("who".into(), 34, Expression::Parameter(1)));
    }
}
