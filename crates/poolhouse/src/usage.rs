//! Explains what is wrong with a command line and what to write instead. The parser says what is missing or cannot be
//! read; this file adds alternatives and examples.

use std::{error::Error as _, ffi::OsString, num};

use clap::{
    Command, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{BAD_USAGE, remote::DEFAULT_ADDRESS};

/// Examples that are shown.
const MAX_EXAMPLES: usize = 2;

/// Verbs that need the feature `lab`.
#[cfg(not(feature = "lab"))]
const LAB_VERBS: [&str; 4] = ["bench", "sweep", "plan", "demo"];

/// What each verb is about, for a command line without it.
const SUBJECTS: [(&str, &str); 8] = [
    ("serve", "the URL of a database, a file with it (--url-file) or a configuration file (--config)"),
    ("check", "a configuration file"),
    ("bench", "the URL of what to measure, a file with it (--url-file) or a scenario file"),
    ("ctl", "an order, behind the admin address of a running Poolhouse unless that is http://127.0.0.1:9930"),
    ("doctor", "the URL of what to look at, a file with it (--url-file) or a recording"),
    ("plan", "a scenario file, or a load (--rate) and what the server takes for it (--service or --measured)"),
    ("sweep", "the URL of a database, or a file with it (--url-file)"),
    ("top", "the admin address of a running Poolhouse (http://127.0.0.1:9930 by default)"),
];

/// The words of a command line. An order of `ctl` without an address gets the default address.
pub fn add_default_address(words: impl Iterator<Item = OsString>, root: &Command) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    let Some(ctl) = root.find_subcommand("ctl").filter(|ctl| words.get(1).is_some_and(|verb| verb == ctl.get_name()))
    else {
        return words;
    };
    let takes_value = |word: &str| {
        let flag =
            ctl.get_arguments().find(|flag| flag.get_long().is_some() && flag.get_long() == word.strip_prefix("--"));
        flag.is_some_and(|flag| flag.get_action().takes_values())
    };
    let mut at = 2;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        match word.starts_with('-') {
            true => at += 1 + usize::from(takes_value(word)),
            false if ctl.find_subcommand(word.to_ascii_lowercase()).is_some() => {
                words.insert(at, format!("http://{DEFAULT_ADDRESS}").into());
                break;
            }
            false => break,
        }
    }
    words
}

/// Explains what is wrong, or shows the requested help, and ends the process.
pub fn exit_with_error(error: &Error, root: &Command) -> ! {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match explain(error, root, &words) {
        Some(message) => {
            eprintln!("{message}");
            std::process::exit(BAD_USAGE.into());
        }
        None => error.exit(),
    }
}

/// The explanation in place of the parser's own; `None`: the parser's own is good enough.
fn explain(error: &Error, root: &Command, words: &[String]) -> Option<String> {
    match error.kind() {
        ErrorKind::MissingRequiredArgument => explain_missing_subject(error, root, words),
        ErrorKind::ValueValidation => explain_number(error),
        #[cfg(not(feature = "lab"))]
        ErrorKind::InvalidSubcommand if words.first().is_some_and(|verb| LAB_VERBS.contains(&verb.as_str())) => {
            Some(format!("error: there is no `poolhouse {}` here: {}", words[0], crate::WITHOUT_LAB))
        }
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::InvalidValue => {
            explain_capitals(error, root, words)
        }
        _ => None,
    }
}

/// Explains a verb without its subject.
fn explain_missing_subject(error: &Error, root: &Command, words: &[String]) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return None };
    let mut verbs = words.iter().filter(|word| !word.starts_with('-'));
    let verb = verbs.find_map(|word| root.find_subcommand(word))?;
    let (_, takes) = SUBJECTS.iter().find(|(name, _)| *name == verb.get_name())?;
    // The parser explains missing parts of an order, and flags that need each other, well enough.
    let of_order = verbs.any(|word| verb.find_subcommand(word).is_some());
    if of_order || !missing.iter().all(|name| name.starts_with('<')) {
        return None;
    }
    Some(describe_subject(verb, takes))
}

/// Explains `poolhouse serve` without anything to serve.
pub fn explain_nothing_to_serve(root: &Command) -> String {
    let (name, takes) = SUBJECTS[0];
    let explanation = root.find_subcommand(name).map(|serve| describe_subject(serve, takes)).unwrap_or_default();
    let variables = "DATABASE_URL, POOLHOUSE_URL_FILE or POOLHOUSE_CONFIG, and POOLHOUSE_… for the flags";
    format!("{explanation}\nIn a container: {variables}")
}

fn describe_subject(verb: &Command, takes: &str) -> String {
    let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = help.lines().map(str::trim).filter(|line| line.starts_with("poolhouse ")).take(MAX_EXAMPLES);
    let shown: Vec<String> = examples.map(|line| format!("\n  {line}")).collect();
    let name = verb.get_name();
    format!(
        "error: `poolhouse {name}` takes {takes}. For example:{}\n\nAll options: poolhouse {name} --help",
        shown.concat()
    )
}

/// Explains an order in capitals, as PgBouncer's console takes them.
fn explain_capitals(error: &Error, root: &Command, words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| root.find_subcommand(word).is_some_and(|verb| verb.get_name() == "ctl"))?;
    let mut lower: Vec<String> =
        words[at + 1..].iter().flat_map(|word| word.trim_end_matches(';').split(' ')).map(str::to_owned).collect();
    let orders = root.find_subcommand("ctl")?;
    let order = lower.iter().position(|word| orders.find_subcommand(word.to_ascii_lowercase()).is_some())?;
    let capitals = |word: &String| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    if !lower[order..].iter().take(2).any(capitals) {
        return None;
    }
    lower[order..].iter_mut().take(2).for_each(|word| word.make_ascii_lowercase());
    let said = error.render().to_string();
    let said = said.lines().next().unwrap_or_default();
    Some(format!("{said}\n      = orders are in lower case here: poolhouse ctl {}", lower.join(" ")))
}

