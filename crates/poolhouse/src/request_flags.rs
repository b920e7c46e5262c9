//! The requests of a load, as flags of the command line.

use std::{path::Path, time::Duration};

use ::load::{
    plan::{
        CommandScript, HttpTarget, MongoOperation, MongoTarget, MongoWork, PostgresTarget, QueryProtocol, RedisTarget,
        RedisWork, Script, Target,
    },
    target::{TargetError, postgres::scale_of_tables},
};
use clap::{Args, ValueEnum, value_parser};
use settings::Secret;

use crate::scripts::{read, script, variable, weighted};

/// The requests of a load.
#[derive(Args, Clone, PartialEq, Default)]
#[command(next_help_heading = "What is asked")]
pub struct RequestFlags {
    /// PostgreSQL: one account by its key (the default)
    #[arg(long, short = 'S', conflicts_with_all = ["tpcb_like", "simple_update", "script"])]
    select_only: bool,

    /// PostgreSQL: pgbench's TPC-B-like transaction
    #[arg(long, conflicts_with_all = ["simple_update", "script"])]
    tpcb_like: bool,

    /// PostgreSQL: the same without the updates of tellers and branches, which clients contend for
    #[arg(long, short = 'N', conflicts_with = "script")]
    simple_update: bool,

    /// PostgreSQL: a script in pgbench's language; Redis: a command in each line; MongoDB: command documents. May be
    /// given several times, with weights: a.sql@3
    #[arg(long, short = 'f', value_name = "FILE[@WEIGHT]")]
    script: Vec<String>,

    /// PostgreSQL, Redis, MongoDB: a variable for scripts
    #[arg(long, short = 'D', value_name = "NAME=VALUE", value_parser = variable)]
    define: Vec<(String, String)>,

    /// PostgreSQL: how statements are sent [default: simple]
    #[arg(long, short = 'M', value_name = "PROTOCOL", value_enum)]
    protocol: Option<Protocol>,

    /// PostgreSQL: make the tables of the built-in scripts again first; MongoDB: the documents of --operation
    #[arg(long, short = 'i')]
    init: bool,

    /// PostgreSQL: the scale of these tables, 100,000 accounts each [default: with --init 1, else what they were made
    /// with]
    #[arg(long, short = 's', value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    scale: Option<u32>,

    /// PostgreSQL: the schema of these tables; `public` for tables that pgbench has made [default: poolhouse_bench]
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,

    #[command(flatten)]
    commands: CommandFlags,

    #[command(flatten)]
    redis: RedisFlags,

    #[command(flatten)]
    mongodb: MongoFlags,

    #[command(flatten)]
    http: HttpFlags,
}

/// Of Redis and MongoDB.
#[derive(Args, Clone, PartialEq, Default)]
struct CommandFlags {
    /// Redis: a command, as in redis-cli [default: PING]; MongoDB: a document [default: {"ping": 1}]. With
    /// `:variables`; several make one operation
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["script", "writes", "keys", "value_size", "operation",
          "documents"])]
    command: Vec<String>,

    /// Redis, MongoDB: bytes of a value that is written [default: 100]
    #[arg(long, value_name = "BYTES", value_parser = value_parser!(u32).range(..=i64::from(RedisWork::MAX_VALUE)),
          conflicts_with = "script")]
    value_size: Option<u32>,
}

/// Of Redis.
#[derive(Args, Clone, PartialEq, Default)]
struct RedisFlags {
    /// Redis: GET and SET of random keys; the share of writes (0 to 1) [default: 0.1, with --keys or --value-size]
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with = "script")]
    writes: Option<f64>,

    /// Redis: the number of these keys [default: 100000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(RedisWork::MAX_KEYS)),
          conflicts_with = "script")]
    keys: Option<u32>,
}

/// Of MongoDB.
#[derive(Args, Clone, PartialEq, Default)]
struct MongoFlags {
    /// MongoDB: find-one, insert, update or aggregate, of the documents that --init makes [default: a ping]
    #[arg(long, value_name = "OPERATION", value_parser = operation, conflicts_with = "script")]
    operation: Option<MongoOperation>,

