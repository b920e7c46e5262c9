//! Logging in to a server: TLS where it is wanted, the start-up message, the proof of who we are, and what the server
//! reports of itself.

use std::time::Duration;

use scram::{ChannelBinding, Mechanism};
use seam::{CloseReason, Effect, Input, Outbox, Peer, PoolId, Secured, ServerTag, TlsFailure};

use crate::{
    directory::{
        PoolMode,
        target::{Fit, QUESTION, Target, Traits},
    },
    random::nonce,
    session::{
        AfterDefaults, Dedicated, NO_PASSWORD, OTHER_VERIFIER, Postgres, Purpose, Server, Stage,
        facts::Facts,
        plans::Plans,
        server::CancelKey,
        server_login::{Deriving, Login, ServerProof, Step},
        server_settings::ServerSettings,
    },
    sql::{Pairs, Settings, is_fact, parameters::MAX_SETTINGS_BYTES},
    wire::{
        Failure, HEADER, Header, Wire, back, code,
        encryption::{self, Binding, Tls},
        front, md5,
        message::{PROTOCOL_3_0, write, write_sized},
        take_text, take_u32, write_query, write_text,
    },
};

/// Longest message of a server during its start-up.
const MAX_LOGIN_MESSAGE: u32 = 64 * 1024;

/// Most messages of a server during its start-up. PostgreSQL sends about 20, and notices of login triggers.
const MAX_LOGIN_MESSAGES: u32 = 1000;

/// What follows from an authentication request.
enum AuthenticationReply {
    Send(Vec<u8>),
    Nothing,
    /// An answer that takes time; posts with this key continue it.
    Later(u64),
    /// The server has accepted the login.
    Accepted,
}

/// What follows from a message of a server that logs in.
enum Taken {
    More,
    /// The server is logged in to, and fits.
    Ready,
}

/// Why a login failed.
struct Refused {
    permanent: bool,
    message: String,
    /// The server refuses logins from here: another kind of connection may do.
    turned_away: bool,
    unknown: bool,
}

impl Refused {
    /// The login fails again until the database or the configuration is changed.
    fn forever(message: impl Into<String>) -> Self {
        Self { permanent: true, message: message.into(), turned_away: false, unknown: false }
    }

    /// The login may succeed next time.
    fn for_now(message: impl Into<String>) -> Self {
        Self { permanent: false, message: message.into(), turned_away: false, unknown: false }
    }
}

impl Postgres {
    pub(crate) fn new_server(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        let how = self.directory.server_login(pool);
        let catalogue = self.catalogues.of(&how.database_id);
        let mut login = Login {
            how,
            step: Step::Asked,
            secured: None,
            bound: false,
            scram: None,
            deriving: None,
            proof: ServerProof::None,
            parameters: Pairs::default(),
            asked: None,
            messages: 0,
        };
        let second = self.second_tries.has(pool);
        match (login.how.encryption.tls, login.how.encryption.direct) {
            (Tls::Require, true) => {
                login.step = Step::Handshake;
                out.push(Effect::StartTls { peer: Peer::Server(me) });
            }
            (Tls::Require, false) => login.ask_for_tls(me, out),
            (Tls::Allow, _) if second => login.ask_for_tls(me, out),
            (Tls::Prefer, _) if !second => login.ask_for_tls(me, out),
            (Tls::Never | Tls::Allow | Tls::Prefer, _) => login.start(me, out),
        }
        Server::new(pool, login, catalogue)
    }

    /// Has the next server in turn derive a part of its keys.
    pub(crate) fn derive_next(&self, now: Duration, out: &mut Outbox) {
        if let Some((server, key)) = self.derivations.next(now) {
            let end = out.inserted.len();
            out.push(Effect::Post { to: Peer::Server(server), key, bytes: end..end });
        }
    }

    /// Derives one more part, if the post was meant for this server.
    pub(crate) fn go_on_deriving(&self, me: ServerTag, server: &mut Server, key: u64, out: &mut Outbox) {
        let Stage::Login(login) = &server.stage else { return };
        if login.deriving.as_ref().is_some_and(|deriving| deriving.key == key) && self.derive_part(me, server, out) {
            self.derivations.put_back((me, key));
        }
    }

