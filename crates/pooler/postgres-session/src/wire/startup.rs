//! The packets a client may begin with, and what is in a StartupMessage. Pure parsing.

use std::net::IpAddr;

use seam::Origin;

use crate::wire::{
    cancel_key,
    message::{CANCEL_REQUEST, GSSENC_REQUEST, PROTOCOL_3_2, SMALL_LIMIT, SSL_REQUEST, front, take_text, take_u32},
    options,
};

/// Most start-up settings of one client.
const MAX_SETTINGS: usize = 128;

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Packet {
    /// The beginning of a TLS handshake that was not asked for. Its length counts as 0: nothing of it is consumed.
    Tls,
    Ssl,
    Gss,
    Cancel {
        /// The number that was sent as BackendKeyData's process id.
        pid: u32,
        /// The secret that was sent with it; see [`cancel_key::secret`](crate::wire::cancel_key::secret).
        secret: u64,
    },
    /// Terminate, of a client that leaves before its start-up message.
    Terminate,
    Start(Box<Start>),
}

/// The content of a StartupMessage.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Start {
    pub(crate) user: String,
    /// The database; the user's name if none is given.
    pub(crate) database: String,
    /// Settings, those of `options` first, as PostgreSQL applies them; no name twice.
    pub(crate) settings: Vec<(String, String)>,
    /// How many of them `options` has named.
    pub(crate) settings_of_options: usize,
    /// The protocol version: no newer than the client asked for.
    pub(crate) version: u32,
    /// The client must be told that its version or options are not supported.
    pub(crate) negotiate: bool,
    /// Protocol options (`_pq_.`) that are not supported.
    pub(crate) unknown_options: Vec<String>,
    /// The value of `replication`, if the client asks for a replication connection.
    pub(crate) replication: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StartError {
    Http,
    /// A TLS handshake begins where TLS is not offered.
    Tls,
    /// Unencrypted bytes follow a request for TLS: a man in the middle may have put them there.
    EarlyBytes,
    /// The length is impossible.
    Length(u32),
    /// The major version is not supported.
    Version(u16, u16),
    Malformed(&'static str),
    NoUser,
    /// `replication` is neither a truth value nor "database".
    Replication(String),
    /// A word of `options` is no setting.
    Option(String),
}

/// Reads a client's first packet and its length: `None` if more bytes are needed.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Packet, usize)>, StartError> {
    let Some(first) = bytes.first_chunk::<4>() else { return Ok(None) };
    if matches!(first, b"GET " | b"POST" | b"HEAD" | b"PUT " | b"OPTI" | b"DELE" | b"PATC" | b"CONN" | b"PRI ") {
        return Err(StartError::Http);
    }
    if first[..2] == [0x16, 0x03] {
        return Ok(Some((Packet::Tls, 0)));
    }
    if *first == [front::TERMINATE, 0, 0, 0] {
        return Ok(Some((Packet::Terminate, 0)));
    }
    let length = u32::from_be_bytes(*first);
    if !(8..=SMALL_LIMIT).contains(&length) {
        return Err(StartError::Length(length));
    }
    let Some(packet) = bytes.get(..length as usize) else { return Ok(None) };
    let mut body = &packet[4..];
    let code = take_u32(&mut body).ok_or(StartError::Length(length))?;
    let packet = match code {
        SSL_REQUEST if body.is_empty() => Packet::Ssl,
        GSSENC_REQUEST if body.is_empty() => Packet::Gss,
        CANCEL_REQUEST => match (take_u32(&mut body), cancel_key::secret(body)) {
            (Some(pid), Some(secret)) => Packet::Cancel { pid, secret },
            _ => return Err(StartError::Malformed("the cancel request has a key that was never given out")),
        },
        _ if code >> 16 != 3 => return Err(StartError::Version((code >> 16) as u16, code as u16)),
        _ => Packet::Start(Box::new(Start::read(code, body)?)),
    };
    Ok(Some((packet, length as usize)))
}

