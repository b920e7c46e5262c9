use super::*;

/// Plays a dialogue: what the client sends behind `>`, and what the server answers. Client: Q S F P B D E C, p for a
/// Parse that is noted, K for a Query that may begin a COPY, X for such an Execute, d c for its data and end, ? for a
/// message that has to wait, ! for one that breaks the COPY. Server: types as they are; Z comes with its status; E may
/// be followed by a number of Syncs that it is sent then.
fn play(dialogue: &str) -> Exchange {
    let mut exchange = Exchange::new();
    for part in dialogue.split_whitespace() {
        if let Some(requests) = part.strip_prefix('>') {
            requests.bytes().for_each(|request| send(&mut exchange, request, dialogue));
        } else {
            answer(&mut exchange, part, dialogue);
        }
    }
    exchange
}

fn send(exchange: &mut Exchange, request: u8, dialogue: &str) {
    let kind = match request {
        b'K' => b'Q',
        b'X' => b'E',
        b'p' => b'P',
        b'?' | b'!' => b'P',
        kind => kind,
    };
    let expected = match (exchange.admit(kind), request) {
        (Admission::Drop, _) => return,
        (Admission::Wait | Admission::Ask, b'?') | (Admission::Break, b'!') => return,
        (admission, b'?' | b'!') => panic!("{dialogue}: {admission:?}"),
        (admission, _) => admission,
    };
    assert_eq!(expected, Admission::Forward, "{dialogue}: {}", char::from(request));
    match request {
        b'Q' | b'F' => exchange.enter_query(),
        b'S' => exchange.enter_sync(),
        b'K' => exchange.enter_copy_query(),
        b'X' => exchange.enter_copy_execute(),
        b'd' => exchange.enter_copy_data(),
        b'c' => exchange.enter_copy_end(),
        b'p' => exchange.note(Note::OurParse(1)),
        b'H' => exchange.enter_flush(),
        _ => exchange.enter_extended(),
    }
}

fn answer(exchange: &mut Exchange, answers: &str, dialogue: &str) {
    let mut answers = answers.bytes().peekable();
    while let Some(answer) = answers.next() {
        match answer {
            b'Z' => assert!(exchange.enter_ready(answers.next().unwrap()), "{dialogue}: stray ReadyForQuery"),
            b'G' => assert!(exchange.enter_copy_in(), "{dialogue}: stray CopyInResponse"),
            b'E' => {
                let expected = answers.next_if(u8::is_ascii_digit).map_or(0, |digit| u32::from(digit - b'0'));
                assert_eq!(exchange.enter_error(), expected, "{dialogue}: Syncs");
                (0..expected).for_each(|_| exchange.enter_sync());
            }
            _ => _ = exchange.answered(answer),
        }
    }
}

fn settled(dialogue: &str) {
    let exchange = play(dialogue);
    assert!(exchange.is_settled() && exchange.copying == Copying::No, "{dialogue}: {exchange:?}");
}

fn owing(dialogue: &str) {
    let exchange = play(dialogue);
    assert!(!exchange.is_settled(), "{dialogue}: {exchange:?}");
}

#[test]
fn every_request_is_settled_by_its_own_answer() {
    settled(">Q TDDCZI");
    settled(">Q TDCTDCZI");
    settled(">QQ CZI CZI");
    owing(">QQ CZI");
    settled(">PBDES 12TDCZI");
    settled(">PDS 1tnZI");
    settled(">F VZI");
    owing(">PBE 12C");
    owing(">PBE 12");
    settled(">PBE 12C >S ZI");
    settled(">PQ 1 CZI");
    settled(">SS ZI ZI");
}

#[test]
fn an_error_in_a_pipeline_skips_to_the_next_sync() {
    settled(">PBESPBES 12E ZI 12CZI");
    owing(">PBESPBES 12E ZI");
    owing(">PBE 1E");
    settled(">PBE 1E >PBEQ >S ZI");
    // The query between the error and the Sync is discarded with the rest.
    settled(">PBQS E ZI");
    settled(">PBQS 12 CZI ZI");
    // Here the query itself fails: the Sync is answered, too.
    settled(">PBQS 12 EZI ZI");
    // A Sync that fails (a deferred constraint) skips nothing.
    settled(">PBESQ 12C EZI CZI");
}

#[test]
fn a_copy_is_settled_by_the_answer_after_its_end() {
    settled(">K G >dc CZI");
    owing(">K G >dc C");
    owing(">K G");
    settled(">K? G >dc? CZI >Q CZI");
    settled(">K G >c C G >c CZI");
    settled(">Q HddcCZI");
    settled(">K? GEZI");
    settled(">K CZI");
    settled(">QK? CZI? GEZI");
    settled(">KH G >dHc CZI");
}

