//! The connection commands (AUTH, HELLO, SELECT, CLIENT, QUIT, RESET), which Poolhouse answers itself.

use std::sync::Arc;

use seam::{CloseReason, Effect, LeaseKind, Outbox, Peer, Standing};

use super::{
    Client, Outcome,
    lease::{LeaseRequest, Purpose},
};
use crate::{
    Redis, Version,
    command::{AboutSelf, Kind, kind},
    resp,
};

/// Arguments of most commands that are read. Commands that are answered here have fewer.
const MAX_READ_ARGUMENTS: usize = 64;

/// Longest name of a client in bytes. Redis has no limit.
const MAX_NAME: usize = 1024;

/// Logical databases that a client may select. Each one makes a pool.
const MAX_DATABASES: u32 = 256;

pub(super) fn is_client_reply(arguments: &[&[u8]]) -> bool {
    matches!(arguments, [name, what, ..] if name.eq_ignore_ascii_case(b"CLIENT") && what.eq_ignore_ascii_case(b"REPLY"))
}

/// The arguments of a command that are read: all where they are names to subscribe to, or ids of clients. The last
/// argument of a blocking command may be its time-out.
pub(super) fn needed_arguments<'a>(mut all: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    let mut arguments: Vec<&[u8]> = all.by_ref().take(MAX_READ_ARGUMENTS).collect();
    if arguments.len() == MAX_READ_ARGUMENTS {
        match kind(arguments[0], &arguments[1..]) {
            Kind::Subscription(_) | Kind::AboutClients(_) => arguments.extend(all),
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
    /// Answers a connection command, or refuses any command before the login. `None` if the command is another one.
    pub(super) fn answer_connection_command(
        &self,
        client: &mut Client,
        kind: Kind,
        arguments: &[&[u8]],
        out: &mut Outbox,
    ) -> Option<Outcome> {
        match kind {
            Kind::Auth | Kind::Hello | Kind::Quit | Kind::Reset | Kind::Http => {}
            _ if !client.identity.is_authenticated() => return Some(client.write_error(NO_LOGIN, out)),
            Kind::Select | Kind::AboutSelf(_) | Kind::AboutClients(_) => {}
            Kind::Pinning if has_redirect(arguments) => {}
            _ => return None,
        }
        if client.hold_input_for_replies() {
            return Some(Outcome::Waits);
        }
        Some(match kind {
            Kind::Auth => self.auth(client, arguments, out),
            Kind::Hello => self.hello(client, arguments, out),
            Kind::Select => self.select(client, arguments, out),
            Kind::AboutSelf(command) => client.client_command(command, arguments, out),
            Kind::Http => {
                client.fail("ERR Poolhouse: this is HTTP, and here is Redis", out);
                Outcome::Consumed
            }
            Kind::AboutClients(_) if client.needs_its_server() => {
                client.fail("ERR Poolhouse tells of its clients outside of transactions only", out);
                Outcome::Consumed
            }
            Kind::AboutClients(what) => self.client_list_command(client, what, arguments, out),
            Kind::Pinning => {
                let error = "ERR Poolhouse has no REDIRECT: the connection it names is not the client's own. \
                             Use RESP3, where invalidations come on the same connection";
                client.write_error(error, out)
            }
            Kind::Quit => {
                client.say(b"+OK\r\n", out);
                client.close(CloseReason::Goodbye, out);
                Outcome::Consumed
            }
            // Messages that were published before RESET come first.
            Kind::Reset if self.unsubscribe_quietly(client, out) => Outcome::Waits,
            Kind::Reset => self.reset(client, out),
            _ => unreachable!("seen above"),
        })
    }

    fn auth(&self, client: &mut Client, arguments: &[&[u8]], out: &mut Outbox) -> Outcome {
        let (user, password) = match arguments {
            [_, password] => (&b"default"[..], *password),
            [_, user, password] => (*user, *password),
            [_] => return client.wrong_arity("auth", out),
            _ => return client.write_error(SYNTAX, out),
        };
        if !client.identity.requires_login() {
            return client.auth_without_passwords(arguments, out);
        }
        if client.begin_login(out) {
            return Outcome::Waits;
        }
        if self.check_password(client, user, password, out) {
            client.say(b"+OK\r\n", out);
        }
        Outcome::Consumed
    }

    /// Logs the client in with this password. Returns false if that failed: then the client was told so, and is closed.
    fn check_password(&self, client: &mut Client, user: &[u8], password: &[u8], out: &mut Outbox) -> bool {
        let name = std::str::from_utf8(user).unwrap_or_default();
        if !self.directory.is_password(name, password) {
            out.push(Effect::LoginRequest { client: client.tag, login: Box::new((String::new(), name.to_owned())) });
            out.push(Effect::AuthFailed { client: client.tag });
            client.fail(WRONG_PASSWORD, out);
            return false;
        }
        self.log_in(client, Arc::from(name), out)
    }

    fn hello(&self, client: &mut Client, arguments: &[&[u8]], out: &mut Outbox) -> Outcome {
        let mut rest = &arguments[1..];
        let mut version = client.settings.version();
        if let [first, behind @ ..] = rest {
            version = match resp::integer(first) {
                Some(2) => Version::Resp2,
                Some(3) => Version::Resp3,
                Some(_) => return client.write_error("NOPROTO unsupported protocol version", out),
                None => {
                    return client.write_error("ERR Protocol version is not an integer or out of range", out);
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
                    return client.write_error(&error, out);
                }
            };
        }
        if name.is_some_and(|name| !is_name(name)) {
            return client.write_error(BAD_NAME, out);
        }
        if let Some((user, password)) = login {
            if !client.identity.requires_login() && user != b"default" {
                return client.write_error(WRONG_PASSWORD, out);
            }
            if client.identity.requires_login() && client.begin_login(out) {
                return Outcome::Waits;
            }
            if client.identity.requires_login() && !self.check_password(client, user, password, out) {
                return Outcome::Consumed;
            }
        }
        if !client.identity.is_authenticated() {
            let error = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                         HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                         select the RESP protocol version at the same time";
            return client.write_error(error, out);
        }
        let purpose = Purpose::Hello(version, name.map(Box::from));
        self.request_other_server(client, client.settings.database(), version, purpose, out)
    }

    fn select(&self, client: &mut Client, arguments: &[&[u8]], out: &mut Outbox) -> Outcome {
        let [_, index] = arguments else { return client.wrong_arity("select", out) };
        let Some(index) = resp::integer(index) else {
            return client.write_error("ERR value is not an integer or out of range", out);
        };
        match u32::try_from(index) {
            Ok(index) if index == client.settings.database() => client.say(b"+OK\r\n", out),
            Ok(index) if index < MAX_DATABASES => {
                return self.request_other_server(
                    client,
                    index,
                    client.settings.version(),
                    Purpose::Select(index),
                    out,
                );
            }
            _ => return client.write_error("ERR DB index is out of range", out),
        }
        Outcome::Consumed
    }

    /// Requests a server of the pool that would serve the client, because only the server can tell whether the database
    /// or the version exists.
    fn request_other_server(
        &self,
        client: &mut Client,
        database: u32,
        version: Version,
        purpose: Purpose,
        out: &mut Outbox,
    ) -> Outcome {
        let selects = matches!(purpose, Purpose::Select(_));
        debug_assert!(client.lease.is_none(), "a client without pending replies has a lease");
        match self.directory.route(client.identity.user(), database, version) {
            Ok(pool) => client.request_lease(pool, LeaseRequest::new(LeaseKind::Shared, purpose, false), out),
            // After an error, the client would go on in the database that it wanted to leave.
            Err(why) if selects => client.fail(&format!("ERR Poolhouse: {why}"), out),
            Err(why) => return client.write_error(&format!("ERR Poolhouse: {why}"), out),
        }
        Outcome::Consumed
    }

    fn reset(&self, client: &mut Client, out: &mut Outbox) -> Outcome {
        client.settings.reset();
        client.identity.log_out();
        self.update_counting_pool(client, out);
        self.leave_subscriptions(client, out);
        out.push(Effect::Standing { client: client.tag, standing: client.standing() });
        client.say(b"+RESET\r\n", out);
        Outcome::Consumed
    }
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

impl Client {
    fn client_command(&mut self, command: AboutSelf, arguments: &[&[u8]], out: &mut Outbox) -> Outcome {
        match (command, &arguments[2..]) {
            (AboutSelf::SetName, [name]) if !is_name(name) => return self.write_error(BAD_NAME, out),
            (AboutSelf::SetName, [name]) => {
                self.settings.set_name(Box::from(*name));
                self.say(b"+OK\r\n", out);
            }
            (AboutSelf::GetName, []) => out.insert(Peer::Client(self.tag), |to| match self.settings.name() {
                Some(name) => resp::text(to, name),
                None => resp::null(to, self.settings.version()),
            }),
            (AboutSelf::SetInfo, [attribute, value]) => {
                let known = [&b"lib-name"[..], b"lib-ver"].iter().any(|known| attribute.eq_ignore_ascii_case(known));
                if !known {
                    let error = format!("ERR Unrecognized option '{}'", attribute.escape_ascii());
                    return self.write_error(&error, out);
                }
                if !is_name(value) {
                    let error = format!(
                        "ERR {} cannot contain spaces, newlines or special characters.",
                        attribute.to_ascii_lowercase().escape_ascii()
                    );
                    return self.write_error(&error, out);
                }
                match attribute.eq_ignore_ascii_case(b"lib-name") {
                    true => self.settings.set_library_name(Box::from(*value)),
                    false => self.settings.set_library_version(Box::from(*value)),
                }
                self.say(b"+OK\r\n", out);
            }
            (AboutSelf::Unknown, _) => {
                let given = arguments[1][..arguments[1].len().min(128)].escape_ascii();
                return self.write_error(&format!("ERR unknown subcommand '{given}'. Try CLIENT HELP."), out);
            }
            (AboutSelf::Id, []) => self.say(format!(":{}\r\n", self.id).as_bytes(), out),
            (command, _) => {
                let name = match command {
                    AboutSelf::SetName => "client|setname",
                    AboutSelf::GetName => "client|getname",
                    AboutSelf::SetInfo => "client|setinfo",
                    AboutSelf::Id => "client|id",
                    AboutSelf::Unknown => unreachable!("answered above"),
                };
                return self.wrong_arity(name, out);
            }
        }
        Outcome::Consumed
    }

    /// Has the client stand among those that log in, so that it waits for its turn where passwords are guessed. Returns
    /// false if it has its turn.
    fn begin_login(&mut self, out: &mut Outbox) -> bool {
        let begins = self.identity.begin_login();
        if begins {
            out.push(Effect::Standing { client: self.tag, standing: Standing::Login });
            out.push(Effect::Wake { client: self.tag });
        }
        begins
    }

    /// AUTH where no login is required. As in Redis, `default` may log in with any password, and no other user exists.
    fn auth_without_passwords(&mut self, arguments: &[&[u8]], out: &mut Outbox) -> Outcome {
        let error = match arguments {
            [_, b"default", _] => {
                self.say(b"+OK\r\n", out);
                return Outcome::Consumed;
            }
            [_, _, _] => WRONG_PASSWORD,
            _ => {
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?"
            }
        };
        self.write_error(error, out)
    }

    fn say(&self, bytes: &[u8], out: &mut Outbox) {
        out.insert(Peer::Client(self.tag), |to| to.extend_from_slice(bytes));
    }

    pub(super) fn write_error(&self, error: &str, out: &mut Outbox) -> Outcome {
        out.insert(Peer::Client(self.tag), |to| resp::error(to, error));
        Outcome::Consumed
    }

    pub(super) fn wrong_arity(&self, name: &str, out: &mut Outbox) -> Outcome {
        self.write_error(&format!("ERR wrong number of arguments for '{name}' command"), out)
    }
}

/// Whether this may be a client's name: printable ASCII without spaces, as in Redis.
fn is_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME && name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Whether the command is CLIENT TRACKING with REDIRECT.
pub(super) fn has_redirect(arguments: &[&[u8]]) -> bool {
    let tracking = arguments.get(1).is_some_and(|second| second.eq_ignore_ascii_case(b"TRACKING"));
    tracking
        && (arguments.len() == MAX_READ_ARGUMENTS
            || arguments.iter().any(|word| word.eq_ignore_ascii_case(b"REDIRECT")))
}

pub(super) fn has_auth(arguments: &[&[u8]]) -> bool {
    arguments.len() == MAX_READ_ARGUMENTS || arguments.iter().any(|word| word.eq_ignore_ascii_case(b"AUTH"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::blocking_waits::block_timeout;

    #[test]
    fn the_time_out_of_a_blocking_command_is_read_behind_any_number_of_keys() {
        for keys in [1, 62, 63, 64, 1000] {
            let words = [&[&b"BLPOP"[..]], vec![&b"7"[..]; keys].as_slice(), &[b"5"]].concat();
            let read = needed_arguments(words.into_iter());
            assert_eq!(block_timeout(&read), Some(Duration::from_secs(5)), "{keys} keys");
        }
        let other = [&[&b"DEL"[..]], vec![&b"7"[..]; 1000].as_slice()].concat();
        assert_eq!(needed_arguments(other.into_iter()).len(), MAX_READ_ARGUMENTS);
    }
}
