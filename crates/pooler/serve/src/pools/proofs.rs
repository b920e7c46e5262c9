//! How a client of PostgreSQL must prove who it is: the rules of `[auth]`, and what is stored of its user's password.

use std::{sync::Arc, time::Instant};

use postgres_session::{Ask, LoginAttempt, Look, Proof, Rejection, StoredPassword, Unknown, md5_hash};
use scram::Shape;
use settings::Secret;
use upstream::Kind;

use super::{ConfigPools, Lookups, MAX_NAME_BYTES};
use crate::{
    Password,
    config::{AuthType, IdentMap, Method, User},
    password::OtherPasswords,
    system_users,
};

/// Distinct looks of logins that are kept.
const MAX_LOOKS: usize = 16;

/// What takes too long for a worker, and has to be known before the [proof](ConfigPools::find_proof) of a client is.
pub(crate) enum Preparation {
    /// The name of this user of the system.
    SystemUser(u32),
    /// The verifiers of a user's passwords.
    Verifiers(Password, OtherPasswords),
}

/// How the logins of configured users look, for each way to log in: an unknown user's login must look like one of
/// these.
#[derive(Default)]
pub(super) struct Looks {
    stored: Vec<Look>,
    md5: Vec<Look>,
    scram: Vec<Look>,
    cleartext: Vec<Look>,
}

impl Looks {
    pub(super) fn of(users: &[User]) -> Self {
        let mut looks = Self::default();
        for password in users.iter().filter_map(|user| user.password.as_ref()) {
            for (list, method) in [
                (&mut looks.stored, Method::Stored),
                (&mut looks.md5, Method::Md5),
                (&mut looks.scram, Method::Scram),
                (&mut looks.cleartext, Method::Cleartext),
            ] {
                if let Some(look) = look(password, &method)
                    && list.len() < MAX_LOOKS
                    && !list.contains(&look)
                {
                    list.push(look);
                }
            }
        }
        looks
    }

    fn with(&self, method: &Method) -> &[Look] {
        match method {
            Method::Md5 => &self.md5,
            Method::Scram => &self.scram,
            Method::Cleartext => &self.cleartext,
            _ => &self.stored,
        }
    }
}

/// How a login with this password looks; `None` if there can be none.
fn look(password: &Password, method: &Method) -> Option<Look> {
    let looks = password.look();
    match (method, password) {
        (Method::Md5, Password::Plain(..)) => Some(Look::Md5),
        (Method::Cleartext, Password::Plain(..)) => Some(Look::Cleartext(None)),
        _ => look_with(method, looks),
    }
}

/// How a login looks under a method that without one would look like this.
fn look_with(method: &Method, look: Look) -> Option<Look> {
    match (method, look) {
        (Method::Scram, Look::Md5) => None,
        (Method::Cleartext, Look::Scram(shape)) => Some(Look::Cleartext(Some(shape))),
        (Method::Cleartext, Look::Md5) => Some(Look::Cleartext(None)),
        (_, look) => Some(look),
    }
}

impl ConfigPools {
    pub(super) fn find_proof(&self, attempt: &LoginAttempt) -> Result<Proof, Unknown> {
        if attempt.user.is_empty() || attempt.user.len() > MAX_NAME_BYTES {
            return Err(Unknown::User);
        }
        if self.is_console(&attempt.database) && self.config.owns_console(&attempt.user, &attempt.origin) {
            return Ok(Proof::Trust);
        }
        if !self.config.authenticates(Kind::Postgres) {
            return match attempt.origin.is_local() || self.config.insecure_no_auth {
                true => Ok(Proof::Trust),
                false => Err(Unknown::Forbidden(
                    "no users are configured, so clients are let in from this machine only: add a [[user]] with a \
                     password"
                        .to_owned(),
                )),
            };
        }
        let method = match &self.config.auth {
            AuthType::Any => return Ok(Proof::Trust),
            _ => self.method(attempt).map_err(Unknown::Rejected)?,
        };
        if let Method::Ldap(_) = method {
            return Ok(Proof::Elsewhere);
        }
        if let Some(user) = self.user(&attempt.user) {
            return match &user.password {
                _ if user.certificate && *method == Method::Stored => prove_by_certificate(attempt, None),
                Some(password) => prove(method, attempt, Some(password), &user.other_passwords),
                // A password may be in the database.
                None if takes_password(method) || user.rules_only => self.look_up(method, attempt),
                None => prove(method, attempt, None, &OtherPasswords::default()),
            };
        }
        self.look_up(method, attempt)
    }

