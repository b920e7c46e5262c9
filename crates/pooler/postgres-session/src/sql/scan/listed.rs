//! `SELECT set_config(name, 'x', false) FROM pg_settings WHERE name = 'y'`, as pg_dump has it: the parameter is set if
//! the server has it. Where the view is PostgreSQL's own, that is `SELECT set_config('y', 'x', false)`.

use super::settings::is;
use crate::sql::{
    parameter_names::is_verbatim,
    tokens::{Token, Tokens},
};

/// The text in that other form, if the whole of it has this form; and whether it names the schema of the view.
pub(super) fn rewrite(text: &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut tokens = Tokens::new(text);
    word(&mut tokens, "select")?;
    of_system(&mut tokens, "set_config")?;
    symbol(&mut tokens, b'(')?;
    word(&mut tokens, "name")?;
    symbol(&mut tokens, b',')?;
    let Some(Token::Literal(value)) = tokens.next() else { return None };
    symbol(&mut tokens, b',')?;
    let Some(Token::Word(local)) = tokens.next() else { return None };
    symbol(&mut tokens, b')')?;
    word(&mut tokens, "from")?;
    let qualified = of_system(&mut tokens, "pg_settings")?;
    word(&mut tokens, "where")?;
    word(&mut tokens, "name")?;
    symbol(&mut tokens, b'=')?;
    let Some(Token::Literal(name)) = tokens.next() else { return None };
    if !matches!(tokens.next(), None | Some(Token::Symbol(b';'))) || tokens.next().is_some() {
        return None;
    }
    // By the search_path it is found out whose view it is; and what PostgreSQL does not list, the view does not have.
    let listed = is_verbatim(name) && !name.contains(&b'.') && !is(name, "search_path");
    let plain = !value.contains(&b'\'') && !value.contains(&b'\\') && (is(local, "false") || is(local, "true"));
    let text = [b"SELECT set_config('", name, b"', '", value, b"', ", local, b")"].concat();
    (listed && plain && !tokens.unclear).then_some((text, qualified))
}

fn word(tokens: &mut Tokens<'_>, wanted: &str) -> Option<()> {
    matches!(tokens.next()?, Token::Word(word) if is(word, wanted)).then_some(())
}

fn symbol(tokens: &mut Tokens<'_>, wanted: u8) -> Option<()> {
    (tokens.next()? == Token::Symbol(wanted)).then_some(())
}

/// Takes a name with or without the schema of the system. True if it has the schema.
fn of_system(tokens: &mut Tokens<'_>, wanted: &str) -> Option<bool> {
    let mut ahead = tokens.clone();
    let qualified = word(&mut ahead, "pg_catalog").is_some();
    if qualified {
        *tokens = ahead;
        symbol(tokens, b'.')?;
    }
    word(tokens, wanted).map(|()| qualified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_of_such_a_text_is_taken_for_one() {
        let dump = "SELECT set_config(name, 'view, foreign-table', false) FROM pg_settings WHERE name = 'restrict_x'";
        let (text, qualified) = rewrite(dump.as_bytes()).unwrap();
        assert_eq!(text, b"SELECT set_config('restrict_x', 'view, foreign-table', false)");
        assert!(!qualified);
        let full = "select pg_catalog.set_config(name, '', true) from pg_catalog.pg_settings where name='jit';";
        assert!(rewrite(full.as_bytes()).unwrap().1);
        for other in [
            "SELECT set_config(name, 'x', false) FROM pg_settings",
            "SELECT set_config(name, 'x', false) FROM evil.pg_settings WHERE name = 'y'",
            "SELECT set_config(name, 'x', false) FROM \"pg_settings\" WHERE name = 'y'",
            "SELECT set_config(name, 'x', false) FROM pg_settings WHERE name = 'a.y'",
            "SELECT set_config(name, 'x', false) FROM pg_settings WHERE name = 'search_path'",
            "SELECT set_config(name, 'x', false) FROM pg_settings WHERE name = 'y' OR true",
            "SELECT set_config(name, 'x', false) FROM pg_settings WHERE name = 'y'; SELECT 1",
            "SELECT set_config(name, 'x', NOT true) FROM pg_settings WHERE name = 'y'",
            "SELECT set_config(name, 'x\\', false) FROM pg_settings WHERE name = 'y'",
            "SELECT set_config(name, $1, false) FROM pg_settings WHERE name = 'y'",
            "SELECT set_config(name, 'x', false), f() FROM pg_settings WHERE name = 'y'",
            "WITH pg_settings AS (SELECT 1) SELECT set_config(name, 'x', false) FROM pg_settings WHERE name = 'y'",
        ] {
            assert!(rewrite(other.as_bytes()).is_none(), "{other}");
        }
    }
}
