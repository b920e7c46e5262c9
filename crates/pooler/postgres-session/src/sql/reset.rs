//! RESET leads back to where the session began. For a client that is what it asked for at its start, for its server it
//! is what that had at its own. So behind a statement that sets parameters back stands another of ours, in the same
//! text, that sets them as the client had them. It knows no connection; what must be known of the answers is told in
//! the feature of the same name.

use crate::{
    sql::{
        parameters::{Settings, is_identity, write_assignment, write_set_config},
        tokens::{Token, Tokens, is_word},
    },
    wire::message::take_text,
};

/// Beginnings of amended statements of the extended protocol whose answer is told as that of a RESET or SET.
const MARKS: [(&[u8], Tag); 2] = [(b"/* poolhouse: RESET */ ", Tag::Reset), (b"/* poolhouse: SET */ ", Tag::Set)];

/// The command that the client is told was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tag {
    Reset,
    Set,
}

/// Encloses procedural code of ours.
const QUOTE: &[u8] = b"$poolhouse$";

/// Most statements of one text that are followed.
const MAX_STATEMENTS: usize = 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome<T> {
    /// The effect cannot be foreseen: a survey has to find it.
    Unclear,
    Same,
    Amended(T),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Amended {
    pub(crate) text: Vec<u8>,
    /// Numbers of our statements behind each statement that is answered SET or RESET, in their order.
    pub(crate) behind: Vec<u8>,
    /// Places of insertions, in characters of the client's text, and their lengths.
    pub(crate) insertions: Vec<(usize, usize)>,
}

impl Amended {
    /// The place in the client's text, in characters from 1, of a place in this one.
    pub(crate) fn original(&self, position: usize) -> usize {
        let mut shift = 0;
        for &(at, length) in &self.insertions {
            if position <= at + shift {
                break;
            }
            shift += length;
        }
        position - shift.min(position)
    }
}

/// What one statement resets.
#[derive(Debug, PartialEq, Eq)]
struct Reset {
    /// `None`: all parameters.
    name: Option<Vec<u8>>,
    /// For the transaction only.
    local: bool,
    /// The answer is RESET, not SET.
    tells_reset: bool,
}

/// Amends the text of a Query of a client with these settings at its `start`. `suspected`: the number of its statements
/// that seem to reset something; `wide`: characters may be of several bytes that are not UTF-8.
pub(crate) fn amend_query(text: &[u8], suspected: usize, wide: bool, start: &Settings) -> Outcome<Amended> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    if start.extras.is_empty() {
        return Outcome::Same;
    }
    // A backslash may or may not end a literal, and within COPY the client goes on before the answer.
    if text.contains(&b'\\') || (wide && !text.is_ascii()) {
        return Outcome::Unclear;
    }
    let Some(statements) = statements(text) else { return Outcome::Unclear };
    if let ([(tokens, _)], 1) = (&statements[..], suspected) {
        return match read_reset(tokens).map(|reset| amend_alone(&reset, start)) {
            Some(Outcome::Amended(text)) => Outcome::Amended(Amended { text, ..Amended::default() }),
            Some(Outcome::Same) => Outcome::Same,
            Some(Outcome::Unclear) | None => Outcome::Unclear,
        };
    }
    let mut amended = Amended::default();
    let mut done = 0;
    let mut resets = 0;
    for (tokens, end) in statements {
        if is_word(tokens.first(), "copy") {
            return Outcome::Unclear;
        }
        let answered = is_word(tokens.first(), "reset")
            || (is_word(tokens.first(), "set") && !is_word(tokens.get(1), "constraints"));
        if !answered {
            continue;
        }
        let mut count = 0;
        if let Some(reset) = read_reset(&tokens) {
            resets += 1;
            amended.text.extend_from_slice(&text[done..end]);
            let before = amended.text.len();
            let Some(ours) = write_start(&mut amended.text, Place::Behind, &reset, start) else {
                return Outcome::Unclear;
            };
            count = ours;
            done = end;
            if count > 0 {
                let at = text[..end].iter().filter(|&&byte| byte & 0xC0 != 0x80 || wide).count();
                let put_in = &amended.text[before..];
                let length = put_in.iter().filter(|&&byte| byte & 0xC0 != 0x80 || wide).count();
                amended.insertions.push((at, length));
            }
        }
        amended.behind.push(count);
    }
    if resets != suspected {
        return Outcome::Unclear;
    }
    if amended.insertions.is_empty() {
        return Outcome::Same;
    }
    amended.text.extend_from_slice(&text[done..]);
    Outcome::Amended(amended)
}