    fn is_console(&self, database: &str) -> bool {
        self.database(database).is_some_and(|index| self.config.databases[index].is_console)
    }

    /// The way in which such a client has to log in.
    pub(crate) fn method(&self, attempt: &LoginAttempt) -> Result<&Method, Rejection> {
        match &self.config.auth {
            AuthType::One(method) => Ok(method),
            AuthType::Any => Ok(&Method::Trust),
            AuthType::Hba(hba) => hba.method(attempt),
        }
    }

    /// The proof for a user of whom the configuration has no password.
    fn look_up(&self, method: &Method, attempt: &LoginAttempt) -> Result<Proof, Unknown> {
        let Some(Lookups { pool, auth, known, .. }) = self.lookups(&attempt.database) else {
            return Err(unknown_user(method));
        };
        match known.fresh(&attempt.user, Instant::now()) {
            Some(Some(password)) => prove(method, attempt, Some(&password), &OtherPasswords::default()),
            Some(None) => Err(not_found(method)),
            None => Ok(Proof::Ask(Ask { pool: *pool, query: Arc::clone(&auth.query) })),
        }
    }

    pub(super) fn prove_looked_up(&self, attempt: &LoginAttempt, stored: Option<&str>) -> Result<Proof, Unknown> {
        let (database, user) = (&attempt.database, &attempt.user);
        let Lookups { auth, known, .. } = self.lookups(database).ok_or(Unknown::User)?;
        let method = self.method(attempt).map_err(Unknown::Rejected)?;
        if stored == Some("") && !takes_password(method) {
            return prove(method, attempt, None, &OtherPasswords::default());
        }
        let given = stored.filter(|stored| !stored.is_empty());
        let password = given.map(|stored| Password::parse(&Secret::new(stored))).transpose();
        let password = password.unwrap_or_else(|error| {
            tracing::warn!(user, "the auth_query gave a password that cannot be used: {error}");
            None
        });
        let now = Instant::now();
        let password = match password {
            Some(mut password) => {
                password.derive_with(self.config.scram_iterations);
                Some(known.note_found(user, password, now, auth.cache_time))
            }
            None => {
                known.note_missing(user, now, auth.failure_cache_time);
                None
            }
        };
        match password {
            Some(password) => prove(method, attempt, Some(&password), &OtherPasswords::default()),
            None => Err(not_found(method)),
        }
    }

    /// What has to be known first of a client whose proof is [`Proof::Later`]; `None` if it is known by now.
    pub(crate) fn preparation(&self, attempt: &LoginAttempt) -> Option<Preparation> {
        if let Method::Peer(_) = self.method(attempt).ok()? {
            let uid = attempt.origin.uid.filter(|uid| system_users::known_name(*uid).is_none())?;
            return Some(Preparation::SystemUser(uid));
        }
        let user = self.user(&attempt.user);
        let (password, others) = match user.and_then(|user| Some((user.password.clone()?, &user.other_passwords))) {
            Some((password, others)) => (password, others.clone()),
            None => {
                let found = self.lookups(&attempt.database)?.known.last(&attempt.user)?;
                (Password::clone(&found), OtherPasswords::default())
            }
        };
        password.known_verifiers(&others).is_none().then_some(Preparation::Verifiers(password, others))
    }

    /// How the logins of existing users look who come in the same way.
    pub(super) fn looks_of(&self, attempt: &LoginAttempt) -> Vec<Look> {
        let method = self.method(attempt).unwrap_or(&Method::Stored);
        let found = self.lookups(&attempt.database).map(|lookups| lookups.known.looks()).unwrap_or_default();
        // If users are looked up, they are most of all users.
        let found: Vec<Look> = found.into_iter().filter_map(|look| look_with(method, look)).collect();
        let (found, known) = (of_md5(found, method), of_md5(self.looks.with(method).to_vec(), method));
        match (found.is_empty(), &known[..], method) {
            (false, ..) => found,
            (true, [], Method::Md5) => vec![Look::Md5],
            (true, [], Method::Cleartext) => vec![Look::Cleartext(None)],
            (true, [], Method::Scram) => vec![Look::Scram(Shape::default())],
            (true, looks, _) => looks.to_vec(),
        }
    }
}