impl Start {
    fn read(version: u32, mut body: &[u8]) -> Result<Self, StartError> {
        let mut start =
            Start { version: version.min(PROTOCOL_3_2), negotiate: version > PROTOCOL_3_2, ..Start::default() };
        let mut options = String::new();
        let mut given = Vec::new();
        loop {
            let name = text(&mut body)?;
            if name.is_empty() {
                break;
            }
            let value = text(&mut body)?;
            match name {
                "user" => start.user = value.to_owned(),
                "database" => start.database = value.to_owned(),
                "options" => options = value.to_owned(),
                "replication" => start.replication = replication(value)?.map(str::to_owned),
                _ if name.starts_with("_pq_.") => {
                    start.negotiate = true;
                    start.unknown_options.push(name.to_owned());
                }
                _ => given.push((name.to_owned(), value.to_owned())),
            }
            if given.len() + start.unknown_options.len() > MAX_SETTINGS {
                return Err(StartError::Malformed("more than 128 parameters"));
            }
        }
        if !body.is_empty() {
            return Err(StartError::Malformed("bytes after the last parameter"));
        }
        if start.user.is_empty() {
            return Err(StartError::NoUser);
        }
        if start.database.is_empty() {
            start.database.clone_from(&start.user);
        }
        for (name, value) in options::parse(&options).map_err(StartError::Option)? {
            start.set(name, value);
        }
        start.settings_of_options = start.settings.len();
        for (name, value) in given {
            start.set(name, value);
        }
        if start.settings.len() > MAX_SETTINGS {
            return Err(StartError::Malformed("more than 128 parameters"));
        }
        Ok(start)
    }

    fn set(&mut self, name: String, value: String) {
        // At the start of a session it has no effect; set later, it would.
        if name.eq_ignore_ascii_case("seed") {
            return;
        }
        match self.settings.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            Some((_, known)) => *known = value,
            None => self.settings.push((name, value)),
        }
    }
}

/// Most bytes of an application name, as in PostgreSQL.
const MAX_APPLICATION_NAME: usize = 63;

/// Appends the address of the client to its application name, whose end is cut off if need be.
pub(crate) fn add_host(start: &mut Start, origin: Origin) {
    let host = match origin.address {
        Some(IpAddr::V6(address)) => format!(" - [{address}]:{}", origin.port),
        Some(IpAddr::V4(address)) => format!(" - {address}:{}", origin.port),
        None => " - unix".to_owned(),
    };
    let is_name = |name: &str| name.eq_ignore_ascii_case("application_name");
    let known = start.settings.iter_mut().find(|(name, _)| is_name(name));
    let mut name = known.as_ref().map(|(_, value)| value.as_str()).filter(|name| !name.is_empty()).unwrap_or("app");
    while name.len() + host.len() > MAX_APPLICATION_NAME {
        let mut characters = name.chars();
        characters.next_back();
        name = characters.as_str();
    }
    let name = format!("{name}{host}");
    match known {
        Some((_, value)) => *value = name,
        None => start.settings.push(("application_name".to_owned(), name)),
    }
}

fn text<'a>(body: &mut &'a [u8]) -> Result<&'a str, StartError> {
    let text = take_text(body).ok_or(StartError::Malformed("a parameter without an end"))?;
    std::str::from_utf8(text).map_err(|_| StartError::Malformed("a parameter that is not UTF-8"))
}

/// Which replication a client asks for, if any, by the rules of PostgreSQL: otherwise rules for logins would be about
/// another kind of connection than the server makes.
fn replication(value: &str) -> Result<Option<&'static str>, StartError> {
    if value == "database" {
        return Ok(Some("database"));
    }
    let is_on = truth(value).ok_or_else(|| StartError::Replication(value.to_owned()))?;
    Ok(is_on.then_some("true"))
}

