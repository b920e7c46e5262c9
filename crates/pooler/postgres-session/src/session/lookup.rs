//! The question to a database who may log in, and its answer.

use crate::LoginAttempt;
use crate::wire::{Failure, front, message::write, take_u16, take_value, write_execute, write_text};

pub(crate) struct Lookup {
    pub(crate) attempt: LoginAttempt,
    /// What the last row says, as in PgBouncer.
    answer: Answer,
    /// The client has gone; the server becomes free when it has answered.
    pub(crate) abandoned: bool,
}

enum Answer {
    NoUser,
    WithoutPassword,
    Password(Box<str>),
    /// The answer is not that of a query for users.
    Unusable(&'static str),
}

impl Lookup {
    pub(crate) fn new(attempt: LoginAttempt) -> Self {
        Self { attempt, answer: Answer::NoUser, abandoned: false }
    }

    /// The stored password, which is empty if there is none; `None` if there is no such user. The error says why it is
    /// not known.
    pub(crate) fn found(&self, failure: Option<Failure>) -> Result<Option<&str>, String> {
        match (&self.answer, failure) {
            (_, Some(failure)) => Err(failure.text()),
            (Answer::Unusable(why), None) => Err(format!("the query gave {why}")),
            (Answer::Password(password), None) => Ok(Some(&**password)),
            (Answer::WithoutPassword, None) => Ok(Some("")),
            (Answer::NoUser, None) => Ok(None),
        }
    }

    pub(crate) fn take_row(&mut self, body: &[u8]) {
        if !matches!(self.answer, Answer::Unusable(_)) {
            self.answer = read_row(body, &self.attempt.user);
        }
    }

    /// A row came that is too long for a user and a password.
    pub(crate) fn note_long_row(&mut self) {
        self.answer = Answer::Unusable("a row that is too long");
    }
}

fn read_row(mut body: &[u8], user: &str) -> Answer {
    let Some(columns) = take_u16(&mut body) else { return Answer::Unusable("a malformed row") };
    if columns < 2 {
        return Answer::Unusable("fewer than two columns (it must give the user and the stored password)");
    }
    let (Some(name), Some(password)) = (take_value(&mut body), take_value(&mut body)) else {
        return Answer::Unusable("a malformed row");
    };
    let Some(name) = name else {
        // A function that returns a record and no set has a row of NULLs for a user whom it does not find.
        return Answer::NoUser;
    };
    if name != user.as_bytes() {
        // PostgreSQL cuts long names off: this is another user.
        return Answer::Unusable("another user than it was asked for");
    }
    match password.map(std::str::from_utf8) {
        None => Answer::WithoutPassword,
        Some(Ok("")) => Answer::WithoutPassword,
        Some(Ok(password)) => Answer::Password(password.into()),
        Some(Err(_)) => Answer::Unusable("a password that is not UTF-8"),
    }
}

/// Appends the query with the user as its only parameter. Parameters cannot be taken for SQL.
pub(crate) fn write_question(to: &mut Vec<u8>, query: &str, user: &str) {
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
    write_execute(to);
    write(to, front::SYNC, |_| {});
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::row_body as row;

    fn lookup(rows: &[Vec<u8>]) -> Answer {
        let origin = seam::Origin { listener: 0, address: None, port: 0, uid: None };
        let mut lookup = Lookup::new(LoginAttempt::new(origin, "db", "app"));
        rows.iter().for_each(|body| lookup.take_row(body));
        std::mem::replace(&mut lookup.answer, Answer::NoUser)
    }

    #[test]
    fn a_row_of_user_and_password_is_taken() {
        let found = lookup(&[row(&[Some("app"), Some("md5x"), Some("more")])]);
        assert!(matches!(found, Answer::Password(password) if &*password == "md5x"));
        assert!(matches!(lookup(&[row(&[Some("app"), None])]), Answer::WithoutPassword));
        assert!(matches!(lookup(&[row(&[Some("app"), Some("")])]), Answer::WithoutPassword));
        for rows in [vec![], vec![row(&[None, None])], vec![row(&[None, Some("x")])]] {
            assert!(matches!(lookup(&rows), Answer::NoUser), "{rows:?}");
        }
    }

    #[test]
    fn the_last_row_counts() {
        let found = lookup(&[row(&[Some("app"), Some("x")]), row(&[Some("app"), Some("y")])]);
        assert!(matches!(found, Answer::Password(password) if &*password == "y"));
        assert!(matches!(lookup(&[row(&[Some("app"), Some("x")]), row(&[None, None])]), Answer::NoUser));
    }

    #[test]
    fn an_answer_that_is_not_about_the_user_is_not_believed() {
        let good = row(&[Some("app"), Some("x")]);
        for rows in [
            vec![row(&[Some("root"), Some("x")])],
            vec![row(&[Some("app")])],
            vec![row(&[Some("root"), Some("x")]), good.clone()],
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
