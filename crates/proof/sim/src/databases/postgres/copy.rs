//! COPY: rows as lines of text, in both directions.

use std::collections::VecDeque;

use super::{
    execute::Done,
    failure::{Failure, protocol_violation},
    session::{Copying, Running, Session},
    shared::Shared,
    simple::decode,
    values::{Column, Type, Value},
    wire::Reader,
};

const COLUMNS: u16 = 2;

impl Session {
    pub(super) fn begin_copy(&mut self) {
        self.copying = Some(Copying { pending: Vec::new(), count: 0 });
        self.send(b'G', |to| write_formats(to, COLUMNS));
        self.flush();
    }

    /// Handles a message while rows are expected.
    pub(super) fn copy_message(&mut self, shared: &mut Shared, kind: u8, body: &[u8]) {
        let outcome = match kind {
            b'd' => self.copy_lines(shared, body, false),
            b'c' => self.copy_lines(shared, b"", true),
            b'f' => {
                let text = Reader(body).text().map(decode);
                let why = text.and_then(Result::ok).unwrap_or_default();
                Err(Failure::new("57014", format!("COPY from stdin failed: {why}")))
            }
            // A client may send these before it knows that a COPY has begun.
            b'H' | b'S' => Ok(()),
            kind => {
                let message = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                Err(protocol_violation(message))
            }
        };
        if let Err(failure) = outcome {
            if !matches!(kind, b'd' | b'c' | b'f') {
                self.send_failure(&failure);
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

    /// Inserts the complete lines; at the end, also the last line without a newline.
    fn copy_lines(&mut self, shared: &mut Shared, bytes: &[u8], end: bool) -> Result<(), Failure> {
        let Some(copying) = &mut self.copying else { return Ok(()) };
        copying.pending.extend_from_slice(bytes);
        while let Some(copying) = &mut self.copying {
            let place = copying.pending.iter().position(|&byte| byte == b'\n');
            let line: Vec<u8> = match place {
                Some(place) => copying.pending.drain(..=place).take(place).collect(),
                None if end && !copying.pending.is_empty() => std::mem::take(&mut copying.pending),
                None => return Ok(()),
            };
            self.copy_line(shared, &decode(&line)?)?;
        }
        Ok(())
    }

    fn copy_line(&mut self, shared: &mut Shared, line: &str) -> Result<(), Failure> {
        let columns: Vec<&str> = line.split('\t').collect();
        let (who, n) = match columns[..] {
            [who, n] => (who, n),
            [_] => return Err(Failure::new("22P04", "missing data for column \"n\"")),
            _ => return Err(Failure::new("22P04", "extra data after last expected column")),
        };
        if let Value::Int(n) = Value::read(n, Type::Int8)? {
            shared.insert(self.id, &self.database, who.to_owned(), n);
        }
        if let Some(copying) = &mut self.copying {
            copying.count += 1;
        }
        Ok(())
    }

    /// Sends rows as lines. Returns the tag of the CommandComplete.
    pub(super) fn copy_out(&mut self, columns: &[Column], rows: &VecDeque<Vec<Value>>) -> String {
        self.send(b'H', |to| write_formats(to, columns.len() as u16));
        for row in rows {
            let texts: Vec<String> = row.iter().map(|value| value.text().unwrap_or("\\N".into())).collect();
            self.send(b'd', |to| to.extend(format!("{}\n", texts.join("\t")).into_bytes()));
        }
        self.send(b'c', |_| {});
        format!("COPY {}", rows.len())
    }
}

fn write_formats(to: &mut Vec<u8>, columns: u16) {
    to.push(0);
    to.extend(columns.to_be_bytes());
    to.extend((0..columns).flat_map(|_| [0, 0]));
}
