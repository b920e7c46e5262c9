//! The code of a DO, of which the model knows a few kinds of statements. What they do is not known here.

use super::super::{
    expressions,
    sql::{Item, Node, Procedural, Statement},
    tokens::{Kind, Token, cut},
    words::Words,
};

/// The statements of procedural code, if the model knows them all.
pub(super) fn read(code: &str) -> Option<Vec<Procedural>> {
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
        return words.is_done().then(|| Procedural::Run(Statement::in_text(Node::Select(items), code)));
    }
    if !words.words("raise exception using") {
        return super::statement(code, tokens).ok().map(Procedural::Run);
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
    use super::*;

    #[test]
    fn procedural_code_is_read() {
        let code =
            "BEGIN RESET ALL;SET \"search_path\" = 's1','A b';PERFORM pg_catalog.set_config('a.b','',false); END ";
        let steps = read(code).unwrap();
        assert_eq!(steps.len(), 3);
        let code = " BEGIN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'm', HINT = 'h'; END ";
        let raised = Procedural::Raise { code: "55000".into(), message: "m".into(), hint: Some("h".into()) };
        assert_eq!(read(code), Some(vec![raised]));
        assert_eq!(read("BEGIN IF x THEN y; END"), None);
    }
}
