//! `[target]`: what is asked.

use settings::{Document, Secret, Section};
use upstream::{Kind, UpstreamUrl};

use super::Start;
use crate::{
    plan::{
        CommandScript, HttpTarget, MongoOperation, MongoTarget, MongoWork, PostgresTarget, QueryProtocol, RedisTarget,
        RedisWork, Script, Target,
    },
    script::Scripts,
    target::{self, http::template::Template},
};

pub(super) const KEYS: &[&str] = &[
    "url",
    "url_file",
    "start",
    "max_connections",
    "script",
    "scripts",
    "sql",
    "protocol",
    "scale",
    "schema",
    "variables",
    "commands",
    "writes",
    "keys",
    "value_size",
    "operation",
    "documents",
    "method",
    "headers",
    "body",
    "expect",
];
/// What says something to some kinds of target only; scripts and variables do to three.
const POSTGRES_KEYS: &[&str] = &["sql", "protocol", "scale", "schema"];
const SCRIPT_KEYS: &[&str] = &["script", "scripts", "variables"];
const COMMAND_KEYS: &[&str] = &["commands", "value_size"];
const REDIS_KEYS: &[&str] = &["writes", "keys"];
const MONGODB_KEYS: &[&str] = &["operation", "documents"];
const HTTP_KEYS: &[&str] = &["method", "headers", "body", "expect"];

/// Scripts that a target may have.
const MAX_SCRIPTS: usize = 128;
/// Connections of a database that is started.
const MAX_CONNECTIONS: std::ops::RangeInclusive<u32> = 10..=10_000;
/// Like the databases' own defaults.
const POSTGRES_CONNECTIONS: u32 = 100;
const REDIS_CONNECTIONS: u32 = 10_000;

/// Reads the section. The URL of a target that is still to be started is empty.
pub(super) fn read(document: &Document<'_>, section: &Section<'_>) -> Option<(Target, Option<Start>)> {
    let start = section.choice("start", &[("postgres", Kind::Postgres), ("redis", Kind::Redis)]);
    let max_connections = section.number("max_connections", MAX_CONNECTIONS);
    let has_url = section.has("url") || section.has("url_file");
    match (section.has("start"), has_url) {
        (true, true) => section.error("start", "give either `start` or `url`, not both"),
        (false, false) => section.error("", "[target] needs a `url`, or start = \"postgres\" or \"redis\""),
        (false, true) if section.has("max_connections") => {
            section.error("max_connections", "`max_connections` is for a database that is started");
        }
        _ => {}
    }
    let url = section.secret("url", "url_file", true);
    let scheme = url.as_ref().and_then(|url| url.reveal().split_once("://").map(|(scheme, _)| scheme.to_owned()));
    if let Some(url) = url.as_ref().filter(|_| matches!(scheme.as_deref(), Some("http" | "https"))) {
        foreign(section, &[POSTGRES_KEYS, SCRIPT_KEYS, COMMAND_KEYS, REDIS_KEYS, MONGODB_KEYS].concat(), "HTTP");
        return Some((Target::Http(http(section, url.clone())), None));
    }
    let kind = match &url {
        None => start.unwrap_or_default(),
        Some(url) => match UpstreamUrl::parse(url.reveal()) {
            Ok(read) => read.kind,
            Err(message) => {
                section.error(if section.has("url") { "url" } else { "url_file" }, message);
                return None;
            }
        },
    };
    let url = url.unwrap_or_else(|| Secret::new(""));
    let (target, usual) = match kind {
        Kind::Postgres => {
            foreign(section, &[COMMAND_KEYS, REDIS_KEYS, MONGODB_KEYS, HTTP_KEYS].concat(), "PostgreSQL");
            (Target::Postgres(postgres(document, section, url)?), POSTGRES_CONNECTIONS)
        }
        Kind::Redis => {
            foreign(section, &[POSTGRES_KEYS, MONGODB_KEYS, HTTP_KEYS].concat(), "Redis");
            (Target::Redis(redis(document, section, url)?), REDIS_CONNECTIONS)
        }
        Kind::MongoDb => {
            foreign(section, &[POSTGRES_KEYS, REDIS_KEYS, HTTP_KEYS].concat(), "MongoDB");
            return Some((Target::MongoDb(mongodb(document, section, url)?), None));
        }
    };
    let start = start.map(|kind| Start { kind, max_connections: max_connections.unwrap_or(usual) });
    Some((target, start))
}

