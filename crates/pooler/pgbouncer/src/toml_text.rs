//! Writes the text of a `poolhouse.toml`, and keeps of each line which place of the ini it comes from. Knows no
//! setting.

use std::time::Duration;

use settings::show_duration;

use crate::ini::Spot;

/// A value of TOML.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Text(String),
    Number(i64),
    Truth(bool),
    /// `None` is off.
    Time(Option<Duration>),
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

impl From<Option<Duration>> for Value {
    fn from(time: Option<Duration>) -> Self {
        Self::Time(time)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

impl Value {
    fn write(&self) -> String {
        match self {
            Self::Text(text) => quote(text),
            Self::Number(number) => number.to_string(),
            Self::Truth(truth) => truth.to_string(),
            Self::Time(None) => quote("off"),
            Self::Time(Some(time)) => quote(&show_duration(*time)),
            Self::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
                format!("[{}]", texts.join(", "))
            }
        }
    }
}

/// A text in quotes. `${` would name a variable of the environment, and is written so that it does not.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.replace("${", "$${").chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// The text while it is written.
#[derive(Default)]
pub struct TomlText {
    text: String,
    /// For each line, the place that it comes from.
    origins: Vec<Option<Spot>>,
    /// The header of the table that is open, and comments, until a key follows.
    pending: Vec<(String, Option<Spot>)>,
}

impl TomlText {
    fn line(&mut self, line: &str, origin: Option<&Spot>) {
        self.text.push_str(line);
        self.text.push('\n');
        self.origins.push(origin.cloned());
    }

    /// The comment at the head of the file.
    pub fn head(&mut self, text: &str) {
        self.line(&format!("# {text}"), None);
    }

    /// Opens a table. It is not written if it stays empty.
    pub fn table(&mut self, header: &str, origin: Option<&Spot>) {
        self.pending = vec![(String::new(), None), (header.to_owned(), origin.cloned())];
    }

    pub fn set(&mut self, key: &str, value: &Value, origin: Option<&Spot>) {
        for (line, origin) in std::mem::take(&mut self.pending) {
            self.line(&line, origin.as_ref());
        }
        self.line(&format!("{key} = {}", value.write()), origin);
    }

    /// A comment on the key that comes next.
    pub fn comment(&mut self, text: &str) {
        const WIDTH: usize = 100;
        let mut line = String::from("#");
        for word in text.split_whitespace() {
            if line.len() > 1 && line.len() + word.len() >= WIDTH {
                self.pending.push((std::mem::replace(&mut line, String::from("#")), None));
            }
            line.push(' ');
            line.push_str(word);
        }
        self.pending.push((line, None));
    }

    pub fn finish(self) -> (String, Vec<Option<Spot>>) {
        (self.text, self.origins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_so_that_nothing_in_them_counts() {
        assert_eq!(quote("a\"b\\c\u{7}\n${X}$${Y}$"), "\"a\\\"b\\\\c\\u0007\\n$${X}$$${Y}$\"");
    }

    #[test]
    fn each_line_has_its_origin() {
        let mut toml = TomlText::default();
        let spot = Spot { file: 0, span: 3..4 };
        toml.comment(&"word ".repeat(40));
        toml.table("[pool]", None);
        toml.set("max_size", &Value::from(5), Some(&spot));
        toml.set("max_idle_time", &Value::Time(None), None);
        let (text, origins) = toml.finish();
        assert_eq!(text.lines().count(), origins.len());
        let at = text.lines().position(|line| line == "max_size = 5").unwrap();
        assert_eq!(origins[at], Some(spot));
        assert!(text.ends_with("max_idle_time = \"off\"\n"));
    }
}
