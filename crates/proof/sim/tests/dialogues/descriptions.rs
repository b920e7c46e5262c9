//! Descriptions of statements: a server whose parameters or columns for the same text differ from those that the client
//! was told.

use sim::{
    network::EndId,
    rig::postgres::{message, messages},
};

use crate::{
    statements::{name_of, ours},
    support::{PostgresRig, add_client, add_server, error_code, one_of_each, text},
};

const INT4: u32 = 23;
const FLOAT4: u32 = 700;
const USE: &str = "B:~a~~~~~~~ E:~~~~~ S";

/// The description of a statement with one parameter and one column of these types.
fn description(parameter: u32, column: u32) -> Vec<u8> {
    let parameters = message(b't', &[&[0, 1][..], &parameter.to_be_bytes()].concat());
    [parameters, columns(column)].concat()
}

fn columns(column: u32) -> Vec<u8> {
    let body = [&b"\0\x01x\0\0\0\0\0\0\0"[..], &column.to_be_bytes(), &[0, 4, 255, 255, 255, 255, 0, 0]].concat();
    message(b'T', &body)
}

/// A Parse by the pooler that declares the type of the parameter.
fn typed(name: &str, parameter: u32) -> Vec<u8> {
    let body = [&[0, 1][..], &parameter.to_be_bytes()].concat();
    let parse = ours(&format!("P:{name}~select_$1~"));
    message(b'P', &[&parse[5..], &body].concat())
}

fn renamed(request: &str, name: &str) -> Vec<u8> {
    ours(&request.replace("~a~", &format!("~{name}~")))
}

/// The client prepares `a` on this server and gets its description. Returns our name of it.
fn prepare(rig: &mut PostgresRig, client: EndId, server: EndId, (parameter, column): (u32, u32)) -> String {
    rig.send(client, &messages("P:a~select_$1~~~ D:Sa~ S"));
    let name = name_of(&rig.take_received(server));
    let answer = [messages("1"), description(parameter, column), messages("Z:I")].concat();
    rig.send(server, &answer);
    assert_eq!(rig.take_received(client), answer);
    name
}

/// The server describes the statement for a client that waits.
fn make(rig: &mut PostgresRig, server: EndId, name: &str, (parameter, column): (u32, u32)) {
    let asked = [typed(name, INT4), ours(&format!("D:S{name}~ H"))].concat();
    assert_eq!(text(&rig.take_received(server)), text(&asked));
    rig.send(server, &[messages("1"), description(parameter, column)].concat());
}

fn assert_refused(rig: &mut PostgresRig, client: EndId, server: EndId, status: &str) {
    let sent = text(&rig.take_received(server));
    assert!(sent.contains("ERRCODE = '0A000'"), "{sent}");
    rig.send(server, &messages(&format!("1 2 E:SERROR~C0A000~Mcached~Rexec_stmt_raise~~ Z:{status}")));
    let got = rig.take_received(client);
    assert_eq!(error_code(&got), "0A000");
    assert!(text(&got).contains("Mcached plan must not change result type~"), "{}", text(&got));
    assert!(text(&got).contains("RRevalidateCachedQuery~") && got.ends_with(&messages(&format!("Z:{status}"))));
}

#[test]
fn a_server_that_parses_the_text_again_is_asked_before_anything_is_executed() {
    let (mut rig, first, client) = one_of_each();
    let name = prepare(&mut rig, client, first, (INT4, INT4));
    let second = add_server(&mut rig);
    rig.send(client, &messages(USE));
    make(&mut rig, second, &name, (INT4, INT4));
    assert_eq!(text(&rig.take_received(second)), text(&renamed(USE, &name)));
    rig.send(second, &messages("2 C:SELECT_1~ Z:I"));
    assert_eq!(rig.take_received(client), messages("2 C:SELECT_1~ Z:I"));
    // The server is asked once.
    rig.send(client, &messages(USE));
    assert_eq!(text(&rig.take_received(second)), text(&renamed(USE, &name)));
}

