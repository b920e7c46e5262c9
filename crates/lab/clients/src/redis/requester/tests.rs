//! A requester and what a server says to it.

use proptest::prelude::*;

use super::*;

fn login(password: Option<&str>, database: u32, tls: bool) -> ServerLogin {
    ServerLogin { password: password.map(Into::into), database, tls, ..ServerLogin::default() }
}

/// Verdicts until there are no more.
fn verdicts(requester: &mut Requester, login: &ServerLogin, input: &[u8], out: &mut Vec<u8>) -> Vec<Verdict> {
    let (mut rest, mut all) = (input, Vec::new());
    loop {
        match requester.take(login, &mut rest, out).expect("no fault") {
            Verdict::More => return all,
            Verdict::StartTls => return [all, vec![Verdict::StartTls]].concat(),
            verdict => all.push(verdict),
        }
    }
}

fn open() -> (Requester, ServerLogin) {
    let (mut requester, login) = (Requester::new(), ServerLogin::default());
    assert_eq!(verdicts(&mut requester, &login, b"", &mut Vec::new()), [Verdict::Ready]);
    (requester, login)
}

fn words(all: &[&str]) -> Words {
    let mut words = Words::default();
    for word in all {
        let Ok(()) = words.push(|to| -> Result<(), std::convert::Infallible> {
            to.extend_from_slice(word.as_bytes());
            Ok(())
        });
    }
    words
}

#[test]
fn who_has_no_password_says_nothing_before_the_first_command() {
    let (mut requester, login) = open();
    let mut out = Vec::new();
    requester.request(&words(&["GET", "a\r\nb"]), &mut out);
    assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n");
    assert!(requester.awaits_answer());
    assert_eq!(verdicts(&mut requester, &login, b"$-1\r\n", &mut out), [Verdict::Answered]);
    assert!(requester.error().is_none() && !requester.awaits_answer());
    out.clear();
    requester.quit(&mut out);
    assert_eq!(out, b"*1\r\n$4\r\nQUIT\r\n");
}