/// A truth value as PostgreSQL reads it: the beginning of a word is enough, if no other word begins so.
fn truth(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str| !value.is_empty() && word.starts_with(&value) && value != "o";
    let is_one = |words: &[&str]| words.iter().any(|word| begins(word));
    match (is_one(&["true", "yes", "on", "1"]), is_one(&["false", "no", "off", "0"])) {
        (false, false) => None,
        (is_true, _) => Some(is_true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::{PROTOCOL_3_0, write_sized};

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_sized(&mut bytes, |to| {
            to.extend(code.to_be_bytes());
            to.extend(body);
        });
        bytes
    }

    fn start(version: u32, parameters: &str) -> Result<Start, StartError> {
        match read(&packet(version, parameters.replace(' ', "\0").as_bytes()))? {
            Some((Packet::Start(start), _)) => Ok(*start),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_start_up_message_is_read_with_the_database_named_like_the_user() {
        let start = start(PROTOCOL_3_0, "user app TimeZone UTC timezone CET  ").unwrap();
        assert_eq!((start.user.as_str(), start.database.as_str()), ("app", "app"));
        assert_eq!(start.settings, [("TimeZone".to_owned(), "CET".to_owned())]);
        assert!(!start.negotiate);
    }

    #[test]
    fn a_replication_connection_is_no_setting() {
        let asked = |value: &str| start(PROTOCOL_3_0, &format!("user app replication {value}  ")).unwrap();
        for (value, kind) in [("database", "database"), ("true", "true"), ("1", "true"), ("T", "true"), ("On", "true")]
        {
            assert_eq!((asked(value).replication.as_deref(), asked(value).settings.len()), (Some(kind), 0));
        }
        for off in ["off", "of", "fa", "false", "No", "0"] {
            assert_eq!((asked(off).replication, asked(off).settings.len()), (None, 0), "{off}");
        }
        for wrong in ["nonsense", "o", "Database", "2", "tru3", "onn"] {
            assert!(start(PROTOCOL_3_0, &format!("user app replication {wrong}  ")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_host_is_appended_to_the_application_name() {
        let named = |parameters: &str, address: &str| {
            let mut start = start(PROTOCOL_3_0, parameters).unwrap();
            let address = (!address.is_empty()).then(|| address.parse().unwrap());
            add_host(&mut start, Origin { listener: 0, address, port: 4711, uid: None });
            assert_eq!(start.settings.len(), 1);
            start.settings.remove(0).1
        };
        assert_eq!(named("user u application_name psql  ", "10.0.0.1"), "psql - 10.0.0.1:4711");
        assert_eq!(named("user u  ", "::1"), "app - [::1]:4711");
        assert_eq!(named("user u  ", ""), "app - unix");
        let long = named(&format!("user u application_name {}\u{e4}  ", "x".repeat(46)), "10.0.0.1");
        assert_eq!((long.len(), &long[42..]), (62, "xxxx - 10.0.0.1:4711"));
    }

    #[test]
    fn newer_minor_versions_and_protocol_options_are_negotiated() {
        for (asked, spoken, negotiate) in [(0, 0, false), (1, 1, false), (2, 2, false), (3, 2, true), (9999, 2, true)] {
            let start = start(PROTOCOL_3_0 + asked, "user app  ").unwrap();
            assert_eq!((start.version, start.negotiate), (PROTOCOL_3_0 + spoken, negotiate), "3.{asked}");
        }
        let start = start(PROTOCOL_3_0, "user app _pq_.x 1  ").unwrap();
        assert!(start.negotiate && start.settings.is_empty() && start.version == PROTOCOL_3_0);
        assert_eq!(start.unknown_options, ["_pq_.x"]);
    }

    #[test]
    fn requests_for_encryption_and_cancelling_are_told_apart() {
        assert_eq!(read(&packet(SSL_REQUEST, b"")), Ok(Some((Packet::Ssl, 8))));
        assert_eq!(read(&packet(GSSENC_REQUEST, b"")), Ok(Some((Packet::Gss, 8))));
        let cancel = packet(CANCEL_REQUEST, &[0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(read(&cancel), Ok(Some((Packet::Cancel { pid: 1, secret: 2 }, 16))));
        let long = packet(CANCEL_REQUEST, &[0, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(read(&long), Ok(Some((Packet::Cancel { pid: 1, secret: 1 << 63 | 2 }, 20))));
        for length in [0, 4, 7, 9, 16, 260] {
            assert!(read(&packet(CANCEL_REQUEST, &vec![0xFF; length])).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn an_incomplete_packet_asks_for_more_and_an_impossible_length_is_refused_at_once() {
        let bytes = packet(PROTOCOL_3_0, b"user\0app\0\0");
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(read(&[0, 0, 0, 7]), Err(StartError::Length(7)));
        assert_eq!(read(&10_001u32.to_be_bytes()), Err(StartError::Length(10_001)));
    }

    #[test]
    fn other_protocols_and_invalid_packets_are_recognized() {
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), Err(StartError::Http));
        assert_eq!(read(&[0x16, 0x03, 0x01, 0x02, 0x00]), Ok(Some((Packet::Tls, 0))));
        assert_eq!(read(b"X\0\0\0\x04"), Ok(Some((Packet::Terminate, 0))));
        assert_eq!(start(2 << 16, ""), Err(StartError::Version(2, 0)));
        assert_eq!(start(PROTOCOL_3_0, "database x  "), Err(StartError::NoUser));
        assert!(matches!(start(PROTOCOL_3_0, "user app"), Err(StartError::Malformed(_))));
        assert!(matches!(start(PROTOCOL_3_0, "user app  x"), Err(StartError::Malformed(_))));
    }
}
