//! Asking a database who may log in: while a client waits, a query of the configuration is run with the client's user name
//! as its parameter on a server that is borrowed for it. What the answer means is for the directory to say.

use protocol::{Blame, ClientTag, CloseReason, Effect, LeaseKind, Outbox, Peer, ServerTag, Sessions, Verdict};

use crate::{
    Ask, Postgres, Proof, Unknown,
    client::{Client, Phase},
    client_login::Asked,
    server::Server,
    wire::{
        error::{Failure, Report, Severity, code},
        message::{front, take_u32, write, write_text},
    },
    work::Purpose,
};

/// A question to a server, and the answer as far as it has come.
pub(crate) struct Lookup {
    database: String,
    user: String,
    answer: Answer,
    /// The client has gone; the server becomes free when it has answered.
    pub(crate) abandoned: bool,
}

/// What has come.
enum Answer {
    /// No row.
    Nobody,
    /// The user, who has no password.
    WithoutPassword,
    /// The user's stored password.
    Password(Box<str>),
    /// Not what a query for users answers.
    Unusable(&'static str),
}

impl Lookup {
    /// Takes the body of a DataRow: the user and the stored password.
    pub(crate) fn row(&mut self, body: &[u8]) {
        self.answer = match self.answer {
            Answer::Nobody => read_row(body, &self.user),
            _ => Answer::Unusable("more than one row"),
        };
    }

    /// A row came that is too long to be one of ours.
    pub(crate) fn long_row(&mut self) {
        self.answer = Answer::Unusable("a row that is too long");
    }
}

fn read_row(mut body: &[u8], user: &str) -> Answer {
    let Some((count, rest)) = body.split_first_chunk::<2>() else { return Answer::Unusable("a malformed row") };
    if u16::from_be_bytes(*count) < 2 {
        return Answer::Unusable("fewer than two columns (it must give the user and the stored password)");
    }
    body = rest;
    let (Some(name), Some(password)) = (take_value(&mut body), take_value(&mut body)) else {
        return Answer::Unusable("a malformed row");
    };
    if name != Some(user.as_bytes()) {
        // PostgreSQL cuts long names off: this is somebody else.
        return Answer::Unusable("another user than it was asked for");
    }
    match password.map(std::str::from_utf8) {
        None => Answer::WithoutPassword,
        Some(Ok("")) => Answer::WithoutPassword,
        Some(Ok(password)) => Answer::Password(password.into()),
        Some(Err(_)) => Answer::Unusable("a password that is not UTF-8"),
    }
}

/// Takes a value of a row off the front; the inner `None` is NULL, the outer one a malformed row.
fn take_value<'a>(body: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = take_u32(body)?;
    if length == u32::MAX {
        return Some(None);
    }
    let (value, rest) = body.split_at_checked(length as usize)?;
    *body = rest;
    Some(Some(value))
}

/// Appends the query with the user as its only parameter. Parameters cannot be taken for SQL, whatever is in them.
fn write_question(to: &mut Vec<u8>, query: &str, user: &str) {
    write(to, front::PARSE, |to| {
        write_text(to, "");
        write_text(to, query);
        to.extend_from_slice(&0u16.to_be_bytes());
    });
    write(to, front::BIND, |to| {
        to.extend_from_slice(&[0, 0]);
        to.extend_from_slice(&0u16.to_be_bytes());
        to.extend_from_slice(&1u16.to_be_bytes());
        to.extend_from_slice(&(user.len() as u32).to_be_bytes());
        to.extend_from_slice(user.as_bytes());
        to.extend_from_slice(&0u16.to_be_bytes());
    });
    write(to, front::EXECUTE, |to| {
        write_text(to, "");
        to.extend_from_slice(&0u32.to_be_bytes());
    });
    write(to, front::SYNC, |_| {});
}

impl Postgres {
    /// The client's proof must be asked of a server first.
    pub(crate) fn ask_who(&self, me: ClientTag, client: &mut Client, ask: Ask, out: &mut Outbox) {
        client.pool = ask.pool;
        client.retried = false;
        out.push(Effect::Lease { client: me, pool: ask.pool, kind: LeaseKind::Exclusive });
    }

    /// A server was granted to ask. Somebody else may have got the answer meanwhile.
    pub(crate) fn look_up(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        asked: Asked,
        out: &mut Outbox,
    ) {
        match self.directory.proof(asked.origin, &asked.database, &asked.user) {
            // The configuration may have changed, and another server be the one to ask.
            Ok(Proof::Ask(ask)) if ask.pool == client.pool => {
                let Asked { database, user, .. } = asked;
                let question = |to: &mut Vec<u8>| write_question(to, &ask.query, &user);
                let lookup = Lookup { database, user: user.clone(), answer: Answer::Nobody, abandoned: false };
                server.begin_with(tag, Purpose::Lookup(lookup), 1, question, out);
            }
            found => {
                client.release(me, tag, server, Verdict::Clean, out);
                self.go_on(me, client, found, out);
            }
        }
    }

