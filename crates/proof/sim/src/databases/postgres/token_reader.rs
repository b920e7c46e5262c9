//! Reads the tokens of a statement one by one.

use super::{
    sql::Name,
    tokens::{Kind, Token},
};

pub(super) struct TokenReader<'a> {
    pub(super) sql: &'a str,
    pub(super) tokens: &'a [Token],
    pub(super) at: usize,
}

impl TokenReader<'_> {
    pub(super) fn is_done(&self) -> bool {
        self.at == self.tokens.len()
    }

    pub(super) fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    /// The position of the next token.
    pub(super) fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.sql.len(), |token| token.start)
    }

    /// Takes this word, if it is next.
    pub(super) fn word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Kind::Word(other)) if other == word);
        self.at += usize::from(found);
        found
    }

    /// Takes these words, if all are next.
    pub(super) fn words(&mut self, words: &str) -> bool {
        let start = self.at;
        let found = words.split(' ').all(|word| self.word(word));
        if !found {
            self.at = start;
        }
        found
    }

    pub(super) fn symbol(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(&Kind::Symbol(symbol));
        self.at += usize::from(found);
        found
    }

    pub(super) fn name(&mut self) -> Option<String> {
        let (Kind::Word(name) | Kind::Quoted(name)) = self.peek()? else { return None };
        let name = name.clone();
        self.at += 1;
        Some(name)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let Kind::Text(text) = self.peek()? else { return None };
        let text = text.clone();
        self.at += 1;
        Some(text)
    }

    pub(super) fn table(&mut self) -> Option<Name> {
        let at = self.place();
        Some(Name { text: self.name()?, at })
    }

    /// The name of a parameter, which may have dots.
    pub(super) fn parameter(&mut self) -> Option<String> {
        let mut name = self.name()?;
        while self.symbol('.') {
            name = format!("{name}.{}", self.name()?);
        }
        Some(name)
    }

    /// A list in parentheses.
    pub(super) fn list<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        if !self.symbol('(') {
            return None;
        }
        let mut list = Vec::new();
        if self.symbol(')') {
            return Some(list);
        }
        loop {
            list.push(one(self)?);
            if self.symbol(')') {
                return Some(list);
            }
            if !self.symbol(',') {
                return None;
            }
        }
    }
}
