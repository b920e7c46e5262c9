//! Looks over the text of SQL for what may outlive its transaction: settings, temporary tables, locks and the like.
//! Nothing is taken for harmless but what is known to be: kinds of statements (`kinds`), and functions of the system
//! that are called by name (`calls`). What is left behind is then asked of the server (see `session::survey`), and
//! cleaned before another client gets it (see `features::cleaning`). What a text sets and resets is in `settings`. The
//! scanner knows no session.

mod calls;
mod glance;
mod kinds;
mod listed;
mod notation;
mod settings;

use crate::sql::{
    reset,
    suspects::{ALL_PARAMETERS, Findings, Suspects},
    tokens::{Token, Tokens},
};
use calls::Before;
use kinds::Kind;
pub(crate) use notation::{for_each_field, for_each_name};
use settings::next_is;

pub(crate) fn scan(text: &[u8]) -> Findings {
    if glance::is_plain(text) {
        return Findings::default();
    }
    let mut findings = Findings::default();
    if examine(text, &mut findings, true).unclear {
        findings = Findings::misread(&findings);
    }
    if findings.suspects.intersects(Suspects::UNKNOWN_NAME)
        && let Some((named, qualified)) = listed::rewrite(text)
    {
        findings = scan(&named);
        findings.suspects.insert(if qualified { Suspects::NONE } else { Suspects::NAME_FROM_VIEW });
    }
    if findings.suspects.intersects(Suspects::RESETS) && reset::tag_of_amended(text).is_some() {
        // It was amended before: what it sets back is as it should be.
        findings.settle_resets();
    }
    findings
}

/// Scans the beginning of a text that is too long to be kept. The rest may do anything, but sets a parameter of unknown
/// name only if the beginning does so or is code.
pub(crate) fn scan_beginning(text: &[u8]) -> Findings {
    let mut seen = Findings::default();
    let reading = examine(text, &mut seen, true);
    let mut supposed = Findings { custom: seen.custom, ..Findings::unreadable() };
    let kept = Suspects::UNKNOWN_NAME.union(Suspects::BOUND_NAME).union(Suspects::STRING_SYNTAX);
    supposed.suspects.insert(seen.suspects.intersection(kept));
    if reading.code {
        supposed.suspects.insert(Suspects::UNKNOWN_NAME);
    }
    supposed
}

/// What the examination of a text has shown, apart from the findings.
struct Examined {
    unclear: bool,
    /// The text has procedural code.
    code: bool,
}

/// What code that cannot be read may do.
const UNREAD_CODE: Suspects = Suspects::ANYTHING.union(Suspects::IRREVERSIBLE);

/// Whether a name is that of a table, so that parentheses behind it hold columns.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Table {
    #[default]
    No,
    Next,
    Last,
}

/// The position and state of the reader of a text.
#[derive(Default)]
struct Reader<'a> {
    /// A statement begins here.
    start: bool,
    /// Options of EXPLAIN are being read.
    prefix: bool,
    /// The next text constant is code.
    procedural: bool,
    depth: u32,
    /// Bits of the lowest 64 depths whose parenthesis may be followed by a call.
    open: u64,
    /// The name just read, if it is one; whether it is quoted, and qualified.
    name: Option<(&'a [u8], bool, bool)>,
    /// The name is qualified by the schema of temporary objects.
    temporary: bool,
    /// The token before that name and all that qualifies it.
    before_name: Before<'a>,
    last: Before<'a>,
    dot: bool,
    /// The word before the last.
    last_but_one: Before<'a>,
    /// Whether the next name is that of a table, or the last one was.
    table: Table,
    updates: bool,
    settings_table: bool,
    /// The text is the outermost, not code within another.
    outermost: bool,
    begun: bool,
}

