//! The commands that Poolhouse answers itself: `hello`, logins, and what is refused because many clients share a server.

use std::sync::Arc;

use seam::{ClientTag, Effect, Outbox, Standing};

use crate::{
    MongoDb,
    access::Admission,
    client::Client,
    command::Command,
    command_names::{is_hello, is_last_error, is_misspelt, is_of_replication},
    errors::{Code, Failure},
    hello::Asked,
    login::{self, Exchange, Step},
    request::Kind,
};

/// What became of a command that Poolhouse answers itself.
pub enum Taken {
    Yes,
    /// It waits until a host is known.
    Parks,
}

impl MongoDb {
    /// Answers a command that is not for a host; `None` if it is for one.
    pub(crate) fn answer_locally(
        &self,
        me: ClientTag,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<Option<Taken>, Failure> {
        match command.name {
            name if is_hello(name) => return self.answer_hello(me, client, command, out).map(Some),
            "saslStart" => self.begin_login(me, client, command, out)?,
            "saslContinue" => self.continue_login(me, client, command, out)?,
            "isdbgrid" => client.answer(me, out, |answer| {
                answer.int32("isdbgrid", 1).text("hostname", "poolhouse").double("ok", 1.0);
            }),
            name => return refusal(name, client).map_or(Ok(None), Err),
        }
        Ok(Some(Taken::Yes))
    }

    fn answer_hello(
        &self,
        me: ClientTag,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<Taken, Failure> {
        let asked = Asked::of(command);
        client.request.set_kind(Kind::Hello);
        let (pose, time) = {
            let topology = self.topology();
            (topology.pose(), topology.cluster_time())
        };
        let Some(pose) = pose else { return Ok(Taken::Parks) };
        if asked.is_load_balanced() && pose.session_minutes.is_none() {
            let text = "Poolhouse: this MongoDB knows no sessions, so it cannot be used with loadBalanced=true";
            return Err(Failure::new(Code::CommandFailed, text));
        }
        if asked.is_load_balanced() {
            client.resources.get_or_insert_default();
        }
        client.answer(me, out, |answer| asked.answer((pose, time.as_deref()), client.number, self.service, answer));
        if client.access.note_hello() {
            // It may be a driver's monitor, which never logs in: that is no login that takes long.
            out.push(Effect::Standing { client: me, standing: Standing::Subscribed });
        }
        Ok(Taken::Yes)
    }

    fn begin_login(
        &self,
        me: ClientTag,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        if client.access.is_counted() {
            let text = "Poolhouse: a connection stays with its user; open another one";
            return Err(Failure::new(Code::CommandFailed, text));
        }
        let (exchange, said) = Exchange::begin(command, &*self.directory, &self.mock)?;
        client.access.begin_login(exchange);
        if !client.access.is_refused() {
            out.push(Effect::Standing { client: me, standing: Standing::Login });
        }
        client.answer(me, out, |answer| login::answer(&said, false, answer));
        Ok(())
    }

    fn continue_login(
        &self,
        me: ClientTag,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let out_of_turn = || Failure::new(Code::FailedToParse, "Poolhouse: no login is under way");
        let mut exchange = client.access.take_login().ok_or_else(out_of_turn)?;
        let step = match exchange.go_on(command) {
            Ok(step) => step,
            Err(failure) => {
                let login = Box::new((String::new(), exchange.user().to_string()));
                out.push(Effect::LoginRequest { client: me, login });
                out.push(Effect::AuthFailed { client: me });
                return Err(failure);
            }
        };
        let (said, done) = match step {
            Step::Goes(said) => (said, false),
            Step::Done(said) => (said, true),
        };
        if done {
            client.access.set_user(exchange.user());
            self.let_in(me, client, out)?;
        } else {
            client.access.put_login_back(exchange);
        }
        client.answer(me, out, |answer| login::answer(&said, done, answer));
        Ok(())
    }

    /// The client may send commands from now on.
    pub(crate) fn let_in(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) -> Result<(), Failure> {
        let (host, user) = (self.directory.hosts().first().copied().unwrap_or_default(), client.access.user());
        let pool = self.directory.route(user, host).map_err(|why| Failure::new(Code::Unauthorized, why))?;
        match client.access.admit() {
            // A client too many is told so after its login, which a driver takes for a part of the handshake, and is
            // closed when that takes too long.
            Admission::Refused => return Ok(()),
            Admission::First => {
                self.topology().enter(me, client.key);
                out.push(Effect::LoggedIn { client: me, pool, user: Arc::clone(client.access.user()) });
            }
            Admission::Again => {}
        }
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        Ok(())
    }

    pub(crate) fn may_ask(&self, client: &Client, command: &Command<'_>) -> Result<(), Failure> {
        if !client.access.is_authenticated() {
            let text = format!("Poolhouse: command {} requires authentication", command.name.escape_debug());
            return Err(Failure::new(Code::Unauthorized, text));
        }
        Ok(())
    }
}

/// Why a command of this name cannot be used through a pooler, if it cannot.
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