    /// Derives all parts at once, where no other connection waits meanwhile.
    pub(crate) fn derive_all(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        while self.derive_part(me, server, out) {}
        self.derivations.clear();
    }

    /// Derives one more part, and answers the server's challenge after the last. True if parts are left.
    fn derive_part(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) -> bool {
        let Stage::Login(login) = &mut server.stage else { return false };
        let Some(deriving) = &mut login.deriving else { return false };
        if !deriving.derivation.derive_part(&self.keys) {
            return true;
        }
        let challenge = std::mem::take(&mut deriving.challenge);
        login.deriving = None;
        match login.respond_to_challenge(self, &challenge) {
            Ok(body) => send(me, &body, out),
            Err(refused) => self.fail(me, server, refused, out),
        }
        false
    }

    pub(crate) fn take_server_login_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let mut at = 0;
        while let Stage::Login(login) = &mut server.stage {
            let bytes = &input.bytes[at..];
            if login.step != Step::Started {
                let Some(answer) = bytes.first() else { return at };
                match login.take_tls_answer(me, *answer, bytes.len() > 1, out) {
                    Ok(()) => at += 1,
                    Err(refused) => {
                        self.fail(me, server, refused, out);
                        return input.bytes.len();
                    }
                }
                continue;
            }
            let Some(header) = Header::read(bytes) else { return at };
            let taken = if !(4..=MAX_LOGIN_MESSAGE).contains(&header.length) {
                Err(Refused::for_now("the server does not speak the PostgreSQL protocol"))
            } else if login.messages >= MAX_LOGIN_MESSAGES {
                let text = format!("the server has sent {MAX_LOGIN_MESSAGES} messages and is not ready");
                Err(Refused::for_now(text))
            } else if let Some(body) = bytes.get(HEADER..header.total()) {
                login.messages += 1;
                self.take_login_message(me, login, &mut server.key, (header.kind, body), out)
            } else {
                return at;
            };
            match taken {
                Ok(Taken::More) => {}
                Ok(Taken::Ready) => self.server_ready(me, server, out),
                Err(refused) => {
                    self.fail(me, server, refused, out);
                    return input.bytes.len();
                }
            }
            at += header.total();
        }
        at
    }

    fn take_login_message(
        &self,
        me: ServerTag,
        login: &mut Login,
        key: &mut CancelKey,
        (kind, body): (u8, &[u8]),
        out: &mut Outbox,
    ) -> Result<Taken, Refused> {
        match kind {
            back::AUTHENTICATION => match login.answer_authentication(self, body)? {
                AuthenticationReply::Send(body) => send(me, &body, out),
                AuthenticationReply::Nothing => {}
                AuthenticationReply::Later(key) => self.derivations.add((me, key)),
                AuthenticationReply::Accepted => out.push(Effect::Authenticated { server: me }),
            },
            back::BACKEND_KEY_DATA => {
                let mut secret = body;
                let Some(pid) = take_u32(&mut secret) else {
                    return Err(Refused::for_now("the server sent a malformed BackendKeyData"));
                };
                *key = CancelKey { pid, secret: secret.into() };
            }
            kind => {
                if !login.take_report(kind, body)? {
                    return Ok(Taken::More);
                }
                match login.fit().map_err(Refused::for_now)? {
                    Fit::Yes => return Ok(Taken::Ready),
                    Fit::Unknown => {
                        login.asked = Some(Traits::default());
                        out.insert(Peer::Server(me), |to| write_query(to, QUESTION));
                    }
                }
            }
        }
        Ok(Taken::More)
    }

    fn server_ready(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        let Stage::Login(login) = std::mem::replace(&mut server.stage, Stage::Ready) else {
            unreachable!("the server is logging in")
        };
        if server.mode == PoolMode::Dedicated {
            server.stage = Stage::Dedicated(Box::new(Dedicated::new(login.parameters)));
            return out.push(Effect::Ready { server: me });
        }
        let mut sorted: Vec<_> = login.parameters.iter().collect();
        sorted.sort();
        let (facts, settings): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|(name, _)| is_fact(name));
        let reported = settings.into_iter().collect();
        server.facts = Facts::new(facts.into_iter().collect());
        let started_with = self.parameters.intern(Settings::new(reported, Pairs::default()));
        server.settings = ServerSettings::new(started_with);
        match server.connect_query.sql().cloned() {
            Some(sql) => server.begin_queries(me, Purpose::Connect, &[sql.as_bytes()], out),
            None => self.connect_query_done(me, server, out),
        }
    }

    /// The server has run the `connect_query`.
    pub(crate) fn connect_query_done(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.settings.set_defaults_to_current(self.parameters.defaults_version());
        server.plans = Plans::new(server.settings.defaults());
        server.facts.read_user();
        if self.parameters.are_defaults(server.pool, server.settings.defaults()) {
            self.publish_defaults(server, None);
            self.defaults_known(me, server, out);
        } else {
            server.ask_defaults(me, AfterDefaults::Start, out);
        }
    }

    pub(crate) fn defaults_known(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if !server.ask_catalogue(me, None, out) {
            server.become_ready(me, out);
        }
    }

    pub(crate) fn server_login_lost(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.fail(me, server, Refused::for_now("the server closed the connection during its start-up"), out);
    }

    pub(crate) fn server_login_secured(&self, me: ServerTag, server: &mut Server, secured: Secured, out: &mut Outbox) {
        let Stage::Login(login) = &mut server.stage else { return };
        assert!(login.step == Step::Handshake, "a handshake that was asked for is done once");
        let direct = login.how.encryption.direct;
        server.wire = if direct { Wire::Direct } else { Wire::Asked };
        if direct && !secured.alpn_agreed {
            let refused = "the server does not know its protocol's name (ALPN), which sslnegotiation=direct needs";
            return self.fail(me, server, Refused::forever(refused), out);
        }
        login.secured = Some(secured);
        login.start(me, out);
    }

    /// The TLS handshake failed. Notes that for a second try without TLS, and returns what it means for the pool.
    pub(crate) fn server_handshake_failed(&self, server: &mut Server, failure: TlsFailure) -> CloseReason {
        let TlsFailure { bad_certificate: permanent, message } = failure;
        let Stage::Login(login) = &server.stage else { return CloseReason::StartFailed { permanent, message } };
        let again = self.second_tries.note_turned_away(server.pool, login.how.encryption.tls, true);
        CloseReason::StartFailed { permanent: permanent && !again, message }
    }

    fn fail(&self, me: ServerTag, server: &mut Server, refused: Refused, out: &mut Outbox) {
        let again = match &server.stage {
            Stage::Login(login) if refused.turned_away => {
                let (tls, secured) = (login.how.encryption.tls, login.secured.is_some());
                self.second_tries.note_turned_away(server.pool, tls, secured)
            }
            _ => false,
        };
        server.stage = Stage::Closed;
        let message = refused.message;
        let reason = match refused.unknown {
            true => CloseReason::UnknownDatabase { message },
            false => CloseReason::StartFailed { permanent: refused.permanent && !again, message },
        };
        out.push(Effect::Close { peer: Peer::Server(me), reason });
    }
}

