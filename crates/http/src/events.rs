//! Server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), of which only the data is used.

/// Writes one event. What is not text is replaced.
#[derive(Debug)]
pub struct EventWriter<'t>(&'t mut Vec<u8>);

impl<'t> EventWriter<'t> {
    /// Begins an event behind what is there.
    pub fn new(to: &'t mut Vec<u8>) -> Self {
        to.extend_from_slice(b"data: ");
        Self(to)
    }

    /// Appends to its data. A line of its own stands for each line; the receiver joins them again.
    pub fn push(&mut self, data: &[u8]) {
        let text = String::from_utf8_lossy(data);
        if !text.contains(['\r', '\n']) {
            return self.0.extend_from_slice(text.as_bytes());
        }
        let lines = text.replace("\r\n", "\n").replace('\r', "\n");
        self.0.extend_from_slice(lines.replace('\n', "\ndata: ").as_bytes());
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
