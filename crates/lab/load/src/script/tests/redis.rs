//! Scripts that hold commands of Redis.

use super::*;

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Scripts, ScriptError> {
    let variables: Vec<_> = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Scripts::of_redis(&[(("x".to_owned(), text), 1)], &variables, 42)
}

/// The commands of one operation, their words joined by `|`.
fn asked(scripts: &Scripts, client: &mut ScriptClient) -> Vec<String> {
    let mut asked = Vec::new();
    client.begin(scripts);
    loop {
        match client.next(scripts) {
            Step::Request(request) => {
                let words = (0..request.words()).map(|word| {
                    let mut written = Vec::new();
                    client.write_word(scripts, request, word, &mut written).unwrap();
                    String::from_utf8_lossy(&written).into_owned()
                });
                asked.push(words.collect::<Vec<_>>().join("|"));
            }
            Step::Sleep(pause) => asked.push(format!("sleep {pause:?}")),
            Step::End => return asked,
            other => panic!("{other:?}"),
        }
    }
}

fn of(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let scripts = read(text, variables).unwrap_or_else(|error| panic!("{error}"));
    asked(&scripts, &mut scripts.client(3))
}

#[test]
fn each_line_is_a_command_with_quotes_as_in_redis_cli() {
    let text = "# comment\n\n  SET 'a b' \"c\\r\\nd\" \n-- comment\n\\sleep 5 ms\nincr n\r\n";
    assert_eq!(of(text, &[]), ["SET|a b|c\r\nd", "sleep 5ms", "incr|n"]);
}

#[test]
fn variables_stand_anywhere_in_a_word_and_what_nothing_sets_is_a_part_of_the_key() {
    let text = "\\set n 2 * 21\nGET user:profile::n:x\nSET :key \":client_id :n\"\nGET 12:30:\n";
    assert_eq!(of(text, &[("key", "a key")]), ["GET|user:profile:42:x", "SET|a key|3 42", "GET|12:30:"]);
}

#[test]
fn the_mix_writes_as_often_as_it_is_told_to_within_its_keys() {
    let variables = [("keys", "10"), ("writes", "250000"), ("value", "xxx")];
    let scripts = read(GET_SET, &variables).unwrap();
    let mut client = scripts.client(0);
    let all: Vec<String> = (0..4000).flat_map(|_| asked(&scripts, &mut client)).collect();
    let writes = all.iter().filter(|command| command.starts_with("SET|") && command.ends_with("|xxx")).count();
    assert!((850..1150).contains(&writes) && all.len() == 4000, "{writes}");
    let keys: std::collections::BTreeSet<_> = all.iter().filter_map(|command| command.split('|').nth(1)).collect();
    assert_eq!(keys.len(), 10, "{keys:?}");
    assert!(keys.contains("poolhouse_bench:10"));
}

#[test]
fn a_transaction_is_known_by_its_ends() {
    let scripts = read("multi\nSET a 1\nEXEC\n", &[]).unwrap();
    let mut client = scripts.client(0);
    client.begin(&scripts);
    let mut effects = Vec::new();
    while let Step::Request(request) = client.next(&scripts) {
        effects.push(request.transaction_effect());
    }
    assert_eq!(effects, [TransactionEffect::Begin, TransactionEffect::None, TransactionEffect::End]);
}

#[test]
fn mistakes_are_told_at_their_places_with_what_to_do() {
    for (text, place, part) in [
        ("PING\n  SET \"a b\n", "x:2:3", "a quote has no end"),
        ("PING\nsubscribe a", "x:2:1", "no end that could be measured"),
        ("client reply off", "x:1:1", "waits for its reply"),
        ("AUTH a b", "x:1:1", "the login stands in the URL"),
        ("quit", "x:1:1", "--no-reuse"),
        ("GET a\n\\gset", "x:2:1", "Redis gives none"),
        ("\\if 1\nPING", "x:1:1", "no `\\endif`"),
        ("# nothing", "x", "PING"),
    ] {
        let error = read(text, &[]).unwrap_err().to_string();
        assert!(error.starts_with(place) && error.contains(part), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "([a-z:\"'\\\\ \n#]|\\\\x|\\\\set |\u{e9}){0,40}") {
        if let Ok(scripts) = read(&text, &[]) {
            let mut client = scripts.client(0);
            client.begin(&scripts);
            for _ in 0..50 {
                if let Step::Request(request) = client.next(&scripts) {
                    for word in 0..request.words() {
                        let _ = client.write_word(&scripts, request, word, &mut Vec::new());
                    }
                }
            }
        }
    }
}