impl Server {
    /// Accepts the server whatever its traits are.
    pub(crate) fn accept_any(&mut self) {
        if let Stage::Login(login) = &mut self.stage {
            login.how.target = Target::Any;
        }
    }
}

impl Login {
    /// Whether the server has the traits that are wanted.
    fn fit(&self) -> Result<Fit, String> {
        let reported = |name: &str| self.parameters.get(name.as_bytes());
        let reported = Traits::reported(reported("in_hot_standby"), reported("default_transaction_read_only"));
        match self.how.target.judge(self.asked.as_ref().unwrap_or(&reported))? {
            Fit::Unknown if self.asked.is_some() => Err("the server does not say whether it is a standby".to_owned()),
            fit => Ok(fit),
        }
    }

    fn ask_for_tls(&mut self, me: ServerTag, out: &mut Outbox) {
        self.step = Step::Asked;
        out.insert(Peer::Server(me), |to| _ = encryption::write_request(to));
    }

    /// Takes the answer to the request for TLS. `more`: bytes follow it.
    fn take_tls_answer(&mut self, me: ServerTag, answer: u8, more: bool, out: &mut Outbox) -> Result<(), Refused> {
        match answer {
            // Whatever stands behind it is not encrypted, and so need not come from the server.
            encryption::AGREED if more => {
                Err(Refused::for_now("received unencrypted data behind the answer to the request for TLS"))
            }
            encryption::AGREED => {
                self.step = Step::Handshake;
                out.push(Effect::StartTls { peer: Peer::Server(me) });
                Ok(())
            }
            encryption::DECLINED if self.how.encryption.tls == Tls::Require => {
                Err(Refused::forever("the server does not support TLS, but the sslmode of the url demands it"))
            }
            encryption::DECLINED => {
                self.start(me, out);
                Ok(())
            }
            // Its text is not encrypted either, and not repeated.
            back::ERROR_RESPONSE => {
                Err(Refused::for_now("the server answered the request for TLS with an error; see its log"))
            }
            _ => Err(Refused::for_now("the server does not speak the PostgreSQL protocol")),
        }
    }

