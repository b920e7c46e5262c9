//! Redis, or a pooler in front of one, as a target: carries out the engine's orders over clients of the database.
//!
//! `commands` writes the requests of scripts.

mod commands;

use clients::{
    blocking::{BlockingClient, CONNECT_TIMEOUT},
    redis::{ConnectOptions, Requester},
};

pub(super) use self::commands::Commands;
use super::{Server, TargetError};
use crate::{
    plan::{RedisTarget, RedisWork},
    script::{GET_SET, PING, Scripts},
};

/// Makes one connection before any load, so that a dead target, a wrong password or a mistake in a script are clear
/// errors. Returns the server's name and version: `Redis 7.0.15`.
///
/// # Errors
/// Why no load can be run against it.
pub fn check(target: &RedisTarget) -> Result<Server, TargetError> {
    scripts(target, 0)?;
    let mut client = BlockingClient::<Requester>::connect(ConnectOptions::of(&target.url, None)?, CONNECT_TIMEOUT)?;
    let info = client.try_request(|r, out| r.request_reply(&[&b"INFO"[..], b"server"], out), CONNECT_TIMEOUT)?;
    let version = info.map(|requester| version(requester)).transpose().map_err(|message| client.error(message))?;
    let is_pooled = match version {
        None => false,
        Some(_) => client
            .try_request(|r, out| r.request_reply(&[&b"CLIENT"[..], b"INFO"], out), CONNECT_TIMEOUT)?
            .is_some_and(|requester| is_pooled(requester)),
    };
    let name = version.flatten().map_or_else(|| "Redis".to_owned(), |version| format!("Redis {version}"));
    Ok(Server { name, is_pooled })
}

/// Whether CLIENT INFO says what Poolhouse says of its clients: Redis itself would say a descriptor.
fn is_pooled(requester: &Requester) -> bool {
    requester.error().is_none() && String::from_utf8_lossy(requester.reply()).contains(" fd=-1 ")
}

/// The version in the reply to INFO. A user without the right to this command may still be allowed those of the load.
fn version(requester: &Requester) -> Result<Option<String>, String> {
    match requester.error() {
        Some(error) if error.kind() == "NOAUTH" => {
            Err(format!("{error} Write the password in the URL: redis://user:password@host:port"))
        }
        Some(error) if error.kind() == "NOPERM" || error.kind() == "ERR" => Ok(None),
        Some(error) => Err(error.to_string()),
        None => {
            let text = String::from_utf8_lossy(requester.reply()).into_owned();
            let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
            Ok(version.map(|version| version.trim().to_owned()))
        }
    }
}

/// Reads the scripts of a target.
///
/// # Errors
/// The first mistake in a script.
pub fn scripts(target: &RedisTarget, seed: u64) -> Result<Scripts, TargetError> {
    let one = |name: &str, text| vec![((name.to_owned(), text), 1)];
    let (sources, mut variables) = match &target.work {
        RedisWork::Ping => (one("ping", PING), Vec::new()),
        RedisWork::GetSet { writes, keys, value_size } => {
            let given = [
                ("writes", (writes * 1e6).round().to_string()),
                ("keys", keys.to_string()),
                ("value", "x".repeat(*value_size as usize)),
            ];
            (one("get-set", GET_SET), given.map(|(name, value)| (name.to_owned(), value)).into())
        }
        RedisWork::Scripts(scripts) => {
            let sources = scripts.iter().map(|script| ((script.name.clone(), script.text.as_str()), script.weight));
            (sources.collect(), Vec::new())
        }
    };
    variables.extend(target.variables.iter().cloned());
    Scripts::of_redis(&sources, &variables, seed).map_err(|error| TargetError::configuration(error.to_string()))
}
