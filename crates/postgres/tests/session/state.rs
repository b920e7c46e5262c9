//! What sessions leave behind beyond their transactions: settings that follow, and what ties a client to its server.

use postgres::{PoolMode, Proof, ResetPolicy};
use protocol::{ClientTag, ServerTag, Standing, Verdict};

use crate::{
    dialogues::{
        add_client, add_server, assert_cleaned, assert_prefaced, assert_surveyed, error_code, in_all_pieces, standing,
        text, verdicts,
    },
    world::{Doors, World, messages, startup, whole},
};

#[test]
fn a_setting_that_is_not_reported_follows_its_client() {
    in_all_pieces(PoolMode::Transaction, |world, client, first| {
        world.client_says(client, &messages("Q:SET_statement_timeout_=_5"));
        world.server_says(first, &messages("C:SET~ Z:I"));
        assert_eq!(world.client_got(client), messages("C:SET~ Z:I"));
        assert_surveyed(world, first, &[["s", "statement_timeout", "5"]]);
        let second = whole(world, add_server);
        world.idle.retain(|tag| *tag == second);
        world.client_says(client, &messages("Q:next"));
        assert!(text(&world.server_got(second)).contains("SET \"statement_timeout\" = '5';"));
    });
}

/// A client that asked for a time zone at its start, and a server that has served it.
fn with_a_time_zone(mode: PoolMode) -> (World, ClientTag, ServerTag) {
    let mut world = World::trusting(mode);
    let server = add_server(&mut world);
    let client = world.connect_client();
    let start = [("user", "app"), ("TimeZone", "CET")];
    world.client_says(client, &startup(3 << 16, &start));
    world.server_got(server);
    world.server_says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    world.client_got(client);
    world.releases.clear();
    (world, client, server)
}

#[test]
fn a_setting_that_was_discarded_goes_back_to_the_clients_start() {
    let (mut world, client, server) = with_a_time_zone(PoolMode::Transaction);
    world.client_says(client, &messages("Q:DISCARD_ALL"));
    assert_eq!(world.server_got(server), messages("Q:DISCARD_ALL"));
    // What the client says next has to wait for that, be it a Sync alone.
    world.client_says(client, &messages("S Q:next"));
    assert_eq!(world.server_got(server), b"");
    world.server_says(server, &messages("S:TimeZone~UTC~ C:DISCARD_ALL~ Z:I"));
    // It is not told that the server is ready before it has been told what is true for it.
    assert_eq!(world.client_got(client), messages("S:TimeZone~UTC~ C:DISCARD_ALL~"));
    assert_surveyed(&mut world, server, &[]);
    assert_eq!(world.client_got(client), messages("S:TimeZone~CET~ Z:I Z:I"));
    assert!(text(&world.server_got(server)).contains("SET \"TimeZone\" = 'CET'"));
}

#[test]
fn in_session_mode_a_setting_that_was_discarded_is_set_again() {
    let (mut world, client, server) = with_a_time_zone(PoolMode::Session);
    world.client_says(client, &messages("Q:DISCARD_ALL"));
    assert_eq!(world.server_got(server), messages("Q:DISCARD_ALL"));
    world.server_says(server, &messages("S:TimeZone~UTC~ C:DISCARD_ALL~ Z:I"));
    assert_surveyed(&mut world, server, &[]);
    assert!(text(&world.server_got(server)).contains("SET \"TimeZone\" = 'CET'"));
    world.server_says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    let got = world.client_got(client);
    assert!(got.ends_with(&messages("S:TimeZone~CET~ Z:I")), "{}", text(&got));
    world.client_says(client, &messages("Q:next"));
    assert_eq!(world.server_got(server), messages("Q:next"));
}

#[test]
fn a_reset_within_a_text_is_followed_by_the_clients_start_which_nobody_sees() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let (mut world, client, server) = with_a_time_zone(mode);
        world.client_says(client, &messages("Q:BEGIN;_RESET_ALL;_SET_a_=_1;_wrong"));
        let sent = text(&world.server_got(server));
        assert!(sent.contains("BEGIN; RESET ALL;SET \"TimeZone\" = 'CET'; SET a = 1; wrong"), "{sent}");
        let wrong = "E:SERROR~C42601~P59~Mwrong~~";
        world.server_says(server, &messages(&format!("C:BEGIN~ C:RESET~ C:SET~ C:SET~ {wrong} Z:E")));
        let expected = format!("C:BEGIN~ C:RESET~ C:SET~ {} Z:E", wrong.replace("P59", "P36"));
        assert_eq!(text(&world.client_got(client)), text(&messages(&expected)));
    }
}