    fn start(&mut self, me: ServerTag, out: &mut Outbox) {
        self.step = Step::Started;
        let how = &self.how;
        out.insert(Peer::Server(me), |to| {
            write_sized(to, |to| {
                to.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
                let own = [("user", how.user.as_str()), ("database", how.database.as_str())];
                let further = how.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                for (name, value) in own.into_iter().chain(further.filter(|(name, _)| !name.is_empty())) {
                    write_text(to, name);
                    write_text(to, value);
                }
                to.push(0);
            });
        });
    }

    /// Takes a message that is not about authentication; true when the server is ready.
    fn take_report(&mut self, kind: u8, mut body: &[u8]) -> Result<bool, Refused> {
        match kind {
            back::ERROR_RESPONSE => {
                let failure = Failure::read(body);
                let turned_away = failure.code == code::INVALID_AUTHORIZATION;
                let unknown = failure.code == code::INVALID_CATALOG_NAME;
                // Clients hear it in the server's words.
                let message = match unknown && !failure.message.is_empty() {
                    true => failure.message.clone(),
                    false => failure.text(),
                };
                // No other client of the pool gives back what the one that asks could have.
                let full = self.how.mode == PoolMode::Dedicated && failure.is_of_resources();
                Err(Refused { permanent: full || failure.is_permanent(), message, turned_away, unknown })
            }
            back::PARAMETER_STATUS => {
                let (Some(name), Some(value)) = (take_text(&mut body), take_text(&mut body)) else {
                    return Err(Refused::for_now("the server sent a malformed ParameterStatus"));
                };
                let parameters = self.parameters.with(name, value);
                if parameters == self.parameters && parameters.get(name) != Some(value) {
                    return Err(Refused::for_now(format!(
                        "the server reports more than {MAX_SETTINGS_BYTES} bytes of parameters"
                    )));
                }
                self.parameters = parameters;
                Ok(false)
            }
            back::NOTICE_RESPONSE | back::NEGOTIATE_PROTOCOL_VERSION => Ok(false),
            back::ROW_DESCRIPTION | back::COMMAND_COMPLETE if self.asked.is_some() => Ok(false),
            back::DATA_ROW if self.asked.is_some() => {
                self.asked = Traits::answered(body).or(self.asked);
                Ok(false)
            }
            back::READY_FOR_QUERY if self.proof != ServerProof::Done => {
                Err(Refused::for_now("the server was ready before it accepted us"))
            }
            back::READY_FOR_QUERY => Ok(true),
            kind => {
                Err(Refused::for_now(format!("the server sent an unexpected message of type 0x{kind:02X} at start-up")))
            }
        }
    }

