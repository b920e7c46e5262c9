//! Server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>). Only the data field is used.

/// Maximum number of bytes of a stream that wait for the client.
pub(crate) const MAX_UNREAD_EVENT_BYTES: usize = 32 * 1024 * 1024;

/// Writes one event. Invalid UTF-8 is replaced.
#[derive(Debug)]
pub struct EventWriter<'t>(&'t mut Vec<u8>);

impl<'t> EventWriter<'t> {
    /// Appends the beginning of an event.
    pub fn new(to: &'t mut Vec<u8>) -> Self {
        to.extend_from_slice(b"data: ");
        Self(to)
    }

    /// Appends to the event's data. Each line becomes a `data` line of its own, which the receiver joins again. Data
    /// beyond the maximum of a stream's unread bytes is cut off, since no stream could send it.
    pub fn push(&mut self, data: &[u8]) {
        let text = String::from_utf8_lossy(data);
        let mut rest = text.as_bytes();
        // One pass, because the data may consist of line ends only.
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            if self.0.len() > MAX_UNREAD_EVENT_BYTES {
                return;
            }
            self.0.extend_from_slice(&rest[..end]);
            self.0.extend_from_slice(b"\ndata: ");
            rest = &rest[end + if rest[end..].starts_with(b"\r\n") { 2 } else { 1 }..];
        }
        self.0.extend_from_slice(rest);
    }

    /// Ends the event.
    pub fn end(self) {
        self.0.extend_from_slice(b"\n\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_line_for_each_line_of_its_data() {
        let mut to = Vec::new();
        for parts in [&[&b"a"[..], b",", b"b"][..], &[b"a\nb\r\nc\rd"], &[b"\xff"], &[]] {
            let mut event = EventWriter::new(&mut to);
            parts.iter().for_each(|part| event.push(part));
            event.end();
        }
        let expected = "data: a,b\n\ndata: a\ndata: b\ndata: c\ndata: d\n\ndata: \u{fffd}\n\ndata: \n\n";
        assert_eq!(to, expected.as_bytes());
    }
}
