//! Commands that Poolhouse answers itself: `hello`, logins, and commands that it refuses because clients share servers.

use std::sync::Arc;

use seam::{Effect, Outbox, Standing};

use crate::{
    MongoDb,
    access::Admission,
    client::Client,
    command::Command,
    command_names::{is_hello, is_last_error, is_misspelt, is_of_replication},
    errors::{Code, Failure},
    hello::HelloRequest,
    login::{self, ClientLogin, LoginStep},
    request::RequestKind,
};

pub enum LocalAnswer {
    Given,
    /// It waits until a host is known.
    AwaitsHost,
}

impl MongoDb {
    /// Answers a command that is not for a host. `None` if it is for a host.
    pub(crate) fn answer_locally(
        &self,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<Option<LocalAnswer>, Failure> {
        match command.name {
            name if is_hello(name) => return self.answer_hello(client, command, out).map(Some),
            "saslStart" => self.begin_login(client, command, out)?,
            "saslContinue" => self.continue_login(client, command, out)?,
            "isdbgrid" => client.answer(out, |answer| {
                answer.int32("isdbgrid", 1).text("hostname", "poolhouse").double("ok", 1.0);
            }),
            name => return refusal(name, client).map_or(Ok(None), Err),
        }
        Ok(Some(LocalAnswer::Given))
    }

    fn answer_hello(
        &self,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<LocalAnswer, Failure> {
        let request = HelloRequest::read(command);
        client.request.set_kind(RequestKind::Hello);
        let (shown, time) = {
            let topology = self.topology();
            (topology.advertised(), topology.cluster_time())
        };
        let Some(shown) = shown else { return Ok(LocalAnswer::AwaitsHost) };
        if request.is_load_balanced() && shown.session_minutes.is_none() {
            let text = "Poolhouse: this MongoDB knows no sessions, so it cannot be used with loadBalanced=true";
            return Err(Failure::new(Code::CommandFailed, text));
        }
        if request.is_load_balanced() {
            client.resources.get_or_insert_default();
        }
        client.answer(out, |answer| request.answer((shown, time.as_deref()), client.number, self.service, answer));
        if client.access.note_hello() {
            // A driver's monitor never logs in, so no login timeout applies.
            out.push(Effect::Standing { client: client.tag, standing: Standing::Subscribed });
        }
        Ok(LocalAnswer::Given)
    }

    fn begin_login(&self, client: &mut Client, command: &Command<'_>, out: &mut Outbox) -> Result<(), Failure> {
        if client.access.is_counted() {
            let text = "Poolhouse: a connection stays with its user; open another one";
            return Err(Failure::new(Code::CommandFailed, text));
        }
        let (exchange, said) = ClientLogin::begin(command, &*self.directory, &self.mock)?;
        client.access.begin_login(exchange);
        if !client.access.is_refused() {
            out.push(Effect::Standing { client: client.tag, standing: Standing::Login });
        }
        client.answer(out, |answer| login::answer(&said, false, answer));
        Ok(())
    }

    fn continue_login(&self, client: &mut Client, command: &Command<'_>, out: &mut Outbox) -> Result<(), Failure> {
        let out_of_turn = || Failure::new(Code::FailedToParse, "Poolhouse: no login is under way");
        let mut exchange = client.access.take_login().ok_or_else(out_of_turn)?;
        let step = match exchange.go_on(command) {
            Ok(step) => step,
            Err(failure) => {
                let login = Box::new((String::new(), exchange.user().to_string()));
                out.push(Effect::LoginRequest { client: client.tag, login });
                out.push(Effect::AuthFailed { client: client.tag });
                return Err(failure);
            }
        };
        let (said, done) = match step {
            LoginStep::Continue(said) => (said, false),
            LoginStep::Done(said) => (said, true),
        };
        if done {
            client.access.set_user(exchange.user());
            self.admit_client(client, out)?;
        } else {
            client.access.put_login_back(exchange);
        }
        client.answer(out, |answer| login::answer(&said, done, answer));
        Ok(())
    }

    pub(crate) fn admit_client(&self, client: &mut Client, out: &mut Outbox) -> Result<(), Failure> {
        let (host, user) = (self.directory.hosts().first().copied().unwrap_or_default(), client.access.user());
        let pool = self.directory.route(user, host).map_err(|why| Failure::new(Code::Unauthorized, why))?;
        match client.access.admit() {
            // A driver treats the login as part of the handshake, so the refusal is told after it. The connection is
            // closed when the login times out.
            Admission::Refused => return Ok(()),
            Admission::First => {
                self.topology().clients.enter(client.tag, client.key);
                out.push(Effect::LoggedIn { client: client.tag, pool, user: Arc::clone(client.access.user()) });
            }
            Admission::Again => {}
        }
        out.push(Effect::Standing { client: client.tag, standing: Standing::Idle });
        Ok(())
    }

    pub(crate) fn check_authenticated(&self, client: &Client, command: &Command<'_>) -> Result<(), Failure> {
        if !client.access.is_authenticated() {
            let text = format!("Poolhouse: command {} requires authentication", command.name.escape_debug());
            return Err(Failure::new(Code::Unauthorized, text));
        }
        Ok(())
    }
}

fn refusal(name: &str, client: &Client) -> Option<Failure> {
    let (code, text) = match name {
        "authenticate" | "getnonce" => {
            (Code::MechanismUnavailable, "Poolhouse: clients log in with saslStart (SCRAM)".to_owned())
        }
        "logout" => {
            let text = "Poolhouse: a connection stays with its user; open another one";
            (Code::CommandNotFound, text.to_owned())
        }
        name if is_last_error(name) => {
            let text = format!("Poolhouse: {name} would tell of what another client did on the same server connection");
            (Code::CommandNotFound, text)
        }
        name if is_misspelt(name) => (Code::CommandNotFound, format!("no such command: '{name}'")),
        name if is_of_replication(name) => {
            (Code::CommandNotFound, format!("Poolhouse: {name} is not for who comes through a pooler"))
        }
        _ if client.request.is_op_query() => {
            let text = "Poolhouse: OP_QUERY is for handshakes only; this driver is too old";
            (Code::CommandNotFound, text.to_owned())
        }
        _ => return None,
    };
    Some(Failure::new(code, text))
}
