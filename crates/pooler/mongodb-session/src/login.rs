//! SCRAM logins: of a client at Poolhouse (`saslStart`, `saslContinue`), and of Poolhouse at a server.

use std::sync::Arc;

use md5::{Digest, Md5};
use scram::{KeyCache, Mock, Shape};

use crate::{
    bson::{Document, Malformed, Value, Writer},
    command::Command,
    directory::{Directory, ServerLogin},
    errors::{Code, Failure, REFUSED},
    hello::MECHANISMS,
    server_description::ServerDescription,
    wire,
};

/// The `conversationId`: a connection has one conversation at a time.
const CONVERSATION: i32 = 1;

/// Maximum size of the first message, which has a user name and a nonce, in bytes.
const MAX_FIRST_MESSAGE: usize = 2048;

fn nonce() -> String {
    let mut bytes = [0; 18];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn payload<'a>(body: Document<'a>) -> Result<&'a [u8], Failure> {
    match body.get("payload") {
        Ok(Some(Value::Binary(_, payload))) => Ok(payload),
        _ => Err(Failure::new(Code::FailedToParse, "Poolhouse: `payload` must be binary")),
    }
}

/// The digest that MongoDB uses as the password of SCRAM-SHA-1: see the drivers' specification "Authentication".
fn sha1_password(user: &str, password: &str) -> String {
    let digest = Md5::new_with_prefix(user).chain_update(":mongo:").chain_update(password).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub struct ClientLogin {
    user: Arc<str>,
    scram: scram::Server,
    /// The client has set `skipEmptyExchange`.
    skips_last: bool,
    proved: bool,
}

pub enum LoginStep {
    Continue(Vec<u8>),
    /// The reply; the login is complete.
    Done(Vec<u8>),
}

impl ClientLogin {
    pub fn begin(command: &Command<'_>, directory: &dyn Directory, mock: &Mock) -> Result<(Self, Vec<u8>), Failure> {
        let get = |name| command.body.get(name).ok().flatten();
        let mechanism = get("mechanism").and_then(Value::text).unwrap_or("");
        if !MECHANISMS.contains(&mechanism) {
            let text = format!("Poolhouse: clients log in with {} here", MECHANISMS.join(" or "));
            return Err(Failure::new(Code::MechanismUnavailable, text));
        }
        let skips_last = get("options")
            .and_then(Value::document)
            .is_some_and(|options| options.get_nested("skipEmptyExchange").ok().flatten().is_some_and(Value::truth));
        let first = payload(command.body)?;
        if first.len() > MAX_FIRST_MESSAGE {
            return Err(Failure::new(
                Code::AuthenticationFailed,
                "Poolhouse: the first message of this login is too long",
            ));
        }
        let user =
            scram::user_of(first).map_err(|error| Failure::new(Code::AuthenticationFailed, error.to_string()))?;
        let mut scram = match directory.verifiers(&user) {
            Some(verifiers) => scram::Server::new(verifiers, nonce()),
            None => scram::Server::mock(mock, &user, Shape::default(), nonce()),
        };
        let answer = scram.first(first).map_err(|error| Failure::new(Code::AuthenticationFailed, error.to_string()))?;
        Ok((Self { user: user.into(), scram, skips_last, proved: false }, answer))
    }

    pub fn go_on(&mut self, command: &Command<'_>) -> Result<LoginStep, Failure> {
        let said = payload(command.body)?;
        if self.proved {
            return Ok(LoginStep::Done(Vec::new()));
        }
        let refused = |error: scram::Error| {
            let text = match error {
                scram::Error::WrongProof => "Authentication failed.".to_owned(),
                other => other.to_string(),
            };
            Failure::new(Code::AuthenticationFailed, text)
        };
        let last = self.scram.last(said).map_err(refused)?;
        self.proved = true;
        Ok(if self.skips_last { LoginStep::Done(last) } else { LoginStep::Continue(last) })
    }

    pub fn user(&self) -> &Arc<str> {
        &self.user
    }
}

pub fn answer(payload: &[u8], done: bool, answer: &mut Writer<'_>) {
    answer.int32("conversationId", CONVERSATION).bool("done", done);
    answer.binary("payload", payload).double("ok", 1.0);
}

pub struct ServerHandshake {
    pub login: ServerLogin,
    /// The key of the posts that continue it while its keys are derived.
    pub key: Option<u64>,
    stage: Stage,
    last_id: i32,
}

enum Stage {
    Hello,
    First(Scram),
    /// The reply to the challenge waits until the keys are derived.
    Deriving(Box<Deriving>),
    Last(Scram),
}

enum Scram {
    Sha256(scram::Client),
    Sha1(scram::Sha1Client),
}

struct Deriving {
    scram: Scram,
    derivation: scram::Derivation,
    challenge: Box<[u8]>,
    conversation: i64,
}

pub enum HandshakeStep {
    /// Call [`ServerHandshake::derive_more`] later.
    Later,
    /// Wait for the server's reply.
    Wait,
    Done,
    /// `permanent`: a retry fails, too.
    Failed {
        message: String,
        permanent: bool,
    },
}

impl ServerHandshake {
    pub fn new(login: ServerLogin) -> Self {
        Self { login, key: None, stage: Stage::Hello, last_id: 0 }
    }

    /// The id of the request that is unanswered.
    pub fn last_id(&self) -> i32 {
        self.last_id
    }

    /// Sends `isMaster` as an OP_QUERY, which servers of every version understand.
    pub fn begin(&mut self, to: &mut Vec<u8>) {
        self.last_id += 1;
        wire::old_request(to, self.last_id, |body| {
            body.int32("isMaster", 1).bool("helloOk", true);
            body.document("client", |client| {
                client.document("driver", |driver| {
                    driver.text("name", "poolhouse").text("version", env!("CARGO_PKG_VERSION"));
                });
                client.document("os", |os| {
                    os.text("type", std::env::consts::OS);
                });
            });
        });
    }

    /// Handles a reply, and appends the next message. `learn` gets the server's description.
    pub fn on_reply(
        &mut self,
        answer: Document<'_>,
        keys: &KeyCache,
        to: &mut Vec<u8>,
        learn: impl FnOnce(ServerDescription),
    ) -> HandshakeStep {
        let failed = |message: String| HandshakeStep::Failed { message, permanent: false };
        if !answer.get("ok").ok().flatten().is_some_and(Value::truth) {
            let text = answer.get("errmsg").ok().flatten().and_then(Value::text).unwrap_or("no reason given");
            if matches!(self.stage, Stage::Hello) {
                return failed(text.to_owned());
            }
            // A refused login stays refused until the configuration or the user changes.
            return HandshakeStep::Failed { message: self.refused(text), permanent: true };
        }
        let step = match std::mem::replace(&mut self.stage, Stage::Hello) {
            Stage::Hello => self.hello(answer, to, learn),
            Stage::First(scram) => self.challenged(scram, answer, keys, to),
            Stage::Deriving(_) => Err("an answer to what was not asked".to_owned()),
            Stage::Last(mut scram) => match payload(answer).map(|said| match &mut scram {
                Scram::Sha256(scram) => scram.verify(said),
                Scram::Sha1(scram) => scram.verify(said),
            }) {
                Ok(Ok(())) => Ok(HandshakeStep::Done),
                Ok(Err(error)) => Err(error.to_string()),
                Err(failure) => Err(failure.message),
            },
        };
        step.unwrap_or_else(failed)
    }

    /// The error of a refused login, with the user and its database.
    fn refused(&self, text: &str) -> String {
        let user = self.login.user.as_ref().map_or("", |(user, _)| user);
        format!("{REFUSED} user `{}` (authSource `{}`): {text}", user.escape_debug(), self.login.source.escape_debug())
    }

    fn hello(
        &mut self,
        answer: Document<'_>,
        to: &mut Vec<u8>,
        learn: impl FnOnce(ServerDescription),
    ) -> Result<HandshakeStep, String> {
        let description = ServerDescription::read(answer).map_err(|Malformed(what)| what.to_owned())?;
        learn(description);
        let user = self.login.user.as_ref().filter(|_| !self.login.monitors);
        let Some((user, _)) = user else { return Ok(HandshakeStep::Done) };
        let (mechanism, (scram, first)) = if self.login.sha1 {
            let (scram, first) = scram::Sha1Client::named(user, &nonce());
            ("SCRAM-SHA-1", (Scram::Sha1(scram), first))
        } else {
            let (scram, first) = scram::Client::named(user, nonce());
            ("SCRAM-SHA-256", (Scram::Sha256(scram), first))
        };
        self.stage = Stage::First(scram);
        self.last_id += 1;
        let source = &self.login.source;
        wire::request(to, self.last_id, |body| {
            body.int32("saslStart", 1).text("mechanism", mechanism).binary("payload", &first);
            body.document("options", |options| {
                options.bool("skipEmptyExchange", true);
            });
            body.text("$db", source);
        });
        Ok(HandshakeStep::Wait)
    }

    fn challenged(
        &mut self,
        scram: Scram,
        answer: Document<'_>,
        keys: &KeyCache,
        to: &mut Vec<u8>,
    ) -> Result<HandshakeStep, String> {
        let said = payload(answer).map_err(|failure| failure.message)?;
        let conversation = answer.get("conversationId").ok().flatten().and_then(Value::integer).unwrap_or(1);
        let (user, password) = self.login.user.as_ref().expect("who logs in has a password");
        let slow = match &scram {
            Scram::Sha256(_) => keys.slow_derivation(scram::Hash::Sha256, said, password),
            Scram::Sha1(_) => keys.slow_derivation(scram::Hash::Sha1, said, &sha1_password(user, password)),
        };
        if let Some(derivation) = slow {
            self.stage =
                Stage::Deriving(Box::new(Deriving { scram, derivation, challenge: said.into(), conversation }));
            return Ok(HandshakeStep::Later);
        }
        self.prove(scram, said, conversation, keys, to)
    }

    /// Derives the next part of the keys, and replies to the challenge after the last one.
    pub fn derive_more(&mut self, keys: &KeyCache, to: &mut Vec<u8>) -> HandshakeStep {
        let Stage::Deriving(deriving) = &mut self.stage else { return HandshakeStep::Wait };
        if !deriving.derivation.derive_part(keys) {
            return HandshakeStep::Later;
        }
        let Stage::Deriving(deriving) = std::mem::replace(&mut self.stage, Stage::Hello) else {
            unreachable!("seen above")
        };
        let Deriving { scram, challenge, conversation, .. } = *deriving;
        let step = self.prove(scram, &challenge, conversation, keys, to);
        step.unwrap_or_else(|message| HandshakeStep::Failed { message, permanent: false })
    }

    /// Whether it waits for [`ServerHandshake::derive_more`].
    pub fn is_deriving(&self) -> bool {
        matches!(self.stage, Stage::Deriving(_))
    }

    fn prove(
        &mut self,
        mut scram: Scram,
        said: &[u8],
        conversation: i64,
        keys: &KeyCache,
        to: &mut Vec<u8>,
    ) -> Result<HandshakeStep, String> {
        let (user, password) = self.login.user.as_ref().expect("who logs in has a password");
        let last = match &mut scram {
            Scram::Sha256(scram) => scram.respond(said, password, keys),
            Scram::Sha1(scram) => scram.respond(said, &sha1_password(user, password), keys),
        };
        let last = last.map_err(|error| error.to_string())?;
        self.stage = Stage::Last(scram);
        self.last_id += 1;
        let source = &self.login.source;
        wire::request(to, self.last_id, |body| {
            body.int32("saslContinue", 1).int32("conversationId", conversation as i32);
            body.binary("payload", &last).text("$db", source);
        });
        Ok(HandshakeStep::Wait)
    }
}
