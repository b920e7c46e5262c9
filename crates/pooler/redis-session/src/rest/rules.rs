//! What the holder of a token may do.

use std::{collections::HashSet, fmt, sync::Arc};

use crate::command::{Kind, kind};

/// The user of a bearer token, and what its holder may do.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Its name in configuration and logs.
    pub name: Arc<str>,
    /// The user whose servers it uses; empty where no login is required.
    pub user: Arc<str>,
    pub database: u32,
    pub rules: Rules,
    /// Its index among the tokens.
    pub index: usize,
    /// No other token has the same.
    pub fingerprint: Fingerprint,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}

/// The commands that a token may use.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Only commands that read.
    pub read_only: bool,
    /// If it is not empty, only these: names in upper case, or `NAME|SUBCOMMAND`.
    pub allow: HashSet<String>,
    pub deny: HashSet<String>,
}

/// Commands that a read-only token may use: those that Redis 7 has in its category `read`, the read-only forms of
/// scripts, and some about the server.
const READS: &[&[&str]] = &[
    // Keys
    &["DUMP", "EXISTS", "EXPIRETIME", "KEYS", "PEXPIRETIME", "PTTL", "RANDOMKEY", "SCAN", "SORT_RO", "TOUCH", "TTL"],
    &["TYPE", "MEMORY|USAGE", "OBJECT|ENCODING", "OBJECT|FREQ", "OBJECT|IDLETIME", "OBJECT|REFCOUNT"],
    // Strings, bits and counts
    &["BITCOUNT", "BITFIELD_RO", "BITPOS", "GET", "GETBIT", "GETRANGE", "LCS", "MGET", "PFCOUNT", "STRLEN", "SUBSTR"],
    // Hashes
    &["HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HRANDFIELD", "HSCAN", "HSTRLEN", "HVALS"],
    // Lists and sets
    &["LINDEX", "LLEN", "LPOS", "LRANGE", "SCARD", "SDIFF", "SINTER", "SINTERCARD", "SISMEMBER", "SMEMBERS"],
    &["SMISMEMBER", "SRANDMEMBER", "SSCAN", "SUNION"],
    // Sorted sets
    &["ZCARD", "ZCOUNT", "ZDIFF", "ZINTER", "ZINTERCARD", "ZLEXCOUNT", "ZMSCORE", "ZRANDMEMBER", "ZRANGE"],
    &["ZRANGEBYLEX", "ZRANGEBYSCORE", "ZRANK", "ZREVRANGE", "ZREVRANGEBYLEX", "ZREVRANGEBYSCORE", "ZREVRANK", "ZSCAN"],
    &["ZSCORE", "ZUNION"],
    // Places
    &["GEODIST", "GEOHASH", "GEOPOS", "GEORADIUSBYMEMBER_RO", "GEORADIUS_RO", "GEOSEARCH"],
    // Streams
    &["XINFO|CONSUMERS", "XINFO|GROUPS", "XINFO|STREAM", "XLEN", "XPENDING", "XRANGE", "XREAD", "XREVRANGE"],
    // Scripts, channels and the server
    &["EVALSHA_RO", "EVAL_RO", "FCALL_RO", "PSUBSCRIBE", "SUBSCRIBE", "COMMAND", "DBSIZE", "ECHO", "LOLWUT", "PING"],
    &["TIME"],
];

/// Longest name in the list, in bytes.
const MAX_NAME: usize = 64;

