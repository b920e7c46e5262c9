//! Redis, or a pooler in front of one, as a target: carries out the engine's orders over clients of the database.
//!
//! `commands` writes the requests of scripts.

mod commands;

use std::cell::RefCell;

use clients::{
    connection::{CONNECT_TIMEOUT, ask_once},
    redis::{Link, Place},
};

use super::{Server, Surroundings, TargetError, run::carry_out};
use crate::{
    engine::Engine,
    plan::{Plan, RedisTarget, RedisWork},
    script::{GET_SET, PING, Scripts},
};
use commands::Commands;

/// Makes one connection before any load, so that a dead target, a wrong password or a mistake in a script are clear
/// errors. Returns the server's name and version: `Redis 7.0.15`.
///
/// # Errors
/// Why no load can be run against it.
pub fn check(target: &RedisTarget) -> Result<Server, TargetError> {
    scripts(target, 0)?;
    let place = Place::of(&target.url, None)?;
    let known = RefCell::new(None);
    let ask = |link: &mut Link, out: &mut Vec<u8>| match *known.borrow() {
        None => link.requester().ask_for(&[b"INFO", b"server"], out),
        Some(_) => link.requester().ask_for(&[b"CLIENT", b"INFO"], out),
    };
    let told = |link: &mut Link| {
        let mut known = known.borrow_mut();
        match *known {
            Some(_) => Ok(Some(is_pooled(link))),
            None => version(link).map(|version| {
                *known = Some(version);
                None
            }),
        }
    };
    let address = place.endpoint.address.to_string();
    let is_pooled = ask_once(place, address, CONNECT_TIMEOUT, ask, told)?;
    let version = known.into_inner().flatten();
    let name = version.map_or_else(|| "Redis".to_owned(), |version| format!("Redis {version}"));
    Ok(Server { name, is_pooled: is_pooled == Some(true) })
}

/// Whether what is told of the connection is what Poolhouse tells of its clients: of Redis's own it would be a
/// descriptor.
fn is_pooled(link: &mut Link) -> bool {
    let requester = link.requester();
    requester.error().is_none() && String::from_utf8_lossy(requester.kept()).contains(" fd=-1 ")
}

/// The version that the answer to INFO tells. A user without the right to ask this may still be allowed what the load
/// asks.
fn version(link: &mut Link) -> Result<Option<String>, String> {
    let requester = link.requester();
    match requester.error() {
        Some(error) if error.kind() == "NOAUTH" => {
            Err(format!("{error} Write the password in the URL: redis://user:password@host:port"))
        }
        Some(error) if error.kind() == "NOPERM" || error.kind() == "ERR" => Ok(None),
        Some(error) => Err(error.to_string()),
        None => {
            let text = String::from_utf8_lossy(requester.kept()).into_owned();
            let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
            Ok(version.map(|version| version.trim().to_owned()))
        }
    }
}

/// Carries out the engine's orders until it is done.
///
/// # Errors
/// What makes going on impossible, or kept the load from beginning. Errors of single connections and operations are
/// reported to the engine.
pub fn run(
    target: &RedisTarget,
    plan: &Plan,
    engine: &mut Engine,
    around: Surroundings<'_>,
) -> Result<(), TargetError> {
    let scripts = scripts(target, plan.seed)?;
    let place = Place::of(&target.url, around.via)?;
    carry_out(Commands::new(), &place, &scripts, plan, engine, around)
}

/// What the operations of a target are, read.
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
