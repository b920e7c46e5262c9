//! Messages of PostgreSQL's clients and servers for a rig, and its directory of users.

use std::sync::Arc;

use postgres_session::{
    CancelDealtWith, CheckOutcome, Directory, Encryption, ForeignCancel, ListenerRules, LoginAttempt, LoginCheck, Look,
    PoolMode, Postgres, Proof, ResetPolicy, Route, ServerEncryption, ServerLogin, StartRequest, StatePolicy, Unknown,
};
use seam::PoolId;

use super::{POOL, Rig};
use crate::network::EndId;

/// Admits all users except `remote`, to all databases except `nowhere`.
#[derive(Clone)]
pub struct TestDirectory {
    pub mode: PoolMode,
    pub proof: Proof,
    /// The password with which Poolhouse logs in; `None`: it uses what clients have proved.
    pub password: Option<Arc<str>>,
    pub state: StatePolicy,
    pub encryption: Encryption,
    pub server_encryption: ServerEncryption,
    pub rules: ListenerRules,
}

impl Default for TestDirectory {
    /// Transaction mode; all users are trusted, and no server is asked for its catalogue.
    fn default() -> Self {
        let state = StatePolicy { reset: ResetPolicy::Never, ..StatePolicy::default() };
        Self {
            mode: PoolMode::Transaction,
            proof: Proof::Trust,
            password: None,
            state,
            encryption: Encryption::Off,
            server_encryption: ServerEncryption::default(),
            rules: ListenerRules::default(),
        }
    }
}

impl TestDirectory {
    /// A rig with this directory. `max_held`: bytes of input held for a connection.
    pub fn rig(self, max_held: usize) -> Rig<Postgres> {
        self.rig_with_workers(1, max_held)
    }

    pub fn rig_behind_proxies(self, max_held: usize) -> Rig<Postgres> {
        Rig::behind_proxies(Postgres::new(Arc::new(self)), max_held)
    }

    pub fn rig_with_workers(self, workers: usize, max_held: usize) -> Rig<Postgres> {
        Rig::with_workers(workers, Postgres::new(Arc::new(self)), max_held)
    }
}

impl Directory for TestDirectory {
    fn proof(&self, attempt: &LoginAttempt) -> Result<Proof, Unknown> {
        if attempt.user == "remote" {
            return Err(Unknown::Forbidden(format!("only from loopback: {}", attempt.origin.is_local())));
        }
        Ok(self.proof.clone())
    }

    fn keeps_places(&self, _: &str) -> bool {
        false
    }

    fn route(&self, database: &str, _: &str) -> Result<Route, Unknown> {
        if database == "nowhere" {
            return Err(Unknown::Database);
        }
        Ok(Route { pool: POOL, mode: self.mode, pass_through: self.password.is_none(), add_host: false })
    }

    fn rules(&self, _: u16) -> ListenerRules {
        self.rules.clone()
    }

    fn announcements(&self, _: PoolId) -> Vec<(String, String)> {
        Vec::new()
    }

    fn dedicated_route(&self, _: &str, _: &str, _: &StartRequest<'_>) -> Result<Option<Route>, Unknown> {
        let route = Route { pool: POOL, mode: self.mode, pass_through: false, add_host: false };
        Ok((self.mode == PoolMode::Dedicated).then_some(route))
    }

    fn note_lookup(&self, _: &LoginAttempt, stored: Option<&str>) -> Result<Proof, Unknown> {
        let stored = stored.filter(|stored| !stored.is_empty());
        stored.map(|hash| Proof::Md5([hash.into()].into())).ok_or(Unknown::User)
    }

    fn looks(&self, _: &LoginAttempt) -> Vec<Look> {
        Vec::new()
    }

    fn begin_check(&self, _: LoginCheck) {
        unreachable!("no password is checked elsewhere")
    }

    fn finished_checks(&self) -> Vec<CheckOutcome> {
        Vec::new()
    }

    fn hand_on_cancel(&self, _: ForeignCancel) {}

    fn handed_on_cancels(&self) -> Vec<CancelDealtWith> {
        Vec::new()
    }

    fn note_refuted(&self, _: &str, _: &str) {}

    fn note_catalogue(&self, _: PoolId, _: &[String]) {}

    fn server_login(&self, _: PoolId) -> ServerLogin {
        ServerLogin {
            database: "db".into(),
            user: "app".into(),
            password: self.password.clone(),
            parameters: vec![("application_name".into(), "ph".into())],
            mode: self.mode,
            state: self.state,
            encryption: self.server_encryption,
            ..ServerLogin::default()
        }
    }

    fn encryption(&self, _: u16) -> Encryption {
        self.encryption
    }
}

impl Rig<Postgres> {
    /// The client sends a request, which the server receives and answers, both in the shorthand of [`messages`].
    pub fn exchange(&mut self, client: EndId, server: EndId, request: &str, answer: &str) {
        self.send(client, &messages(request));
        self.take_received(server);
        self.send(server, &messages(answer));
    }
}

pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Messages from a shorthand: `Q:text` is a Query, `Z:I` a ReadyForQuery, and so on: a type, and a body that may use
/// `~` for a zero byte; separated by blanks (`_` is a blank in a body).
pub fn messages(shorthand: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in shorthand.split_whitespace() {
        let (kind, body) = word.split_once(':').unwrap_or((word, ""));
        assert_eq!(kind.len(), 1, "{word}");
        let mut body = body.replace('~', "\0").replace('_', " ").into_bytes();
        if kind == "Q" {
            body.push(0);
        }
        bytes.extend(message(kind.as_bytes()[0], &body));
    }
    bytes
}

/// A server's answer to a survey of its session: rows of kind, name and value.
pub fn survey_answer(rows: &[[&str; 3]]) -> Vec<u8> {
    let mut bytes = messages("T:~~");
    for row in rows {
        let mut body = 3u16.to_be_bytes().to_vec();
        for (place, column) in row.iter().enumerate() {
            // Names and values of settings are hexadecimal.
            let hex: String = column.bytes().map(|byte| format!("{byte:02x}")).collect();
            let column = if row[0] == "s" && place > 0 { &hex } else { *column };
            body.extend((column.len() as u32).to_be_bytes());
            body.extend(column.as_bytes());
        }
        bytes.extend(message(b'D', &body));
    }
    bytes.extend(messages("C:SELECT~ Z:I"));
    bytes
}

pub fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        for text in [name, value] {
            body.extend(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    let mut bytes = (body.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// The header of a proxy that speaks for a client at 10.1.2.3.
pub fn proxy_header() -> Vec<u8> {
    let addresses = [10, 1, 2, 3, 127, 0, 0, 1, 0x30, 0x39, 0x19, 0x20];
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
}

/// The messages of a server that admits Poolhouse without a password.
pub fn server_welcome() -> Vec<u8> {
    let mut bytes = message(b'R', &[0; 4]);
    for (name, value) in [
        ("application_name", "ph"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("server_version", "17.2"),
        ("TimeZone", "UTC"),
    ] {
        bytes.extend(message(b'S', format!("{name}\0{value}\0").as_bytes()));
    }
    bytes.extend(message(b'K', &[0, 0, 0, 9, 1, 2, 3, 4]));
    bytes.extend(message(b'Z', b"I"));
    bytes
}