impl Rules {
    /// Why a command is refused; `None` if it is allowed.
    pub(crate) fn refuses(&self, name: &[u8], rest: &[&[u8]]) -> Option<String> {
        let why = match kind(name, rest) {
            Kind::Ordinary | Kind::Script | Kind::Publish(_) | Kind::SubscriberCount(_) => {
                return self.forbids(name, rest.first().copied());
            }
            Kind::Control if name.eq_ignore_ascii_case(b"CLIENT") => "it is about the connection, and here is none",
            Kind::Control if name.eq_ignore_ascii_case(b"SHUTDOWN") => "it may wait, and a request must not",
            Kind::Control => return self.forbids(name, rest.first().copied()),
            Kind::Blocking => "it may wait, and a request must not",
            Kind::Multi | Kind::EndTransaction => "a transaction is a request of its own: POST /multi-exec",
            Kind::Watch => "a connection ends with its request",
            Kind::Pinning | Kind::Subscription(_) => {
                "it needs a connection of its own; for messages use /subscribe and /psubscribe"
            }
            _ => "it is about the connection, and here is none",
        };
        Some(format!("ERR {} is not available over HTTP: {why}", shown(name)))
    }

    pub(crate) fn forbids(&self, name: &[u8], second: Option<&[u8]>) -> Option<String> {
        if !self.read_only && self.allow.is_empty() && self.deny.is_empty() {
            return None;
        }
        let (name, full) = names(name, second);
        let in_either = |holds: &dyn Fn(&str) -> bool| holds(&name) || full.as_deref().is_some_and(holds);
        let why = if in_either(&|name| self.deny.contains(name)) {
            "denied to this token"
        } else if !self.allow.is_empty() && !in_either(&|name| self.allow.contains(name)) {
            "not among those allowed to this token"
        } else if self.read_only && !in_either(&is_read) {
            "not for a read-only token"
        } else {
            return None;
        };
        Some(format!("NOPERM {} is {why}", shown(name.as_bytes())))
    }
}

pub(crate) fn only_reads(name: &[u8], second: Option<&[u8]>) -> bool {
    let (name, full) = names(name, second);
    is_read(&name) || full.is_some_and(|full| is_read(&full))
}

/// A command's name in upper case, and its name with the subcommand.
fn names(name: &[u8], second: Option<&[u8]>) -> (String, Option<String>) {
    let upper = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(MAX_NAME)]).to_ascii_uppercase();
    let name = upper(name);
    let full = second.map(|second| format!("{name}|{}", upper(second)));
    (name, full)
}

fn is_read(name: &str) -> bool {
    READS.iter().any(|commands| commands.contains(&name))
}

fn shown(name: &[u8]) -> String {
    name[..name.len().min(MAX_NAME)].escape_ascii().to_string().to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> HashSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn commands_about_the_connection_or_the_server_s_end_are_refused() {
        for (name, rest) in [(&b"client"[..], &[&b"LIST"[..]][..]), (b"client", &[b"pause", b"5"]), (b"shutdown", &[])]
        {
            assert!(Rules::default().refuses(name, rest).is_some());
        }
        assert_eq!(Rules::default().refuses(b"script", &[b"kill"]), None);
    }

    #[test]
    fn a_read_only_token_cannot_write() {
        let rules = Rules { read_only: true, ..Rules::default() };
        for name in ["get", "ZRANGE", "ping", "eval_ro"] {
            assert_eq!(rules.refuses(name.as_bytes(), &[]), None, "{name}");
        }
        assert_eq!(rules.refuses(b"object", &[b"encoding", b"a"]), None);
        for name in ["set", "GETDEL", "sort", "eval", "flushall", "an unknown command", "object", "config"] {
            let error = rules.refuses(name.as_bytes(), &[]).expect(name);
            assert!(error.starts_with("NOPERM"), "{error}");
        }
    }

    #[test]
    fn rules_name_commands_or_subcommands() {
        let rules = Rules { allow: set(&["GET", "SCRIPT|LOAD"]), deny: set(&["GET"]), ..Rules::default() };
        assert!(rules.refuses(b"get", &[b"a"]).expect("denied").contains("denied"));
        assert_eq!(rules.refuses(b"script", &[b"load", b"return 1"]), None);
        assert!(rules.refuses(b"script", &[b"flush"]).is_some());
    }
}