#[test]
fn a_login_says_who_it_is_after_tls_and_then_where_it_wants_to_be() {
    let login = ServerLogin { user: Some("shop".into()), ..login(Some("secret"), 3, true) };
    let (mut requester, mut out) = (Requester::new(), Vec::new());
    assert_eq!(verdicts(&mut requester, &login, b"", &mut out), [Verdict::StartTls]);
    assert!(out.is_empty(), "nothing in the clear");
    requester.secured();
    assert_eq!(verdicts(&mut requester, &login, b"", &mut out), []);
    assert_eq!(out, b"*3\r\n$4\r\nAUTH\r\n$4\r\nshop\r\n$6\r\nsecret\r\n");
    out.clear();
    assert_eq!(verdicts(&mut requester, &login, b"+OK\r\n", &mut out), [Verdict::Authenticated]);
    assert_eq!(out, b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n");
    assert_eq!(verdicts(&mut requester, &login, b"+OK\r\n", &mut out), [Verdict::Ready]);
}

#[test]
fn a_refused_login_is_told_without_the_password_and_whether_it_lasts() {
    let refused = |reply: &str| {
        let (login, mut requester, mut out) = (login(Some("hunter2"), 0, false), Requester::new(), Vec::new());
        assert_eq!(verdicts(&mut requester, &login, b"", &mut out), []);
        requester.take(&login, &mut reply.as_bytes(), &mut out).unwrap_err()
    };
    let wrong = refused("-WRONGPASS invalid username-password pair\r\n");
    assert!(wrong.permanent && wrong.reply.as_ref().unwrap().kind() == "WRONGPASS");
    assert!(!refused("-LOADING Redis is loading the dataset in memory\r\n").permanent);
    assert!(!refused("-ERR unknown: 'hunter2'\r\n").message.contains("hunter2"));
    assert!(refused("HTTP/1.1 400\r\n").message.contains("no Redis"));
}

#[test]
fn an_error_is_an_answer_and_called_by_its_code_only() {
    for (reply, kind) in [
        ("-WRONGTYPE Operation against a key\r\n", "WRONGTYPE"),
        ("-ERR unknown command 'hunter2'\r\n", "ERR"),
        ("-hunter2 is no code\r\n", "without a code"),
        ("-ERR max number of clients reached\r\n", "too many clients"),
    ] {
        let (mut requester, login) = open();
        requester.request(&words(&["X"]), &mut Vec::new());
        assert_eq!(verdicts(&mut requester, &login, reply.as_bytes(), &mut Vec::new()), [Verdict::Answered]);
        assert_eq!(requester.error().unwrap().kind(), kind);
    }
}

#[test]
fn what_poolhouse_says_to_whom_it_turns_away_is_known() {
    use seam::{LeaseFailure, Limit, Refusal, Shortage};
    let kind = |words: String| ErrorReply(words.into()).kind().to_owned();
    assert_eq!(
        kind(wire::of_refusal(&Refusal::TooManyClients { limit: 5, setting: "hard_limit" })),
        "too many clients"
    );
    let waited = std::time::Duration::from_secs(2);
    for between in [0, 1] {
        let shortage = Shortage { in_use: 5, connecting: 0, between, left: 0, limit: Limit::Setting("max_size") };
        let busy = LeaseFailure::WaitTimeout { waited, shortage };
        assert_eq!(kind(wire::of_failure(&busy)), "no server in time");
    }
    let away = LeaseFailure::Unavailable { waited, last_error: None, outage: seam::Outage::Unreachable };
    assert_eq!(kind(wire::of_failure(&away)), "redis unavailable");
}

#[test]
fn an_error_without_a_request_is_a_farewell_and_anything_else_a_fault() {
    let (mut requester, login) = open();
    assert_eq!(verdicts(&mut requester, &login, b"-ERR max number of clients reached\r\n", &mut Vec::new()), []);
    assert_eq!(requester.farewell().unwrap().kind(), "too many clients");
    let (mut requester, login) = open();
    let fault = requester.take(&login, &mut &b"+OK\r\n"[..], &mut Vec::new()).unwrap_err();
    assert!(fault.message.contains("unasked"), "{fault:?}");
}

#[test]
fn a_reply_can_be_kept_and_is_not_by_itself() {
    let (mut requester, login) = open();
    requester.request_reply(&[b"INFO", b"server"], &mut Vec::new());
    let reply = b"$21\r\nredis_version:7.0.15\r\n\r\n";
    let reply = &reply[..reply.len() - 1];
    verdicts(&mut requester, &login, &reply[..9], &mut Vec::new());
    verdicts(&mut requester, &login, &reply[9..], &mut Vec::new());
    assert!(requester.reply().windows(6).any(|part| part == b"7.0.15"));
    let (mut requester, login) = open();
    requester.request(&words(&["GET", "a"]), &mut Vec::new());
    verdicts(&mut requester, &login, b"$1\r\nx\r\n", &mut Vec::new());
    assert!(requester.reply().is_empty());
}

proptest! {
    /// However answers are cut into pieces, each is told once, and errors are not lost.
    #[test]
    fn answers_may_come_in_any_pieces(
        kinds in proptest::collection::vec(0..4usize, 1..8), sizes in proptest::collection::vec(1..9usize, 1..20),
    ) {
        let replies = ["+OK\r\n", "-ERR no\r\n", "$5\r\nhe\r\no\r\n", "*2\r\n:1\r\n$-1\r\n"];
        let (mut requester, login) = open();
        let mut sizes = sizes.into_iter().cycle();
        for kind in kinds {
            requester.request(&words(&["X"]), &mut Vec::new());
            let (mut rest, mut answered) = (replies[kind].as_bytes(), 0);
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(sizes.next().unwrap().min(rest.len()));
                answered += verdicts(&mut requester, &login, piece, &mut Vec::new()).len();
                prop_assert_eq!(answered, usize::from(behind.is_empty()));
                rest = behind;
            }
            prop_assert_eq!(requester.error().is_some(), kind == 1);
        }
    }
}
