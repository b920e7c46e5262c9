//! The commands of a request, from its path and its body.

use std::{borrow::Cow, ops::Range};

use http_sansio::{Denied, Method, Target};
use serde_json::value::RawValue;

use super::{
    MAX_COMMANDS,
    result_format::ResultFormat,
    rules::{self, Rules},
};
use crate::{
    command::{SubscriptionCommand, Topic},
    resp,
};

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    /// One command, one result.
    #[default]
    Single,
    /// Commands one after another, with a result each.
    Pipeline,
    /// A transaction. MULTI and EXEC are among its commands.
    Transaction,
    Events,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub kind: RequestKind,
    /// The commands as they go to Redis, one after another.
    pub wire: Vec<u8>,
    pub commands: Vec<Command>,
    /// One of the commands may write.
    pub writes: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// Its bytes in `wire`.
    Send(Range<usize>),
    /// It is refused with this error.
    Refused(String),
}

/// Reads the commands of a request.
pub(crate) fn read(
    target: &Target,
    method: Method,
    body: &[u8],
    format: ResultFormat,
    rules: &Rules,
) -> Result<Call, Denied> {
    let wrong =
        |error: serde_json::Error| Denied::new(400, format!("ERR the body is not JSON as it should be: {error}"));
    let posted = method == Method::Post;
    let is = |name: &str| matches!(&*target.path, [word] if word == name.as_bytes());
    if posted && is("multi-exec") && format == ResultFormat::Resp2 {
        return Err(Denied::new(400, "ERR a transaction's results come as JSON: leave Upstash-Response-Format out"));
    }
    let mut call = Call {
        kind: RequestKind::Single,
        wire: Vec::with_capacity(body.len() + 32),
        commands: Vec::new(),
        writes: false,
    };
    if posted && (is("pipeline") || is("multi-exec")) {
        call.kind = if is("pipeline") { RequestKind::Pipeline } else { RequestKind::Transaction };
        call.read_list(&serde_json::from_slice::<Vec<Vec<&RawValue>>>(body).map_err(wrong)?, rules)?;
        return Ok(call);
    }
    if target.path.is_empty() {
        if !posted {
            return Err(Denied::new(
                400,
                "ERR ask with POST and a command as a JSON array, or name the command in the path: /GET/key",
            ));
        }
        let command: Vec<&RawValue> = serde_json::from_slice(body).map_err(wrong)?;
        call.command(&texts(&command)?, rules);
        return Ok(call);
    }
    let mut words: Vec<Cow<'_, [u8]>> = target.path.iter().map(|word| Cow::Borrowed(&**word)).collect();
    // The official SDK posts `[]` for a subscription.
    if posted && !body.is_empty() && !is_events(&target.path[0]) {
        words.push(Cow::Borrowed(body));
    }
    for (name, value) in &target.query {
        let value = value.iter().filter(|value| !value.is_empty());
        words.extend([name].into_iter().chain(value).map(|word| Cow::Borrowed(&**word)));
    }
    match &*words {
        [name, channels @ ..] if is_events(name) => {
            if channels.is_empty() && !name.eq_ignore_ascii_case(b"monitor") {
                return Err(Denied::new(400, "ERR name a channel in the path: /subscribe/channel"));
            }
            if let Some(error) = rules.forbids(name, None) {
                return Err(Denied::new(400, error));
            }
            call.kind = RequestKind::Events;
            call.add(&words);
        }
        _ => call.command(&words, rules),
    }
    Ok(call)
}