fn foreign(section: &Section<'_>, keys: &[&'static str], kind: &str) {
    for key in keys.iter().filter(|key| section.has(key)) {
        section.error(key, format!("`{key}` says nothing to a target that speaks {kind}"));
    }
}

fn postgres(document: &Document<'_>, section: &Section<'_>, url: Secret) -> Option<PostgresTarget> {
    let protocols = [
        ("simple", QueryProtocol::Simple),
        ("extended", QueryProtocol::Extended),
        ("prepared", QueryProtocol::Prepared),
    ];
    let target = PostgresTarget {
        url,
        scripts: scripts(document, section)?,
        protocol: section.choice("protocol", &protocols).unwrap_or_default(),
        scale: section.number("scale", 1..=100_000).unwrap_or(1),
        schema: section.string("schema").unwrap_or_else(|| PostgresTarget::SCHEMA.to_owned()),
        variables: variables(section),
    };
    if let Err(error) = Scripts::new(&target.scripts, target.protocol, target.scale, &target.variables, 0) {
        let key = ["sql", "scripts"].into_iter().find(|key| section.has(key)).unwrap_or("script");
        section.error(key, error.to_string());
        return None;
    }
    Some(target)
}

/// The scripts: one by name or file, several with weights (`select-only@3`), or the text itself.
fn scripts(document: &Document<'_>, section: &Section<'_>) -> Option<Vec<(Script, u32)>> {
    let given: Vec<&str> = ["script", "scripts", "sql"].into_iter().filter(|key| section.has(key)).collect();
    match given[..] {
        [] => return Some(vec![(Script::SelectOnly, 1)]),
        [_] => {}
        _ => {
            section.error("script", format!("give one of `{}`", given.join("`, `")));
            return None;
        }
    }
    if section.has("sql") {
        let text = section.string("sql")?;
        return Some(vec![(Script::File("sql".into(), text), 1)]);
    }
    if section.has("script") {
        let script = section.text("script", |text| script(document, text))?;
        return Some(vec![(script, 1)]);
    }
    weighted(section, |name, weight| Ok((script(document, name)?, weight)))
}

/// Several scripts with weights: `name@3`.
fn weighted<T>(section: &Section<'_>, read: impl Fn(&str, u32) -> Result<T, String>) -> Option<Vec<T>> {
    let texts = section.texts("scripts")?;
    if texts.len() > MAX_SCRIPTS {
        section.error("scripts", format!("more than {MAX_SCRIPTS} scripts"));
        return None;
    }
    let one = |text: &String| {
        let (name, weight) = text.rsplit_once('@').unwrap_or((text, "1"));
        let weight = weight.parse().map_err(|_| format!("`{text}`: the weight behind `@` is no whole number"))?;
        read(name, weight)
    };
    match texts.iter().map(one).collect::<Result<Vec<_>, String>>() {
        Ok(scripts) => Some(scripts),
        Err(message) => {
            section.error("scripts", message);
            None
        }
    }
}

fn script(document: &Document<'_>, name: &str) -> Result<Script, String> {
    let built_in =
        [("select-only", Script::SelectOnly), ("tpcb-like", Script::TpcbLike), ("simple-update", Script::SimpleUpdate)];
    let names = built_in.each_ref().map(|(name, _)| *name);
    if let Some((_, script)) = built_in.into_iter().find(|(built_in, _)| *built_in == name) {
        return Ok(script);
    }
    let path = document.resolve(name);
    match settings::read_small(&path) {
        Ok(text) => Ok(Script::File(path, text)),
        Err(error) => {
            let guess = settings::nearest(name, &names).map(|n| format!("; did you mean \"{n}\"?")).unwrap_or_default();
            Err(format!("no built-in script, and cannot read {}: {error}{guess}", path.display()))
        }
    }
}