fn examine(text: &[u8], found: &mut Findings, outermost: bool) -> Examined {
    let (mut code, mut escaped) = (false, false);
    let mut tokens = Tokens::new(text);
    let mut at = Reader { start: outermost, outermost, ..Reader::default() };
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(word) => read_name(&mut at, word, false, &mut tokens, found),
            Token::Quoted(word) => read_name(&mut at, word, true, &mut tokens, found),
            Token::Symbol(symbol) => read_symbol(&mut at, symbol, &tokens, found),
            Token::Literal(body) => {
                if at.procedural && outermost {
                    code = true;
                    examine_code(text, body, found);
                }
                at.end_name(Before::Other);
                at.start = false;
            }
            Token::Escaped | Token::EscapedName => {
                // Whatever it names.
                let of_name = if token == Token::EscapedName { Suspects::IRREVERSIBLE } else { Suspects::NONE };
                found.suspects.insert(Suspects::OPAQUE.union(of_name));
                escaped |= token == Token::EscapedName;
                if at.procedural {
                    found.suspects.insert(UNREAD_CODE);
                }
                at.end_name(Before::Other);
                at.start = false;
            }
            Token::Number => {
                at.end_name(Before::Other);
                at.start = false;
            }
        }
    }
    if at.updates && at.settings_table {
        // Its rule sets what is updated.
        let settings =
            Suspects::SETTINGS.union(Suspects::MEANING).union(Suspects::CONSTANTS).union(Suspects::STRING_SYNTAX);
        found.suspects.insert(Suspects::OPAQUE.union(settings).union(Suspects::RESET));
        found.resets.push(Box::from(*ALL_PARAMETERS));
    }
    if outermost {
        found.backslash |= tokens.backslash;
        found.wide |= !text.is_ascii();
    }
    if found.backslash || found.wide || tokens.unclear {
        notation::look_for_words(text, found);
    }
    if escaped {
        settings::note_literals(text, found);
    }
    Examined { unclear: tokens.unclear, code }
}

/// Examines the body of a DO or of a function, which is this literal of the text.
fn examine_code(text: &[u8], literal: &[u8], found: &mut Findings) {
    match notation::code(text, literal) {
        Some(body) => {
            if examine(&body, found, false).unclear {
                *found = Findings::misread(found);
            }
        }
        None => found.suspects.insert(UNREAD_CODE),
    }
}

impl<'a> Reader<'a> {
    /// The token read last is no name.
    fn end_name(&mut self, last: Before<'a>) {
        (self.name, self.dot) = (None, false);
        (self.last_but_one, self.last) = (self.last, last);
    }
}

fn read_name<'a>(at: &mut Reader<'a>, word: &'a [u8], quoted: bool, tokens: &mut Tokens<'a>, found: &mut Findings) {
    let qualified = at.dot;
    if !qualified {
        at.before_name = at.last;
    }
    at.temporary = qualified && (at.temporary || at.name.is_some_and(|(schema, ..)| is_temporary(schema)));
    if !quoted && !qualified {
        if at.prefix {
            let option = ["analyze", "analyse", "verbose"].iter().any(|option| settings::is(word, option));
            if !option && at.depth == 0 {
                (at.start, at.prefix) = (true, false);
            }
        }
        if std::mem::take(&mut at.start) {
            let exits = found.exits;
            let kind = kinds::read_first_words(word, tokens, found);
            // Behind another statement it is of no interest.
            found.several |= at.begun;
            found.exits = if std::mem::replace(&mut at.begun, true) { exits } else { found.exits };
            at.prefix = kind == Kind::Prefix;
            at.procedural = kind == Kind::Procedural;
            at.table = if kind == Kind::OfTable { Table::Next } else { Table::No };
            note_word(word, at, found);
            return at.end_name(Before::Word(word));
        }
    } else {
        at.start = false;
    }
    if qualified {
        notation::read(word, found);
    } else {
        at.table = if at.table == Table::Next { Table::Last } else { Table::No };
    }
    note_word(word, at, found);
    if at.procedural && at.outermost && !["language", "plpgsql"].iter().any(|known| settings::is(word, known)) {
        // Of another language than that nothing is known.
        found.suspects.insert(UNREAD_CODE);
    }
    if !at.outermost && !quoted && !qualified {
        // In procedural code a statement begins after many words, and a text may be composed.
        read_procedural_word(word, at.last, tokens, found);
    }
    (at.last_but_one, at.last) = (at.last, if quoted { Before::Quoted } else { Before::Word(word) });
    (at.name, at.dot) = (Some((word, quoted, qualified)), false);
}

/// A word of procedural code, which may begin a statement.
fn read_procedural_word(word: &[u8], last: Before<'_>, tokens: &mut Tokens<'_>, found: &mut Findings) {
    let is = |other: &str| settings::is(word, other);
    // ON CONFLICT DO is no statement.
    let composes = is("execute") || (is("do") && !next_is(tokens, "nothing") && !next_is(tokens, "update"));
    if composes {
        found.suspects.insert(Suspects::ANYTHING);
    } else if is("set") && !last.may_end() {
        // UPDATE t SET
    } else if STARTS.iter().any(|start| is(start)) {
        kinds::read_first_words(word, tokens, found);
    }
}