#[test]
fn a_client_gets_postgresqls_error_for_columns_that_it_was_not_told_until_it_prepares_anew() {
    for (within, status) in [("", "I"), ("Q:BEGIN", "T")] {
        let (mut rig, first, client) = one_of_each();
        let name = prepare(&mut rig, client, first, (INT4, INT4));
        let second = add_server(&mut rig);
        rig.send(client, &messages(within));
        if status == "T" {
            rig.send(second, &messages("C:BEGIN~ Z:T"));
            assert_eq!(rig.take_received(second), messages("Q:BEGIN"));
            rig.take_received(client);
        }
        rig.send(client, &messages(USE));
        make(&mut rig, second, &name, (INT4, FLOAT4));
        assert_refused(&mut rig, client, second, if status == "T" { "E" } else { "I" });
        if status == "T" {
            continue;
        }
        for again in [USE, "D:Sa~ S"] {
            rig.send(client, &messages(again));
            assert_refused(&mut rig, client, second, "I");
        }
        rig.exchange(client, second, "C:Sa~ S", "3 Z:I");
        rig.take_received(second);
        rig.take_received(client);
        let new = prepare(&mut rig, client, second, (FLOAT4, FLOAT4));
        assert_ne!(new, name);
        rig.send(client, &messages(USE));
        assert_eq!(text(&rig.take_received(second)), text(&renamed(USE, &new)));
    }
}

#[test]
fn a_client_relies_on_the_columns_of_a_portal_unless_it_asks_each_time() {
    let (mut rig, first, client) = one_of_each();
    let asking = "B:~a~~~~~~~ D:P~ E:~~~~~ S";
    rig.exchange(client, first, "P:a~select_$1~~~ S", "1 Z:I");
    rig.take_received(client);
    let answer = [messages("2"), columns(INT4), messages("C:SELECT_1~ Z:I")].concat();
    for _ in 0..2 {
        rig.send(client, &messages(asking));
        rig.take_received(first);
        rig.send(first, &answer);
        assert_eq!(rig.take_received(client), answer);
    }
    let second = add_server(&mut rig);
    rig.send(client, &messages(asking));
    let sent = text(&rig.take_received(second));
    assert!(
        sent.contains("select $1") && sent.ends_with(&text(&messages("E:~~~~~ S"))),
        "it is not asked first: {sent}"
    );
    let answer = [messages("2"), columns(FLOAT4), messages("C:SELECT_1~ Z:I")].concat();
    rig.send(second, &[messages("1"), answer.clone()].concat());
    assert_eq!(rig.take_received(client), answer);
    // The client has the new description, with which the third server is compared.
    let third = add_server(&mut rig);
    rig.send(client, &messages(USE));
    let sent = text(&rig.take_received(third));
    assert!(sent.contains("select $1") && sent.ends_with(&text(&messages("H"))), "{sent}");
    rig.send(third, &[messages("1"), message(b't', &[0, 0]), columns(FLOAT4)].concat());
    assert!(text(&rig.take_received(third)).starts_with("B"));
}

#[test]
fn a_client_that_asks_for_the_columns_each_time_sends_no_value_of_another_type() {
    fn answered(rig: &mut PostgresRig, (client, server): (EndId, EndId), request: &str, answer: &[u8]) {
        rig.send(client, &messages(request));
        rig.take_received(server);
        rig.send(server, answer);
        assert_eq!(text(&rig.take_received(client)), text(answer));
    }
    for parameter in [INT4, FLOAT4] {
        let (mut rig, first, one) = one_of_each();
        answered(&mut rig, (one, first), "P:a~select_$1~~~ S", &messages("1 Z:I"));
        let (second, two) = (add_server(&mut rig), add_client(&mut rig));
        // Another server has parsed the text before its types were described.
        answered(&mut rig, (two, second), "P:a~select_$1~~~ S", &messages("1 Z:I"));
        answered(&mut rig, (two, second), "Q:BEGIN", &messages("C:BEGIN~ Z:T"));
        answered(&mut rig, (one, first), "D:Sa~ S", &[description(INT4, INT4), messages("Z:I")].concat());
        answered(&mut rig, (two, second), "Q:COMMIT", &messages("C:COMMIT~ Z:I"));
        rig.send(one, &messages("B:~a~~~~~~~ D:P~ E:~~~~~ S"));
        let asked = text(&rig.take_received(second));
        assert!(asked.starts_with("D") && asked.ends_with(&text(&messages("H"))), "{asked}");
        rig.send(second, &description(parameter, FLOAT4));
        if parameter == FLOAT4 {
            assert_refused(&mut rig, one, second, "I");
        } else {
            // The client is about to get the columns.
            assert!(text(&rig.take_received(second)).starts_with("B"));
        }
    }
}

