//! The commands that Poolhouse answers itself, because their subject is the client's connection.

use std::sync::Arc;

use seam::{ClientTag, CloseReason, Effect, LeaseKind, Outbox, Peer, Standing};

use super::{
    Client, Taken,
    lease::{LeaseRequest, Purpose},
};
use crate::{
    Redis, Version,
    command::{AboutSelf, Kind, kind},
    resp,
};

/// Arguments of a command that are looked at. Those answered here have fewer.
const MAX_READ: usize = 64;

/// Longest name of a client in bytes; Redis has no limit.
const MAX_NAME: usize = 1024;

/// Logical databases that a client may select; more could only fill the table of pools.
const MAX_DATABASES: u32 = 256;

/// Whether a command says which of its client's commands get answers (CLIENT REPLY).
pub(super) fn sets_replies(arguments: &[&[u8]]) -> bool {
    matches!(arguments, [name, what, ..] if name.eq_ignore_ascii_case(b"CLIENT") && what.eq_ignore_ascii_case(b"REPLY"))
}

/// The arguments of a command that are looked at: all where they are names to subscribe to, or numbers of clients. The
/// last one of a command that blocks may be its time-out.
pub(super) fn to_be_read<'a>(mut all: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    let mut arguments: Vec<&[u8]> = all.by_ref().take(MAX_READ).collect();
    if arguments.len() == MAX_READ {
        match kind(arguments[0], &arguments[1..]) {
            Kind::Subscription(_) | Kind::Clients(_) => arguments.extend(all),
            Kind::Blocking => arguments.extend(all.last()),
            _ => {}
        }
    }
    arguments
}

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_LOGIN: &str = "NOAUTH Authentication required.";
const SYNTAX: &str = "ERR syntax error";

impl Redis {
    /// Answers a command that is not for a server; `None` if it is.
    pub(super) fn own(
        &self,
        me: ClientTag,
        client: &mut Client,
        kind: Kind,
        arguments: &[&[u8]],
        out: &mut Outbox,
    ) -> Option<Taken> {
        match kind {
            Kind::Auth | Kind::Hello | Kind::Quit | Kind::Reset | Kind::Http => {}
            _ if client.stranger => return Some(client.say_error(me, NO_LOGIN, out)),
            Kind::Select | Kind::Client(_) | Kind::Clients(_) => {}
            Kind::Pinning if redirects(arguments) => {}
            _ => return None,
        }
        if client.waits() {
            return Some(Taken::No);
        }
        Some(match kind {
            Kind::Auth => self.auth(me, client, arguments, out),
            Kind::Hello => self.hello(me, client, arguments, out),
            Kind::Select => self.select(me, client, arguments, out),
            Kind::Client(own) => client.about_itself(me, own, arguments, out),
            Kind::Http => {
                client.fail(me, "ERR Poolhouse: this is HTTP, and here is Redis", out);
                Taken::Yes
            }
            Kind::Clients(_) if client.is_bound() => {
                client.fail(me, "ERR Poolhouse tells of its clients outside of transactions only", out);
                Taken::Yes
            }
            Kind::Clients(what) => self.call_roll(me, client, what, arguments, out),
            Kind::Pinning => {
                let error = "ERR Poolhouse has no REDIRECT: the connection it names is not the client's own. \
                             Use RESP3, where invalidations come on the same connection";
                client.say_error(me, error, out)
            }
            Kind::Quit => {
                client.say(me, b"+OK\r\n", out);
                client.close(me, CloseReason::Goodbye, out);
                Taken::Yes
            }
            // What has been published before is told first.
            Kind::Reset if self.unsubscribe_quietly(me, client, out) => Taken::No,
            Kind::Reset => self.begin_anew(me, client, out),
            _ => unreachable!("seen above"),
        })
    }

    fn auth(&self, me: ClientTag, client: &mut Client, arguments: &[&[u8]], out: &mut Outbox) -> Taken {
        let (user, password) = match arguments {
            [_, password] => (&b"default"[..], *password),
            [_, user, password] => (*user, *password),
            [_] => return client.wrong_arity(me, "auth", out),
            _ => return client.say_error(me, SYNTAX, out),
        };
        if !client.guarded {
            return client.auth_of_anybody(me, arguments, out);
        }
        if !client.takes_its_turn(me, out) {
            return Taken::No;
        }
        if self.log_in(me, client, user, password, out) {
            client.say(me, b"+OK\r\n", out);
        }
        Taken::Yes
    }

