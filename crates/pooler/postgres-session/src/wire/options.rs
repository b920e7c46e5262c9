//! The start-up parameter `options`: words of PostgreSQL's command line (`process_postgres_switches`), and the settings
//! that they stand for. Pure parsing.

/// Switches with a value, in the same word or as the next one.
const WITH_VALUE: &str = "BCcDdfhkNprStvW-";

/// Switches that PostgreSQL takes, and that mean nothing to the session of a client.
const WITHOUT_MEANING: &str = "bCDEjnrTv";

/// Kinds of plans behind `-f`, and the settings that they switch off.
const PLANS: [(&str, &str); 8] = [
    ("s", "enable_seqscan"),
    ("i", "enable_indexscan"),
    ("o", "enable_indexonlyscan"),
    ("b", "enable_bitmapscan"),
    ("t", "enable_tidscan"),
    ("n", "enable_nestloop"),
    ("m", "enable_mergejoin"),
    ("h", "enable_hashjoin"),
];

/// The settings that `options` asks for, in order, or the word that is not understood.
pub(super) fn parse(options: &str) -> Result<Vec<(String, String)>, String> {
    let mut settings = Vec::new();
    let mut words = split_words(options).into_iter();
    while let Some(word) = words.next() {
        let Some(mut letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else { return Err(word) };
        if letters == "-" {
            // It ends the switches, and nothing but switches may stand here.
            return words.next().map_or(Ok(settings), Err);
        }
        while let Some(switch) = letters.chars().next() {
            letters = &letters[switch.len_utf8()..];
            let value = match (WITH_VALUE.contains(switch), std::mem::take(&mut letters)) {
                (false, rest) => {
                    letters = rest;
                    String::new()
                }
                (true, "") => words.next().ok_or_else(|| word.clone())?,
                (true, rest) => rest.to_owned(),
            };
            if !apply(switch, &value, &mut settings) {
                return Err(if matches!(switch, 'c' | '-') { value } else { word });
            }
        }
    }
    Ok(settings)
}

/// Adds the settings that one switch stands for; false if a client cannot have them.
fn apply(switch: char, value: &str, settings: &mut Vec<(String, String)>) -> bool {
    let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
    match switch {
        'c' | '-' => match value.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                let name = name.replace('-', "_");
                if is_of_the_packet(&name) {
                    return false;
                }
                set(&name, value);
            }
            _ => return false,
        },
        'S' => set("work_mem", value),
        'e' => set("datestyle", "euro"),
        's' => set("log_statement_stats", "true"),
        'O' => set("allow_system_table_mods", "true"),
        'f' => match PLANS.iter().find(|(letter, _)| value.starts_with(letter)) {
            Some((_, plan)) => set(plan, "false"),
            None => return false,
        },
        't' => match value.as_bytes() {
            [b'p', b'a', ..] => set("log_parser_stats", "true"),
            [b'p', b'l', ..] => set("log_planner_stats", "true"),
            [b'e', ..] => set("log_executor_stats", "true"),
            _ => return false,
        },
        'd' => {
            let level = leading_number(value);
            let messages = if level > 0 { format!("debug{level}") } else { "notice".to_owned() };
            set("log_min_messages", &messages);
            let further = [
                (2, "log_statement", "all"),
                (3, "debug_print_parse", "true"),
                (4, "debug_print_plan", "true"),
                (5, "debug_print_rewritten", "true"),
            ];
            further.iter().filter(|(from, ..)| level >= *from).for_each(|(_, name, value)| set(name, value));
        }
        // Options of the whole server, -P and -W can be had only when a server's connection begins, or not by a client
        // at all.
        _ => return WITHOUT_MEANING.contains(switch),
    }
    true
}

/// Whether a name is one of the start-up packet's own, and no setting: in `options` it must not stand in for that.
fn is_of_the_packet(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "user" | "database" | "options" | "replication") || name.starts_with("_pq_.")
}

/// Reads a number as `atoi` does.
fn leading_number(text: &str) -> u32 {
    let text = text.trim_start();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().unwrap_or(0)
}

/// White space separates words, and a backslash takes the next character as it is.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c.is_ascii_whitespace() || c == '\x0b' {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_with(String::new);
        match c {
            '\\' => word.extend(characters.next()),
            _ => word.push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn options_are_read_as_on_a_command_line() {
        assert_eq!(
            pairs(r"-c geqo=off  -cwork_mem=1MB --search-path=a,\ b"),
            [pair("geqo", "off"), pair("work_mem", "1MB"), pair("search_path", "a, b")]
        );
        assert_eq!(pairs(r"-c x=\\\\"), [pair("x", r"\\")]);
        assert_eq!(pairs("  "), []);
        for bad in ["-c", "-c x", "-c=", "-c =y", "-c=y", "x=y", "--=", "--=y", "-", "-- x", "-ex", "-S", "--x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_packet_itself_names_is_no_setting() {
        for name in ["user", "User", "database", "replication", "options", "_pq_.x", "-pq-.x"] {
            assert!(parse(&format!("-c {name}=x")).is_err() && parse(&format!("--{name}=x")).is_err(), "{name}");
        }
        assert_eq!(pairs("-c session_user=x"), [pair("session_user", "x")]);
    }

    #[test]
    fn switches_stand_for_settings() {
        assert_eq!(
            pairs("-S 8192 -fs -e -O -s"),
            [
                pair("work_mem", "8192"),
                pair("enable_seqscan", "false"),
                pair("datestyle", "euro"),
                pair("allow_system_table_mods", "true"),
                pair("log_statement_stats", "true"),
            ]
        );
        assert_eq!(
            pairs("-eS64 -f h"),
            [pair("datestyle", "euro"), pair("work_mem", "64"), pair("enable_hashjoin", "false")]
        );
        assert_eq!(
            pairs("-tpa -tpl -te"),
            ["parser", "planner", "executor"].map(|kind| pair(&format!("log_{kind}_stats"), "true"))
        );
        assert_eq!(pairs("-d 0"), [pair("log_min_messages", "notice")]);
        assert_eq!(pairs("-d2x"), [pair("log_min_messages", "debug2"), pair("log_statement", "all")]);
        assert_eq!(pairs("-d5").len(), 5);
        assert_eq!(pairs("-E -j -n -b -T -D /tmp -r out -v 3 -C x --"), []);
    }

    #[test]
    fn what_a_client_cannot_have_is_named() {
        for switch in ["-P", "-W", "-B", "-F", "-h", "-i", "-k", "-l", "-N", "-p", "-fx", "-tx", "-x"] {
            let word = switch.to_owned();
            assert_eq!(parse(&format!("-e {switch} 1")), Err(word.clone()), "{word}");
        }
    }
}