#[test]
fn a_prepared_reset_is_told_as_one() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let (mut world, client, server) = with_a_time_zone(mode);
        let pipeline = "P:~RESET_TimeZone~~~ B:~~~~~~~~ E:~~~~~ P:~select_1~~~ B:~~~~~~~~ E:~~~~~ S";
        world.client_says(client, &messages(pipeline));
        let sent = text(&world.server_got(server));
        assert!(sent.contains("/* poolhouse: RESET */ SET \"TimeZone\" = 'CET'"), "{sent}");
        // Whether the second Parse is read, or skipped, would be told by what is answered before it.
        let told = if sent.contains("poolhouse_") { "3 " } else { "" };
        world.server_says(server, &messages(&format!("1 2 C:SET~ {told}1 2 C:SET~ Z:I")));
        assert_eq!(world.client_got(client), messages("1 2 C:RESET~ 1 2 C:SET~ Z:I"));
    }
}

#[test]
fn a_discard_that_failed_sets_nothing_back() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app"), ("TimeZone", "CET")]));
    world.server_got(server);
    world.server_says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    world.client_says(client, &messages("Q:SET_TimeZone_=_'UTC'"));
    world.server_says(server, &messages("S:TimeZone~UTC~ C:SET~ Z:I"));
    world.server_got(server);
    world.server_says(server, &crate::world::survey_answer(&[["s", "TimeZone", "UTC"]]));
    world.client_got(client);
    // It is the server's own value, and has been set there all the same.
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    world.client_says(client, &messages("Q:DISCARD_ALL"));
    world.server_says(server, &messages("E:SERROR~C25001~~ Z:E"));
    world.client_says(client, &messages("Q:COMMIT"));
    world.server_got(server);
    world.server_says(server, &messages("C:ROLLBACK~ Z:I"));
    assert_surveyed(&mut world, server, &[["s", "TimeZone", "UTC"]]);
    let got = text(&world.client_got(client));
    assert!(!got.contains("CET"), "{got}");
}

#[test]
fn what_a_time_out_of_the_clients_ends_of_ours_is_done_again() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let client = add_client(&mut world);
    world.client_says(client, &messages("Q:SELECT_lastval()"));
    assert_eq!(world.server_got(server), messages("Q:DISCARD_SEQUENCES;"));
    world.server_says(server, &messages("E:SERROR~C57014~Mtoo_slow~~ Z:I"));
    for _ in 0..3 {
        let again = text(&world.server_got(server));
        assert!(again.contains("BEGIN;SET LOCAL statement_timeout = 0;DISCARD SEQUENCES;;COMMIT"), "{again}");
        // The guard is too slow itself; what stays open of it is ended.
        world.server_says(server, &messages("C:BEGIN~ E:SERROR~C57014~Mtoo_slow~~ Z:E C:ROLLBACK~ Z:I"));
    }
    world.server_got(server);
    world.server_says(server, &messages("C:BEGIN~ C:SET~ C:DISCARD_SEQUENCES~ C:COMMIT~ Z:I C:ROLLBACK~ Z:I"));
    assert_eq!(world.client_got(client), b"");
    assert_eq!(world.server_got(server), messages("Q:SELECT_lastval()"));
}

#[test]
fn what_cannot_follow_pins_the_server_until_it_is_gone() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:CREATE_TEMP_TABLE_t()"));
        world.server_got(server);
        world.server_says(server, &messages("C:OK~ Z:I"));
        assert_surveyed(world, server, &[["p", "temporary", ""]]);
        assert!(verdicts(world).is_empty());
        assert_eq!(standing(world, client), Standing::Idle);
        world.client_says(client, &messages("Q:hello"));
        assert_eq!(world.server_got(server), messages("Q:hello"));
        world.server_says(server, &messages("C:OK~ Z:I"));
        assert!(verdicts(world).is_empty());
        world.client_got(client);
        world.server_says(server, &messages("A:~~~~a~hello~"));
        assert_eq!(world.client_got(client), messages("A:~~~~a~hello~"));
        world.client_says(client, &messages("Q:DROP_TABLE_t"));
        world.server_got(server);
        world.server_says(server, &messages("C:OK~ Z:I"));
        assert_surveyed(world, server, &[]);
        assert_eq!(verdicts(world), [Verdict::Clean]);
    });
}

#[test]
fn a_pinned_client_that_leaves_has_everything_discarded() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:CREATE_TEMP_TABLE_t(a_int)"));
        world.server_got(server);
        world.server_says(server, &messages("C:CREATE_TABLE~ Z:I"));
        assert_surveyed(world, server, &[["p", "temporary", ""]]);
        world.client_leaves(client);
        assert_eq!(verdicts(world), [Verdict::Soiled]);
        assert_cleaned(world, server);
    });
}

