//! SQL as scripts hold it: where a statement ends, and where `:variables` stand in it. Knows quotes, comments and
//! brackets, and no other SQL.

use super::{
    expression::Mistake,
    names::{Names, VarId},
};

/// Parameters that one statement may have.
const MAX_PARAMETERS: usize = 255;

/// One statement, ready to be sent any number of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    pub(super) number: u32,
    /// As it goes in a Query message: texts and values in turn.
    pub(super) pieces: Vec<Piece>,
    /// As it is prepared: `$1`, `$2`, ... instead of variables.
    text: Box<str>,
    pub(super) parameters: Vec<VarId>,
    /// Where it begins in the script, in bytes.
    pub(super) offset: usize,
    pub(super) gset: Option<Box<str>>,
    /// What only the simple protocol can carry, and why.
    pub(super) simple_only: Option<&'static str>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Text(Box<str>),
    /// Of a command of Redis, which need not be text.
    Bytes(Box<[u8]>),
    Variable(VarId),
    /// Within quotes: what is not a variable after all stays as it is.
    Quoted(VarId),
}

impl Statement {
    /// Counts from 0 through all statements of a run's scripts: a name for prepared ones.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The statement with `$1`, `$2`, ... for its parameters.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many parameters it has.
    pub fn parameters(&self) -> usize {
        self.parameters.len()
    }

    /// Its first row is wanted: the prefix of the variables that take its columns.
    pub fn gset(&self) -> Option<&str> {
        self.gset.as_deref()
    }
}

/// What ended a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Semicolon,
    /// A meta-command begins here.
    Backslash,
    Script,
}

/// Reads one statement from `at` on: the statement, if there is anything but comments; what ended it; and where to go
/// on.
///
/// # Errors
/// A quote or comment without an end, too many variables.
pub(super) fn statement(
    script: &str,
    at: usize,
    names: &mut Names,
) -> Result<(Option<Statement>, End, usize), Mistake> {
    let mut scan = Scan { script, at, from: at, begin: None, compound: false, found: Found::default(), names };
    let end = scan.run()?;
    scan.take_text(scan.at);
    let next = scan.at + usize::from(end == End::Semicolon);
    let Some(offset) = scan.begin else { return Ok((None, end, next)) };
    let mut found = scan.found;
    found.trim();
    let simple_only = if found.quoted {
        Some("a variable stands within quotes")
    } else if scan.compound {
        Some("`\\;` joins several statements")
    } else {
        None
    };
    let statement = Statement {
        number: 0,
        pieces: found.pieces,
        text: found.text.into(),
        parameters: found.parameters,
        offset,
        gset: None,
        simple_only,
    };
    Ok((Some(statement), end, next))
}

#[derive(Default)]
struct Found {
    pieces: Vec<Piece>,
    text: String,
    parameters: Vec<VarId>,
    quoted: bool,
}

struct Scan<'s> {
    script: &'s str,
    at: usize,
    /// What has not been taken over yet begins here.
    from: usize,
    /// Where the first thing stands that is no comment.
    begin: Option<usize>,
    compound: bool,
    found: Found,
    names: &'s mut Names,
}

