//! The answers to Redis' sessions: who may log in, which pool serves a client, and how Poolhouse itself logs in.

use std::{sync::Arc, time::Instant};

use postgres_session::Unknown;
use redis_session::{Access, Directory, HttpRules, OverRate, Sentinel, ServerLogin, Version, Welcome};
use seam::{Encryption, Origin, PoolId};
use settings::Secret;
use subtle::{Choice, ConstantTimeEq};
use upstream::Kind;

use super::{ConfigPools, Key};
use crate::{Password, config::DEFAULT_USER};

impl Directory for ConfigPools {
    fn encryption(&self, listener: u16) -> Encryption {
        postgres_session::Directory::encryption(self, listener)
    }

    fn welcome(&self, origin: Origin) -> Welcome {
        if self.config.authenticates(Kind::Redis) {
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
        let user = self.user(user);
        let others = user.map(|user| user.other_passwords.iter()).into_iter().flatten();
        let known = user.and_then(|user| user.password.as_ref()).into_iter().chain(others).filter_map(Password::plain);
        // The password of an unknown user is compared, too, with a byte that no client can send here.
        let is_one = known.fold(b"\0"[..].ct_eq(password) & Choice::from(0), |found, secret| {
            found | secret.reveal().as_bytes().ct_eq(password)
        });
        is_one.into()
    }

    fn route(&self, user: &str, database: u32, version: Version) -> Result<PoolId, String> {
        self.redis_route(user, database, version).map_err(reason)
    }

    fn http(&self, listener: u16) -> Option<Arc<HttpRules>> {
        self.http_at(self.listen(listener)?)
    }

    fn access(&self, token: &[u8]) -> Option<Arc<Access>> {
        self.tokens.find(token)
    }

    fn renewed(&self, access: &Access) -> Option<Arc<Access>> {
        self.tokens.renewed(access)
    }

    fn spend(&self, access: &Access, commands: u32) -> Result<(), OverRate> {
        self.tokens.spend(access, commands, Instant::now())
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (entry, database) = self.entry(pool);
        let Key::Redis { database: number, version, user } = entry.key else {
            unreachable!("a server of Redis belongs to a pool of Redis")
        };
        let text = |secret: Secret| Arc::clone(secret.reveal());
        // A server older than ACLs does not accept a user's name.
        let named = Some(&user).filter(|user| !user.is_empty() && &***user != DEFAULT_USER);
        ServerLogin {
            tls: dial::uses_tls(&database.hosts, &database.tls),
            user: named.cloned(),
            password: self.server_password(entry.database, &user).map(text),
            database: number,
            version,
            sentinel: database.sentinel.clone().map(|sentinel| Sentinel {
                master: sentinel.master.into(),
                user: sentinel.user.map(Into::into),
                password: sentinel.password.map(text),
            }),
        }
    }
}

impl ConfigPools {
    /// [`Directory::route`] with a typed error.
    pub(crate) fn redis_route(&self, user: &str, database: u32, version: Version) -> Result<PoolId, Unknown> {
        let index = self.redis.ok_or_else(|| Unknown::Forbidden("no Redis is configured any more".to_owned()))?;
        let of_servers = self.config.databases[index].user.as_deref().unwrap_or(user).into();
        self.find_or_add_pool_for(index, Key::Redis { database, version, user: of_servers }, Some(user))
    }
}

/// Why there is no pool, as a text for the client.
pub fn reason(unknown: Unknown) -> String {
    match unknown {
        Unknown::Forbidden(why) | Unknown::Full(why) => why,
        _ => "there is no such database".to_owned(),
    }
}