#[test]
fn a_client_that_is_told_something_else_than_others_has_a_statement_of_its_own() {
    let (mut rig, first, one) = one_of_each();
    let name = prepare(&mut rig, one, first, (INT4, INT4));
    let two = add_client(&mut rig);
    let second = add_server(&mut rig);
    // The same text on a server where the table has changed.
    let new = prepare(&mut rig, two, second, (INT4, FLOAT4));
    assert_eq!(new, name);
    rig.send(two, &messages(USE));
    let sent = text(&rig.take_received(second));
    assert!(!sent.contains(&text(&renamed(USE, &name))), "{sent}");
    rig.send(second, &[messages("1"), description(INT4, FLOAT4)].concat());
    assert!(text(&rig.take_received(second)).starts_with("B"));
    rig.send(second, &messages("2 C:SELECT_1~ Z:I"));
    assert_eq!(rig.take_received(two), messages("2 C:SELECT_1~ Z:I"));
    // The other client gets the description that it has, or an error.
    rig.send(one, &messages(USE));
    assert_refused(&mut rig, one, second, "I");
}

#[test]
fn a_client_that_prepares_a_text_anew_gets_its_present_description() {
    let (mut rig, first, one) = one_of_each();
    let name = prepare(&mut rig, one, first, (INT4, INT4));
    let (second, two) = (add_server(&mut rig), add_client(&mut rig));
    rig.send(one, &messages(USE));
    make(&mut rig, second, &name, (INT4, INT4));
    rig.take_received(second);
    rig.send(second, &messages("2 C:SELECT_1~ Z:I"));
    rig.take_received(one);
    // The server's statement was parsed with the types that the first client got.
    rig.send(two, &messages("P:a~select_$1~~~ D:Sa~ S"));
    let anew = format!("C:S{name}~ P:{name}~select_$1~~~ D:S{name}~ S");
    assert_eq!(text(&rig.take_received(second)), text(&ours(&anew)));
    let ready = messages("Z:I");
    rig.send(second, &[messages("3 1"), description(FLOAT4, INT4), ready.clone()].concat());
    assert_eq!(rig.take_received(two), [messages("1"), description(FLOAT4, INT4), ready].concat());
    rig.send(one, &messages(USE));
    assert_refused(&mut rig, one, second, "I");
    // A later client gets the description of the second one.
    let three = add_client(&mut rig);
    assert_ne!(prepare(&mut rig, three, second, (FLOAT4, INT4)), name);
}

#[test]
fn what_comes_behind_an_error_is_not_asked_for_any_more() {
    let (mut rig, first, client) = one_of_each();
    let name = prepare(&mut rig, client, first, (INT4, INT4));
    let second = add_server(&mut rig);
    rig.send(client, &messages(&format!("E:bad~~~~~ {USE}")));
    let sent = text(&rig.take_received(second));
    assert!(sent.contains("select $1") && sent.ends_with(&text(&messages("H"))), "{sent}");
    rig.send(second, &messages("E:SERROR~C34000~Mno~~"));
    assert_eq!(error_code(&rig.take_received(client)), "34000");
    assert!(text(&rig.take_received(second)).ends_with(&text(&messages("S"))));
    rig.send(second, &messages("Z:I"));
    rig.take_received(client);
    // The server does not have the statement, either.
    rig.send(client, &messages(USE));
    make(&mut rig, second, &name, (INT4, INT4));
    assert_eq!(text(&rig.take_received(second)), text(&renamed(USE, &name)));
}

#[test]
fn an_unnamed_statement_that_is_parsed_again_is_compared_with_what_was_told_of_it() {
    const USE: &str = "B:~~~~~~~~ E:~~~~~ S";
    for column in [INT4, FLOAT4] {
        let (mut rig, first, client) = one_of_each();
        rig.send(client, &messages("P:~select_$1~~~ D:S~ S"));
        assert_eq!(rig.take_received(first), messages("P:~select_$1~~~ D:S~ S"));
        let answer = [messages("1"), description(INT4, INT4), messages("Z:I")].concat();
        rig.send(first, &answer);
        assert_eq!(rig.take_received(client), answer);
        let second = add_server(&mut rig);
        for _ in 0..2 {
            rig.send(client, &messages(USE));
            let again = text(&rig.take_received(second));
            if again == text(&messages(USE)) {
                assert_eq!(column, INT4, "it is there");
            } else {
                assert_eq!(again, text(&[typed("", INT4), messages("D:S~ H")].concat()));
                rig.send(second, &[messages("1"), description(INT4, column)].concat());
                if column == FLOAT4 {
                    assert_refused(&mut rig, client, second, "I");
                    continue;
                }
                assert_eq!(text(&rig.take_received(second)), text(&messages(USE)));
            }
            rig.send(second, &messages("2 C:SELECT_1~ Z:I"));
            assert_eq!(rig.take_received(client), messages("2 C:SELECT_1~ Z:I"));
        }
        // Another statement replaces it.
        rig.send(client, &messages(&format!("P:~select_2~~~ {USE}")));
        assert_eq!(text(&rig.take_received(second)), text(&messages(&format!("P:~select_2~~~ {USE}"))));
    }
}