fn is_events(name: &[u8]) -> bool {
    ["subscribe", "psubscribe", "monitor"].iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

impl Call {
    /// Adds the commands of a pipeline or a transaction.
    fn read_list(&mut self, commands: &[Vec<&RawValue>], rules: &Rules) -> Result<(), Denied> {
        if commands.is_empty() || commands.len() > MAX_COMMANDS {
            return Err(Denied::new(400, format!("ERR a request has between 1 and {MAX_COMMANDS} commands")));
        }
        if self.kind == RequestKind::Transaction {
            self.add(&[Cow::Borrowed(b"MULTI")]);
        }
        for command in commands {
            self.command(&texts(command)?, rules);
        }
        if self.kind == RequestKind::Transaction {
            self.add(&[Cow::Borrowed(b"EXEC")]);
        }
        Ok(())
    }

    pub(crate) fn largest(&self) -> usize {
        let length = |command: &Command| match command {
            Command::Send(span) => span.len(),
            Command::Refused(_) => 0,
        };
        self.commands.iter().map(length).max().unwrap_or(0)
    }

    /// The number of commands, without the MULTI and EXEC that Poolhouse adds.
    pub(crate) fn command_count(&self) -> u32 {
        let added = if self.kind == RequestKind::Transaction { 2 } else { 0 };
        (self.commands.len() - added) as u32
    }

    /// The subscription that it begins, if any.
    pub(crate) fn subscription(&self) -> Option<SubscriptionCommand> {
        let (RequestKind::Events, Some(name)) = (self.kind, resp::parts(&self.wire).first().copied()) else {
            return None;
        };
        let topic = match name {
            name if name.eq_ignore_ascii_case(b"subscribe") => Topic::Channel,
            name if name.eq_ignore_ascii_case(b"psubscribe") => Topic::Pattern,
            _ => return None,
        };
        Some(SubscriptionCommand { begins: true, topic })
    }

    fn command(&mut self, words: &[Cow<'_, [u8]>], rules: &Rules) {
        let Some((name, rest)) = words.split_first() else {
            return self.commands.push(Command::Refused("ERR an empty command".to_owned()));
        };
        // Only the first words are needed.
        let rest: Vec<&[u8]> = rest.iter().take(64).map(|word| &**word).collect();
        match rules.refuses(name, &rest) {
            Some(error) => self.commands.push(Command::Refused(error)),
            None => {
                self.writes = self.writes || !rules::only_reads(name, rest.first().copied());
                match script(name, &rest).and_then(|at| Some((at, without_key_locking(&words[at])?))) {
                    Some((at, script)) => {
                        let mut words = words.to_vec();
                        words[at] = Cow::Owned(script);
                        self.add(&words);
                    }
                    None => self.add(words),
                }
            }
        }
    }

    fn add(&mut self, words: &[Cow<'_, [u8]>]) {
        let start = self.wire.len();
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        resp::command(&mut self.wire, &words);
        self.commands.push(Command::Send(start..self.wire.len()));
    }
}

/// The index of the script's text among a command's words, if there is one.
fn script(name: &[u8], rest: &[&[u8]]) -> Option<usize> {
    let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    match rest {
        [_, ..] if is(name, "eval") || is(name, "eval_ro") => Some(1),
        [what, _, ..] if is(name, "script") && is(what, "load") => Some(2),
        _ => None,
    }
}

/// A script without the flag `allow-key-locking`, if its first line has it. Upstash has this flag, and Redis does not.
fn without_key_locking(script: &[u8]) -> Option<Vec<u8>> {
    const FLAG: &str = "allow-key-locking";
    let end = script.iter().position(|byte| *byte == b'\n').unwrap_or(script.len());
    let line = std::str::from_utf8(&script[..end]).ok().filter(|line| line.starts_with("#!") && line.contains(FLAG))?;
    let words = line.split(' ').filter_map(|word| {
        let Some(flags) = word.strip_prefix("flags=") else { return Some(word.to_owned()) };
        let left: Vec<&str> = flags.split(',').filter(|flag| *flag != FLAG).collect();
        (!left.is_empty()).then(|| format!("flags={}", left.join(",")))
    });
    let mut rewritten = words.collect::<Vec<_>>().join(" ").into_bytes();
    rewritten.extend_from_slice(&script[end..]);
    Some(rewritten)
}

/// The arguments of a command for Redis: strings as they are, numbers and booleans as they are written.
fn texts<'a>(values: &[&'a RawValue]) -> Result<Vec<Cow<'a, [u8]>>, Denied> {
    let text = |value: &&'a RawValue| {
        let raw = value.get();
        match raw.as_bytes()[0] {
            b'"' => match raw[1..raw.len() - 1].contains('\\') {
                false => Ok(Cow::Borrowed(&raw.as_bytes()[1..raw.len() - 1])),
                true => serde_json::from_str::<String>(raw)
                    .or_else(|error| serde_json::from_str(&without_lone_surrogates(raw)).map_err(|_| error))
                    .map(|text| Cow::Owned(text.into_bytes()))
                    .map_err(|error| Denied::new(400, format!("ERR a text in the body is broken: {error}"))),
            },
            b'-' | b'0'..=b'9' | b't' | b'f' => Ok(Cow::Borrowed(raw.as_bytes())),
            _ => Err(Denied::new(
                400,
                "ERR a command is an array of texts and numbers; objects, arrays and null are none",
            )),
        }
    };
    values.iter().map(text).collect()
}