/// Amends the body of a Parse behind the name: a text, and the types of its parameters.
pub(crate) fn amend_parse(body: &[u8], suspected: usize, start: &Settings) -> Outcome<Vec<u8>> {
    let mut types = body;
    let Some(text) = take_text(&mut types) else { return Outcome::Unclear };
    if start.extras.is_empty() {
        return Outcome::Same;
    }
    if text.contains(&b'\\') {
        return Outcome::Unclear;
    }
    let Some(statements) = statements(text) else { return Outcome::Unclear };
    let ([(tokens, _)], 1) = (&statements[..], suspected) else { return Outcome::Unclear };
    let Some(reset) = read_reset(tokens) else { return Outcome::Unclear };
    let mut amended = match amend_alone(&reset, start) {
        Outcome::Amended(amended) => amended,
        Outcome::Same => return Outcome::Same,
        Outcome::Unclear => return Outcome::Unclear,
    };
    amended.push(0);
    amended.extend_from_slice(types);
    Outcome::Amended(amended)
}

/// The statement in place of this one, if it is alone in its text: a second one would make the text a transaction.
fn amend_alone(reset: &Reset, start: &Settings) -> Outcome<Vec<u8>> {
    let mut amended = MARKS[usize::from(!reset.tells_reset)].0.to_vec();
    let written = if reset.name.is_none() {
        amended.extend_from_slice(&[b"DO ", QUOTE, b" BEGIN RESET ALL;"].concat());
        let written = write_start(&mut amended, Place::Procedure, reset, start);
        amended.extend_from_slice(&[b" END ", QUOTE].concat());
        written
    } else {
        write_start(&mut amended, Place::Alone, reset, start)
    };
    match written {
        None => Outcome::Unclear,
        Some(0) => Outcome::Same,
        Some(_) => Outcome::Amended(amended),
    }
}

/// The command that the client is told for a statement with this text, if the text is amended.
pub(crate) fn tag_of_amended(body: &[u8]) -> Option<Tag> {
    MARKS.iter().find(|(mark, _)| body.starts_with(mark)).map(|(_, tag)| *tag)
}

/// Where statements are placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Behind others, in the text of a Query.
    Behind,
    Procedure,
    Alone,
}

/// Appends statements that set the parameters as at the start; returns their number, or `None` if they cannot be
/// written.
fn write_start(sql: &mut Vec<u8>, place: Place, reset: &Reset, start: &Settings) -> Option<u8> {
    let mut count = 0u8;
    for (name, value) in start.extras.iter() {
        let meant = match &reset.name {
            Some(one) => one.eq_ignore_ascii_case(name),
            // RESET ALL does not reset the identity.
            None => !is_identity(name),
        };
        if meant {
            if value.windows(QUOTE.len()).any(|part| part == QUOTE) {
                return None;
            }
            if place == Place::Behind {
                sql.push(b';');
            }
            if !write_assignment(sql, name, value, reset.local) {
                let enclosed = place != Place::Procedure;
                if enclosed {
                    sql.extend_from_slice(&[b"DO ", QUOTE, b" BEGIN "].concat());
                }
                sql.extend_from_slice(b"PERFORM ");
                write_set_config(sql, name, value, reset.local);
                if enclosed {
                    sql.extend_from_slice(&[b"; END ", QUOTE].concat());
                }
            }
            if place == Place::Procedure {
                sql.push(b';');
            }
            count = count.checked_add(1)?;
        }
    }
    Some(count)
}

/// The first tokens of a statement, and where it ends.
type Statement<'a> = (Vec<Token<'a>>, usize);