    /// False if that failed: then the client was told so, and is closed.
    fn log_in(&self, me: ClientTag, client: &mut Client, user: &[u8], password: &[u8], out: &mut Outbox) -> bool {
        let name = std::str::from_utf8(user).unwrap_or_default();
        if !self.directory.is_password(name, password) {
            out.push(Effect::Asks { client: me, login: Box::new((String::new(), name.to_owned())) });
            out.push(Effect::AuthFailed { client: me });
            client.fail(me, WRONG_PASSWORD, out);
            return false;
        }
        self.enter(me, client, Arc::from(name), out)
    }

    fn hello(&self, me: ClientTag, client: &mut Client, arguments: &[&[u8]], out: &mut Outbox) -> Taken {
        let mut rest = &arguments[1..];
        let mut version = client.version;
        if let [first, behind @ ..] = rest {
            version = match resp::integer(first) {
                Some(2) => Version::Resp2,
                Some(3) => Version::Resp3,
                Some(_) => return client.say_error(me, "NOPROTO unsupported protocol version", out),
                None => {
                    return client.say_error(me, "ERR Protocol version is not an integer or out of range", out);
                }
            };
            rest = behind;
        }
        let (mut login, mut name) = (None, None);
        while let [option, behind @ ..] = rest {
            rest = match behind {
                [user, password, behind @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    login = Some((*user, *password));
                    behind
                }
                [given, behind @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(*given);
                    behind
                }
                _ => {
                    let error = format!("ERR Syntax error in HELLO option '{}'", option.escape_ascii());
                    return client.say_error(me, &error, out);
                }
            };
        }
        if name.is_some_and(|name| !is_name(name)) {
            return client.say_error(me, BAD_NAME, out);
        }
        if let Some((user, password)) = login {
            if !client.guarded && user != b"default" {
                return client.say_error(me, WRONG_PASSWORD, out);
            }
            if client.guarded && !client.takes_its_turn(me, out) {
                return Taken::No;
            }
            if client.guarded && !self.log_in(me, client, user, password, out) {
                return Taken::Yes;
            }
        }
        if client.stranger {
            let error = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                         HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                         select the RESP protocol version at the same time";
            return client.say_error(me, error, out);
        }
        let purpose = Purpose::Hello(version, name.map(Box::from));
        self.ask_for(me, client, client.database, version, purpose, out)
    }

    fn select(&self, me: ClientTag, client: &mut Client, arguments: &[&[u8]], out: &mut Outbox) -> Taken {
        let [_, index] = arguments else { return client.wrong_arity(me, "select", out) };
        let Some(index) = resp::integer(index) else {
            return client.say_error(me, "ERR value is not an integer or out of range", out);
        };
        match u32::try_from(index) {
            Ok(index) if index == client.database => client.say(me, b"+OK\r\n", out),
            Ok(index) if index < MAX_DATABASES => {
                return self.ask_for(me, client, index, client.version, Purpose::Select(index), out);
            }
            _ => return client.say_error(me, "ERR DB index is out of range", out),
        }
        Taken::Yes
    }

    /// Asks for a server of the pool that the client will use, to see what it says.
    fn ask_for(
        &self,
        me: ClientTag,
        client: &mut Client,
        database: u32,
        version: Version,
        purpose: Purpose,
        out: &mut Outbox,
    ) -> Taken {
        let selects = matches!(purpose, Purpose::Select(_));
        debug_assert!(client.lease.is_none(), "a client without pending replies has a lease");
        match self.directory.route(&client.user, database, version) {
            Ok(pool) => client.request_lease(me, pool, LeaseRequest::new(LeaseKind::Shared, purpose, false), out),
            // What follows would go to the database that was to be left.
            Err(why) if selects => client.fail(me, &format!("ERR Poolhouse: {why}"), out),
            Err(why) => return client.say_error(me, &format!("ERR Poolhouse: {why}"), out),
        }
        Taken::Yes
    }