    /// Takes an authentication request and gives the answer.
    fn answer_authentication(&mut self, postgres: &Postgres, mut body: &[u8]) -> Result<AuthenticationReply, Refused> {
        let kind = take_u32(&mut body).ok_or_else(|| Refused::for_now("the server sent a malformed request"))?;
        if self.deriving.is_some() {
            return Err(Refused::for_now("the server went on asking before it had our answer"));
        }
        if self.proof == ServerProof::Done && !(kind == 0 && self.scram.is_some()) {
            return Err(Refused::for_now("the server went on asking after it had accepted us"));
        }
        if matches!(kind, 0 | 3 | 5) && self.how.encryption.binding == Binding::Require && !self.is_bound() {
            return Err(Refused::forever("channel_binding=require: the server asks for a login that cannot be bound"));
        }
        match kind {
            3 | 5 if self.proof == ServerProof::Shown => {
                Err(Refused::for_now("the server asked for the password again after it had been told"))
            }
            3 | 5 if self.proof == ServerProof::Owed => {
                Err(Refused::forever("the server changed the authentication method halfway"))
            }
            0 if self.proof == ServerProof::Owed => {
                Err(Refused::forever("the server accepted us without proving that it knows the password"))
            }
            0 => {
                self.proof = ServerProof::Done;
                self.scram = None;
                Ok(AuthenticationReply::Accepted)
            }
            3 => {
                self.proof = ServerProof::Shown;
                Ok(AuthenticationReply::Send(with_zero(self.password()?.as_bytes())))
            }
            5 => {
                self.proof = ServerProof::Shown;
                let salt = body.first_chunk().ok_or_else(|| Refused::for_now("the server sent no md5 salt"))?;
                let stored = match (&self.how.password, &self.how.md5_hash) {
                    (None, Some(hash)) => hash.to_string(),
                    _ => md5::md5_hash(self.password()?, &self.how.user),
                };
                Ok(AuthenticationReply::Send(with_zero(md5::answer(&stored, *salt).as_bytes())))
            }
            10 => {
                if self.how.password.is_none() && !postgres.keyring.knows(&self.how.user) {
                    self.password()?;
                }
                self.begin_scram(body).map(AuthenticationReply::Send)
            }
            11 => match self.slow_derivation(postgres, body) {
                Some(deriving) => {
                    let key = deriving.key;
                    self.deriving = Some(deriving);
                    Ok(AuthenticationReply::Later(key))
                }
                None => self.respond_to_challenge(postgres, body).map(AuthenticationReply::Send),
            },
            12 => {
                let scram = self.scram.as_mut().ok_or_else(|| Refused::for_now("a SASL outcome out of turn"))?;
                scram.verify(body).map_err(|error| Refused::forever(error.to_string()))?;
                self.proof = ServerProof::Done;
                Ok(AuthenticationReply::Nothing)
            }
            _ => Err(Refused::forever(format!(
                "the server asks for authentication method {kind}, which is not supported (use SCRAM, md5 or password)"
            ))),
        }
    }

    /// The login has proved that there is no man in the middle.
    fn is_bound(&self) -> bool {
        self.bound && self.proof == ServerProof::Done
    }

    fn begin_scram(&mut self, mut mechanisms: &[u8]) -> Result<Vec<u8>, Refused> {
        let (mut plain, mut plus) = (false, false);
        while let Some(mechanism) = take_text(&mut mechanisms) {
            plain |= mechanism == Mechanism::Plain.name().as_bytes();
            plus |= mechanism == Mechanism::Plus.name().as_bytes();
        }
        if self.scram.is_some() || self.proof == ServerProof::Shown || !(plain || plus) {
            return Err(Refused::forever("the server does not offer SCRAM-SHA-256"));
        }
        let binding = self.channel_binding(plus)?;
        if !plain && binding.mechanism() == Mechanism::Plain {
            return Err(Refused::forever("the server offers only SCRAM-SHA-256-PLUS, which cannot be used here"));
        }
        self.bound = binding.mechanism() == Mechanism::Plus;
        let mut body = with_zero(binding.mechanism().name().as_bytes());
        let (scram, first) = scram::Client::bound(nonce(), binding);
        self.scram = Some(scram);
        self.proof = ServerProof::Owed;
        body.extend_from_slice(&(first.len() as u32).to_be_bytes());
        body.extend_from_slice(&first);
        Ok(body)
    }

