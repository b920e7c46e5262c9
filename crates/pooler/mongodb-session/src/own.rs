//! What Poolhouse answers itself: whom drivers ask what it is, logins, and what is not for those who come through a
//! pooler.

use std::sync::Arc;

use seam::{ClientTag, Effect, Outbox, Standing};

use crate::{
    MongoDb,
    client::{Client, Refused},
    command::Command,
    errors::{Code, Failure},
    hello::Asked,
    login::{self, Exchange, Step},
    wire::Op,
};

/// What becomes of a request when its body has been read.
pub enum Taken {
    /// It is answered, or asks for a server.
    Yes,
    /// It waits until a host is known.
    Parks,
}

impl MongoDb {
    /// What Poolhouse answers itself; `None` if this is not for it.
    pub(crate) fn own(
        &self,
        me: ClientTag,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<Option<Taken>, Failure> {
        match command.name {
            name if greets(name) => {
                let asked = Asked::of(command);
                client.request.greets = true;
                let (pose, time) = {
                    let topology = self.topology();
                    (topology.pose(), topology.cluster_time())
                };
                let Some(pose) = pose else { return Ok(Some(Taken::Parks)) };
                if asked.is_load_balanced() && pose.session_minutes.is_none() {
                    let text = "Poolhouse: this MongoDB knows no sessions, so it cannot be used with loadBalanced=true";
                    return Err(Failure::new(Code::CommandFailed, text));
                }
                if asked.is_load_balanced() {
                    client.belongings.get_or_insert_default();
                }
                client.answer(me, out, |answer| {
                    asked.answer((pose, time.as_deref()), client.number, self.service, answer)
                });
                if !client.counted && client.login.is_none() && client.refused.is_none() && !client.was_greeter {
                    // Monitors of drivers never do anything else: that is no login that takes long.
                    client.greeter = true;
                    out.push(Effect::Standing { client: me, standing: Standing::Subscribed });
                }
                Ok(Some(Taken::Yes))
            }
            "saslStart" if client.counted => {
                let text = "Poolhouse: a connection stays with its user; open another one";
                Err(Failure::new(Code::CommandFailed, text))
            }
            "saslStart" => {
                let (exchange, said) = Exchange::begin(command, &*self.directory, &self.mock)?;
                client.login = Some(Box::new(exchange));
                client.greeter = false;
                if client.refused.is_none() {
                    out.push(Effect::Standing { client: me, standing: Standing::Login });
                }
                client.answer(me, out, |answer| login::answer(&said, false, answer));
                Ok(Some(Taken::Yes))
            }
            "saslContinue" => {
                self.continue_login(me, client, command, out)?;
                Ok(Some(Taken::Yes))
            }
            "isdbgrid" => {
                client.answer(me, out, |answer| {
                    answer.int32("isdbgrid", 1).text("hostname", "poolhouse").double("ok", 1.0);
                });
                Ok(Some(Taken::Yes))
            }
            "authenticate" | "getnonce" => {
                let text = "Poolhouse: clients log in with saslStart (SCRAM)";
                Err(Failure::new(Code::MechanismUnavailable, text))
            }
            "logout" => {
                let text = "Poolhouse: a connection stays with its user; open another one";
                Err(Failure::new(Code::CommandNotFound, text))
            }
            name if LAST_ERRORS.iter().any(|other| other.eq_ignore_ascii_case(name)) => {
                let text =
                    format!("Poolhouse: {name} would tell of what another client did on the same server connection");
                Err(Failure::new(Code::CommandNotFound, text))
            }
            name if is_misspelt(name) => {
                let text = format!("no such command: '{name}'");
                Err(Failure::new(Code::CommandNotFound, text))
            }
            name if is_of_replication(name) => Err(Failure::new(
                Code::CommandNotFound,
                format!("Poolhouse: {name} is not for who comes through a pooler"),
            )),
            _ if client.request.header.op == Op::Query => {
                let text = "Poolhouse: OP_QUERY is for handshakes only; this driver is too old";
                Err(Failure::new(Code::CommandNotFound, text))
            }
            _ => Ok(None),
        }
    }

    fn continue_login(
        &self,
        me: ClientTag,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let out_of_turn = || Failure::new(Code::FailedToParse, "Poolhouse: no login is under way");
        let mut exchange = client.login.take().ok_or_else(out_of_turn)?;
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
            client.user = Arc::clone(exchange.user());
            self.let_in(me, client, out)?;
        } else {
            client.login = Some(exchange);
        }
        client.answer(me, out, |answer| login::answer(&said, done, answer));
        Ok(())
    }

