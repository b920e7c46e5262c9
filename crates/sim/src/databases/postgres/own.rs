//! Texts of Poolhouse's own that are more than the model's SQL: they are known by how they begin, and only what rules their answers is
//! read out of them.

use super::{
    expressions,
    reading::{self, Words},
    sql::{Item, Node, Procedural},
    tokens::{Kind, Token, cut},
};

/// Columns of the answers about a catalogue.
const CATALOGUE_COLUMNS: usize = 7;

/// What such a statement does, if it is one. `tokens` are those of `span`.
pub(super) fn recognise(span: &str, tokens: &[Token]) -> Option<Node> {
    if span.starts_with("SELECT 'p'::pg_catalog.text, 'temporary'::pg_catalog.text") {
        return survey(span, tokens);
    }
    for mark in ["t", "d"] {
        if span.starts_with(&format!("SELECT '{mark}', pg_catalog.encode(")) {
            return Some(Node::Guarded { mark, names: names_of_settings(tokens) });
        }
    }
    if span.starts_with("SELECT 'm', '', mark, ") {
        let mark = ["m", "", "0.", "", "", "", ""].map(str::to_owned).to_vec();
        return Some(Node::Fixed(CATALOGUE_COLUMNS, vec![mark]));
    }
    let nothing = ["SELECT CASE WHEN p.prorettype ", "WITH e(place, tree) AS MATERIALIZED "];
    nothing.iter().any(|beginning| span.starts_with(beginning)).then(|| Node::Fixed(CATALOGUE_COLUMNS, Vec::new()))
}

fn survey(span: &str, tokens: &[Token]) -> Option<Node> {
    const BEFORE: &str = "OPERATOR(pg_catalog.!~) '^";
    let start = span.find(BEFORE)? + BEFORE.len();
    let length = span[start..].find("[0-9]+$'")?;
    let prefix = span[start..start + length].to_owned();
    let names = names_of_settings(tokens);
    Some(Node::Survey { settings: span.contains("pg_catalog.pg_settings"), names, prefix })
}

/// Of which settings the values are asked for by name.
fn names_of_settings(tokens: &[Token]) -> Vec<String> {
    let mut names = Vec::new();
    for three in tokens.windows(3) {
        if let [function, parenthesis, name] = three
            && function.kind == Kind::Word("current_setting".into())
            && parenthesis.kind == Kind::Symbol('(')
            && let Kind::Text(name) = &name.kind
        {
            names.push(name.clone());
        }
    }
    names
}

/// The statements of procedural code, if the model knows them all.
pub(super) fn procedure(code: &str) -> Option<Vec<Procedural>> {
    let tokens = cut(code, true).ok()?.list;
    let [first, inner @ .., last] = &tokens[..] else { return None };
    if first.kind != Kind::Word("begin".into()) || last.kind != Kind::Word("end".into()) {
        return None;
    }
    let parts = inner.split(|token| token.kind == Kind::Symbol(';')).filter(|part| !part.is_empty());
    parts.map(|part| procedural(code, part)).collect()
}

fn procedural(code: &str, tokens: &[Token]) -> Option<Procedural> {
    let mut words = Words { sql: code, tokens, at: 0 };
    if words.word("perform") {
        let expression = expressions::expression(&mut words)?;
        let items = vec![Item { expression, name: String::new() }];
        return words.is_done().then(|| Procedural::Run(reading::in_text(Node::Select(items), code)));
    }
    if !words.words("raise exception using") {
        return reading::statement(code, tokens).ok().map(Procedural::Run);
    }
    let (mut raised, mut message, mut hint) = ("P0001".to_owned(), String::new(), None);
    loop {
        let name = words.name()?;
        let value = words.symbol('=').then(|| words.text())??;
        match &*name {
            "errcode" => raised = value,
            "message" => message = value,
            "hint" => hint = Some(value),
            _ => return None,
        }
        if words.is_done() {
            return Some(Procedural::Raise { code: raised, message, hint });
        }
        words.symbol(',').then_some(())?;
    }
}

#[cfg(test)]
mod tests {
    use super::{super::reading::statements, *};

    #[test]
    fn procedural_code_is_read() {
        let code =
            "BEGIN RESET ALL;SET \"search_path\" = 's1','A b';PERFORM pg_catalog.set_config('a.b','',false); END ";
        let read = procedure(code).unwrap();
        assert_eq!(read.len(), 3);
        let code = " BEGIN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'm', HINT = 'h'; END ";
        let raised = Procedural::Raise { code: "55000".into(), message: "m".into(), hint: Some("h".into()) };
        assert_eq!(procedure(code), Some(vec![raised]));
        assert_eq!(procedure("BEGIN IF x THEN y; END"), None);
    }

    #[test]
    fn a_survey_is_read_for_what_rules_its_answer() {
        let sql = "/* poolhouse */ SELECT 'p'::pg_catalog.text, 'temporary'::pg_catalog.text, NULL WHERE name \
                   OPERATOR(pg_catalog.!~) '^poolhouse_0a_[0-9]+$'::pg_catalog.text UNION ALL SELECT 's', x FROM pg_catalog.pg_settings \
                   UNION ALL SELECT 's', pg_catalog.current_setting(E'a.\\x27b', true)";
        let node = statements(sql, true).unwrap().0.remove(0).node;
        let expected = Node::Survey { settings: true, names: vec!["a.'b".into()], prefix: "poolhouse_0a_".into() };
        assert_eq!(node, expected);
    }
}
