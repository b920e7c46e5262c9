//! The command line as a result tells it: nothing that may be a secret. Logins in URLs, headers, variables of scripts
//! and bodies lose their values; what stands there as `${NAME}` is no secret and stays.

/// The command line as it was given, without secrets.
pub fn command_line() -> String {
    join_without_secrets(std::env::args().skip(1))
}

fn join_without_secrets(arguments: impl Iterator<Item = String>) -> String {
    let mut words = vec!["poolhouse".to_owned()];
    let mut hide = None;
    for word in arguments {
        let shown = match hide {
            Some(hide) => hide_value(hide, &word),
            None => without_secret(&word),
        };
        hide = if hide.is_none() { hides_next(&word) } else { None };
        words.push(shell_word(&shown));
    }
    words.join(" ")
}

/// What of an option's value is not shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hide {
    /// What stands behind the colon.
    Header,
    /// What stands behind the equals sign.
    Variable,
    /// All, unless it is the name of a file.
    Body,
}

const LONG: [(&str, Hide); 3] = [("--header", Hide::Header), ("--define", Hide::Variable), ("--body", Hide::Body)];
const SHORT: [(char, Hide); 2] = [('H', Hide::Header), ('D', Hide::Variable)];
/// Short options without a value, which may stand before another one in the same word.
const WITHOUT_VALUE: [char; 3] = ['S', 'N', 'i'];

/// Whether this word is an option whose value follows in the next one.
fn hides_next(word: &str) -> Option<Hide> {
    match short(word) {
        Some((_, hide, "")) => Some(hide),
        _ => LONG.iter().find(|(flag, _)| *flag == word).map(|(_, hide)| *hide),
    }
}

/// A word of short options, of which the last has a value to hide: what stands before the value, and the value.
fn short(word: &str) -> Option<(&str, Hide, &str)> {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    let rest = letters.trim_start_matches(WITHOUT_VALUE);
    let (_, hide) = SHORT.iter().find(|(letter, _)| rest.starts_with(*letter))?;
    Some((&word[..=word.len() - rest.len()], *hide, &rest[1..]))
}

fn hide_value(hide: Hide, value: &str) -> String {
    match hide {
        Hide::Header => format!("{}: ***", value.split(':').next().unwrap_or_default()),
        Hide::Variable => format!("{}=***", value.split('=').next().unwrap_or_default()),
        Hide::Body if value.starts_with('@') => value.to_owned(),
        Hide::Body => "***".to_owned(),
    }
}

fn without_secret(word: &str) -> String {
    if let Some((flag, hide, value)) = short(word).filter(|(_, _, value)| !value.is_empty()) {
        return format!("{flag}{}", hide_value(hide, value));
    }
    let (flag, value) = match word.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => (format!("{flag}="), value),
        _ => (String::new(), word),
    };
    if let Some((_, hide)) = LONG.iter().find(|(long, _)| flag.strip_suffix('=') == Some(long)) {
        return format!("{flag}{}", hide_value(*hide, value));
    }
    if value.contains("://") { format!("{flag}{}", url(value)) } else { word.to_owned() }
}

/// A URL without its password; what is wholly `${NAME}` stays.
fn url(text: &str) -> String {
    let shown = ::load::run::shown(text);
    let Some((scheme, rest)) = text.split_once("://") else { return shown };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Some((login, _)) = authority.rsplit_once('@') else { return shown };
    let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
    // Of HTTP the user's name may be a secret, too.
    let kept = password.is_none_or(is_variable) && (!matches!(scheme, "http" | "https") || is_variable(user));
    if !kept {
        return shown;
    }
    format!("{scheme}://{}", rest.split(['?', '#']).next().unwrap_or_default())
}

/// One `${NAME}` and nothing else.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> String {
        join_without_secrets(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn a_password_in_a_url_is_not_told_and_a_variable_is() {
        for (word, shown) in [
            ("postgres://a:hunter2@h/d?password=hunter2", "postgres://a@h/d"),
            ("--target=postgres://a:hunter2@h/d", "--target=postgres://a@h/d"),
            ("postgres://a:${PW}@h/d", "'postgres://a:${PW}@h/d'"),
            ("postgres://${USER}:${PW}@h:5432/d?password=hunter2", "'postgres://${USER}:${PW}@h:5432/d'"),
            // A variable elsewhere says nothing of the password.
            ("postgres://${USER}:hunter2@h/d", "'postgres://${USER}@h/d'"),
            ("postgres://a:hunter2@h/${NAME}", "'postgres://a@h/${NAME}'"),
            ("postgres://a:hunter2${PW}@h/d", "postgres://a@h/d"),
            ("postgres://a:$${hunter2}@h/d", "postgres://a@h/d"),
            ("http://hunter2@h/d", "'http://***@h/d'"),
            ("https://${USER}:hunter2@h/d", "'https://***@h/d'"),
            ("https://${TOKEN}@h/d", "'https://${TOKEN}@h/d'"),
            ("http://svc:8080/@scope/pkg", "http://svc:8080/@scope/pkg"),
            ("${URL}", "'${URL}'"),
        ] {
            let told = line(&["bench", word]);
            assert_eq!(told, format!("poolhouse bench {shown}"), "{word}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn headers_variables_and_bodies_keep_their_names_only() {
        for (words, shown) in [
            (&["-H", "Authorization: Bearer hunter2"][..], "-H 'Authorization: ***'"),
            (&["--header=Authorization: hunter2"], "'--header=Authorization: ***'"),
            (&["-HAuthorization: hunter2", "-S"], "'-HAuthorization: ***' -S"),
            (&["-D", "key=hunter2=x"], "-D 'key=***'"),
            (&["-Dkey=hunter2"], "'-Dkey=***'"),
            (&["-SiD", "key=hunter2"], "-SiD 'key=***'"),
            (&["-iDkey=hunter2"], "'-iDkey=***'"),
            (&["--define", "key=hunter2", "--init"], "--define 'key=***' --init"),
            (&["--define=key=hunter2"], "'--define=key=***'"),
            (&["--body", "{hunter2}"], "--body '***'"),
            (&["--body=hunter2"], "'--body=***'"),
            (&["--body", "@body.json"], "--body @body.json"),
            (&["--body", "--header", "name"], "--body '***' name"),
        ] {
            assert_eq!(line(words), format!("poolhouse {shown}"));
        }
        assert_eq!(line(&["--fail-if", "p99>50ms"]), "poolhouse --fail-if 'p99>50ms'");
    }
}