#[test]
fn nothing_is_sent_behind_what_may_begin_a_copy() {
    owing(">PBX? 12");
    owing(">PBX? 12G >d");
    // It did not begin a COPY.
    settled(">PBX? 12C >S ZI");
    settled(">PBX? 12E >PBES ZI");
    // An error stands before it.
    settled(">PBX? E >S ZI");
    settled(">PBESPBX? E ZI 12C >S ZI");
    owing(">QK? EZI >?");
}

#[test]
fn a_sync_within_the_data_is_not_sent() {
    // libpq sends one Sync with the Execute, and one after CopyDone.
    settled(">PBX? 12G >SdcS CZI");
    owing(">PBX? 12G >Sdc C");
    owing(">PBX? 12G >Sdc");
    // A pipeline follows the end of the copy.
    settled(">PBX 12G >ScSPBES C ZI 12CZI");
    // It fails while it reads.
    settled(">PBX 12G >Sd E >dcS ZI");
    settled(">PBX 12G >SdcS EZI");
    settled(">PBX 12G >SdcPBES EZI");
    // It fails before more data comes.
    settled(">PBX 12G >S E1 ZI");
    settled(">PBX 12G >S E1 >dcQ ZI CZI");
    settled(">K G >S E1 ZIZI");
    settled(">K G >SS E2 ZIZIZI");
}

#[test]
fn what_has_no_place_in_a_copy_ends_it() {
    settled(">PBX 12G >S! E1 >PBES ZI 12CZI");
    settled(">K G >! EZI >Q CZI");
}

#[test]
fn a_failed_copy_without_a_sync_discards_until_one_comes() {
    owing(">PBX 12GE");
    owing(">PBX 12GE >c");
    settled(">PBX 12GE >cS ZI");
}

#[test]
fn what_is_left_of_a_copy_is_dropped() {
    settled(">dcf");
    owing(">P 1 >c");
    settled(">P >c 1 >cS ZI");
    settled(">K GEZI >dc");
}

#[test]
fn a_stray_answer_is_noticed() {
    assert!(!Exchange::new().enter_ready(b'I'));
    assert!(!play(">PB 1").enter_ready(b'I'));
    assert!(!play(">Q CZI").enter_ready(b'I'));
    assert!(!play(">PBE E").enter_ready(b'I'));
}

#[test]
fn what_was_noted_comes_back_with_its_own_answer() {
    let mut exchange = play(">PpBES");
    assert_eq!(exchange.answered(back::PARSE_COMPLETE), None);
    assert_eq!(exchange.answered(back::PARSE_COMPLETE), Some(Note::OurParse(1)));
    assert_eq!(exchange.answered(back::BIND_COMPLETE), None);
    settled(">PpBES 112CZI");
    settled(">p 1 >S ZI");
    owing(">p 1");
    settled(">pSpS 1ZI 1ZI");
}

#[test]
fn what_an_error_discards_is_told() {
    let note = vec![Note::OurParse(1)];
    assert_eq!(play(">PpBES E ZI").take_discarded(), note);
    assert_eq!(play(">pBES E ZI").take_discarded(), note);
    assert_eq!(play(">pBESpBES E ZI 12CZI").take_discarded(), note);
    assert_eq!(play(">PpBES 112E ZI").take_discarded(), []);
    assert_eq!(play(">PBpX 12E").take_discarded(), note);
    settled(">PpBES E ZI");
}

#[test]
fn a_server_waits_for_its_client_when_it_can_do_no_more_without_it() {
    for (waits, partly) in [(">PBE", false), (">PBEH 12C", false), (">PBEH E", false), (">PBE 12", false), (">Q", true)]
    {
        assert!(play(waits).awaits_client(partly), "{waits}");
    }
    for waits in [">K G", ">K G >d", ">X", ">XH G", ">PBEHP 12C", ">PBES 12CZI >P"] {
        assert!(play(waits).awaits_client(false) && play(waits).awaits_client(true), "{waits}");
    }
    for (works, partly) in
        [(">Q", false), (">PBES", false), (">PBESP", true), (">PBEH 12", false), (">K", false), (">K G >dc", false)]
    {
        assert!(!play(works).awaits_client(partly), "{works}");
    }
    for works in [">QQ", ">PBEHP 12", ">SPBE", ">X?"] {
        assert!(!play(works).awaits_client(true), "{works}");
    }
}

#[test]
fn the_last_request_has_nothing_behind_it() {
    for last in [">Q", ">Q E", ">PBES", ">PBES 12", ">PBES 12C", ">PBES E", ">PBE E", ">QQ EZI"] {
        assert!(play(last).is_on_last_request(), "{last}");
    }
    for not_last in [">QQ E", ">PBESQ 12C", ">PBESP E", ">QP", ">SS"] {
        assert!(!play(not_last).is_on_last_request(), "{not_last}");
    }
}

#[test]
fn running_means_that_an_answer_is_awaited() {
    assert!(play(">Q").is_running());
    assert!(play(">P").is_running());
    assert!(!play(">P 1").is_running());
    assert!(!play(">Q CZT").is_running());
    assert_eq!(play(">Q CZT").status(), b'T');
}
