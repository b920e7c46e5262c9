//! Logins in which the client sends its password as it is: to be compared with what is stored, or to be checked by
//! another program, such as a directory server. And what logins wait for that no worker may find out itself: a tick of
//! a worker posts the outcome to the client.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer};

use super::client::write_authentication;
use crate::{
    CheckOutcome, CheckVerdict, LoginCheck, LoginQuestion, StoredPassword,
    directory::{ComparedWith, SlowComparison},
    random::random,
    session::{
        Client, ErrorText, Occasion, Phase, Postgres,
        client_login::{Comparison, Login, Step},
    },
    wire::{Report, Severity, code},
};

/// The first byte of a posted verdict.
const RIGHT: u8 = 0;
const WRONG: u8 = 1;
const UNAVAILABLE: u8 = 2;
const KNOWN: u8 = 3;

impl Login {
    pub(super) fn ask_for_password(&mut self, me: ClientTag, comparison: Comparison, out: &mut Outbox) {
        self.step = Step::Cleartext(comparison);
        out.insert(Peer::Client(me), |to| write_authentication(to, 3, |_| {}));
    }
}

impl Postgres {
    /// Takes the body of the message with the password. `None`: that takes long, and the client waits.
    pub(super) fn take_password(
        &self,
        me: ClientTag,
        login: &mut Login,
        comparison: Comparison,
        body: &[u8],
    ) -> Option<Result<(), scram::Error>> {
        let password = body.strip_suffix(&[0]).filter(|password| !password.contains(&0));
        let Some(password) = password.and_then(|password| std::str::from_utf8(password).ok()) else {
            return Some(Err(scram::Error::Malformed("a password in UTF-8")));
        };
        let (user, password) = (login.start.user.clone(), password.to_owned());
        let slow =
            |with| LoginQuestion::Comparison(SlowComparison { password: password.clone(), user: user.clone(), with });
        let question = match comparison {
            Comparison::With(stored) if stored.iter().any(StoredPassword::is_slow) => {
                slow(ComparedWith::Stored(stored))
            }
            Comparison::With(stored) => {
                let is_right = stored.iter().fold(false, |found, one| found | one.is_password(&password, &user));
                return Some(if is_right { Ok(()) } else { Err(scram::Error::WrongProof) });
            }
            Comparison::Mock(Some(shape)) => slow(ComparedWith::Nothing(shape)),
            Comparison::Mock(None) => return Some(Err(scram::Error::WrongProof)),
            // Directory servers take a login without a password for one of a guest, and let it in.
            Comparison::Elsewhere if password.is_empty() => return Some(Err(scram::Error::WrongProof)),
            Comparison::Elsewhere => LoginQuestion::Password(password),
        };
        self.begin_check(me, login, question);
        None
    }

    /// Has something found out that takes long; the client waits for the outcome.
    pub(super) fn begin_check(&self, me: ClientTag, login: &mut Login, question: LoginQuestion) {
        let serial = u64::from_ne_bytes(random());
        login.step = Step::Checking { serial };
        self.directory.begin_check(LoginCheck { client: me, serial, attempt: login.attempt(), question });
    }

    /// The client has not proved that it knows the password, or there is no such user.
    /// `scram`: it was proved by a SCRAM exchange.
    pub(super) fn refuse_password(&self, me: ClientTag, client: &mut Client, scram: bool, out: &mut Outbox) {
        let Phase::Login(login) = &client.phase else { unreachable!("the client is logging in") };
        let user = &login.start.user;
        self.directory.note_refuted(&login.start.database, user);
        let message = format!("password authentication failed for user \"{user}\"");
        out.push(Effect::AuthFailed { client: me });
        let ours = ErrorText::new(code::INVALID_PASSWORD, message, "");
        client.fail_for(me, Occasion::WrongPassword { scram }, ours, Blame::Client, out);
    }

    /// Posts verdicts to the clients that wait for them.
    pub(crate) fn post_verdicts(&self, out: &mut Outbox) {
        for CheckOutcome { client, serial, verdict } in self.directory.finished_checks() {
            let (kind, why) = match &verdict {
                CheckVerdict::Right => (RIGHT, ""),
                CheckVerdict::Wrong => (WRONG, ""),
                CheckVerdict::Known => (KNOWN, ""),
                CheckVerdict::Unavailable(why) => (UNAVAILABLE, why.as_str()),
            };
            let start = out.inserted.len();
            out.inserted.push(kind);
            out.inserted.extend_from_slice(why.as_bytes());
            let bytes = start..out.inserted.len();
            out.push(Effect::Post { to: Peer::Client(client), key: serial, bytes });
        }
    }

    /// Takes a post if it is the verdict for which the client waits. False if it is another one.
    pub(crate) fn take_verdict(
        &self,
        me: ClientTag,
        client: &mut Client,
        key: u64,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> bool {
        let Phase::Login(login) = &mut client.phase else { return false };
        if !matches!(login.step, Step::Checking { serial } if serial == key) {
            return false;
        }
        match bytes.split_first() {
            Some((&RIGHT, _)) => self.authenticated(me, client, None, out),
            Some((&KNOWN, _)) => {
                let found = self.directory.proof(&login.attempt());
                self.ask_for_proof(me, client, found, out);
            }
            Some((&WRONG, _)) | None => self.refuse_password(me, client, false, out),
            Some((_, why)) => {
                let report = Report {
                    severity: Severity::Fatal,
                    code: code::CANNOT_CONNECT_NOW,
                    message: "authentication is not possible now",
                    hint: "What is needed for it could not be found out; Poolhouse's log says why.",
                };
                out.insert(Peer::Client(me), |to| report.write(to));
                let user = login.start.user.escape_debug();
                let why = String::from_utf8_lossy(why);
                let text = format!("the login of user \"{user}\" could not be checked: {why}");
                client.close(me, CloseReason::Error(Blame::Server, text), out);
            }
        }
        // What the client has sent meanwhile was not consumed.
        out.push(Effect::Wake { client: me });
        true
    }
}
