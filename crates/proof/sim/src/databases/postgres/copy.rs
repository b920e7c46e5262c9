//! COPY: rows as lines of text, in both directions.

use std::collections::VecDeque;

use super::{
    execute::Done,
    failure::{Failure, protocol_violation},
    session::{Copying, Running, Session},
    shared::Shared,
    values::{Column, Type, Value},
    wire::Reader,
};

const COLUMNS: u16 = 2;

impl Session {
    /// Says that rows may come.
    pub(super) fn begin_copy(&mut self) {
        self.copying = Some(Copying { pending: Vec::new(), count: 0, ended: false });
        self.say(b'G', |to| write_formats(to, COLUMNS));
        self.flush();
    }

    /// A message while rows are expected.
    pub(super) fn copy_message(&mut self, shared: &mut Shared, kind: u8, body: &[u8]) {
        let outcome = match kind {
            b'd' => self.copy_lines(shared, body, false),
            b'c' => self.copy_lines(shared, b"", true),
            b'f' => {
                let text = Reader(body).text().map(|text| self.decode(text));
                let why = text.and_then(Result::ok).unwrap_or_default();
                Err(self.in_line(Failure::new("57014", format!("COPY from stdin failed: {why}")), None))
            }
            // Clients send them without knowing what they have begun.
            b'H' | b'S' => Ok(()),
            kind => {
                let message = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                Err(self.in_line(protocol_violation(message), None))
            }
        };
        if let Err(failure) = outcome {
            if !matches!(kind, b'd' | b'c' | b'f') {
                self.tell(&failure);
                let lost = "terminating connection because protocol synchronization was lost";
                return self.end_with(protocol_violation(lost));
            }
            return self.fail(shared, &failure);
        }
        if kind == b'c' {
            let tag = format!("COPY {}", self.copying.take().map_or(0, |copying| copying.count));
            match self.running.take() {
                Some(Running::Query(query)) => self.end_query_copy(shared, query, tag),
                Some(Running::Portal { name, .. }) => self.end_portal(shared, &name, Done::new(tag)),
                None => {}
            }
        }
    }

    /// An error with the line in which it was found.
    pub(super) fn in_line(&self, failure: Failure, more: Option<&str>) -> Failure {
        let line = self.copying.as_ref().map_or(0, |copying| copying.count) + 1;
        failure.context(format!("COPY ledger, line {line}{}", more.unwrap_or_default()))
    }

    /// Takes the lines that are whole; at the end, all.
    fn copy_lines(&mut self, shared: &mut Shared, bytes: &[u8], end: bool) -> Result<(), Failure> {
        let Some(copying) = &mut self.copying else { return Ok(()) };
        copying.pending.extend_from_slice(bytes);
        while let Some(copying) = &mut self.copying {
            let place = copying.pending.iter().position(|&byte| byte == b'\n');
            let line: Vec<u8> = match place {
                _ if copying.ended => {
                    copying.pending.clear();
                    return Ok(());
                }
                Some(place) => copying.pending.drain(..=place).take(place).collect(),
                None if end && !copying.pending.is_empty() => std::mem::take(&mut copying.pending),
                None => return Ok(()),
            };
            if line == b"\\." {
                copying.ended = true;
                continue;
            }
            let line = self.decode(&line).map_err(|failure| self.in_line(failure, None))?;
            self.copy_line(shared, &line)?;
        }
        Ok(())
    }

    fn copy_line(&mut self, shared: &mut Shared, line: &str) -> Result<(), Failure> {
        let whole = format!(": \"{line}\"");
        let columns: Vec<&str> = line.split('\t').collect();
        let (who, n) = match columns[..] {
            [who, n] => (who, n),
            [_] => {
                let failure = Failure::new("22P04", "missing data for column \"n\"");
                return Err(self.in_line(failure, Some(&whole)));
            }
            _ => {
                let failure = Failure::new("22P04", "extra data after last expected column");
                return Err(self.in_line(failure, Some(&whole)));
            }
        };
        let n = unescape(n);
        let value = Value::read(&n, Type::Int8);
        let value = value.map_err(|failure| self.in_line(failure, Some(&format!(", column n: \"{n}\""))))?;
        if let Value::Int(n) = value {
            shared.insert(self.me, &self.database, unescape(who), n);
        }
        if let Some(copying) = &mut self.copying {
            copying.count += 1;
        }
        Ok(())
    }

    /// Tells rows as lines; returns what CommandComplete tells.
    pub(super) fn copy_out(&mut self, columns: &[Column], rows: &VecDeque<Vec<Value>>) -> String {
        self.say(b'H', |to| write_formats(to, columns.len() as u16));
        let latin1 = self.settings.is_latin1();
        for row in rows {
            let texts: Vec<String> =
                row.iter().map(|value| value.text().map_or("\\N".into(), |text| escape(&text))).collect();
            let line = format!("{}\n", texts.join("\t"));
            self.say(b'd', |to| to.extend(super::session::encode(&line, latin1)));
        }
        self.say(b'c', |_| {});
        format!("COPY {}", rows.len())
    }
}

fn write_formats(to: &mut Vec<u8>, columns: u16) {
    to.push(0);
    to.extend(columns.to_be_bytes());
    to.extend((0..columns).flat_map(|_| [0, 0]));
}

const ESCAPES: [(char, char); 7] =
    [('\\', '\\'), ('b', '\u{8}'), ('f', '\u{c}'), ('n', '\n'), ('r', '\r'), ('t', '\t'), ('v', '\u{b}')];

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match ESCAPES.iter().find(|(_, meant)| *meant == c) {
            Some((letter, _)) => escaped.extend(['\\', *letter]),
            None => escaped.push(c),
        }
    }
    escaped
}

fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let next = if c == '\\' { rest.next() } else { None };
        let meant = next.map(|next| ESCAPES.iter().find(|(letter, _)| *letter == next).map_or(next, |(_, c)| *c));
        plain.push(meant.unwrap_or(c));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_line_is_escaped() {
        let text = "a\tb\\\nc";
        assert_eq!(escape(text), "a\\tb\\\\\\nc");
        assert_eq!(unescape(&escape(text)), text);
    }
}