impl Scan<'_> {
    fn run(&mut self) -> Result<End, Mistake> {
        let bytes = self.script.as_bytes();
        let mut brackets = 0usize;
        while let Some(&byte) = bytes.get(self.at) {
            let next = bytes.get(self.at + 1).copied();
            if byte.is_ascii_whitespace() {
                self.at += 1;
                self.skip_leading();
                continue;
            }
            match (byte, next) {
                (b'-', Some(b'-')) => {
                    self.at += self.script[self.at..].find('\n').unwrap_or(self.script.len() - self.at);
                    self.skip_leading();
                    continue;
                }
                (b'/', Some(b'*')) => {
                    self.comment()?;
                    self.skip_leading();
                    continue;
                }
                (b';', _) if brackets == 0 => return Ok(End::Semicolon),
                (b'\\', Some(b';')) => {
                    self.take_text(self.at);
                    self.compound = true;
                    self.from = self.at + 1;
                    self.at += 2;
                    continue;
                }
                (b'\\', _) => return Ok(End::Backslash),
                _ => {}
            }
            self.begin.get_or_insert(self.at);
            match byte {
                b'\'' | b'"' => self.quoted(byte, self.at)?,
                b'$' => self.dollar()?,
                b':' => self.variable(false)?,
                b'(' => (brackets, self.at) = (brackets + 1, self.at + 1),
                b')' => (brackets, self.at) = (brackets.saturating_sub(1), self.at + 1),
                _ if starts_word(byte) => self.word()?,
                // Digits belong to what they begin: `1e5` is no string with escapes.
                _ => self.at += 1,
            }
        }
        Ok(End::Script)
    }

    /// White space and comments before the statement are not sent.
    fn skip_leading(&mut self) {
        if self.begin.is_none() {
            self.from = self.at;
        }
    }

    /// Takes over the text up to here.
    fn take_text(&mut self, to: usize) {
        if self.begin.is_some() && self.from < to {
            self.found.push_text(&self.script[self.from..to]);
        }
        self.from = to;
    }

    /// A word, and the string that it is the prefix of: `E'...'` has escapes, `U&"..."` has not.
    fn word(&mut self) -> Result<(), Mistake> {
        let start = self.at;
        let bytes = self.script.as_bytes();
        while bytes.get(self.at).is_some_and(|b| starts_word(*b) || b.is_ascii_digit() || *b == b'$') {
            self.at += 1;
        }
        let escapes = self.at - start == 1 && matches!(bytes[start], b'e' | b'E');
        if escapes && bytes.get(self.at) == Some(&b'\'') {
            return self.quoted(b'\\', start);
        }
        Ok(())
    }

    /// A text in quotes; `\\` stands for one in single quotes with escapes. A doubled quote does not end it.
    fn quoted(&mut self, quote: u8, start: usize) -> Result<(), Mistake> {
        let (end, escapes) = if quote == b'\\' { (b'\'', true) } else { (quote, false) };
        let bytes = self.script.as_bytes();
        self.at += 1;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\\' if escapes => self.at += 2,
                b':' => self.variable(true)?,
                _ if byte == end && bytes.get(self.at + 1) == Some(&end) => self.at += 2,
                _ if byte == end => {
                    self.at += 1;
                    return Ok(());
                }
                _ => self.at += 1,
            }
        }
        Err((start, "this quote has no end".to_owned()))
    }

    /// A text in dollar quotes, or a plain dollar sign.
    fn dollar(&mut self) -> Result<(), Mistake> {
        let start = self.at;
        let bytes = self.script.as_bytes();
        let mut close = start + 1;
        while bytes.get(close).is_some_and(|b| starts_word(*b) || (close > start + 1 && b.is_ascii_digit())) {
            close += 1;
        }
        if bytes.get(close) != Some(&b'$') {
            self.at += 1;
            return Ok(());
        }
        let tag = &self.script[start..=close];
        match self.script[close + 1..].find(tag) {
            Some(length) => self.at = close + 1 + length + tag.len(),
            None => return Err((start, format!("the dollar quote {tag} has no end"))),
        }
        Ok(())
    }

    /// A comment that may hold others.
    fn comment(&mut self) -> Result<(), Mistake> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            let rest = &self.script.as_bytes()[self.at..];
            if rest.starts_with(b"/*") {
                (depth, self.at) = (depth + 1, self.at + 2);
            } else if rest.starts_with(b"*/") {
                (depth, self.at) = (depth - 1, self.at + 2);
            } else if rest.is_empty() {
                return Err((start, "this comment has no end".to_owned()));
            } else {
                self.at += 1;
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// What begins with a colon: a variable, a cast (`::`), or neither.
    fn variable(&mut self, quoted: bool) -> Result<(), Mistake> {
        let start = self.at;
        let bytes = self.script.as_bytes();
        let mut end = start + 1;
        if !bytes.get(end).is_some_and(|b| starts_word(*b)) {
            self.at += bytes[start..].iter().take_while(|b| **b == b':').count();
            return Ok(());
        }
        while bytes.get(end).is_some_and(|b| starts_word(*b) || b.is_ascii_digit()) {
            end += 1;
        }
        let id = self.names.intern(&self.script[start + 1..end]).map_err(|message| (start, message))?;
        self.take_text(start);
        (self.at, self.from) = (end, end);
        self.found.push_variable(id, quoted, &self.script[start..end]).map_err(|message| (start, message))
    }
}

impl Found {
    fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => *last = format!("{last}{text}").into(),
            _ => self.pieces.push(Piece::Text(text.into())),
        }
    }

    fn push_variable(&mut self, id: VarId, quoted: bool, written: &str) -> Result<(), String> {
        if quoted {
            self.quoted = true;
            self.text.push_str(written);
            self.pieces.push(Piece::Quoted(id));
            return Ok(());
        }
        if self.parameters.len() >= MAX_PARAMETERS {
            return Err(format!("a statement has at most {MAX_PARAMETERS} variables"));
        }
        // Each place has a parameter of its own: the server may take it for another type than elsewhere.
        self.parameters.push(id);
        self.text.push_str(&format!("${}", self.parameters.len()));
        self.pieces.push(Piece::Variable(id));
        Ok(())
    }

    /// White space behind the statement is not sent.
    fn trim(&mut self) {
        self.text.truncate(self.text.trim_end().len());
        if let Some(Piece::Text(last)) = self.pieces.last_mut() {
            *last = last.trim_end().into();
            if last.is_empty() {
                self.pieces.pop();
            }
        }
    }
}