/// JSON in which each lone surrogate is replaced by U+FFFD, as client libraries of RESP send it. JavaScript's strings
/// have lone surrogates where they were cut.
fn without_lone_surrogates(raw: &str) -> String {
    let unit = |at: usize| {
        let hex = raw.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(hex, 16).ok()
    };
    let (mut rewritten, mut at) = (String::with_capacity(raw.len()), 0);
    while let Some(escape) = raw[at..].find('\\').map(|ahead| at + ahead) {
        rewritten.push_str(&raw[at..escape]);
        let length = match (unit(escape), unit(escape + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                rewritten.push('\u{fffd}');
                at = escape + 6;
                continue;
            }
            (Some(_), _) => 6,
            // Any other escape is one byte long.
            (None, _) => 2,
        };
        at = escape + length;
        rewritten.push_str(raw.get(escape..at).unwrap_or_default());
        at = at.min(raw.len());
    }
    rewritten.push_str(raw.get(at..).unwrap_or_default());
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::SERVICE;

    fn call(target: &str, method: Method, body: &str) -> Result<Call, Denied> {
        let target = Target::read(target, SERVICE.query_token);
        read(&target, method, body.as_bytes(), ResultFormat::Json, &Rules::default())
    }

    /// The commands as words, or their refusals.
    fn commands(target: &str, method: Method, body: &str) -> Vec<String> {
        let call = call(target, method, body).unwrap_or_else(|denied| panic!("{denied:?}"));
        let shown = |command: &Command| match command {
            Command::Refused(error) => error.clone(),
            Command::Send(span) => {
                let wire = String::from_utf8_lossy(&call.wire[span.clone()]).into_owned();
                let words: Vec<_> = wire.trim_end_matches("\r\n").split("\r\n").skip(2).step_by(2).collect();
                words.join(" ")
            }
        };
        call.commands.iter().map(shown).collect()
    }

    #[test]
    fn a_command_is_the_body_or_the_path() {
        use Method::{Get, Post};
        for (target, method, body, expected) in [
            ("/", Post, r#"["SET","a","b c",5,-1.50,true]"#, "SET a b c 5 -1.50 true"),
            ("/", Post, r#"["SET","a","\u00e9\n"]"#, "SET a é\n"),
            ("/get/a%2Fb", Get, "", "get a/b"),
            ("/set/a/b?EX=100&NX", Get, "", "set a b EX 100 NX"),
            ("/set/a?EX=100&_token=secret", Post, "the body", "set a the body EX 100"),
            ("http://host/get/a", Get, "", "get a"),
            ("/get//a", Get, "", "get  a"),
        ] {
            assert_eq!(commands(target, method, body), [expected], "{target}");
        }
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        for (text, expected) in [
            (r"hello \ud83d", "hello \u{fffd}"),
            (r"\udc04\ud83d", "\u{fffd}\u{fffd}"),
            (r"\ud83d\ud83d\udc04", "\u{fffd}\u{1f404}"),
            (r"\ud83d\n\u00e9é\\\ud83d\\ud83d", "\u{fffd}\néé\\\u{fffd}\\ud83d"),
            (r"\uD83Dx\uDC04", "\u{fffd}x\u{fffd}"),
        ] {
            let body = format!(r#"[["SET","alice","fine"],["SET","bob","{text}"],["INCR","visits"]]"#);
            let rewritten = commands("/pipeline", Method::Post, &body);
            let bob = format!("SET bob {expected}");
            assert_eq!(rewritten, ["SET alice fine", bob.as_str(), "INCR visits"], "{text}");
        }
    }

    #[test]
    fn the_script_flag_of_upstash_is_left_out() {
        for (script, expected) in [
            (r"#!lua flags=allow-key-locking\nreturn 1", "#!lua\nreturn 1"),
            (r"#!lua flags=no-writes,allow-key-locking\nreturn 1", "#!lua flags=no-writes\nreturn 1"),
            (
                r"#!lua flags=allow-stale\nreturn 'allow-key-locking'",
                "#!lua flags=allow-stale\nreturn 'allow-key-locking'",
            ),
            (r"return 'flags=allow-key-locking'", "return 'flags=allow-key-locking'"),
        ] {
            assert_eq!(
                commands("/", Method::Post, &format!(r#"["eval","{script}",0]"#)),
                [format!("eval {expected} 0")]
            );
            let load = commands("/", Method::Post, &format!(r#"["script","load","{script}"]"#));
            assert_eq!(load, [format!("script load {expected}")]);
        }
        assert_eq!(commands("/", Method::Post, r#"["eval"]"#), ["eval"]);
    }

    #[test]
    fn malformed_commands_are_refused() {
        for body in ["", "{}", "[{}]", "[null]", "[[\"GET\"]]", "[\"GET\"", "\"GET\"", "[\"\\ud80\"]", "[\"\\"] {
            assert_eq!(call("/", Method::Post, body).expect_err(body).status, 400);
        }
        for body in ["", "[]", "[1]", "{}"] {
            assert_eq!(call("/pipeline", Method::Post, body).expect_err(body).status, 400);
        }
        assert_eq!(call("/", Method::Get, "").expect_err("nothing").status, 400);
        assert_eq!(call("/subscribe", Method::Get, "").expect_err("no channel").status, 400);
    }
}