    /// The server has answered.
    pub(crate) fn looked_up(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        lookup: Lookup,
        failure: Option<Failure>,
        out: &mut Outbox,
    ) {
        let found = match (&lookup.answer, failure) {
            (_, Some(failure)) => Err(failure.text()),
            (Answer::Unusable(why), None) => Err(format!("the query gave {why}")),
            (Answer::Password(password), None) => Ok(Some(&**password)),
            (Answer::Nobody | Answer::WithoutPassword, None) => Ok(None),
        };
        let outcome = found.map(|found| self.directory.answered(&lookup.database, &lookup.user, found));
        if lookup.abandoned {
            out.push(Effect::Ready { server: me });
        }
        let Some(tag) = server.holder else { return };
        let client = clients.get(tag).expect("the holder of a server has a session");
        client.release(tag, me, server, Verdict::Clean, out);
        if matches!(client.phase, Phase::Closed) {
            return;
        }
        match outcome {
            Ok(found) => self.go_on(tag, client, found, out),
            Err(why) => cannot_ask(tag, client, &lookup.user, &why, out),
        }
    }

    fn go_on(&self, me: ClientTag, client: &mut Client, found: Result<Proof, Unknown>, out: &mut Outbox) {
        self.demand(me, client, found, out);
        // What the client has sent meanwhile was not consumed.
        out.push(Effect::Wake { client: me });
    }
}

/// Nobody could be asked who the client is. It is not told why: it may be a stranger.
pub(crate) fn cannot_ask(me: ClientTag, client: &mut Client, user: &str, why: &str, out: &mut Outbox) {
    let report = Report {
        severity: Severity::Fatal,
        code: code::CANNOT_CONNECT_NOW,
        message: "authentication is not possible now",
        hint: "The database could not be asked who may log in; Poolhouse's log says why.",
    };
    out.insert(Peer::Client(me), |to| report.write(to));
    let text = format!("auth_query for user \"{}\" failed: {why}", user.escape_debug());
    client.close(me, CloseReason::Error(Blame::Server, text), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[Option<&str>]) -> Vec<u8> {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            body.extend(value.map_or(u32::MAX, |v| v.len() as u32).to_be_bytes());
            body.extend(value.unwrap_or_default().as_bytes());
        }
        body
    }

    fn lookup(rows: &[Vec<u8>]) -> Answer {
        let mut lookup = Lookup { database: "db".into(), user: "app".into(), answer: Answer::Nobody, abandoned: false };
        rows.iter().for_each(|body| lookup.row(body));
        std::mem::replace(&mut lookup.answer, Answer::Nobody)
    }

    #[test]
    fn a_row_of_user_and_password_is_taken() {
        let found = lookup(&[row(&[Some("app"), Some("md5x"), Some("more")])]);
        assert!(matches!(found, Answer::Password(password) if &*password == "md5x"));
        assert!(matches!(lookup(&[row(&[Some("app"), None])]), Answer::WithoutPassword));
        assert!(matches!(lookup(&[row(&[Some("app"), Some("")])]), Answer::WithoutPassword));
        assert!(matches!(lookup(&[]), Answer::Nobody));
    }

    #[test]
    fn an_answer_that_is_not_about_the_user_is_not_believed() {
        let good = row(&[Some("app"), Some("x")]);
        for rows in [
            vec![row(&[Some("root"), Some("x")])],
            vec![row(&[None, Some("x")])],
            vec![row(&[Some("app")])],
            vec![good.clone(), good.clone()],
            vec![good[..good.len() - 1].to_vec()],
            vec![b"\0".to_vec()],
        ] {
            assert!(matches!(lookup(&rows), Answer::Unusable(_)), "{rows:?}");
        }
    }

    #[test]
    fn a_user_name_stays_a_parameter_whatever_is_in_it() {
        let name = "a'; DROP TABLE t; --";
        let mut bytes = Vec::new();
        write_question(&mut bytes, "SELECT $1", name);
        let parse = &bytes[..1 + u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize];
        assert_eq!(parse, b"P\0\0\0\x11\0SELECT $1\0\0\0");
        let length = (name.len() as u32).to_be_bytes();
        let bound = [&b"\0\0\0\0\0\x01"[..], &length, name.as_bytes(), b"\0\0"].concat();
        assert_eq!(bytes[parse.len() + 5..][..bound.len()], bound);
    }
}
