//! A connection to the console, from its start-up packet on.

use console::{Answer, Command, Failure, MAX_MESSAGE_BYTES, Next, Role, Session, Show, Value};

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
}

/// Binds the unnamed portal to a statement, in this result format.
fn bind(name: &str, format: u8) -> Vec<u8> {
    message(b'B', &[b"\0", name.as_bytes(), b"\0\0\0\0\0\0\x01\0", &[format]].concat())
}

fn execute(rows: u8) -> Vec<u8> {
    message(b'E', &[0, 0, 0, 0, rows])
}

fn start(code: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32 + 8;
    [&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
}

fn logged_in(role: Role) -> Session {
    let (mut session, mut out) = (Session::default(), Vec::new());
    session.receive(&start(3 << 16, b"user\0app\0database\0d\0\0"));
    assert_eq!(session.next(&mut out), Next::Login { user: "app".to_owned(), is_owner: false });
    session.admit(role, &[("server_version", "1")], (7, 8), &mut out);
    assert_eq!(kinds(&out), "RSKZ");
    session
}

/// The types of messages.
fn kinds(mut bytes: &[u8]) -> String {
    let mut kinds = String::new();
    while let [kind, a, b, c, d, ..] = bytes {
        kinds.push(char::from(*kind));
        bytes = &bytes[1 + u32::from_be_bytes([*a, *b, *c, *d]) as usize..];
    }
    assert!(bytes.is_empty(), "the last message is complete");
    kinds
}

/// Gives bytes to the session, and answers each command that it asks for. Returns the commands and the output.
fn talk(session: &mut Session, bytes: &[u8]) -> (Vec<Command>, Vec<u8>) {
    let (mut commands, mut out) = (Vec::new(), Vec::new());
    session.receive(bytes);
    loop {
        match session.next(&mut out) {
            Next::Run(command) => {
                let outcome = match &command {
                    Command::Show(Show::State) => {
                        let mut table = Show::State.table();
                        table.push([Value::from("active"), Value::from("yes")]);
                        table.push([Value::from("paused"), Value::Null]);
                        Ok(Answer::table(table))
                    }
                    Command::Show(Show::Peers) => {
                        let mut table = Show::Peers.table();
                        table.push([Value::Number(258), Value::from("h"), Value::Number(5), Value::Number(6)]);
                        Ok(Answer::table(table))
                    }
                    Command::Reload => Ok(Answer::done("RELOAD")),
                    _ => Err(Failure::new("no").hint("try another")),
                };
                commands.push(command);
                session.complete(outcome, &mut out);
            }
            Next::Input | Next::Close => return (commands, out),
            Next::Login { .. } | Next::Cancel { .. } => panic!("it is logged in"),
        }
    }
}

#[test]
fn a_query_is_answered_by_columns_rows_and_a_tag() {
    let mut session = logged_in(Role::Viewer);
    let (commands, out) = talk(&mut session, &query("SHOW STATE"));
    assert_eq!((commands, kinds(&out).as_str()), (vec![Command::Show(Show::State)], "TDDCZ"));
    let (_, out) =
        talk(&mut session, &[query("show help"), query("show timezone"), query("set timezone = 'x'")].concat());
    assert_eq!(kinds(&out), "NCZTDCZNCZ");
    let (_, out) = talk(&mut session, &query("SELECT 1"));
    assert_eq!(kinds(&out), "EZ");
    assert!(out.windows(6).any(|part| part == b"C08P01"));
}

#[test]
fn orders_are_for_admins() {
    let (commands, out) = talk(&mut logged_in(Role::Viewer), &query("RELOAD"));
    assert!(commands.is_empty() && out.windows(19).any(|part| part == b"admin access needed"));
    let (commands, out) = talk(&mut logged_in(Role::Admin), &query("RELOAD"));
    assert_eq!((commands, kinds(&out).as_str()), (vec![Command::Reload], "CZ"));
}

#[test]
fn the_extended_protocol_gives_the_same_rows() {
    let mut session = logged_in(Role::Viewer);
    let sync = message(b'S', b"");
    let describe = message(b'D', b"P\0");
    let all = [parse("s", "SHOW STATE"), bind("s", 0), describe, execute(0), sync.clone()].concat();
    assert_eq!(kinds(&talk(&mut session, &all).1), "12TDDCZ");
    // The statement is still there, and the rows come one by one.
    let all = [message(b'D', b"Ss\0"), bind("s", 0), execute(1), execute(1), execute(1), sync.clone()].concat();
    assert_eq!(kinds(&talk(&mut session, &all).1), "tT2DsDsCZ");
    let (_, out) = talk(&mut session, &[parse("", "SHOW PEERS"), bind("", 1), execute(0), sync.clone()].concat());
    assert_eq!(kinds(&out), "12DCZ");
    assert!(out.windows(8).any(|part| part == [0, 0, 0, 4, 0, 0, 1, 2]), "a binary number");
    assert_eq!(kinds(&talk(&mut session, &[parse("", " ; "), bind("", 0), execute(0), sync].concat()).1), "12IZ");
}

#[test]
fn after_an_error_messages_are_skipped_up_to_sync() {
    let mut session = logged_in(Role::Viewer);
    let sync = message(b'S', b"");
    for wrong in [
        parse("", "SELECT 1"),
        bind("unknown", 0),
        execute(0),
        message(b'D', b"Sunknown\0"),
        message(b'B', b""),
        message(b'P', b"x"),
        message(b'C', b"?\0"),
        message(b'B', b"\0\0\0\0\0\x01\0\0\0\x01x\0\0"),
    ] {
        let all = [wrong, parse("", "SHOW STATE"), query("SHOW STATE"), sync.clone()].concat();
        assert_eq!(kinds(&talk(&mut session, &all).1), "EZ");
    }
    assert_eq!(kinds(&talk(&mut session, &query("SHOW STATE")).1), "TDDCZ");
}

#[test]
fn statements_and_portals_are_bounded() {
    let mut session = logged_in(Role::Viewer);
    let many: Vec<u8> = (0..300).flat_map(|n| parse(&format!("s{n}"), "SHOW STATE")).collect();
    let kinds = kinds(&talk(&mut session, &many).1);
    assert_eq!((kinds.matches('1').count(), kinds.matches('E').count()), (256, 1));
}

#[test]
fn lengths_are_checked_before_they_are_used() {
    for length in [0_u32, 3, MAX_MESSAGE_BYTES as u32 + 1, 1 << 31, u32::MAX] {
        let mut session = logged_in(Role::Admin);
        let (_, out) = talk(&mut session, &[&b"Q"[..], &length.to_be_bytes()].concat());
        assert_eq!(kinds(&out), "E", "{length}");
        assert_eq!(session.next(&mut Vec::new()), Next::Close);
        session.receive(&[0; 1000]);
        assert_eq!(session.waiting_bytes(), 0);
    }
    for length in [0_u32, 7, 10_001, u32::MAX] {
        let (mut session, mut out) = (Session::default(), Vec::new());
        session.receive(&length.to_be_bytes());
        assert_eq!((session.next(&mut out), kinds(&out).as_str()), (Next::Close, "E"), "{length}");
    }
}

#[test]
fn encryption_is_declined_and_a_cancel_request_names_its_key() {
    let (mut session, mut out) = (Session::default(), Vec::new());
    session.receive(&start(80_877_103, b""));
    assert_eq!((session.next(&mut out), &out[..]), (Next::Input, &b"N"[..]));
    session.receive(&start(80_877_102, &[0, 0, 0, 5, 0, 0, 0, 6]));
    assert_eq!(session.next(&mut out), Next::Cancel { process: 5, secret: 6 });
    assert_eq!(session.next(&mut out), Next::Close);
}

/// Numbers that look random, and are the same each time.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn random_bytes_do_no_harm() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for round in 0..20_000 {
        let mut session = if round % 4 == 0 { Session::default() } else { logged_in(Role::Admin) };
        let mut bytes = Vec::new();
        for _ in 0..random(&mut state) % 8 {
            let body: Vec<u8> = (0..random(&mut state) % 24).map(|_| (random(&mut state) % 4) as u8 * 20).collect();
            let kind = b"QPBDESCHXFdcfp"[random(&mut state) as usize % 14];
            bytes.extend(match random(&mut state) % 8 {
                0 => parse("", "SHOW STATE"),
                1 => bind("", (random(&mut state) % 3) as u8),
                2 => execute((random(&mut state) % 3) as u8),
                3 => body,
                _ => message(kind, &body),
            });
        }
        let mut out = Vec::new();
        for part in bytes.chunks(1 + random(&mut state) as usize % 40) {
            session.receive(part);
            loop {
                match session.next(&mut out) {
                    Next::Run(Command::Show(show)) if show == Show::State => {
                        session.complete(Ok(Answer::table(show.table())), &mut out);
                    }
                    Next::Run(_) => session.complete(Err(Failure::cancelled()), &mut out),
                    Next::Login { .. } => session.refuse("not allowed", &mut out),
                    Next::Input | Next::Close => break,
                    Next::Cancel { .. } => {}
                }
            }
        }
        assert!(out.len() < 100_000);
    }
}