fn redis(document: &Document<'_>, section: &Section<'_>, url: Secret) -> Option<RedisTarget> {
    let mix = ["writes", "keys", "value_size"].into_iter().find(|key| section.has(key));
    let given: Vec<&'static str> =
        ["script", "scripts", "commands"].into_iter().filter(|key| section.has(key)).chain(mix).collect();
    let work = match given[..] {
        [] => RedisWork::Ping,
        ["script" | "scripts" | "commands"] => RedisWork::Scripts(command_scripts(document, section)?),
        [_] => RedisWork::get_set(
            section.decimal("writes", 0.0..=1.0),
            section.number("keys", 1..=RedisWork::MAX_KEYS),
            section.number("value_size", 0..=RedisWork::MAX_VALUE),
        ),
        [first, ..] => {
            section.error(first, format!("give one of `{}`", given.join("`, `")));
            return None;
        }
    };
    let target = RedisTarget { url, work, variables: variables(section) };
    if let Err(error) = target::redis::scripts(&target, 0) {
        section.error(given.first().copied().unwrap_or("start"), error.to_string());
        return None;
    }
    Some(target)
}

fn mongodb(document: &Document<'_>, section: &Section<'_>, url: Secret) -> Option<MongoTarget> {
    let built_in = ["operation", "documents", "value_size"].into_iter().find(|key| section.has(key));
    let given: Vec<&'static str> =
        ["script", "scripts", "commands"].into_iter().filter(|key| section.has(key)).chain(built_in).collect();
    let work = match given[..] {
        [] => MongoWork::Ping,
        ["script" | "scripts" | "commands"] => MongoWork::Scripts(command_scripts(document, section)?),
        [_] => MongoWork::built_in(
            section.choice("operation", &MongoOperation::ALL).unwrap_or(MongoOperation::FindOne),
            section.number("documents", 1..=MongoWork::MAX_DOCUMENTS),
            section.number("value_size", 0..=MongoWork::MAX_VALUE),
        ),
        [first, ..] => {
            section.error(first, format!("give one of `{}`", given.join("`, `")));
            return None;
        }
    };
    let target = MongoTarget { url, work, variables: variables(section) };
    if let Err(error) = target::mongodb::scripts(&target, 0) {
        section.error(given.first().copied().unwrap_or("url"), error.to_string());
        return None;
    }
    Some(target)
}

/// Scripts of commands: a file, several with weights, or the text itself.
fn command_scripts(document: &Document<'_>, section: &Section<'_>) -> Option<Vec<CommandScript>> {
    let file = |text: &str, weight| {
        let path = document.resolve(text);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let text = settings::read_small(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok::<_, String>(CommandScript { name, text, weight })
    };
    if section.has("scripts") {
        return weighted(section, |name, weight| file(name, weight));
    }
    if section.has("script") {
        return Some(vec![section.text("script", |text| file(text, 1))?]);
    }
    let text = section.string("commands")?;
    Some(vec![CommandScript { name: "commands".to_owned(), text, weight: 1 }])
}

fn variables(section: &Section<'_>) -> Vec<(String, String)> {
    pairs(section, "variables", '=', "each variable is written as \"name=value\"")
}

/// Texts that each hold a name and a value; `mistake` is told where one does not.
fn pairs(section: &Section<'_>, key: &'static str, separator: char, mistake: &str) -> Vec<(String, String)> {
    let pair = |text: &String| text.split_once(separator).map(|(n, v)| (n.trim().to_owned(), v.trim().to_owned()));
    let pairs: Option<_> = section.texts(key).unwrap_or_default().iter().map(pair).collect();
    pairs.unwrap_or_else(|| {
        section.error(key, mistake);
        Vec::new()
    })
}

fn http(section: &Section<'_>, url: Secret) -> HttpTarget {
    let headers = pairs(section, "headers", ':', "each header is written as \"Name: value\"");
    for (_, value) in &headers {
        if let Err(message) = Template::parse(value) {
            section.error("headers", message);
        }
    }
    let body = section.string("body");
    if let Some(Err(message)) = body.as_deref().map(Template::parse) {
        section.error("body", message);
    }
    let method = section.string("method").unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned());
    let expect = section.numbers("expect", 100..=599).unwrap_or_default();
    HttpTarget { url, method, headers, body, expect: expect.into_iter().map(|status| status as u16).collect() }
}