/// Explains a value that is no number, without the parser's terms for strings and digits.
fn explain_number(error: &Error) -> Option<String> {
    let source = error.source()?;
    let kind = if let Some(wrong) = source.downcast_ref::<num::ParseIntError>() {
        match wrong.kind() {
            num::IntErrorKind::PosOverflow => "it is too large",
            _ => "write a whole number",
        }
    } else if source.is::<num::ParseFloatError>() {
        "write a number"
    } else {
        return None;
    };
    Some(error.render().to_string().trim_end().replacen(&source.to_string(), kind, 1))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    fn refused(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = crate::Command::try_parse_from(&words).err().unwrap_or_else(|| panic!("`{line}` is taken"));
        let explanation = explain(&error, &crate::Command::command(), &words[1..]);
        explanation.unwrap_or_else(|| error.render().to_string())
    }

    #[test]
    fn a_verb_without_its_subject_is_told_all_that_would_do_with_an_example() {
        for (line, parts) in [
            ("poolhouse plan", ["scenario file", "--rate", "poolhouse plan --rate 800"]),
            ("poolhouse plan --service 5ms", ["scenario file", "--rate", "poolhouse plan --rate 800"]),
            ("poolhouse bench --clients 5", ["URL", "scenario file", "poolhouse bench"]),
            ("poolhouse doctor", ["URL", "recording", "poolhouse doctor http"]),
            ("poolhouse sweep", ["URL", "--url-file", "poolhouse sweep"]),
            ("poolhouse top", ["admin address", "http://127.0.0.1:9930", "poolhouse top http"]),
            ("poolhouse top --once", ["admin address", "http://127.0.0.1:9930", "poolhouse top http"]),
            ("poolhouse check", ["configuration file", "check", "poolhouse check poolhouse.toml"]),
        ] {
            let said = refused(line);
            assert!(parts.iter().all(|part| said.contains(part)), "{line}: {said}");
        }
    }

    #[test]
    fn an_order_without_an_address_is_for_the_default_one() {
        let complete = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            add_default_address(words, &crate::Command::command()).join(&OsString::from(" ")).into_string().unwrap()
        };
        for (line, as_if) in [
            ("poolhouse ctl show pools", "poolhouse ctl http://127.0.0.1:9930 show pools"),
            ("poolhouse ctl --json - show pools", "poolhouse ctl --json - http://127.0.0.1:9930 show pools"),
            (
                "poolhouse ctl --token-file drain kill 4",
                "poolhouse ctl --token-file drain http://127.0.0.1:9930 kill 4",
            ),
            ("poolhouse ctl a:1 show pools", "poolhouse ctl a:1 show pools"),
            ("poolhouse ctl --token-file x a:1 resume", "poolhouse ctl --token-file x a:1 resume"),
            ("poolhouse ctl", "poolhouse ctl"),
            ("poolhouse ctl --help", "poolhouse ctl --help"),
            ("poolhouse top show", "poolhouse top show"),
        ] {
            assert_eq!(complete(line), as_if);
        }
    }

    #[test]
    fn what_an_order_lacks_is_named() {
        assert!(refused("poolhouse ctl a:1 kill").contains("<CLIENT>"));
        assert!(refused("poolhouse ctl").contains("poolhouse ctl show pools"));
    }

    #[test]
    fn orders_in_capitals_are_told_in_lower_case() {
        for (line, right) in [
            ("poolhouse ctl http://a:1 SHOW POOLS", "poolhouse ctl http://a:1 show pools"),
            ("poolhouse ctl a:1 show CLIENTS;", "poolhouse ctl a:1 show clients"),
            ("poolhouse ctl a:1 PAUSE --database Shop", "poolhouse ctl a:1 pause --database Shop"),
            ("poolhouse ctl --json - a:1 RELOAD", "poolhouse ctl --json - a:1 reload"),
        ] {
            let said = refused(line);
            assert!(said.starts_with("error: ") && said.ends_with(right), "{line}: {said}");
        }
        let said = refused("poolhouse ctl a:1 show nonsense");
        assert!(said.contains("pools, clients, servers"), "{said}");
    }

    #[test]
    fn a_time_that_must_be_is_not_told_to_be_off() {
        for line in ["poolhouse ctl a:1 pause --time 0s", "poolhouse top a:1 --every 0s"] {
            let said = refused(line);
            assert!(said.contains("cannot be zero") && !said.contains("off"), "{line}: {said}");
        }
        let taken = |line: &str| crate::Command::try_parse_from(line.split(' ')).is_ok();
        assert!(taken("poolhouse sweep redis://h --warmup 0s") && taken("poolhouse sweep redis://h --warmup off"));
    }

    #[test]
    fn flags_that_need_each_other_are_named() {
        assert!(refused("poolhouse plan --rate 5 --reserved 3").contains("--server-limit"));
    }

    #[test]
    fn a_value_that_is_no_number_is_told_to_be_one() {
        for line in [
            "poolhouse ctl a:1 show clients --limit abc",
            "poolhouse serve redis://h --min-size abc",
            "poolhouse plan --rate 5 --cpus many",
            "poolhouse doctor a:1 --processors 99999999999999999999",
            "poolhouse bench redis://h --keys x",
        ] {
            let said = refused(line);
            let is_plain = said.contains("number") || said.contains("too large");
            assert!(is_plain && !said.contains("digit") && !said.contains("literal"), "{line}: {said}");
        }
        let said = refused("poolhouse ctl a:1 kill abc");
        assert!(said.contains("'abc'") && said.contains("show clients"), "{said}");
    }
}
