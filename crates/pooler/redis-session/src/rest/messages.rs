//! Messages as server-sent events: `data: message,CHANNEL,PAYLOAD`.

use http_sansio::{Denied, EventWriter};

use super::{MAX_ANSWER, denied_by};
use crate::{
    command::Topic,
    hub::notice,
    resp::{ReplyScanner, parts},
};

/// Turns messages, which may arrive in pieces, into events.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// The beginning of a message.
    partial: Vec<u8>,
    scanned: usize,
    scanner: ReplyScanner,
}

impl Messages {
    /// Takes bytes of Redis, and appends the events.
    pub(crate) fn take(&mut self, bytes: &[u8], to: &mut Vec<u8>) -> Result<(), Denied> {
        if self.partial.len() + bytes.len() > MAX_ANSWER {
            return Err(Denied::new(502, format!("a message has more than {MAX_ANSWER} bytes")));
        }
        let mut input = std::mem::take(&mut self.partial);
        input.extend_from_slice(bytes);
        let mut begin = 0;
        loop {
            let rest = &input[begin + self.scanned..];
            let end = self.scanner.advance(rest).map_err(|error| Denied::new(502, error.to_string()))?;
            self.scanned += end.taken;
            if !end.over {
                input.drain(..begin);
                self.partial = input;
                return Ok(());
            }
            event(&input[begin..begin + self.scanned], to)?;
            begin += std::mem::take(&mut self.scanned);
        }
    }
}

fn event(reply: &[u8], to: &mut Vec<u8>) -> Result<(), Denied> {
    if let Some(error) = reply.strip_prefix(b"-") {
        return Err(denied_by(error.trim_ascii_end()));
    }
    let mut event = EventWriter::new(to);
    for (index, part) in parts(reply).into_iter().enumerate() {
        if index > 0 {
            event.push(b",");
        }
        event.push(part);
    }
    event.end();
    Ok(())
}

/// Messages that were turned into events once for all their subscribers. See [`notice::EVENTS`].
pub(crate) struct PostedEvents<'p> {
    pub(crate) topic: Topic,
    pub(crate) name: &'p [u8],
    pub(crate) events: &'p [u8],
}

impl<'p> PostedEvents<'p> {
    /// Appends the bytes of the post: the notice, the topic, the length of the name, the name, and the events.
    pub(crate) fn write(topic: Topic, name: &[u8], messages: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(&[notice::EVENTS, topic as u8]);
        to.extend_from_slice(&(name.len() as u32).to_le_bytes());
        to.extend_from_slice(name);
        Messages::default().take(messages, to).expect("whole messages, which are no errors and not that long");
    }

    pub(crate) fn read(posted: &'p [u8]) -> Self {
        let (&[_, topic, a, b, c, d], rest) = posted.split_first_chunk().expect("written by `write`");
        let (name, events) = rest.split_at(u32::from_le_bytes([a, b, c, d]) as usize);
        Self { topic: Topic::ALL[usize::from(topic)], name, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_in_pieces_become_events() {
        let input = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$3\r\na\nb\r\n\
                      *4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$1\r\nc\r\n$2\r\n{}\r\n+OK\r\n";
        for piece in 1..input.len() {
            let (mut messages, mut to) = (Messages::default(), Vec::new());
            for bytes in input.chunks(piece) {
                messages.take(bytes, &mut to).expect("messages");
            }
            assert_eq!(
                String::from_utf8(to).expect("text"),
                "data: subscribe,c,1\n\ndata: message,c,a\ndata: b\n\ndata: pmessage,c*,c,{}\n\ndata: OK\n\n"
            );
        }
    }

    #[test]
    fn events_made_once_are_read_by_each_subscriber() {
        let mut posted = b"before".to_vec();
        let messages = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\na\r\n>3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n\n\n\r\n";
        PostedEvents::write(Topic::Shard, b"c", messages, &mut posted);
        let made = PostedEvents::read(&posted[6..]);
        assert_eq!((made.topic, made.name), (Topic::Shard, &b"c"[..]));
        assert_eq!(made.events, b"data: message,c,a\n\ndata: message,c,\ndata: \ndata: \n\n");
    }
}
