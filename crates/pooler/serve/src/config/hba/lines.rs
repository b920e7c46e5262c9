//! The fields of the lines of HBA and ident files, as PostgreSQL separates them: by spaces; a comma joins the items of
//! a list to one field; text in double quotes is taken as it stands, a quote within it doubled; `#` begins a comment,
//! and a backslash at its end continues a line.

use std::ops::Range;

/// Longest file.
pub const MAX_BYTES: u64 = 4 << 20;

/// What is wrong at a place of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// In bytes of the text.
    pub span: Range<usize>,
    pub message: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub text: String,
    /// It begins with a quote, and so is no keyword.
    pub quoted: bool,
    pub span: Range<usize>,
}

impl Token {
    pub fn wrong(&self, message: impl Into<String>) -> Wrong {
        let mut message = message.into();
        // A line with a slip may have an option with a password where a method or an address belongs.
        if let Some((name, secret)) = self.text.split_once('=')
            && name.contains("passw")
            && !secret.is_empty()
        {
            message = message.replace(secret, "*****");
        }
        Wrong { span: self.span.clone(), message }
    }

    /// Whether it is this word, without quotes.
    pub fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }
}

/// A field: the items of a list, at least one.
pub(super) type Field = Vec<Token>;

/// The lines that have fields, each with at least one.
pub(super) fn read(text: &str) -> Result<Vec<Vec<Field>>, Wrong> {
    let mut reader = Reader { text, at: 0 };
    let (mut lines, mut fields): (Vec<Vec<Field>>, Vec<Field>) = (Vec::new(), Vec::new());
    let mut joined = false;
    while let Some(next) = reader.peek() {
        match next {
            '\n' => {
                reader.at += 1;
                if !fields.is_empty() {
                    lines.push(std::mem::take(&mut fields));
                }
                joined = false;
            }
            '\\' if reader.rest()[1..].trim_start_matches('\r').starts_with('\n') => {
                reader.at += reader.rest().find('\n').expect("just seen") + 1;
            }
            '#' => reader.at += reader.rest().find('\n').unwrap_or(reader.rest().len()),
            ',' => {
                reader.at += 1;
                joined = true;
            }
            space if space.is_whitespace() => reader.at += space.len_utf8(),
            _ => {
                let token = reader.token()?;
                match fields.last_mut().filter(|_| std::mem::take(&mut joined)) {
                    Some(field) => field.push(token),
                    None => fields.push(vec![token]),
                }
            }
        }
    }
    if !fields.is_empty() {
        lines.push(fields);
    }
    Ok(lines)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn token(&mut self) -> Result<Token, Wrong> {
        let start = self.at;
        let (mut text, mut in_quotes) = (String::new(), false);
        while let Some(next) = self.peek() {
            match next {
                '"' if in_quotes && self.rest()[1..].starts_with('"') => {
                    text.push('"');
                    self.at += 1;
                }
                '"' => in_quotes = !in_quotes,
                '\n' if in_quotes => break,
                _ if in_quotes => text.push(next),
                ',' | '#' => break,
                _ if next.is_whitespace() => break,
                _ => text.push(next),
            }
            self.at += next.len_utf8();
        }
        if in_quotes {
            return Err(Wrong { span: start..self.at, message: "the quote is not closed on its line".to_owned() });
        }
        Ok(Token { text, quoted: self.text[start..].starts_with('"'), span: start..self.at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Vec<Vec<String>>> {
        let of_field = |field: Field| field.into_iter().map(|token| token.text).collect();
        read(text).unwrap().into_iter().map(|line| line.into_iter().map(of_field).collect()).collect()
    }

    #[test]
    fn spaces_separate_fields_and_commas_join_items() {
        assert_eq!(
            texts("a b,c , d\te # f g\n\n# h\ni"),
            [vec![vec!["a"], vec!["b", "c", "d"], vec!["e"]], vec![vec!["i"]]]
        );
        assert_eq!(texts("a \\\n b\n"), [vec![vec!["a"], vec!["b"]]]);
    }

    #[test]
    fn quotes_keep_spaces_commas_and_quotes() {
        assert_eq!(texts("\"a, b\" c=\"d e\" \"x\"\"y\""), [vec![vec!["a, b"], vec!["c=d e"], vec!["x\"y"]]]);
        let lines = read("\"all\" all").unwrap();
        assert!(!lines[0][0][0].is("all") && lines[0][1][0].is("all"));
        assert_eq!(read("a \"b\nc").unwrap_err().span, 2..4);
    }
}
