//! What is asked, as the command line says it.

use std::path::{Path, PathBuf};

use ::bench::plan::{HttpTarget, PostgresTarget, QueryProtocol, Script, Target};
use clap::{Args, ValueEnum, value_parser};
use settings::Secret;

/// The schema of the built-in scripts' tables.
const SCHEMA: &str = "poolhouse_bench";

/// See the module.
#[derive(Args, PartialEq, Default)]
#[command(next_help_heading = "What is asked")]
pub struct WorkFlags {
    /// PostgreSQL: one account by its key (the default)
    #[arg(long, short = 'S', conflicts_with_all = ["tpcb_like", "simple_update", "script"])]
    select_only: bool,

    /// PostgreSQL: pgbench's transaction in the manner of TPC-B
    #[arg(long, conflicts_with_all = ["simple_update", "script"])]
    tpcb_like: bool,

    /// PostgreSQL: the same without the tables that clients contend for
    #[arg(long, short = 'N', conflicts_with = "script")]
    simple_update: bool,

    /// PostgreSQL: a script in pgbench's language; several, each with its weight: a.sql@3
    #[arg(long, short = 'f', value_name = "FILE[@WEIGHT]")]
    script: Vec<String>,

    /// PostgreSQL: a variable for scripts
    #[arg(long, short = 'D', value_name = "NAME=VALUE", value_parser = variable)]
    define: Vec<(String, String)>,

    /// PostgreSQL: how statements are sent [default: simple]
    #[arg(long, short = 'M', value_name = "PROTOCOL", value_enum)]
    protocol: Option<Protocol>,

    /// PostgreSQL: make the built-in scripts' tables anew first
    #[arg(long, short = 'i')]
    init: bool,

    /// PostgreSQL: their size, 100,000 accounts each [default: 1]
    #[arg(long, short = 's', value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    scale: Option<u32>,

    /// PostgreSQL: the schema they are in; `public` for tables that pgbench has made [default: poolhouse_bench]
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,

    /// HTTP: GET, POST, ... [default: GET, with a body POST]
    #[arg(long, short = 'X', value_name = "METHOD")]
    method: Option<String>,

    /// HTTP: a header, which may be a template like the body
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,

    /// HTTP: the body, or @FILE. In it: {{random 1 100}}, {{now}}, {{now_ms}}, {{uuid}}, {{seq}}
    #[arg(long, value_name = "TEXT|@FILE")]
    body: Option<String>,

    /// HTTP: a status that is no error [default: 200 to 399]
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

pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a variable is NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl WorkFlags {
    /// Nothing said, or nothing but `--init`.
    pub fn only_init(init: bool) -> Self {
        Self { init, ..Self::default() }
    }

    /// Whether tables are to be made first.
    pub fn init(&self) -> bool {
        self.init
    }

    /// The target at a URL.
    ///
    /// # Errors
    /// What cannot be asked there, or not read; without the URL, which may hold a password.
    pub fn target(&self, url: Secret) -> Result<Target, String> {
        let scheme = url.reveal().split_once("://").map_or("", |(scheme, _)| scheme).to_owned();
        match scheme.as_str() {
            "postgres" | "postgresql" => {
                if self.method.is_some() || !self.header.is_empty() || self.body.is_some() || !self.expect.is_empty() {
                    return Err("--method, --header, --body and --expect are for http:// and https://".to_owned());
                }
                Ok(Target::Postgres(self.postgres(url)?))
            }
            "http" | "https" => {
                let http_only = Self {
                    method: self.method.clone(),
                    header: self.header.clone(),
                    body: self.body.clone(),
                    expect: self.expect.clone(),
                    ..Self::default()
                };
                if *self != http_only {
                    return Err("scripts, variables, --protocol, --init, --scale and --schema are for postgres://".to_owned());
                }
                Ok(Target::Http(self.http(url)?))
            }
            "redis" | "rediss" | "mongodb" | "mongodb+srv" => {
                Err(format!("{scheme}:// is not available in this version; postgres://, http:// and https:// are"))
            }
            _ => Err("this is neither a URL nor a scenario file: write postgres://user:password@host/name, http://host/path or \
                      FILE.toml"
                .to_owned()),
        }
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
            schema: self.schema.clone().unwrap_or_else(|| SCHEMA.to_owned()),
            variables: self.define.clone(),
        })
    }

    fn http(&self, url: Secret) -> Result<HttpTarget, String> {
        let body = match self.body.as_deref().map(|body| (body, body.strip_prefix('@'))) {
            None => None,
            Some((_, Some(file))) => Some(read(Path::new(file))?),
            Some((text, None)) => Some(text.to_owned()),
        };
        let usual = if body.is_some() { "POST" } else { "GET" };
        Ok(HttpTarget {
            url,
            method: self.method.clone().unwrap_or_else(|| usual.to_owned()),
            headers: self.header.clone(),
            body,
            expect: self.expect.clone(),
        })
    }
}

/// `FILE`, or `FILE@WEIGHT`.
pub(crate) fn script(text: &str) -> Result<(Script, u32), String> {
    let (file, weight) = match text.rsplit_once('@') {
        Some((file, weight)) if weight.bytes().all(|b| b.is_ascii_digit()) && !weight.is_empty() => {
            (file, weight.parse().map_err(|_| format!("`{text}`: the weight behind the `@` is too large"))?)
        }
        _ => (text, 1),
    };
    Ok((Script::File(PathBuf::from(file), read(Path::new(file))?), weight))
}

fn read(path: &Path) -> Result<String, String> {
    settings::read_small(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_another_kind_of_target_is_refused_and_no_password_shown() {
        let flags = WorkFlags { body: Some("x".to_owned()), ..WorkFlags::default() };
        let error = flags.target(Secret::new("postgres://a:hunter2@h/d")).unwrap_err();
        assert!(error.contains("--body") && !error.contains("hunter2"));
        let flags = WorkFlags { scale: Some(3), ..WorkFlags::default() };
        assert!(flags.target(Secret::new("http://h/")).unwrap_err().contains("--scale"));
        assert!(WorkFlags::default().target(Secret::new("redis://h")).unwrap_err().contains("not available"));
        assert!(!WorkFlags::default().target(Secret::new("hunter2")).unwrap_err().contains("hunter2"));
    }

    #[test]
    fn a_body_makes_it_a_post() {
        let method = |body: Option<&str>| {
            let flags = WorkFlags { body: body.map(str::to_owned), ..WorkFlags::default() };
            match flags.target(Secret::new("http://h/")).unwrap() {
                Target::Http(http) => http.method,
                Target::Postgres(_) => unreachable!("it is HTTP"),
            }
        };
        assert_eq!((method(None).as_str(), method(Some("{}")).as_str()), ("GET", "POST"));
    }
}
