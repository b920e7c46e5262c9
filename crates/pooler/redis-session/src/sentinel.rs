//! How a connection to a server begins: with a login; or, where the configured hosts are sentinels, with the question
//! for the master. The connection to that master begins with a login and the check that it is the master.

use crate::{
    ServerLogin,
    directory::Sentinel,
    hello,
    login::{Login, Progress, is_permanent},
    resp,
};

pub enum Start {
    Server(Login),
    Sentinel(Question),
    /// A server that a sentinel has named as the master.
    Master {
        login: Login,
        /// The login has succeeded, and an old server is asked for its role.
        asking: Option<hello::Hello>,
    },
}

pub struct Question {
    sentinel: Sentinel,
    tls: bool,
    /// The login has succeeded, or is not needed.
    logged_in: bool,
}

impl Start {
    pub fn new(mut login: ServerLogin) -> Self {
        match login.sentinel.take() {
            None => Self::Server(Login::new(login)),
            Some(sentinel) => {
                let logged_in = sentinel.password.is_none();
                Self::Sentinel(Question { sentinel, tls: login.tls, logged_in })
            }
        }
    }

    /// On a connection to the master that a sentinel has named.
    pub fn at_master(login: ServerLogin) -> Self {
        Self::Master { login: Login::new(login), asking: None }
    }

    pub fn wants_tls(&self) -> bool {
        match self {
            Self::Server(login) | Self::Master { login, .. } => login.wants_tls(),
            Self::Sentinel(question) => question.tls,
        }
    }

    pub fn begin(&self, to: &mut Vec<u8>) {
        match self {
            Self::Server(login) | Self::Master { login, .. } => login.begin(to),
            Self::Sentinel(question) => question.say(to),
        }
    }

    pub fn reply(&mut self, reply: &[u8]) -> Progress {
        match self {
            Self::Server(login) => login.reply(reply),
            Self::Sentinel(question) => question.reply(reply),
            Self::Master { asking: Some(hello), .. } => {
                // The first element of the reply to ROLE.
                let parts = if reply.starts_with(b"*") { resp::parts(reply) } else { Vec::new() };
                hello.role = parts.first().map(|role| String::from_utf8_lossy(role).into_owned()).unwrap_or_default();
                check_role(std::mem::take(hello))
            }
            Self::Master { login, asking } => match login.reply(reply) {
                Progress::Done { hello } if hello.role.is_empty() => {
                    *asking = Some(hello);
                    let mut bytes = Vec::new();
                    resp::command(&mut bytes, &[b"ROLE"]);
                    Progress::Say { bytes, accepted: false }
                }
                Progress::Done { hello } => check_role(hello),
                other => other,
            },
        }
    }
}

/// A server that is not the master is not used, for now.
fn check_role(hello: hello::Hello) -> Progress {
    match hello.role.as_str() {
        "master" => Progress::Done { hello },
        role => {
            let message = format!("the sentinel called this the master, and it says it is `{}`", role.escape_debug());
            Progress::Failed { message, permanent: false }
        }
    }
}

impl Question {
    fn say(&self, to: &mut Vec<u8>) {
        match (&self.sentinel.password, self.logged_in) {
            (Some(password), false) => {
                let mut words = vec![&b"AUTH"[..]];
                words.extend(self.sentinel.user.as_deref().map(str::as_bytes));
                words.push(password.as_bytes());
                resp::command(to, &words);
            }
            _ => resp::command(to, &[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self.sentinel.master.as_bytes()]),
        }
    }

    fn reply(&mut self, reply: &[u8]) -> Progress {
        if let Some(error) = reply.strip_prefix(b"-") {
            let said = String::from_utf8_lossy(error).trim_end().to_owned();
            let holds_password = self.sentinel.password.as_ref().is_some_and(|password| said.contains(&**password));
            let said = if holds_password { "its words hold the password".to_owned() } else { said };
            // Another configured host may be a sentinel.
            let permanent = is_permanent(&said) && !said.starts_with("ERR unknown command");
            return Progress::Failed { message: format!("the sentinel does not tell the master: {said}"), permanent };
        }
        if !self.logged_in {
            self.logged_in = true;
            let mut bytes = Vec::new();
            self.say(&mut bytes);
            return Progress::Say { bytes, accepted: false };
        }
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let address = match resp::parts(reply).as_slice() {
            [host, port] if !host.is_empty() => text(port).parse().ok().map(|port: u16| (text(host), port)),
            _ => None,
        };
        match address {
            Some((host, port @ 1..)) => Progress::Redirected { host, port },
            _ => {
                let name = &self.sentinel.master;
                Progress::Failed { message: format!("the sentinel knows no master called `{name}`"), permanent: false }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(password: Option<&str>) -> ServerLogin {
        let sentinel = Sentinel { master: "mymaster".into(), user: None, password: password.map(Into::into) };
        ServerLogin { sentinel: Some(sentinel), ..ServerLogin::default() }
    }

    #[test]
    fn the_error_for_a_wrong_password_does_not_hold_the_password() {
        let wrong = Start::new(login(Some("watch"))).reply(b"-WRONGPASS not watch\r\n");
        let Progress::Failed { message, .. } = wrong else { panic!("a refusal is one") };
        assert!(!message.contains("watch"), "{message}");
    }

    #[test]
    fn the_named_master_must_say_that_it_is_the_master() {
        let hello = |role: &str| format!("*2\r\n$4\r\nrole\r\n${}\r\n{role}\r\n", role.len());
        for (role, good) in [("master", true), ("replica", false)] {
            let mut start = Start::at_master(login(None));
            start.reply(hello(role).as_bytes());
            let progress = start.reply(b"+PONG\r\n");
            assert_eq!(matches!(progress, Progress::Done { .. }), good, "{role}");
        }
        // Older than HELLO.
        let replies = [
            ("*1\r\n$6\r\nmaster\r\n", true),
            ("*1\r\n$5\r\nslave\r\n", false),
            ("+master\r\n", false),
            ("-NOPERM\r\n", false),
        ];
        for (role, good) in replies {
            let mut start = Start::at_master(login(None));
            start.reply(b"-ERR unknown command `HELLO`\r\n");
            assert!(matches!(start.reply(b"+PONG\r\n"), Progress::Say { .. }));
            assert_eq!(matches!(start.reply(role.as_bytes()), Progress::Done { .. }), good, "{role}");
        }
    }
}
