//! What is wrong with a script, and where.

use std::fmt;

/// One mistake in a script: what, and at which place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    /// The file, or what stands for it.
    pub file: String,
    /// From 1; 0: it is about the script as a whole.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl ScriptError {
    /// A mistake at a place of the text, given in bytes.
    pub(super) fn at(file: &str, text: &str, offset: usize, message: impl Into<String>) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let begin = text[..offset].rfind('\n').map_or(0, |n| n + 1);
        Self {
            file: file.to_owned(),
            line: text[..begin].matches('\n').count() + 1,
            column: text[begin..offset].chars().count() + 1,
            message: message.into(),
        }
    }

    /// A mistake of the script as a whole.
    pub(super) fn of(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: 0, column: 0, message: message.into() }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            _ => write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message),
        }
    }
}

impl std::error::Error for ScriptError {}
