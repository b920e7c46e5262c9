//! Whether a client may send commands: its login, a refusal that it is to be told, and whether it looks like a driver's
//! monitor.

use std::sync::Arc;

use crate::{
    command_names::{is_hello, is_local},
    errors::{Code, Failure},
    login::ClientLogin,
};

pub struct Access {
    stage: Stage,
    greeting: Greeting,
    /// The client is told so when it sends a command.
    refusal: Option<Box<Refusal>>,
    login: Option<Box<ClientLogin>>,
    /// Empty for a client that need not log in.
    user: Arc<str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Unauthenticated,
    Authenticated,
    /// It has sent a command, and counts as a client of a pool.
    Counted,
}

/// Whether the client may be a driver's monitor, which sends nothing but `hello` and never logs in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Greeting {
    None,
    /// It has sent nothing but `hello`.
    HelloOnly,
    /// It has sent an incomplete message after `hello`, which no monitor does.
    SentPartialMessage,
}

/// Why a client is refused, and when it is told so.
#[derive(Debug)]
pub struct Refusal {
    time: RefusalTime,
    failure: Failure,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalTime {
    /// As the answer to its first message.
    AtOnce,
    /// As the answer to its first command after `hello`. A driver whose `hello` fails marks the server Unknown and
    /// closes all its connections.
    AfterHello,
    /// As the answer to its first command after the login, which drivers treat as part of the handshake.
    AfterLogin,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    Refused,
    /// It counts as a client of a pool from now on.
    First,
    Again,
}

impl Access {
    pub fn open() -> Self {
        Self::at(Stage::Authenticated)
    }

    pub fn with_login() -> Self {
        Self::at(Stage::Unauthenticated)
    }

    pub fn forbidden(why: &str) -> Self {
        let mut access = Self::with_login();
        access.refuse_at_once(why);
        access
    }

    fn at(stage: Stage) -> Self {
        Self { stage, greeting: Greeting::None, refusal: None, login: None, user: Arc::from("") }
    }

    pub fn user(&self) -> &Arc<str> {
        &self.user
    }

    pub fn is_authenticated(&self) -> bool {
        self.stage != Stage::Unauthenticated
    }

    pub fn is_counted(&self) -> bool {
        self.stage == Stage::Counted
    }

    pub fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    pub fn refuse(&mut self, time: RefusalTime, failure: Failure) {
        self.refusal = Some(Box::new(Refusal { time, failure }));
    }

    pub fn refuse_at_once(&mut self, why: &str) {
        let failure = Failure::new(Code::Unauthorized, format!("Poolhouse: {why}"));
        self.refuse(RefusalTime::AtOnce, failure);
    }

    pub fn refusal_of(&self, command: &str) -> Option<&Refusal> {
        self.refusal.as_deref().filter(|refusal| !refusal.time.permits(command))
    }

    /// The client has sent `hello`. Returns whether it may be a monitor.
    pub fn note_hello(&mut self) -> bool {
        let may_monitor = !self.is_counted() && self.login.is_none() && self.refusal.is_none();
        if !may_monitor || self.greeting == Greeting::SentPartialMessage {
            return false;
        }
        self.greeting = Greeting::HelloOnly;
        true
    }

    /// The client has sent an incomplete message. Returns whether it was taken for a monitor.
    pub fn note_partial_message(&mut self) -> bool {
        let said_hello = self.greeting == Greeting::HelloOnly;
        if said_hello {
            self.greeting = Greeting::SentPartialMessage;
        }
        said_hello
    }

    fn rule_out_monitor(&mut self) {
        if self.greeting == Greeting::HelloOnly {
            self.greeting = Greeting::None;
        }
    }

    pub fn begin_login(&mut self, login: ClientLogin) {
        self.login = Some(Box::new(login));
        self.rule_out_monitor();
    }

    /// The current login. The caller puts it back unless it is over.
    pub fn take_login(&mut self) -> Option<Box<ClientLogin>> {
        self.login.take()
    }

    pub fn put_login_back(&mut self, login: Box<ClientLogin>) {
        self.login = Some(login);
    }

    pub fn set_user(&mut self, user: &Arc<str>) {
        self.user = Arc::clone(user);
    }

    /// The client has logged in, or need not.
    pub fn admit(&mut self) -> Admission {
        self.rule_out_monitor();
        match (self.stage, &self.refusal) {
            (Stage::Counted, None) => Admission::Again,
            (_, None) => {
                self.stage = Stage::Counted;
                Admission::First
            }
            (Stage::Counted, Some(_)) => Admission::Refused,
            (_, Some(_)) => {
                self.stage = Stage::Authenticated;
                Admission::Refused
            }
        }
    }
}

impl Refusal {
    pub fn time(&self) -> RefusalTime {
        self.time
    }

    pub fn failure(&self) -> &Failure {
        &self.failure
    }
}

impl RefusalTime {
    fn permits(self, command: &str) -> bool {
        match self {
            Self::AtOnce => false,
            Self::AfterHello => is_hello(command),
            Self::AfterLogin => is_local(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttled_client_gets_no_login_and_one_too_many_may_log_in_to_hear_why() {
        let permits = |time: RefusalTime| ["hello", "saslStart", "find"].map(|name| time.permits(name));
        assert_eq!(permits(RefusalTime::AtOnce), [false, false, false]);
        assert_eq!(permits(RefusalTime::AfterHello), [true, false, false]);
        assert_eq!(permits(RefusalTime::AfterLogin), [true, true, false]);
    }
}