    /// Keys that must be derived before the challenge can be answered, if that takes long.
    fn slow_derivation(&self, postgres: &Postgres, challenge: &[u8]) -> Option<Box<Deriving>> {
        let password = self.how.password.as_deref().filter(|_| self.scram.is_some())?;
        let derivation = postgres.keys.slow_derivation(scram::Hash::Sha256, challenge, password)?;
        Some(Box::new(Deriving { key: postgres.hubs.new_post_key(), derivation, challenge: challenge.into() }))
    }

    /// Answers the challenge with the password, or with the keys of the user's own login.
    fn respond_to_challenge(&mut self, postgres: &Postgres, challenge: &[u8]) -> Result<Vec<u8>, Refused> {
        let scram = self.scram.as_mut().ok_or_else(|| Refused::for_now("a SASL challenge out of turn"))?;
        let user = &self.how.user;
        let answer = match &self.how.password {
            Some(password) => scram.respond(challenge, password, &postgres.keys),
            None => scram.respond_with(challenge, |salt, rounds| postgres.keyring.find(user, salt, rounds)),
        };
        answer.map_err(|error| match error {
            scram::Error::NoKeys => Refused::forever(format!(
                "{OTHER_VERIFIER} \"{user}\" has another salt or number of iterations than the \
                 one that \
                 clients are checked against, so their logins do not open the server: configure the very verifier that \
                 is in pg_authid there; after a change of the password the user must log in again"
            )),
            error => Refused::forever(error.to_string()),
        })
    }

    /// What the login is bound to. `offered`: the server supports binding.
    fn channel_binding(&self, offered: bool) -> Result<ChannelBinding, Refused> {
        let wanted = self.how.encryption.binding;
        let Some(secured) = &self.secured else {
            return match (offered, wanted) {
                (_, Binding::Never) => Ok(ChannelBinding::Unsupported),
                (true, _) => {
                    Err(Refused::forever("the server offers channel binding without TLS: somebody is in between"))
                }
                (_, Binding::Require) => Err(Refused::forever("channel_binding=require needs TLS")),
                _ => Ok(ChannelBinding::Unsupported),
            };
        };
        match (&secured.end_point, wanted) {
            (_, Binding::Never) => Ok(ChannelBinding::Unsupported),
            (Some(end_point), _) if offered => Ok(ChannelBinding::Bound(end_point.clone())),
            (_, Binding::Require) if !offered => {
                Err(Refused::forever("channel_binding=require, but the server does not offer SCRAM-SHA-256-PLUS"))
            }
            (None, Binding::Require) => Err(Refused::forever(
                "channel_binding=require, but the server's certificate has a signature that cannot be bound to",
            )),
            (None, _) => Ok(ChannelBinding::Unsupported),
            (Some(_), _) => Ok(ChannelBinding::Unused),
        }
    }

    fn password(&self) -> Result<&str, Refused> {
        self.how.password.as_deref().ok_or_else(|| {
            let known = match self.how.md5_hash {
                Some(_) => {
                    "only an md5 hash is known: configure the password itself, or its SCRAM verifier as in pg_authid"
                }
                None => "none is configured",
            };
            Refused::forever(format!("{NO_PASSWORD} \"{}\" and {known}", self.how.user))
        })
    }
}

/// Sends a PasswordMessage or SASL response.
fn send(me: ServerTag, body: &[u8], out: &mut Outbox) {
    out.insert(Peer::Server(me), |to| write(to, front::PASSWORD, |to| to.extend_from_slice(body)));
}

fn with_zero(text: &[u8]) -> Vec<u8> {
    text.iter().copied().chain([0]).collect()
}