    /// It may ask for whatever it likes from now on.
    pub(crate) fn let_in(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) -> Result<(), Failure> {
        let host = self.directory.hosts().first().copied().unwrap_or_default();
        let pool = self.directory.route(&client.user, host).map_err(|why| Failure::new(Code::Unauthorized, why))?;
        client.stranger = false;
        client.greeter = false;
        if client.refused.is_some() {
            // One too many is told so behind its login, which a driver takes for a part of the handshake, and goes when
            // that takes too long.
            return Ok(());
        }
        if !std::mem::replace(&mut client.counted, true) {
            self.topology().enter(me, client.key);
            out.push(Effect::LoggedIn { client: me, pool, user: Arc::clone(&client.user) });
        }
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        Ok(())
    }

    pub(crate) fn may_ask(&self, client: &Client, command: &Command<'_>) -> Result<(), Failure> {
        if client.stranger {
            let text = format!("Poolhouse: command {} requires authentication", command.name.escape_debug());
            return Err(Failure::new(Code::Unauthorized, text));
        }
        Ok(())
    }
}

impl Refused {
    /// Whether a command of this name is answered all the same.
    pub(crate) fn lets_pass(&self, name: &str) -> bool {
        match self {
            Self::AtOnce(_) => false,
            Self::BehindHello(_) => greets(name),
            Self::BehindLogin(_) => is_own(name),
        }
    }
}

/// What tells of the last write of a connection, which may have been another client's.
const LAST_ERRORS: [&str; 5] = ["getLastError", "getPrevError", "resetError", "forceerror", "getlasterror"];

/// Commands that are answered here.
const OWN: [&str; 8] =
    ["hello", "isMaster", "ismaster", "saslStart", "saslContinue", "isdbgrid", "logout", "authenticate"];

/// Commands whose cursors, sessions and transactions are looked at: whose these are, and which host has them.
const LOOKED_AT: [&str; 8] = [
    "getMore",
    "killCursors",
    "endSessions",
    "killSessions",
    "killAllSessions",
    "killAllSessionsByPattern",
    "commitTransaction",
    "abortTransaction",
];

/// Some servers take a command in whatever case; none may take one from us that is answered here, or that is not for
/// everybody.
fn is_misspelt(name: &str) -> bool {
    let special = || OWN.iter().chain(&LOOKED_AT);
    special().all(|known| *known != name) && special().any(|known| known.eq_ignore_ascii_case(name))
}

/// What the names of commands begin with that are for a replica set's own members and operators.
const REPLICATION: &str = "replSet";

/// Whether it is one of those, in whatever case.
fn is_of_replication(name: &str) -> bool {
    name.get(..REPLICATION.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(REPLICATION))
}

fn greets(name: &str) -> bool {
    matches!(name, "hello" | "isMaster" | "ismaster")
}

/// The names of commands that Poolhouse answers itself, which have to be there whole.
pub fn is_own(name: &str) -> bool {
    greets(name) || matches!(name, "saslStart" | "saslContinue" | "isdbgrid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_is_taken_in_its_own_spelling_only() {
        for name in ["getMore", "killAllSessions", "commitTransaction", "hello", "ismaster", "find", "FIND"] {
            assert!(!is_misspelt(name), "{name}");
        }
        for name in
            ["getmore", "GetMore", "killallsessions", "KillCursors", "endsessions", "committransaction", "Hello"]
        {
            assert!(is_misspelt(name), "{name}");
        }
        assert!(is_of_replication("replSetStepDown") && is_of_replication("replsetreconfig"));
        assert!(!is_of_replication("repl") && !is_of_replication("replSeé") && !is_of_replication("find"));
    }

    #[test]
    fn who_guessed_too_often_gets_no_other_guess_and_one_too_many_may_log_in_to_hear_it() {
        let why = || Box::new(Failure::new(Code::CommandFailed, "why"));
        let passes = |refused: Refused| ["hello", "saslStart", "find"].map(|name| refused.lets_pass(name));
        assert_eq!(passes(Refused::AtOnce(why())), [false, false, false]);
        assert_eq!(passes(Refused::BehindHello(why())), [true, false, false]);
        assert_eq!(passes(Refused::BehindLogin(why())), [true, true, false]);
    }
}