/// The proof of a user who exists. `password` is what is stored of the user's password, `others` what is stored of
/// further valid ones.
fn prove(
    method: &Method,
    attempt: &LoginAttempt,
    password: Option<&Password>,
    others: &OtherPasswords,
) -> Result<Proof, Unknown> {
    let all = || password.into_iter().chain(others.iter());
    match (method, password) {
        (Method::Trust, _) => Ok(Proof::Trust),
        (Method::Certificate(map), _) => prove_by_certificate(attempt, map.as_deref()),
        (Method::Peer(map), _) => prove_by_peer(attempt, map.as_deref()),
        (Method::Ldap(_), _) => Ok(Proof::Elsewhere),
        (Method::Reject, _) => Err(Unknown::Rejected(Rejection::Rule)),
        (Method::Stored | Method::Md5 | Method::Scram | Method::Cleartext, None) => Err(Unknown::User),
        (Method::Cleartext, Some(_)) => Ok(Proof::Cleartext(all().map(stored).collect())),
        (Method::Scram, Some(Password::Md5(_))) => Err(Unknown::User),
        (Method::Md5, Some(Password::Plain(..))) | (_, Some(Password::Md5(_))) => {
            let hash = |password: &Password| match password {
                Password::Md5(hash) => Arc::clone(hash.reveal()),
                Password::Plain(password, _) => md5_hash(password.reveal(), &attempt.user).into(),
                Password::Scram(_) => unreachable!("no verifier stands beside an md5 hash or behind a plain password"),
            };
            Ok(Proof::Md5(all().map(hash).collect()))
        }
        (_, Some(password)) => Ok(password.known_verifiers(others).map_or(Proof::Later, Proof::Scram)),
    }
}

/// Where md5 is asked for, an unknown user's login looks like one with an md5 hash, if any does.
fn of_md5(looks: Vec<Look>, method: &Method) -> Vec<Look> {
    match method {
        Method::Md5 if looks.contains(&Look::Md5) => vec![Look::Md5],
        _ => looks,
    }
}

fn takes_password(method: &Method) -> bool {
    matches!(method, Method::Stored | Method::Md5 | Method::Scram | Method::Cleartext)
}

/// A user who does not exist is refused like one who proves nothing.
fn unknown_user(method: &Method) -> Unknown {
    match method {
        Method::Trust => Unknown::Rejected(Rejection::UnknownUser),
        Method::Certificate(_) => Unknown::Rejected(Rejection::Certificate),
        Method::Peer(_) => Unknown::Rejected(Rejection::Peer),
        _ => Unknown::User,
    }
}

/// A user whom no lookup has found.
fn not_found(method: &Method) -> Unknown {
    match method {
        Method::Trust => Unknown::Rejected(Rejection::NotFound),
        method => unknown_user(method),
    }
}

fn stored(password: &Password) -> StoredPassword {
    match password {
        Password::Plain(secret, _) => StoredPassword::Plain(Arc::clone(secret.reveal())),
        Password::Md5(hash) => StoredPassword::Md5(Arc::clone(hash.reveal())),
        Password::Scram(verifier) => StoredPassword::Scram(Arc::clone(verifier)),
    }
}

/// Whether a name from elsewhere is the user's, or a map lets it log in as that user.
fn is_user(name: &str, user: &str, map: Option<&IdentMap>) -> bool {
    map.map_or(name == user, |map| map.allows(name, user))
}

fn prove_by_certificate(attempt: &LoginAttempt, map: Option<&IdentMap>) -> Result<Proof, Unknown> {
    match &attempt.certificate {
        Some(name) if is_user(name, &attempt.user, map) => Ok(Proof::Trust),
        _ => Err(Unknown::Rejected(Rejection::Certificate)),
    }
}

fn prove_by_peer(attempt: &LoginAttempt, map: Option<&IdentMap>) -> Result<Proof, Unknown> {
    match attempt.origin.uid.map(system_users::known_name) {
        Some(None) => Ok(Proof::Later),
        Some(Some(Some(name))) if is_user(&name, &attempt.user, map) => Ok(Proof::Trust),
        _ => Err(Unknown::Rejected(Rejection::Peer)),
    }
}