    fn begin_anew(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) -> Taken {
        (client.database, client.version, client.name) = (0, Version::Resp2, None);
        client.stranger = client.guarded;
        self.count_anew(me, client, out);
        self.leave_subscriptions(client, out);
        out.push(Effect::Standing { client: me, standing: client.standing() });
        client.say(me, b"+RESET\r\n", out);
        Taken::Yes
    }
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

impl Client {
    fn about_itself(&mut self, me: ClientTag, command: AboutSelf, arguments: &[&[u8]], out: &mut Outbox) -> Taken {
        match (command, &arguments[2..]) {
            (AboutSelf::SetName, [name]) if !is_name(name) => return self.say_error(me, BAD_NAME, out),
            (AboutSelf::SetName, [name]) => {
                self.set_name(Box::from(*name));
                self.say(me, b"+OK\r\n", out);
            }
            (AboutSelf::GetName, []) => out.insert(Peer::Client(me), |to| match &self.name {
                Some(name) => resp::text(to, name),
                None => resp::null(to, self.version),
            }),
            (AboutSelf::SetInfo, [attribute, value]) => {
                let known = [&b"lib-name"[..], b"lib-ver"].iter().any(|known| attribute.eq_ignore_ascii_case(known));
                if !known {
                    let error = format!("ERR Unrecognized option '{}'", attribute.escape_ascii());
                    return self.say_error(me, &error, out);
                }
                if !is_name(value) {
                    let error = format!(
                        "ERR {} cannot contain spaces, newlines or special characters.",
                        attribute.to_ascii_lowercase().escape_ascii()
                    );
                    return self.say_error(me, &error, out);
                }
                let told = self.lib.get_or_insert_default();
                let of_it = if attribute.len() > 7 { &mut told.name } else { &mut told.version };
                *of_it = Box::from(*value);
                self.say(me, b"+OK\r\n", out);
            }
            (AboutSelf::Unknown, _) => {
                let given = arguments[1][..arguments[1].len().min(128)].escape_ascii();
                return self.say_error(me, &format!("ERR unknown subcommand '{given}'. Try CLIENT HELP."), out);
            }
            (AboutSelf::Id, []) => self.say(me, format!(":{}\r\n", self.id).as_bytes(), out),
            (command, _) => {
                let name = match command {
                    AboutSelf::SetName => "client|setname",
                    AboutSelf::GetName => "client|getname",
                    AboutSelf::SetInfo => "client|setinfo",
                    AboutSelf::Id => "client|id",
                    AboutSelf::Unknown => unreachable!("answered above"),
                };
                return self.wrong_arity(me, name, out);
            }
        }
        Taken::Yes
    }

    /// Whether it may show a password now. One that has logged in before stands among those who log in again first:
    /// where passwords are guessed, it waits there for its turn as they do.
    fn takes_its_turn(&mut self, me: ClientTag, out: &mut Outbox) -> bool {
        if !std::mem::replace(&mut self.logs_in, true) {
            out.push(Effect::Standing { client: me, standing: Standing::Login });
            out.push(Effect::Wake { client: me });
            return false;
        }
        true
    }

    /// AUTH where nobody has a password: as with Redis, `default` is let in with any, and there are no others.
    fn auth_of_anybody(&mut self, me: ClientTag, arguments: &[&[u8]], out: &mut Outbox) -> Taken {
        let error = match arguments {
            [_, b"default", _] => {
                self.say(me, b"+OK\r\n", out);
                return Taken::Yes;
            }
            [_, _, _] => WRONG_PASSWORD,
            _ => {
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?"
            }
        };
        self.say_error(me, error, out)
    }

    fn say(&self, me: ClientTag, bytes: &[u8], out: &mut Outbox) {
        out.insert(Peer::Client(me), |to| to.extend_from_slice(bytes));
    }

    pub(super) fn say_error(&self, me: ClientTag, error: &str, out: &mut Outbox) -> Taken {
        out.insert(Peer::Client(me), |to| resp::error(to, error));
        Taken::Yes
    }

    pub(super) fn wrong_arity(&self, me: ClientTag, name: &str, out: &mut Outbox) -> Taken {
        self.say_error(me, &format!("ERR wrong number of arguments for '{name}' command"), out)
    }
}

/// Whether it may be a client's name: printable and without blanks, as Redis has it.
fn is_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME && name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// CLIENT TRACKING with REDIRECT.
pub(super) fn redirects(arguments: &[&[u8]]) -> bool {
    let tracking = arguments.get(1).is_some_and(|second| second.eq_ignore_ascii_case(b"TRACKING"));
    tracking && (arguments.len() == MAX_READ || arguments.iter().any(|word| word.eq_ignore_ascii_case(b"REDIRECT")))
}

/// HELLO with AUTH, wherever that stands.
pub(super) fn logs_in(arguments: &[&[u8]]) -> bool {
    arguments.len() == MAX_READ || arguments.iter().any(|word| word.eq_ignore_ascii_case(b"AUTH"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::patience::own_time;

    #[test]
    fn the_time_out_of_a_command_that_blocks_stands_behind_any_number_of_keys() {
        for keys in [1, 62, 63, 64, 1000] {
            let words = [&[&b"BLPOP"[..]], vec![&b"7"[..]; keys].as_slice(), &[b"5"]].concat();
            let read = to_be_read(words.into_iter());
            assert_eq!(own_time(&read), Some(Duration::from_secs(5)), "{keys} keys");
        }
        let other = [&[&b"DEL"[..]], vec![&b"7"[..]; 1000].as_slice()].concat();
        assert_eq!(to_be_read(other.into_iter()).len(), MAX_READ);
    }
}
