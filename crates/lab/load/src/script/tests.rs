//! Whole scripts: what a client sends, step by step.

mod mongodb;
mod redis;
mod values;

use super::*;
use proptest::prelude::*;

fn file(text: &str) -> Script {
    Script::File("x.sql".into(), text.to_owned())
}

fn scripts_of(text: &str, variables: &[(&str, &str)]) -> Result<Scripts, ScriptError> {
    let variables: Vec<_> = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Scripts::new(&[(file(text), 1)], QueryProtocol::Simple, 10, &variables, 42)
}

fn scripts(text: &str) -> Scripts {
    scripts_of(text, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// What one operation sends; each statement that wants a row gets `x` = 7 and `y` = NULL.
fn sent(scripts: &Scripts, client: &mut ScriptClient) -> Vec<String> {
    let mut sent = Vec::new();
    client.begin(scripts);
    loop {
        match client.next(scripts) {
            Step::Request(_) => unreachable!("it is SQL"),
            Step::Send(statement) => {
                let mut query = Vec::new();
                match client.write_query(scripts, statement, &mut query) {
                    Ok(()) => sent.push(String::from_utf8(query).unwrap()),
                    Err(error) => sent.push(error.0.into_owned()),
                }
                if statement.gset().is_some() {
                    client.take_column(scripts, statement, "x", Some(b"7")).unwrap();
                    client.take_column(scripts, statement, "y", None).unwrap();
                }
            }
            Step::Sleep(duration) => sent.push(format!("{duration:?}")),
            Step::End => return sent,
            Step::Failed(error) => {
                sent.push(error.0.into_owned());
                return sent;
            }
        }
    }
}

fn run(text: &str) -> Vec<String> {
    let scripts = scripts(text);
    sent(&scripts, &mut scripts.client(3))
}

#[test]
fn a_script_sends_its_statements_with_the_values_of_the_moment() {
    let text = "\\set a 1 + \\\n  2\nselect :a;\n-- a comment\n\\set a :a * 2.5\nselect\n :a, :client_id, :scale;\n";
    assert_eq!(run(text), ["select 3", "select\n 7.5, 3, 10"]);
}

#[test]
fn conditions_choose_a_branch() {
    let text = |n: &str| {
        format!(
            "\\set n {n}\n\\if :n = 1\nselect 'one';\n\\elif :n = 2\nselect 'two';\n\\if :scale > 100\nselect 'big';\n\
             \\endif\n\\else\nselect 'many';\n\\endif\nselect 'end';"
        )
    };
    assert_eq!(run(&text("1")), ["select 'one'", "select 'end'"]);
    assert_eq!(run(&text("2")), ["select 'two'", "select 'end'"]);
    assert_eq!(run(&text("null")), ["select 'many'", "select 'end'"]);
}

#[test]
fn rows_become_variables() {
    let text =
        "select 7 as x, null as y \\gset\nselect :x + 1, :y;\nselect 1 as x; \\gset p_\n\\set z :p_x * 2\nselect :z;";
    assert_eq!(run(text), ["select 7 as x, null as y", "select 7 + 1, NULL", "select 1 as x", "select 14"]);
}

#[test]
fn pauses_have_units_and_may_come_from_variables() {
    let text = "\\sleep 10 ms\n\\sleep 5us\n\\set t 2\n\\sleep :t\n\\sleep 0 s\nselect 1;";
    assert_eq!(run(text), ["10ms", "5µs", "2s", "select 1"]);
}

#[test]
fn a_failed_expression_ends_the_operation_and_the_next_begins_anew() {
    let scripts = scripts("select 1;\n\\set a 1 / (:client_id - 3)\nselect :a;");
    let mut client = scripts.client(3);
    for _ in 0..2 {
        assert_eq!(sent(&scripts, &mut client), ["select 1", "script: division by zero"]);
        assert_eq!(client.next(&scripts), Step::End);
    }
    let sometimes = "\\if :client_id = 9\n\\set unset 1\n\\endif\nselect :unset;";
    assert_eq!(run(sometimes), ["script: the variable :unset is not set"]);
    assert_eq!(run("select ':unset';"), ["select ':unset'"]);
}

#[test]
fn a_variable_that_nothing_sets_is_a_mistake() {
    let refused = scripts_of("\\set a 1\nselect :b;", &[]).unwrap_err();
    assert!(refused.message.contains("the variable :b is used and never set"), "{refused}");
    assert!(scripts_of("\\set a 1\nselect :b;", &[("b", "2")]).is_ok());
    // Who knows what the columns are called?
    assert!(scripts_of("select 1 as b \\gset\nselect :b;", &[]).is_ok());
}

#[test]
fn variables_of_the_command_line_are_texts_and_numbers() {
    let scripts =
        scripts_of("\\set m :n + 1\nselect :n, :m, ':t', :scale;", &[("n", "007"), ("t", "x"), ("scale", "3")]);
    let scripts = scripts.unwrap();
    assert_eq!(sent(&scripts, &mut scripts.client(0)), ["select 007, 8, 'x', 3"]);
}

#[test]
fn parameters_are_written_one_by_one() {
    let scripts = Scripts::new(&[(file("\\set a null\nselect :a, :scale;"), 1)], QueryProtocol::Prepared, 4, &[], 1);
    let scripts = scripts.unwrap();
    let mut client = scripts.client(0);
    client.begin(&scripts);
    let Step::Send(statement) = client.next(&scripts) else { panic!("a statement was expected") };
    assert_eq!((statement.text(), statement.parameters(), statement.number()), ("select $1, $2", 2, 0));
    let mut out = Vec::new();
    assert_eq!(client.write_parameter(&scripts, statement, 0, &mut out), Ok(false));
    assert_eq!(client.write_parameter(&scripts, statement, 1, &mut out), Ok(true));
    assert_eq!(out, b"4");
}

#[test]
fn what_only_the_simple_protocol_can_carry_is_refused_elsewhere() {
    for text in ["select 1;\nselect ':a';", "select 1;\nselect 1 \\; select 2;"] {
        let refused = Scripts::new(&[(file(text), 1)], QueryProtocol::Extended, 1, &[], 1).unwrap_err();
        assert!(refused.to_string().starts_with("x.sql:2:1: ") && refused.message.contains("simple"), "{refused}");
    }
}

#[test]
fn a_mistake_is_told_with_file_line_and_column() {
    for (text, expected) in [
        ("select 1;\n  \\setshell x ls\n", "x.sql:2:3: the meta-command `\\setshell` is not supported"),
        ("\\startpipeline\nselect 1;", "x.sql:1:1: the meta-command `\\startpipeline` is not supported"),
        ("select 1 \\aset", "x.sql:1:10: the meta-command `\\aset` is not supported"),
        ("\\sett a 1\nselect 1;", "x.sql:1:1: unknown meta-command `\\sett`; did you mean `\\set`?"),
        ("select 1;\n\\set a 1 +\n", "x.sql:2:11: the expression ends too early"),
        ("\\set é randon(1,2)\nselect 1;", "x.sql:1:8: unknown function `randon`"),
        ("\\set 1a 1\nselect 1;", "x.sql:1:6: `1a` is no variable's name"),
        ("\\if true\nselect 1;", "x.sql:1:1: this `\\if` has no `\\endif`"),
        ("\\endif\nselect 1;", "x.sql:1:1: `\\endif` without `\\if`"),
        ("\\if 1\n\\else\n\\elif 2\n\\endif", "x.sql:3:1: `\\elif` behind `\\else`"),
        ("\\else x\nselect 1;", "x.sql:1:7: nothing may stand behind `\\else`"),
        ("\\gset\nselect 1;", "x.sql:1:1: `\\gset` must follow a SQL statement"),
        ("\\sleep 5 m\nselect 1;", "x.sql:1:8: write `\\sleep 10 ms`"),
        ("select 'x", "x.sql:1:8: this quote has no end"),
        ("-- nothing\n", "x.sql: there is nothing to do in it"),
    ] {
        let error = scripts_of(text, &[]).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn scripts_are_chosen_by_weight() {
    let weighted = [(file("select 1;"), 3), (file("select 2;"), 0), (Script::SelectOnly, 1)];
    let scripts = Scripts::new(&weighted, QueryProtocol::Simple, 1, &[], 9).unwrap();
    let mut client = scripts.client(0);
    let first = (0..4000).filter(|_| sent(&scripts, &mut client) == ["select 1"]).count();
    assert!((2850..3150).contains(&first), "{first}");
    assert_eq!(scripts.statements(), 3);
    let numbers: Vec<u32> = scripts.programs().iter().flat_map(Program::statements).map(Statement::number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert!(Scripts::new(&[(file("select 1;"), 0)], QueryProtocol::Simple, 1, &[], 9).is_err());
}

#[test]
fn the_built_in_scripts_stay_within_their_tables() {
    for (script, statements) in [(Script::SelectOnly, 1), (Script::TpcbLike, 7), (Script::SimpleUpdate, 5)] {
        let scripts = Scripts::new(&[(script, 1)], QueryProtocol::Prepared, 2, &[], 9).unwrap();
        let mut client = scripts.client(0);
        for _ in 0..100 {
            let sent = sent(&scripts, &mut client);
            assert_eq!(sent.len(), statements);
            let account = sent.iter().find_map(|s| s.split("aid = ").nth(1)).unwrap();
            assert!((1..=200_000).contains(&account.parse::<u32>().unwrap()), "{account}");
        }
    }
}

#[test]
fn the_same_seed_sends_the_same_statements() {
    let scripts = scripts("select :a_or_b;".replace(":a_or_b", ":scale").as_str());
    assert_eq!(sent(&scripts, &mut scripts.client(1)), sent(&scripts, &mut scripts.client(1)));
    let random = self::scripts("\\set a random(1, 1000000000)\nselect :a;");
    assert_eq!(sent(&random, &mut random.client(1)), sent(&random, &mut random.client(1)));
    assert_ne!(sent(&random, &mut random.client(1)), sent(&random, &mut random.client(2)));
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_a_mistake(text in "(\\\\(set|if|elif|else|endif|sleep|gset) |[a-z:;'\"$\\\\\n \
                                                  0-9/*()+-]){0,40}") {
        match scripts_of(&text, &[]) {
            Ok(scripts) => {
                let mut client = scripts.client(0);
                let _ = sent(&scripts, &mut client);
            }
            Err(error) => prop_assert!(!error.message.is_empty()),
        }
    }

    #[test]
    fn what_a_statement_says_in_quotes_is_sent_as_it_is(inner in "[a-z ;\\\\-]{0,20}") {
        let sent = run(&format!("select '{inner}', \"{inner}\", $t${inner}$t$;select 2;"));
        prop_assert_eq!(sent, [format!("select '{inner}', \"{inner}\", $t${inner}$t$"), "select 2".to_owned()]);
    }
}