#[test]
fn a_transaction_that_rolls_back_leaves_the_server_to_others() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:BEGIN"));
        world.server_says(server, &messages("C:BEGIN~ Z:T"));
        world.client_says(client, &messages("Q:LISTEN_a"));
        world.server_says(server, &messages("C:LISTEN~ Z:T"));
        world.client_says(client, &messages("Q:ROLLBACK"));
        world.server_got(server);
        world.server_says(server, &messages("C:ROLLBACK~ Z:I"));
        assert_surveyed(world, server, &[]);
        assert_eq!(verdicts(world), [Verdict::Clean]);
    });
}

#[test]
fn pins_are_bounded_and_the_client_is_told() {
    let mut world = World::trusting(PoolMode::Transaction);
    for number in 0..11 {
        let server = add_server(&mut world);
        let client = add_client(&mut world);
        world.idle.retain(|tag| *tag == server);
        world.client_says(client, &messages("Q:CREATE_TEMP_TABLE_t()"));
        world.server_got(server);
        world.server_says(server, &messages("C:OK~ Z:I"));
        world.client_got(client);
        assert_surveyed(&mut world, server, &[["p", "temporary", ""]]);
        let got = world.client_got(client);
        if number < 10 {
            assert_eq!(got, b"");
        } else {
            assert_eq!(error_code(&got), "53400");
            assert!(text(&got).contains("max_pinned = 10"), "{}", text(&got));
        }
    }
}

/// A server that somebody takes at once, even if it is soiled; with `Always` it is whenever it is given back.
fn sought_after(reset: ResetPolicy) -> (World, ServerTag) {
    let mut doors = Doors::new(PoolMode::Transaction, Proof::Trust, None);
    doors.state.reset = reset;
    let mut world = World::new(doors);
    world.hurried = true;
    let server = add_server(&mut world);
    // Nothing in its database does anything out of sight.
    assert!(text(&world.server_got(server)).contains("pg_proc"));
    world.server_says(server, &messages("C:COMMIT~ Z:I C:ROLLBACK~ Z:I"));
    (world, server)
}

/// A client has used it.
fn use_by(world: &mut World, client: ClientTag, server: ServerTag) {
    world.client_says(client, &messages("Q:SELECT_1"));
    world.server_got(server);
    world.server_says(server, &messages("C:OK~ Z:I"));
    assert_surveyed(world, server, &[]);
    world.client_got(client);
    assert_eq!(world.releases.pop(), Some((server, Verdict::Soiled)));
}

fn answer_preface(world: &mut World, server: ServerTag) {
    world.server_says(server, &messages("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ Z:I"));
}

#[test]
fn a_server_that_came_too_late_is_cleaned_before_it_comes_again() {
    let (mut world, server) = sought_after(ResetPolicy::Always);
    let (one, other) = (add_client(&mut world), add_client(&mut world));
    use_by(&mut world, one, server);
    // It is granted to one whose request was withdrawn meanwhile, and who gives it back as it is.
    world.grant_late(server, other);
    assert_eq!(world.releases.pop(), Some((server, Verdict::Soiled)));
    assert_eq!(world.server_got(server), b"");
    world.client_says(other, &messages("Q:SELECT_2"));
    assert_prefaced(&mut world, server, "RESET ALL", "SELECT 2~");
}

#[test]
fn a_server_that_was_borrowed_to_log_in_is_cleaned_before_it_serves() {
    let (mut world, server) = sought_after(ResetPolicy::Always);
    let one = add_client(&mut world);
    use_by(&mut world, one, server);
    let other = world.connect_client();
    world.client_says(other, &startup(3 << 16, &[("user", "app"), ("TimeZone", "CET")]));
    let learning = text(&world.server_got(server));
    assert!(learning.contains("'CET'"), "{learning}");
    world.server_says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    assert!(world.clients.0[&other.0].logged_in);
    world.client_says(other, &messages("Q:SELECT_2"));
    assert_prefaced(&mut world, server, "RESET ALL", "SELECT 2~");
    // The first one's is not its own any more, either.
    answer_preface(&mut world, server);
    world.server_says(server, &messages("C:OK~ Z:I"));
    assert_surveyed(&mut world, server, &[]);
    world.client_says(one, &messages("Q:SELECT_3"));
    assert_prefaced(&mut world, server, "RESET ALL", "SELECT 3~");
}

#[test]
fn what_goes_ahead_of_a_cleaning_soils_the_server_again() {
    let (mut world, server) = sought_after(ResetPolicy::Auto);
    let (one, other) = (add_client(&mut world), add_client(&mut world));
    use_by(&mut world, one, server);
    world.client_says(other, &messages("Q:SELECT_f(1)"));
    assert_prefaced(&mut world, server, "RESET ALL", "SELECT f(1)~");
    answer_preface(&mut world, server);
    world.server_says(server, &messages("C:OK~ Z:I"));
    assert_surveyed(&mut world, server, &[]);
    assert_eq!(world.releases.pop(), Some((server, Verdict::Soiled)));
}
