//! Checks passwords at directory servers. Knows no rule for logins.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ldap3::{LdapConnAsync, LdapConnSettings, LdapError, LdapResult, Scope, SearchEntry, dn_escape};
use postgres_session::CheckVerdict;
use settings::Secret;

use crate::config::{LdapBind, LdapEncryption, LdapOptions, LdapScope};

/// How long connecting to one server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a server may take for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a check may take in all.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// Most users whose passwords are kept for the logins of servers.
const MAX_VERIFIED: usize = 10_000;

/// Result codes (RFC 4511) by which a server says that the password or the name is wrong.
const WRONG_CODES: [u32; 5] = [32, 34, 48, 49, 53];

/// The passwords that directory servers have found right, for servers that are logged in to as the client's user.
#[derive(Default)]
pub struct VerifiedPasswords(Mutex<HashMap<Box<str>, Secret>>);

impl VerifiedPasswords {
    pub fn get(&self, user: &str) -> Option<Secret> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(user).cloned()
    }

    fn note(&self, user: &str, password: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_VERIFIED
            && !known.contains_key(user)
            && let Some(other) = known.keys().next().cloned()
        {
            known.remove(&other);
        }
        known.insert(user.into(), Secret::new(password));
    }
}

/// Checks a password, and notes it if it is right.
pub async fn check(options: &LdapOptions, user: &str, password: &str, verified: &VerifiedPasswords) -> CheckVerdict {
    match tokio::time::timeout(CHECK_TIMEOUT, is_right(options, user, password)).await {
        Ok(Ok(true)) => {
            verified.note(user, password);
            CheckVerdict::Right
        }
        Ok(Ok(false)) => CheckVerdict::Wrong,
        Ok(Err(why)) => CheckVerdict::Unavailable(why),
        Err(_) => CheckVerdict::Unavailable("the directory server takes too long".to_owned()),
    }
}

/// Whether a password is right, according to the first server that can be reached.
async fn is_right(options: &LdapOptions, user: &str, password: &str) -> Result<bool, String> {
    let mut failure = String::new();
    for server in &options.servers {
        match ask(server, options, user, password).await {
            Ok(is_right) => return Ok(is_right),
            Err(error) => failure = format!("the directory server {server}:{}: {error}", options.port),
        }
    }
    Err(failure)
}

async fn ask(server: &str, options: &LdapOptions, user: &str, password: &str) -> Result<bool, LdapError> {
    let scheme = if options.encryption == LdapEncryption::Tls { "ldaps" } else { "ldap" };
    let host = if server.contains(':') { format!("[{server}]") } else { server.to_owned() };
    let settings = LdapConnSettings::new()
        .set_conn_timeout(CONNECT_TIMEOUT)
        .set_starttls(options.encryption == LdapEncryption::StartTls);
    let url = format!("{scheme}://{host}:{}", options.port);
    let (connection, mut ldap) = LdapConnAsync::with_settings(settings, &url).await?;
    let driven = tokio::spawn(async move { connection.drive().await });
    let answer = bind(&mut ldap, options, user, password).await;
    let _ = ldap.unbind().await;
    driven.abort();
    answer
}

async fn bind(ldap: &mut ldap3::Ldap, options: &LdapOptions, user: &str, password: &str) -> Result<bool, LdapError> {
    let dn = match &options.bind {
        LdapBind::Simple { prefix, suffix } => {
            // In a distinguished name some characters have a meaning; other forms of a name have none.
            let name = if prefix.contains('=') { dn_escape(user) } else { user.into() };
            format!("{prefix}{name}{suffix}")
        }
        LdapBind::Search { base_dn, bind_dn, bind_password, filter, scope } => {
            // As in PostgreSQL: a name that could change the filter is no user's.
            if user.contains(['*', '(', ')', '\\', '/']) {
                return Ok(false);
            }
            let own = bind_password.as_ref().map_or("", |password| password.reveal());
            ldap.with_timeout(ANSWER_TIMEOUT).simple_bind(bind_dn, own).await?.success()?;
            let scope = match scope {
                LdapScope::Base => Scope::Base,
                LdapScope::One => Scope::OneLevel,
                LdapScope::Subtree => Scope::Subtree,
            };
            let filter = filter.replace("$username", user);
            // "1.1" is for no attributes.
            let found = ldap.with_timeout(ANSWER_TIMEOUT).search(base_dn, scope, &filter, vec!["1.1"]).await?;
            let (entries, result) = (found.0, found.1);
            if result.rc == 32 {
                return Ok(false);
            }
            result.success()?;
            let mut entries = entries.into_iter().filter(|entry| !entry.is_ref() && !entry.is_intermediate());
            let (Some(entry), None) = (entries.next(), entries.next()) else { return Ok(false) };
            SearchEntry::construct(entry).dn
        }
    };
    let LdapResult { rc, .. } = match ldap.with_timeout(ANSWER_TIMEOUT).simple_bind(&dn, password).await? {
        result if WRONG_CODES.contains(&result.rc) => return Ok(false),
        result => result.success()?,
    };
    Ok(rc == 0)
}