    /// MongoDB: the number of these documents [default: 10000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MongoWork::MAX_DOCUMENTS)),
          requires = "operation")]
    documents: Option<u32>,
}

/// Of HTTP.
#[derive(Args, Clone, PartialEq, Default)]
struct HttpFlags {
    /// HTTP: GET, POST, ... [default: GET, with a body POST]
    #[arg(long, short = 'X', value_name = "METHOD")]
    method: Option<String>,

    /// HTTP: a header, which may be a template like the body
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,

    /// HTTP: the body, or @FILE. In it: {{random 1 100}}, {{now}}, {{now_ms}}, {{uuid}}, {{seq}}
    #[arg(long, value_name = "TEXT|@FILE")]
    body: Option<String>,

    /// HTTP: a status that is not an error [default: 200 to 399]
    #[arg(long, value_name = "STATUS", value_parser = value_parser!(u16).range(100..=599), value_delimiter = ',')]
    expect: Vec<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// One Query message each
    Simple,
    /// Parse, Bind, Execute each time
    Extended,
    /// Parse once for each connection
    Prepared,
}

fn operation(text: &str) -> Result<MongoOperation, String> {
    let found = MongoOperation::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, operation)| operation).ok_or_else(|| {
        let names = MongoOperation::ALL.map(|(name, _)| name);
        format!("there are {}", names.join(", "))
    })
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 to 1".to_owned())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl RequestFlags {
    /// No flags, or only `--init`.
    pub fn only_init(init: bool) -> Self {
        Self { init, ..Self::default() }
    }

    /// Whether `--init` makes tables or documents first.
    pub fn init(&self) -> bool {
        self.init
    }

    /// Whether scripts from files are given, which need no tables or documents of `--init`.
    pub fn has_scripts(&self) -> bool {
        !self.script.is_empty()
    }

    /// The target at a URL.
    ///
    /// # Errors
    /// What cannot be asked there, or not read; without the URL, which may hold a password.
    pub fn target(&self, url: Secret) -> Result<Target, String> {
        let scheme = url.reveal().split_once("://").map_or("", |(scheme, _)| scheme).to_owned();
        match scheme.as_str() {
            "postgres" | "postgresql" => {
                self.refuse_other_flags(&Self {
                    http: HttpFlags::default(),
                    commands: CommandFlags::default(),
                    redis: RedisFlags::default(),
                    mongodb: MongoFlags::default(),
                    ..self.clone()
                })?;
                Ok(Target::Postgres(self.postgres(url)?))
            }
            "redis" | "rediss" => {
                self.refuse_other_flags(&Self { redis: self.redis.clone(), ..self.shared_command_flags() })?;
                Ok(Target::Redis(self.redis(url)?))
            }
            "mongodb" => {
                self.refuse_other_flags(&Self {
                    mongodb: self.mongodb.clone(),
                    init: self.init,
                    ..self.shared_command_flags()
                })?;
                Ok(Target::MongoDb(self.mongodb(url)?))
            }
            "http" | "https" => {
                self.refuse_other_flags(&Self { http: self.http.clone(), ..Self::default() })?;
                Ok(Target::Http(self.http(url)?))
            }
            "mongodb+srv" => {
                Err("mongodb+srv:// is not available here: name the hosts that `dig +short SRV _mongodb._tcp.NAME` \
                     lists in a mongodb:// URL"
                    .to_owned())
            }
            _ => Err("this is neither a URL nor a scenario file: write postgres://user:password@host/name, \
                      redis://user:password@host, mongodb://user:password@host/name, http://host/path or FILE.toml"
                .to_owned()),
        }
    }

    /// The same target, at the scale that its tables have, unless a scale was given or the tables are still to be made.
    /// Asks the database.
    ///
    /// # Errors
    /// It cannot be asked, or has no such tables.
    pub fn at_scale_of_tables(&self, target: Target) -> Result<Target, TargetError> {
        let Target::Postgres(mut target) = target else { return Ok(target) };
        if self.scale.is_none()
            && !self.init
            && let Some(scale) = scale_of_tables(&target)?
        {
            target.scale = scale;
        }
        Ok(Target::Postgres(target))
    }

    /// Refuses flags that are for another kind of target: `allowed` has the flags without those.
    fn refuse_other_flags(&self, allowed: &Self) -> Result<(), String> {
        if self == allowed {
            return Ok(());
        }
        Err("--method, --header, --body and --expect are for http:// and https://; --writes and --keys for redis://; \
             --operation and --documents for mongodb://; --command and --value-size for both; scripts and variables \
             for all but \
             http://; --init for postgres:// and mongodb://; the built-in scripts, --protocol, --scale and --schema \
             for postgres://"
            .to_owned())
    }

    /// The flags that Redis and MongoDB have in common.
    fn shared_command_flags(&self) -> Self {
        Self {
            script: self.script.clone(),
            define: self.define.clone(),
            commands: self.commands.clone(),
            ..Self::default()
        }
    }

    /// The scripts that are given, if any.
    fn scripts(&self) -> Result<Option<Vec<CommandScript>>, String> {
        let one = |text: &String| {
            let (file, weight) = weighted(text)?;
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
            Ok::<_, String>(CommandScript { name, text: read(&file)?, weight })
        };
        Ok(match (self.script.as_slice(), self.commands.command.as_slice()) {
            ([], []) => None,
            ([], lines) => {
                let (name, text) = ("--command".to_owned(), lines.join("\n"));
                Some(vec![CommandScript { name, text, weight: 1 }])
            }
            (files, _) => Some(files.iter().map(one).collect::<Result<_, _>>()?),
        })
    }

    fn mongodb(&self, url: Secret) -> Result<MongoTarget, String> {
        let MongoFlags { operation, documents } = self.mongodb;
        let size = self.commands.value_size;
        if size.is_some_and(|size| size > MongoWork::MAX_VALUE) {
            return Err(format!("--value-size is at most {} for mongodb://", MongoWork::MAX_VALUE));
        }
        let work = match (self.scripts()?, operation) {
            (Some(scripts), _) => MongoWork::Scripts(scripts),
            (None, Some(operation)) => MongoWork::built_in(operation, documents, size),
            (None, None) if size.is_some() => return Err("--value-size needs --operation".to_owned()),
            (None, None) => MongoWork::Ping,
        };
        Ok(MongoTarget { url, work, variables: self.define.clone() })
    }

    fn redis(&self, url: Secret) -> Result<RedisTarget, String> {
        let RedisFlags { writes, keys } = self.redis;
        let size = self.commands.value_size;
        let work = match self.scripts()? {
            Some(scripts) => RedisWork::Scripts(scripts),
            None if writes.is_some() || keys.is_some() || size.is_some() => RedisWork::get_set(writes, keys, size),
            None => RedisWork::Ping,
        };
        Ok(RedisTarget { url, work, variables: self.define.clone() })
    }

    fn postgres(&self, url: Secret) -> Result<PostgresTarget, String> {
        let scripts = match self.script.as_slice() {
            [] if self.tpcb_like => vec![(Script::TpcbLike, 1)],
            [] if self.simple_update => vec![(Script::SimpleUpdate, 1)],
            [] => vec![(Script::SelectOnly, 1)],
            files => files.iter().map(|text| script(text)).collect::<Result<_, _>>()?,
        };
        Ok(PostgresTarget {
            url,
            scripts,
            protocol: match self.protocol {
                None | Some(Protocol::Simple) => QueryProtocol::Simple,
                Some(Protocol::Extended) => QueryProtocol::Extended,
                Some(Protocol::Prepared) => QueryProtocol::Prepared,
            },
            scale: self.scale.unwrap_or(1),
            schema: self.schema.clone().unwrap_or_else(|| PostgresTarget::SCHEMA.to_owned()),
            variables: self.define.clone(),
        })
    }

    fn http(&self, url: Secret) -> Result<HttpTarget, String> {
        let body = match self.http.body.as_deref().map(|body| (body, body.strip_prefix('@'))) {
            None => None,
            Some((_, Some(file))) => Some(read(Path::new(file))?),
            Some((text, None)) => Some(text.to_owned()),
        };
        let usual = if body.is_some() { "POST" } else { "GET" };
        Ok(HttpTarget {
            url,
            method: self.http.method.clone().unwrap_or_else(|| usual.to_owned()),
            headers: self.http.header.clone(),
            body,
            expect: self.http.expect.clone(),
        })
    }
}

