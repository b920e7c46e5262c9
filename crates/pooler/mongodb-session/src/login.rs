//! Logging in, both ways: a client to Poolhouse (`saslStart`, `saslContinue`), and Poolhouse to a server.

use std::sync::Arc;

use md5::{Digest, Md5};
use scram::{KeyCache, Mock, Shape};

use crate::{
    bson::{Document, Malformed, Value, Writer},
    command::Command,
    directory::{Directory, ServerLogin},
    errors::{Code, Failure, REFUSED},
    facts::Facts,
    hello::MECHANISMS,
    wire,
};

/// The only conversation of a connection at a time.
const CONVERSATION: i32 = 1;

/// Bytes of the first message of a login, which holds a name and something random.
const MAX_FIRST: usize = 2048;

/// Fresh randomness, printable.
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

/// What MongoDB keeps of a password for SCRAM-SHA-1: see the drivers' specification "Authentication".
fn digested(user: &str, password: &str) -> String {
    let digest = Md5::new_with_prefix(user).chain_update(":mongo:").chain_update(password).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A client's login under way.
pub struct Exchange {
    user: Arc<str>,
    scram: scram::Server,
    /// The client asked to be spared the last message, which says nothing.
    skips_last: bool,
    proved: bool,
}

pub enum Step {
    Goes(Vec<u8>),
    /// The answer, and the login is over.
    Done(Vec<u8>),
}

impl Exchange {
    /// Takes `saslStart`.
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
        if first.len() > MAX_FIRST {
            return Err(Failure::new(
                Code::AuthenticationFailed,
                "Poolhouse: the first message of this login is too long",
            ));
        }
        let user =
            scram::user_of(first).map_err(|error| Failure::new(Code::AuthenticationFailed, error.to_string()))?;
        let mut scram = match directory.verifier(&user) {
            Some(verifier) => scram::Server::new(verifier, nonce()),
            None => scram::Server::mock(mock, &user, Shape::default(), nonce()),
        };
        let answer = scram.first(first).map_err(|error| Failure::new(Code::AuthenticationFailed, error.to_string()))?;
        Ok((Self { user: user.into(), scram, skips_last, proved: false }, answer))
    }

    /// Takes `saslContinue`.
    pub fn go_on(&mut self, command: &Command<'_>) -> Result<Step, Failure> {
        let said = payload(command.body)?;
        if self.proved {
            return Ok(Step::Done(Vec::new()));
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
        Ok(if self.skips_last { Step::Done(last) } else { Step::Goes(last) })
    }

    pub fn user(&self) -> &Arc<str> {
        &self.user
    }
}

/// Writes the answer to a step.
pub fn answer(payload: &[u8], done: bool, answer: &mut Writer<'_>) {
    answer.int32("conversationId", CONVERSATION).bool("done", done);
    answer.binary("payload", payload).double("ok", 1.0);
}

/// Poolhouse's login at a server.
pub struct ServerStart {
    pub login: ServerLogin,
    /// Under which it is gone on with where its keys are derived.
    pub key: Option<u64>,
    at: At,
    last_id: i32,
}

enum At {
    Hello,
    First(Scram),
    /// The answer to the challenge waits until the keys are derived.
    Deriving(Box<Deriving>),
    Last(Scram),
}

/// The mechanism under way.
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

pub enum Next {
    /// Call [`ServerStart::go_on`], some time later.
    Later,
    /// Wait for the answer to what has been said.
    Wait,
    /// The server may be used.
    Done,
    /// It cannot be. `permanent`: asking again is of no use.
    Failed { message: String, permanent: bool },
}

impl ServerStart {
    pub fn new(login: ServerLogin) -> Self {
        Self { login, key: None, at: At::Hello, last_id: 0 }
    }

    /// The id of the request whose answer is due.
    pub fn asked(&self) -> i32 {
        self.last_id
    }

    /// Says who we are, in the form that servers of every age understand.
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

    /// Takes an answer, and says what follows. `learn` is told what the server is.
    pub fn answered(
        &mut self,
        answer: Document<'_>,
        keys: &KeyCache,
        to: &mut Vec<u8>,
        learn: impl FnOnce(Facts),
    ) -> Next {
        let failed = |message: String| Next::Failed { message, permanent: false };
        if !answer.get("ok").ok().flatten().is_some_and(Value::truth) {
            let text = answer.get("errmsg").ok().flatten().and_then(Value::text).unwrap_or("no reason given");
            if matches!(self.at, At::Hello) {
                return failed(text.to_owned());
            }
            // A login that a server refuses is refused again, until somebody changes something.
            return Next::Failed { message: self.refused(text), permanent: true };
        }
        let step = match std::mem::replace(&mut self.at, At::Hello) {
            At::Hello => self.hello(answer, to, learn),
            At::First(scram) => self.challenged(scram, answer, keys, to),
            At::Deriving(_) => Err("an answer to what was not asked".to_owned()),
            At::Last(mut scram) => match payload(answer).map(|said| match &mut scram {
                Scram::Sha256(scram) => scram.verify(said),
                Scram::Sha1(scram) => scram.verify(said),
            }) {
                Ok(Ok(())) => Ok(Next::Done),
                Ok(Err(error)) => Err(error.to_string()),
                Err(failure) => Err(failure.message),
            },
        };
        step.unwrap_or_else(failed)
    }

    /// Whom the server has refused, and by which database.
    fn refused(&self, text: &str) -> String {
        let user = self.login.user.as_ref().map_or("", |(user, _)| user);
        format!("{REFUSED} user `{}` (authSource `{}`): {text}", user.escape_debug(), self.login.source.escape_debug())
    }

    fn hello(&mut self, answer: Document<'_>, to: &mut Vec<u8>, learn: impl FnOnce(Facts)) -> Result<Next, String> {
        let facts = Facts::read(answer).map_err(|Malformed(what)| what.to_owned())?;
        learn(facts);
        let user = self.login.user.as_ref().filter(|_| !self.login.monitors);
        let Some((user, _)) = user else { return Ok(Next::Done) };
        let (mechanism, (scram, first)) = if self.login.sha1 {
            let (scram, first) = scram::Sha1Client::named(user, &nonce());
            ("SCRAM-SHA-1", (Scram::Sha1(scram), first))
        } else {
            let (scram, first) = scram::Client::named(user, nonce());
            ("SCRAM-SHA-256", (Scram::Sha256(scram), first))
        };
        self.at = At::First(scram);
        self.last_id += 1;
        let source = &self.login.source;
        wire::request(to, self.last_id, |body| {
            body.int32("saslStart", 1).text("mechanism", mechanism).binary("payload", &first);
            body.document("options", |options| {
                options.bool("skipEmptyExchange", true);
            });
            body.text("$db", source);
        });
        Ok(Next::Wait)
    }

    fn challenged(
        &mut self,
        scram: Scram,
        answer: Document<'_>,
        keys: &KeyCache,
        to: &mut Vec<u8>,
    ) -> Result<Next, String> {
        let said = payload(answer).map_err(|failure| failure.message)?;
        let conversation = answer.get("conversationId").ok().flatten().and_then(Value::integer).unwrap_or(1);
        let (user, password) = self.login.user.as_ref().expect("who logs in has a password");
        let slow = match &scram {
            Scram::Sha256(_) => keys.slow(scram::Hash::Sha256, said, password),
            Scram::Sha1(_) => keys.slow(scram::Hash::Sha1, said, &digested(user, password)),
        };
        if let Some(derivation) = slow {
            self.at = At::Deriving(Box::new(Deriving { scram, derivation, challenge: said.into(), conversation }));
            return Ok(Next::Later);
        }
        self.prove(scram, said, conversation, keys, to)
    }

    /// Derives one more part of the keys, and answers the challenge if it was the last.
    pub fn go_on(&mut self, keys: &KeyCache, to: &mut Vec<u8>) -> Next {
        let At::Deriving(deriving) = &mut self.at else { return Next::Wait };
        if !deriving.derivation.go_on(keys) {
            return Next::Later;
        }
        let At::Deriving(deriving) = std::mem::replace(&mut self.at, At::Hello) else { unreachable!("seen above") };
        let Deriving { scram, challenge, conversation, .. } = *deriving;
        let step = self.prove(scram, &challenge, conversation, keys, to);
        step.unwrap_or_else(|message| Next::Failed { message, permanent: false })
    }

    /// Whether it waits for [`ServerStart::go_on`].
    pub fn is_deriving(&self) -> bool {
        matches!(self.at, At::Deriving(_))
    }

    fn prove(
        &mut self,
        mut scram: Scram,
        said: &[u8],
        conversation: i64,
        keys: &KeyCache,
        to: &mut Vec<u8>,
    ) -> Result<Next, String> {
        let (user, password) = self.login.user.as_ref().expect("who logs in has a password");
        let last = match &mut scram {
            Scram::Sha256(scram) => scram.respond(said, password, keys),
            Scram::Sha1(scram) => scram.respond(said, &digested(user, password), keys),
        };
        let last = last.map_err(|error| error.to_string())?;
        self.at = At::Last(scram);
        self.last_id += 1;
        let source = &self.login.source;
        wire::request(to, self.last_id, |body| {
            body.int32("saslContinue", 1).int32("conversationId", conversation as i32);
            body.binary("payload", &last).text("$db", source);
        });
        Ok(Next::Wait)
    }
}
