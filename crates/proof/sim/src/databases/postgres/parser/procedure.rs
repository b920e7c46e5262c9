//! The code of a DO: the model knows plain statements between BEGIN and END.

use super::super::{
    sql::Statement,
    tokens::{Kind, tokenise},
};

/// The statements of procedural code, if the model knows them all.
pub(super) fn read(code: &str) -> Option<Vec<Statement>> {
    let tokens = tokenise(code).ok()?;
    let [first, inner @ .., last] = &tokens[..] else { return None };
    if first.kind != Kind::Word("begin".into()) || last.kind != Kind::Word("end".into()) {
        return None;
    }
    let parts = inner.split(|token| token.kind == Kind::Symbol(';')).filter(|part| !part.is_empty());
    parts.map(|part| super::statement(code, part).ok()).collect()
}