pub(super) fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

/// A word or a string of a command as texts and variables in turn.
pub(super) fn pieces(word: &[u8], names: &mut Names) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
    while at < word.len() {
        let Some(name) = variable(&word[at..]) else {
            at += 1;
            continue;
        };
        if from < at {
            pieces.push(Piece::Bytes(word[from..at].into()));
        }
        pieces.push(Piece::Quoted(names.intern(name)?));
        at += 1 + name.len();
        from = at;
    }
    if from < word.len() {
        pieces.push(Piece::Bytes(word[from..].into()));
    }
    Ok(pieces)
}

/// The name behind a colon that these bytes begin with.
fn variable(bytes: &[u8]) -> Option<&str> {
    let behind = bytes.strip_prefix(b":")?;
    behind.first().filter(|byte| starts_word(**byte))?;
    let length = behind.iter().take_while(|byte| starts_word(**byte) || byte.is_ascii_digit()).count();
    std::str::from_utf8(&behind[..length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Vec<Statement> {
        let (mut at, mut found) = (0, Vec::new());
        let mut names = Names::new();
        loop {
            let (statement, end, next) = super::statement(script, at, &mut names).unwrap();
            found.extend(statement);
            at = next;
            match end {
                End::Script => return found,
                End::Backslash => panic!("a meta-command in {script}"),
                End::Semicolon => {}
            }
        }
    }

    fn texts(script: &str) -> Vec<String> {
        read(script).iter().map(|s| s.text().to_owned()).collect()
    }

    #[test]
    fn statements_end_at_semicolons_that_are_not_quoted() {
        for (script, expected) in [
            ("select 1; select 2", &["select 1", "select 2"][..]),
            ("select ';', \";\" ; x", &["select ';', \";\"", "x"]),
            ("select $$;$$, $a$;$$;$a$; x", &["select $$;$$, $a$;$$;$a$", "x"]),
            ("select E'\\';', 'a'';'; x", &["select E'\\';', 'a'';'", "x"]),
            ("select E'''\\';'; x", &["select E'''\\';'", "x"]),
            ("select 1 /* ; /* ; */ ; */ + 1; x", &["select 1 /* ; /* ; */ ; */ + 1", "x"]),
            ("-- ;\nselect 1 -- ;\n + 1; x", &["select 1 -- ;\n + 1", "x"]),
            ("create rule r as on insert to t do (a; b); x", &["create rule r as on insert to t do (a; b)", "x"]),
            ("select 'a\\'; x", &["select 'a\\'", "x"]),
            (";;  ; -- nothing\n /* at all */", &[]),
            ("select a$1$b; x", &["select a$1$b", "x"]),
        ] {
            assert_eq!(texts(script), expected, "{script}");
        }
    }

    #[test]
    fn variables_become_parameters_and_casts_stay() {
        let statements = read("select :a::int, :b + :a, '12:30', x[1:2];");
        assert_eq!(statements[0].text(), "select $1::int, $2 + $3, '12:30', x[1:2]");
        assert_eq!(statements[0].parameters(), 3);
        assert_eq!(statements[0].parameters[0], statements[0].parameters[2]);
        assert_eq!(statements[0].simple_only, None);
        assert!(read("select ':a'")[0].simple_only.is_some());
        assert_eq!(texts("select 1 /* :a */ -- :b\n;"), ["select 1 /* :a */ -- :b"]);
    }

    #[test]
    fn joined_statements_are_one() {
        let statements = read("select 1 \\; select :a ;");
        assert_eq!(statements[0].text(), "select 1 ; select $1");
        assert!(statements[0].simple_only.is_some_and(|why| why.contains("joins")));
    }

    #[test]
    fn what_has_no_end_is_told_at_its_beginning() {
        for (script, offset) in [("select 'x", 7), ("select \"x", 7), ("x /* y", 2), ("x $a$ y", 2), ("a E'\\'", 2)] {
            let (at, message) = super::statement(script, 0, &mut Names::new()).unwrap_err();
            assert!(at == offset && message.contains("no end"), "{script}: {at} {message}");
        }
    }
}