/// A warm-up time, which may be zero.
pub fn warmup(text: &str) -> Result<Duration, String> {
    if text == "0s" { Ok(Duration::ZERO) } else { Ok(settings::parse_duration(text)?.unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_another_kind_of_target_is_refused_and_no_password_shown() {
        let flags = RequestFlags {
            http: HttpFlags { body: Some("x".to_owned()), ..HttpFlags::default() },
            ..RequestFlags::default()
        };
        let error = flags.target(Secret::new("postgres://a:hunter2@h/d")).unwrap_err();
        assert!(error.contains("--body") && !error.contains("hunter2"));
        let flags = RequestFlags { scale: Some(3), ..RequestFlags::default() };
        assert!(flags.target(Secret::new("http://h/")).unwrap_err().contains("--scale"));
        assert!(flags.target(Secret::new("redis://h")).unwrap_err().contains("--scale"));
        let flags =
            RequestFlags { redis: RedisFlags { keys: Some(3), ..RedisFlags::default() }, ..RequestFlags::default() };
        assert!(flags.target(Secret::new("postgres://h/d")).unwrap_err().contains("--keys"));
        assert!(flags.target(Secret::new("mongodb://h")).unwrap_err().contains("--keys"));
        assert!(RequestFlags::default().target(Secret::new("mongodb+srv://h")).unwrap_err().contains("not available"));
        assert!(!RequestFlags::default().target(Secret::new("hunter2")).unwrap_err().contains("hunter2"));
    }

    #[test]
    fn a_body_makes_it_a_post() {
        let method = |body: Option<&str>| {
            let flags = RequestFlags {
                http: HttpFlags { body: body.map(str::to_owned), ..HttpFlags::default() },
                ..RequestFlags::default()
            };
            match flags.target(Secret::new("http://h/")).unwrap() {
                Target::Http(http) => http.method,
                _ => unreachable!("it is HTTP"),
            }
        };
        assert_eq!((method(None).as_str(), method(Some("{}")).as_str()), ("GET", "POST"));
    }

    #[test]
    fn what_is_asked_of_redis_is_a_ping_unless_something_else_is_said() {
        let work = |flags: RequestFlags| match flags.target(Secret::new("redis://h")) {
            Ok(Target::Redis(target)) => target.work,
            other => panic!("{other:?}"),
        };
        assert_eq!(work(RequestFlags::default()), RedisWork::Ping);
        let keys = RedisFlags { keys: Some(7), ..RedisFlags::default() };
        let mix = work(RequestFlags { redis: keys, ..RequestFlags::default() });
        assert_eq!(mix, RedisWork::GetSet { writes: 0.1, keys: 7, value_size: 100 });
        let command = vec!["GET a".to_owned(), "GET b".to_owned()];
        let commands = CommandFlags { command, value_size: None };
        let RedisWork::Scripts(scripts) = work(RequestFlags { commands, ..RequestFlags::default() }) else {
            panic!("scripts")
        };
        assert_eq!(scripts[0].text, "GET a\nGET b");
        assert!(operation("insert") == Ok(MongoOperation::Insert) && operation("x").unwrap_err().contains("find-one"));
        assert!(share("1.1").is_err() && share("nan").is_err() && share("0.25") == Ok(0.25));
    }
}