/// The statements of a text; `None` if their ends cannot be found.
fn statements(text: &[u8]) -> Option<Vec<Statement<'_>>> {
    const FIRST: usize = 16;
    let mut found: Vec<Statement<'_>> = Vec::new();
    let mut within = false;
    let mut depth = 0u32;
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next() {
        match token {
            Token::Symbol(b';') if depth == 0 => {
                within = false;
                continue;
            }
            Token::Symbol(b'(') => depth += 1,
            Token::Symbol(b')') => depth = depth.saturating_sub(1),
            // The body of a function may be statements.
            Token::Word(word) if word.eq_ignore_ascii_case(b"atomic") => return None,
            _ => {}
        }
        if !std::mem::replace(&mut within, true) {
            if found.len() == MAX_STATEMENTS {
                return None;
            }
            found.push((Vec::new(), 0));
        }
        let (first, end) = found.last_mut().expect("a statement has begun");
        if first.len() < FIRST {
            first.push(token);
        }
        *end = text.len() - tokens.remaining();
    }
    Some(found)
}

fn read_reset(tokens: &[Token<'_>]) -> Option<Reset> {
    let (first, mut rest) = tokens.split_first()?;
    let tells_reset = is_word(Some(first), "reset");
    if !tells_reset && !is_word(Some(first), "set") {
        return None;
    }
    let mut local = false;
    if !tells_reset && (is_word(rest.first(), "local") || is_word(rest.first(), "session")) {
        let authorization = is_word(rest.first(), "session") && is_word(rest.get(1), "authorization");
        local = is_word(rest.first(), "local");
        rest = if authorization { rest } else { &rest[1..] };
    }
    let word = |at: usize, other: &str| is_word(rest.get(at), other);
    let (name, value) = if word(0, "time") && word(1, "zone") {
        (b"timezone".to_vec(), &rest[2..])
    } else if word(0, "session") && word(1, "authorization") {
        (b"session_authorization".to_vec(), &rest[2..])
    } else if !tells_reset && word(0, "names") {
        (b"client_encoding".to_vec(), &rest[1..])
    } else {
        name(rest)?
    };
    let all = tells_reset && word(0, "all") && rest.len() == 1;
    let back = match value {
        [] => tells_reset,
        [one] if word(0, "time") => is_word(Some(one), "local") || is_word(Some(one), "default"),
        [one] => is_word(Some(one), "default") && !tells_reset,
        [to, one] => (is_word(Some(to), "to") || *to == Token::Symbol(b'=')) && is_word(Some(one), "default"),
        _ => false,
    };
    back.then(|| Reset { name: (!all).then_some(name), local, tells_reset })
}

/// A name, perhaps with dots in it, and the tokens behind it.
fn name<'a, 'b>(mut tokens: &'a [Token<'b>]) -> Option<(Vec<u8>, &'a [Token<'b>])> {
    let mut name = Vec::new();
    loop {
        match tokens.first()? {
            Token::Word(word) | Token::Quoted(word) => name.extend_from_slice(word),
            _ => return None,
        }
        tokens = &tokens[1..];
        if tokens.first() != Some(&Token::Symbol(b'.')) {
            return Some((name, tokens));
        }
        name.push(b'.');
        tokens = &tokens[1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parameters::tests::pairs;

    fn with_start<T>(act: impl FnOnce(&Settings) -> T) -> T {
        let set = [
            ("search_path", "s1, \"A b\""),
            ("app.x", "1"),
            ("role", "reader"),
            ("temp_tablespaces", "a,b"),
            ("TimeZone", "CET"),
        ];
        let start = Settings::new(pairs(&[("TimeZone", "CET"), ("DateStyle", "ISO, MDY")]), pairs(&set));
        act(&start)
    }

    fn text(sql: &str, suspected: usize) -> String {
        match with_start(|start| amend_query(sql.as_bytes(), suspected, false, start)) {
            Outcome::Amended(amended) => String::from_utf8(amended.text).unwrap(),
            other => format!("{other:?}"),
        }
    }

    fn parsed(sql: &str) -> String {
        match with_start(|start| amend_parse(format!("{sql}\0\0\0").as_bytes(), 1, start)) {
            Outcome::Amended(body) => String::from_utf8(body).unwrap().replace('\0', "~"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_sets_back_is_followed_by_the_clients_start() {
        assert_eq!(
            text("BEGIN; RESET timezone /* so */; SELECT 1", 1),
            "BEGIN; RESET timezone;SET \"TimeZone\" = 'CET' /* so */; SELECT 1"
        );
        assert_eq!(
            text("set local time zone default;x", 1),
            "set local time zone default;SET LOCAL \"TimeZone\" = 'CET';x"
        );
        assert_eq!(
            text("x;SET Search_Path TO DEFAULT", 1),
            "x;SET Search_Path TO DEFAULT;SET \"search_path\" = 's1','A b'"
        );
        assert_eq!(
            text("RESET ALL;SET LOCAL x = 1", 1),
            "RESET ALL;SET \"search_path\" = 's1','A b';SET \"app\".\"x\" = '1';\
             DO $poolhouse$ BEGIN PERFORM pg_catalog.set_config('temp_tablespaces','a,b',false); END $poolhouse$;\
             SET \"TimeZone\" = 'CET';SET LOCAL x = 1"
        );
        assert_eq!(text("reset role", 1), "/* poolhouse: RESET */ SET \"role\" = 'reader'");
    }

    #[test]
    fn what_needs_nothing_stays_as_it_is() {
        assert_eq!(text("RESET DateStyle; RESET work_mem", 2), "Same");
        assert_eq!(text("RESET TRANSACTION ISOLATION LEVEL", 0), "Same");
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        for (sql, suspected) in [
            ("RESET timezone; SELECT '\\'", 1),
            ("COPY t FROM STDIN; RESET timezone", 1),
            ("DO $$ BEGIN RESET timezone; END $$; RESET timezone", 2),
            ("CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; END; RESET timezone", 1),
            ("DISCARD ALL", 1),
            ("SET NAMES", 1),
        ] {
            assert_eq!(text(sql, suspected), "Unclear", "{sql}");
        }
    }

    #[test]
    fn a_prepared_reset_becomes_a_statement_with_the_same_outcome() {
        assert_eq!(parsed("RESET TimeZone;"), "/* poolhouse: RESET */ SET \"TimeZone\" = 'CET'~~~");
        assert_eq!(parsed("SET LOCAL TimeZone = DEFAULT"), "/* poolhouse: SET */ SET LOCAL \"TimeZone\" = 'CET'~~~");
        assert_eq!(
            parsed("reset all"),
            "/* poolhouse: RESET */ DO $poolhouse$ BEGIN RESET ALL;SET \"search_path\" = 's1','A b';\
             SET \"app\".\"x\" = '1';PERFORM pg_catalog.set_config('temp_tablespaces','a,b',false);SET \"TimeZone\" \
             = 'CET'; \
             END $poolhouse$~~~"
        );
        assert_eq!(
            parsed("RESET temp_tablespaces"),
            "/* poolhouse: RESET */ DO $poolhouse$ BEGIN PERFORM \
             pg_catalog.set_config('temp_tablespaces','a,b',false); END $poolhouse$~~~"
        );
        assert_eq!(parsed("RESET work_mem"), "Same");
        assert_eq!(parsed("RESET a; RESET b"), "Unclear");
    }

    #[test]
    fn a_place_in_the_text_is_told_as_the_client_counts() {
        let sql = "RESET TimeZone; RESET TimeZone; SELECT 'ü' FROM nowhere";
        let Outcome::Amended(amended) = with_start(|start| amend_query(sql.as_bytes(), 2, false, start)) else {
            panic!()
        };
        assert_eq!(amended.behind, [1, 1]);
        let of = |text: &str| 1 + text[..text.find("nowhere").unwrap()].chars().count();
        assert_eq!(amended.original(of(std::str::from_utf8(&amended.text).unwrap())), of(sql));
        assert_eq!(amended.original(1), 1);
    }
}
