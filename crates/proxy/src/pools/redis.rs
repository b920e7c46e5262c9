//! What the protocol of Redis asks: who may log in, which pool serves him, and how Poolhouse logs in itself. A pool is called by the
//! number of its logical database, and by the version if that is not the first one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use postgres::Unknown;
use protocol::{Encryption, Origin, PoolId};
use redis::{Access, Directory, HttpRules, Sentinel, ServerLogin, Version, Welcome};
use settings::Secret;
use subtle::ConstantTimeEq;

use super::Pools;
use crate::config::FALLBACK;

const RESP3: &str = "/resp3";

/// Whom Redis takes who gives a password only.
pub const DEFAULT_USER: &str = "default";

impl Directory for Pools {
    fn encryption(&self, listener: u16) -> Encryption {
        postgres::Directory::encryption(self, listener)
    }

    fn welcome(&self, origin: Origin) -> Welcome {
        if self.config.authenticates() {
            return Welcome::Password;
        }
        match origin.is_local() || self.config.insecure_no_auth {
            true => Welcome::Open,
            false => Welcome::Forbidden(
                "no password is configured, so clients are let in from this machine only: give the URL one".to_owned(),
            ),
        }
    }

    fn is_password(&self, user: &str, password: &[u8]) -> bool {
        let known = self.user(user).and_then(|user| user.password.as_ref()?.plain());
        // A user who does not exist is compared, too, with what nobody can have said.
        let stored = known.map_or(&b"\0"[..], |secret| secret.reveal().as_bytes());
        bool::from(stored.ct_eq(password)) && known.is_some()
    }

    fn route(&self, user: &str, database: u32, version: Version) -> Result<PoolId, String> {
        let index = self.database(FALLBACK).expect("a configuration for Redis has this one");
        let configured = &self.config.databases[index];
        let name = match version {
            Version::Resp2 => database.to_string(),
            Version::Resp3 => format!("{database}{RESP3}"),
        };
        let server_user = configured.user.as_deref().unwrap_or(user);
        self.pool(index, &name, server_user).map_err(reason)
    }

    fn http(&self, listener: u16) -> Option<Arc<HttpRules>> {
        self.http_at(self.listen(listener)?)
    }

    fn access(&self, token: &[u8]) -> Option<Arc<Access>> {
        self.tokens.find(token)
    }

    fn spend(&self, access: &Access, commands: u32) -> Option<Duration> {
        self.tokens.spend(access, commands, Instant::now())
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (entry, database) = self.entry(pool);
        let (number, version) = match entry.name.strip_suffix(RESP3) {
            Some(number) => (number, Version::Resp3),
            None => (&*entry.name, Version::Resp2),
        };
        let text = |secret: Secret| Arc::clone(secret.reveal());
        // A server older than ACLs knows no name for the one user that it has.
        let user = Some(&*entry.user).filter(|user| !user.is_empty() && *user != DEFAULT_USER);
        ServerLogin {
            tls: upstream::uses_tls(&database.hosts, &database.tls),
            user: user.map(Arc::from),
            password: self.server_password(entry.database, &entry.user).map(text),
            database: number.parse().expect("pools of Redis are called by numbers"),
            version,
            sentinel: database.sentinel.clone().map(|sentinel| Sentinel {
                master: sentinel.master.into(),
                user: sentinel.user.map(Into::into),
                password: sentinel.password.map(text),
            }),
        }
    }
}

/// Why there is no pool, for people.
pub fn reason(unknown: Unknown) -> String {
    match unknown {
        Unknown::Forbidden(why) => why,
        _ => "there is no such database".to_owned(),
    }
}
