//! The users of the file that `[auth] file` names.

use std::{borrow::Cow, collections::HashMap, ops::Range, path::Path};

use settings::{Problem, Section};

use super::Reader;
use crate::{
    Password,
    config::{User, userlist},
};

/// Bytes of a user list: more than other files of secrets may have.
const MAX_USERLIST_BYTES: u64 = 16 * 1024 * 1024;

impl Reader<'_> {
    /// The users of `[auth] file`, under the rules of the `[[user]]` of the same name; its own password wins.
    pub(super) fn listed_users(&mut self, auth: &Section<'_>, mut users: Vec<User>) -> Vec<User> {
        let Some(path) = auth.string("file").map(|path| self.document.resolve(&path)) else { return users };
        self.secret_files.push(path.clone());
        let text = match read_userlist(&path) {
            Ok(text) => text,
            Err(error) => {
                auth.error("file", format!("cannot read {}: {error}", path.display()));
                return users;
            }
        };
        let (entries, unreadable) = userlist::parse(&text);
        let mut found: Vec<(Range<usize>, Cow<'static, str>)> =
            unreadable.into_iter().map(|line| (line.span, line.message.into())).collect();
        let configured = users.len();
        let mut known: HashMap<String, usize> =
            users.iter().enumerate().map(|(i, user)| (user.name.clone(), i)).collect();
        for entry in entries {
            let password = match Password::parse(&entry.password) {
                Ok(password) => Some(password),
                // A list for such logins names users only.
                Err(_) if entry.password.reveal().is_empty() && self.takes_users_without_password() => None,
                Err(message) => {
                    found.push((entry.span, message.into()));
                    continue;
                }
            };
            let index = *known.entry(entry.name.clone()).or_insert(users.len());
            match users.get_mut(index) {
                // PgBouncer takes the last line of a user's.
                Some(user) if index >= configured && self.is_in_place_of_pgbouncer() => user.password = password,
                Some(user) if user.password.is_none() => user.password = password,
                Some(_) => {}
                None => users.push(User::with_password(entry.name, password)),
            }
        }
        found.into_iter().for_each(|(span, message)| self.note_unreadable(message, &path, &text, span));
        users
    }

    /// A line of a user list that cannot be used. In PgBouncer's place its user is unknown, and the others can log in.
    fn note_unreadable(&mut self, message: Cow<'static, str>, path: &Path, text: &str, span: Range<usize>) {
        match self.is_in_place_of_pgbouncer() {
            true => {
                let problem = Problem::warning(message).hint("the line is left out");
                self.warnings.push(problem.at(path, text, span));
            }
            false => self.document.problems.borrow_mut().push(Problem::error(message).at(path, text, span)),
        }
    }
}

/// A list of users may be larger than other secret files.
fn read_userlist(path: &Path) -> std::io::Result<String> {
    match std::fs::metadata(path)?.len() > MAX_USERLIST_BYTES {
        true => Err(std::io::Error::other("it is too large for a list of users")),
        false => std::fs::read_to_string(path),
    }
}
