//! A server's reply to HELLO, and Poolhouse's own to its clients.

use crate::{
    Version,
    resp::{self, Line, ReplyScanner},
};

/// A logical database that could not be selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unselected {
    pub database: u32,
    pub error: Box<str>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    /// The server's database, if it is not selected yet.
    pub unselected: Option<Unselected>,
    /// Such as `7.0.15`.
    pub version: String,
    /// `standalone`, `sentinel` or `cluster`.
    pub mode: String,
    /// `master` or `replica`.
    pub role: String,
    /// The id of the connection (CLIENT ID).
    pub id: u32,
    /// The list of modules, as a whole reply.
    modules: Vec<u8>,
}

impl Hello {
    /// Reads a whole reply to HELLO, a map or an array. Unknown fields are left out.
    pub fn read(reply: &[u8]) -> Self {
        let mut hello = Self::default();
        let mut rest = behind_first_line(reply);
        while let Some((key, behind)) = value(rest) {
            let Some((value, behind)) = value(behind) else { break };
            let text = || String::from_utf8_lossy(first_part(value)).into_owned();
            match first_part(key) {
                b"version" => hello.version = text(),
                b"mode" => hello.mode = text(),
                b"role" => hello.role = text(),
                b"id" => hello.id = text().parse().unwrap_or_default(),
                b"modules" => hello.modules = value.to_vec(),
                _ => {}
            }
            rest = behind;
        }
        hello
    }

    /// Writes the reply for a client, with the client's version and id.
    pub fn write(&self, version: Version, id: u64, to: &mut Vec<u8>) {
        to.extend_from_slice(match version {
            Version::Resp2 => b"*14\r\n",
            Version::Resp3 => b"%7\r\n",
        });
        let mut pair = |key: &str, value: &str| {
            resp::text(to, key.as_bytes());
            resp::text(to, value.as_bytes());
        };
        pair("server", "redis");
        pair("version", &self.version);
        resp::text(to, b"proto");
        to.extend_from_slice(format!(":{}\r\n", version.number()).as_bytes());
        resp::text(to, b"id");
        to.extend_from_slice(format!(":{id}\r\n").as_bytes());
        resp::text(to, b"mode");
        resp::text(to, self.mode.as_bytes());
        resp::text(to, b"role");
        resp::text(to, self.role.as_bytes());
        resp::text(to, b"modules");
        to.extend_from_slice(if self.modules.is_empty() { b"*0\r\n" } else { &self.modules });
    }
}

/// Splits `bytes` behind their first value.
fn value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = ReplyScanner::default().advance(bytes).ok()?;
    end.over.then(|| bytes.split_at(end.taken))
}

/// A string or a number; of an array, its first.
fn first_part(value: &[u8]) -> &[u8] {
    resp::parts(value).first().copied().unwrap_or_default()
}

fn behind_first_line(bytes: &[u8]) -> &[u8] {
    match resp::line(bytes) {
        Line::Ends(end) => &bytes[end + 2..],
        Line::Open | Line::Torn => b"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_was_written_is_read() {
        let hello = Hello {
            unselected: None,
            version: "7.0.15".to_owned(),
            mode: "standalone".to_owned(),
            role: "master".to_owned(),
            id: 5,
            modules: b"*1\r\n*2\r\n+a\r\n:1\r\n".to_vec(),
        };
        for version in [Version::Resp2, Version::Resp3] {
            let mut written = Vec::new();
            hello.write(version, 5, &mut written);
            assert_eq!(value(&written).map(|(value, rest)| (value.len(), rest.len())), Some((written.len(), 0)));
            assert_eq!(Hello::read(&written), hello);
        }
    }

    #[test]
    fn other_replies_leave_all_fields_empty() {
        for reply in [&b"+OK\r\n"[..], b"*1\r\n+a\r\n", b"%1\r\n$-1\r\n+a\r\n", b""] {
            assert_eq!(Hello::read(reply), Hello::default());
        }
    }
}
