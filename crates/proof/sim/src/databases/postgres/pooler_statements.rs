//! Statements of the pooler that are more than the SQL of the model. They are recognised by their beginnings, and read
//! only for what their answers depend on.

use super::{
    sql::{Node, SurveyedStatements},
    tokens::{Kind, Token},
};

/// Recognises a statement of the pooler. `tokens`: the tokens of `span`.
pub(super) fn recognise(span: &str, tokens: &[Token]) -> Option<Node> {
    if span.starts_with("SELECT 'p'::pg_catalog.text, 'temporary'::pg_catalog.text") {
        return survey(span, tokens);
    }
    if span.starts_with("SELECT name, source, ") {
        return Some(Node::Sources);
    }
    for mark in ["t", "d"] {
        if span.starts_with(&format!("SELECT '{mark}', pg_catalog.encode(")) {
            return Some(Node::Guarded { mark, names: names_of_settings(tokens) });
        }
    }
    None
}

fn survey(span: &str, tokens: &[Token]) -> Option<Node> {
    let names = names_of_settings(tokens);
    let statements = match () {
        () if span.contains(" WHERE from_sql OR name OPERATOR(pg_catalog.!~) ") => SurveyedStatements::OfClients,
        () if span.contains(" WHERE from_sql)") => SurveyedStatements::OfSql,
        () => SurveyedStatements::None,
    };
    Some(Node::Survey { settings: span.contains("pg_catalog.pg_settings"), names, statements })
}

/// The settings whose values are asked for by name.
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

#[cfg(test)]
mod tests {
    use super::{super::parser::statements, *};

    #[test]
    fn a_survey_is_read_for_what_its_answer_depends_on() {
        let sql = "/* poolhouse */ SELECT 'p'::pg_catalog.text, 'temporary'::pg_catalog.text, NULL \
                   WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_prepared_statements WHERE from_sql) \
                   UNION ALL SELECT 's', x FROM pg_catalog.pg_settings \
                   UNION ALL SELECT 's', pg_catalog.current_setting(E'a.\\x27b', true)";
        let node = |sql: &str| statements(sql).unwrap().remove(0).node;
        let names = vec!["a.'b".into()];
        let survey = |statements| Node::Survey { settings: true, names: names.clone(), statements };
        assert_eq!(node(sql), survey(SurveyedStatements::OfSql));
        let of_clients = sql.replace("from_sql)", "from_sql OR name OPERATOR(pg_catalog.!~) '^x'::pg_catalog.text)");
        assert_eq!(node(&of_clients), survey(SurveyedStatements::OfClients));
    }
}