/// Words that begin a statement wherever they stand in procedural code.
const STARTS: [&str; 16] = [
    "set",
    "reset",
    "discard",
    "deallocate",
    "drop",
    "close",
    "unlisten",
    "listen",
    "insert",
    "prepare",
    "load",
    "create",
    "alter",
    "import",
    "reassign",
    "refresh",
];

pub(crate) fn scan_procedure(body: &[u8]) -> Findings {
    let mut findings = Findings { backslash: body.contains(&b'\\'), ..Findings::default() };
    if examine(body, &mut findings, false).unclear {
        findings = Findings::misread(&findings);
    }
    findings
}

fn read_symbol<'a>(at: &mut Reader<'a>, symbol: u8, tokens: &Tokens<'a>, found: &mut Findings) {
    match symbol {
        b';' if at.depth == 0 => {
            (at.start, at.prefix, at.procedural, at.table) = (at.outermost, false, false, Table::No);
            at.end_name(Before::Other);
        }
        b'.' => {
            if at.name.is_none() {
                // `(x).f`, `x[1].f`, `$1.f`
                at.end_name(Before::Other);
                (at.before_name, at.start) = (Before::Other, false);
            }
            at.dot = true;
        }
        b'(' => {
            let odd = match at.name.take() {
                Some((name, quoted, qualified)) => {
                    let of_table = std::mem::take(&mut at.table) == Table::Last;
                    let before = at.before_name;
                    if at.temporary && !before.is_one_of(&["table", "exists", "into"]) {
                        // What a temporary function does is in no catalogue that others read.
                        found.suspects.insert(Suspects::OPAQUE.union(Suspects::IRREVERSIBLE));
                    }
                    if !of_table {
                        let procedural = !at.outermost && !quoted && !qualified && calls::is_procedural(name, before);
                        if !procedural {
                            calls::call(name, quoted, qualified, before, tokens, found);
                        }
                    }
                    // DISTINCT ON (...) f(), OPERATOR(...) f()
                    !quoted && (settings::is(name, "on") || settings::is(name, "operator"))
                }
                None => {
                    at.table = Table::No;
                    false
                }
            };
            at.depth += 1;
            if at.depth < 64 {
                let bit = 1 << at.depth;
                at.open = if odd { at.open | bit } else { at.open & !bit };
            }
            at.end_name(Before::Other);
        }
        b')' => {
            let odd = at.depth >= 64 || at.depth == 0 || at.open >> at.depth & 1 == 1;
            at.depth = at.depth.saturating_sub(1);
            at.end_name(if odd || at.prefix { Before::Other } else { Before::Closed });
        }
        _ => {
            at.end_name(Before::Other);
            at.start = false;
        }
    }
}

/// A word anywhere in a statement.
#[inline]
fn note_word(word: &[u8], at: &mut Reader<'_>, found: &mut Findings) {
    let Some(first) = word.first() else { return };
    let is = |other: &str| settings::is(word, other);
    let before =
        |others: &[&str]| others.iter().any(|other| matches!(at.last, Before::Word(last) if settings::is(last, other)));
    let suspects = match (word.len(), first | 0x20) {
        (4, b't') if is("temp") && before(&TEMPORARY) => Suspects::TEMPORARY,
        (9, b't') if is("temporary") && before(&TEMPORARY) => Suspects::TEMPORARY,
        (4, b'h') if is("hold") && before(&["with"]) => Suspects::CURSOR,
        // SELECT INTO: of the place that is first in search_path.
        (4, b'i') if at.outermost && is("into") && !before(&["insert", "merge"]) => Suspects::TEMPORARY,
        (7, b'c') if is("currval") => Suspects::LAST_VALUE,
        (7, b'l') if is("lastval") => Suspects::LAST_VALUE,
        (7, b'n') if is("nextval") => Suspects::SEQUENCE,
        (6, b's') if is("setval") => Suspects::SEQUENCE,
        (6, b'i') if is("insert") => Suspects::SEQUENCE,
        // CREATE TABLE ... AS EXECUTE
        (7, b'e') if is("execute") && before(&["as"]) => Suspects::OPAQUE,
        (6, b'u') if is("update") => {
            at.updates = true;
            return;
        }
        (11, b'p') if is("pg_settings") => {
            at.settings_table = true;
            return;
        }
        (7.., b'p') if is_temporary(word) => Suspects::TEMPORARY,
        _ => return,
    };
    found.suspects.insert(suspects);
}

fn is_temporary(schema: &[u8]) -> bool {
    schema.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(b"pg_temp"))
}

const TEMPORARY: [&str; 5] = ["create", "into", "local", "global", "replace"];

#[cfg(test)]
mod tests;
