//! The login to a server: HELLO with AUTH, or AUTH alone where HELLO is unknown; then SELECT; then PING, because a
//! server that is still loading its data accepts all commands before.

use crate::{
    ServerLogin, Version,
    hello::{Hello, Unselected},
    resp,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Hello,
    /// The server is older than HELLO.
    Auth,
    Select,
    Ping,
}

pub struct Login {
    login: ServerLogin,
    step: Step,
    hello: Hello,
}

pub enum Progress {
    /// Send these bytes. `accepted`: the server has accepted the login.
    Say {
        bytes: Vec<u8>,
        accepted: bool,
    },
    Done {
        hello: Hello,
    },
    /// It is a sentinel, and the master is at this address.
    Redirected {
        host: String,
        port: u16,
    },
    /// It cannot be used. `permanent`: another try would fail, too.
    Failed {
        message: String,
        permanent: bool,
    },
    /// It works, but does not know the database or the version of the protocol.
    Unknown {
        message: String,
    },
}

impl Login {
    pub fn new(login: ServerLogin) -> Self {
        Self { login, step: Step::Hello, hello: Hello::default() }
    }

    pub fn wants_tls(&self) -> bool {
        self.login.tls
    }

    pub fn begin(&self, to: &mut Vec<u8>) {
        let version = self.login.version.number().to_string();
        let mut words = vec![&b"HELLO"[..], version.as_bytes()];
        if let Some(password) = &self.login.password {
            let user = self.login.user.as_deref().unwrap_or("default");
            words.extend([&b"AUTH"[..], user.as_bytes(), password.as_bytes()]);
        }
        resp::command(to, &words);
    }

    pub fn reply(&mut self, reply: &[u8]) -> Progress {
        let error = reply.strip_prefix(b"-").map(|error| String::from_utf8_lossy(error).trim_end().to_owned());
        match (self.step, error) {
            (Step::Hello, None) => {
                self.hello = Hello::read(reply);
                if self.hello.mode == "cluster" {
                    let message = "this is a Redis Cluster, which Poolhouse does not serve in this version: \
                                   its keys live on several servers, and this is one of them";
                    return Progress::Failed { message: message.to_owned(), permanent: true };
                }
                self.select(true)
            }
            (Step::Hello, Some(error)) if error.starts_with("ERR unknown command") => match self.login.version {
                Version::Resp2 => self.auth(),
                Version::Resp3 => {
                    // Clients fall back to RESP2 when they hear this.
                    Progress::Unknown { message: "NOPROTO unsupported protocol version".to_owned() }
                }
            },
            (Step::Auth, None) => self.select(true),
            (Step::Select, None) => self.ping(false),
            // While Redis executes a script for long, SELECT fails. The first command tries it again.
            (Step::Select, Some(error)) if error.starts_with("BUSY ") => {
                self.hello.unselected = Some(Unselected { database: self.login.database, error: error.into() });
                self.ping(false)
            }
            (Step::Ping, error) => match error.filter(|error| error.starts_with("LOADING")) {
                Some(message) => Progress::Failed { message, permanent: false },
                // PING may be forbidden for this user.
                None => Progress::Done { hello: std::mem::take(&mut self.hello) },
            },
            (_, Some(message)) => {
                let message = without_secret(message, &self.login);
                match is_unknown(&message) {
                    true => Progress::Unknown { message },
                    false => Progress::Failed { permanent: is_permanent(&message), message },
                }
            }
        }
    }

    fn auth(&mut self) -> Progress {
        let mut bytes = Vec::new();
        if !write_auth(&self.login, &mut bytes) {
            return self.select(true);
        }
        self.step = Step::Auth;
        Progress::Say { bytes, accepted: false }
    }

    fn select(&mut self, accepted: bool) -> Progress {
        let mut bytes = Vec::new();
        if !write_select(&self.login, &mut bytes) {
            return self.ping(accepted);
        }
        self.step = Step::Select;
        Progress::Say { bytes, accepted }
    }

    fn ping(&mut self, accepted: bool) -> Progress {
        let mut bytes = Vec::new();
        resp::command(&mut bytes, &[b"PING"]);
        self.step = Step::Ping;
        Progress::Say { bytes, accepted }
    }
}

/// Appends AUTH. Returns false if there is no password.
pub fn write_auth(login: &ServerLogin, to: &mut Vec<u8>) -> bool {
    let Some(password) = &login.password else { return false };
    let mut words = vec![&b"AUTH"[..]];
    words.extend(login.user.as_deref().map(str::as_bytes));
    words.push(password.as_bytes());
    resp::command(to, &words);
    true
}

/// Appends SELECT. Returns false if a connection begins in the database.
pub fn write_select(login: &ServerLogin, to: &mut Vec<u8>) -> bool {
    if login.database > 0 {
        resp::command(to, &[b"SELECT", login.database.to_string().as_bytes()]);
    }
    login.database > 0
}

/// A server's error to a login, without the password: some servers repeat what they did not understand.
pub fn without_secret(message: String, login: &ServerLogin) -> String {
    match login.password.as_ref().is_some_and(|password| message.contains(&**password)) {
        true => "ERR the login failed, and the server's words hold the password".to_owned(),
        false => message,
    }
}

/// Whether a server that works does not know the database or the version of the protocol. One client's choice is no
/// outage.
fn is_unknown(error: &str) -> bool {
    ["NOPROTO", "ERR DB index", "ERR invalid DB index"].iter().any(|unknown| error.starts_with(unknown))
}

/// Whether a refusal lasts until something is changed, such as wrong credentials or an unknown database. A server that
/// loads its data, is full, or waits for its master refuses for a while only.
pub fn is_permanent(error: &str) -> bool {
    [
        "WRONGPASS",
        "NOAUTH",
        "NOPERM",
        "NOPROTO",
        "ERR DB index",
        "ERR invalid DB index",
        "ERR AUTH",
        "ERR invalid password",
        "ERR unknown command",
    ]
    .iter()
    .any(|permanent| error.starts_with(permanent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(database: u32, password: Option<&str>) -> ServerLogin {
        ServerLogin { password: password.map(Into::into), database, ..ServerLogin::default() }
    }

    #[test]
    fn an_unknown_database_or_protocol_is_no_outage() {
        let mut login = Login::new(login(99, None));
        login.reply(b"*2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n");
        let Progress::Unknown { message } = login.reply(b"-ERR DB index is out of range\r\n") else {
            panic!("it is known")
        };
        assert_eq!(message, "ERR DB index is out of range");
        let old = ServerLogin { version: Version::Resp3, ..ServerLogin::default() };
        for reply in [&b"-NOPROTO unsupported protocol version\r\n"[..], b"-ERR unknown command `HELLO`\r\n"] {
            assert!(matches!(Login::new(old.clone()).reply(reply), Progress::Unknown { .. }));
        }
    }

    #[test]
    fn the_login_to_an_old_server_does_without_hello() {
        let mut login = Login::new(login(0, Some("secret")));
        let Progress::Say { bytes, .. } = login.reply(b"-ERR unknown command `HELLO`\r\n") else { panic!("no AUTH") };
        assert_eq!(bytes, b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n");
        assert!(matches!(login.reply(b"+OK\r\n"), Progress::Say { accepted: true, .. }));
        assert!(matches!(login.reply(b"-NOPERM no\r\n"), Progress::Done { .. }));
    }

    #[test]
    fn while_a_script_runs_the_login_leaves_the_database_for_later() {
        let mut login = Login::new(login(3, None));
        login.reply(b"*2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n");
        assert!(matches!(login.reply(b"-BUSY a script\r\n"), Progress::Say { .. }));
        let Progress::Done { hello } = login.reply(b"-BUSY a script\r\n") else { panic!("it is not done") };
        assert_eq!(hello.unselected.map(|unselected| unselected.database), Some(3));
    }
}
