//! Clients and servers of dialogues, and assertions.

use std::time::Duration;

use postgres_session::{PoolMode, Postgres};
use seam::{Input, Origin, Sessions};
use sim::{
    network::EndId,
    rig::{
        Pieces, Rig,
        postgres::{TestDirectory, server_welcome, startup, survey_answer},
    },
};

pub type PostgresRig = Rig<Postgres>;

/// Bytes of input held for a connection.
pub const HELD: usize = 16 * 1024;
/// Time by which a soiled server is cleaned if no client takes it.
pub const SOON: Duration = Duration::from_millis(2);

pub fn trusting(mode: PoolMode) -> PostgresRig {
    TestDirectory { mode, ..TestDirectory::default() }.rig(HELD)
}

/// A server and a client in transaction mode.
pub fn one_of_each() -> (PostgresRig, EndId, EndId) {
    let mut rig = trusting(PoolMode::Transaction);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    (rig, server, client)
}

pub fn all_pieces() -> impl Iterator<Item = Pieces> {
    let splits = (1..60).map(Pieces::SplitAt);
    [Pieces::Whole].into_iter().chain(splits).chain([1, 2, 7].map(Pieces::Of))
}

/// Runs a dialogue with all ways in which input may be split.
pub fn in_all_pieces(mode: PoolMode, dialogue: impl Fn(&mut PostgresRig, EndId, EndId)) {
    for pieces in all_pieces() {
        let mut rig = trusting(mode);
        let (server, client) = (add_server(&mut rig), add_client(&mut rig));
        rig.pieces = pieces;
        dialogue(&mut rig, client, server);
    }
}

/// Runs `act` with input that arrives whole.
pub fn whole<T>(rig: &mut PostgresRig, act: impl FnOnce(&mut PostgresRig) -> T) -> T {
    let pieces = std::mem::replace(&mut rig.pieces, Pieces::Whole);
    let result = act(rig);
    rig.pieces = pieces;
    result
}

/// One more idle server, which is the next to be taken.
pub fn add_server(rig: &mut PostgresRig) -> EndId {
    let server = rig.next_server();
    rig.take_received(server);
    whole(rig, |rig| rig.send(server, &server_welcome()));
    rig.take_received(server);
    server
}

pub fn add_client(rig: &mut PostgresRig) -> EndId {
    let client = add_client_with(rig, &[]);
    rig.take_received(client);
    client
}

/// Connects a client with these parameters.
pub fn add_client_with(rig: &mut PostgresRig, parameters: &[(&str, &str)]) -> EndId {
    let client = rig.connect_client();
    let parameters = [&[("user", "app")], parameters].concat();
    whole(rig, |rig| rig.send(client, &startup(3 << 16, &parameters)));
    client
}

/// The server is idle again, and not cleaned.
pub fn assert_clean(rig: &mut PostgresRig, server: EndId) {
    rig.take_received(server);
    rig.wait(SOON);
    assert_eq!((text(&rig.take_received(server)), rig.is_closed(server)), (String::new(), false));
    assert!(rig.server_counts().idle > 0, "{:?}", rig.server_counts());
}

/// The server is surveyed, and answers.
pub fn assert_surveyed(rig: &mut PostgresRig, server: EndId, rows: &[[&str; 3]]) {
    let asked = rig.take_received(server);
    assert!(text(&asked).contains("/* poolhouse */ SELECT"), "{}", text(&asked));
    rig.send(server, &survey_answer(rows));
}

/// The server has received this SQL before this query.
pub fn assert_prefaced(rig: &mut PostgresRig, server: EndId, sql: &str, query: &str) {
    let sent = text(&rig.take_received(server));
    let parts = ["BEGIN", sql, "COMMIT~", query];
    let places: Vec<_> =
        parts.iter().map(|part| sent.find(part).unwrap_or_else(|| panic!("no {part} in {sent}"))).collect();
    assert!(places.is_sorted(), "{sent}");
}

/// The server is cleaned, at the latest when no client takes it.
pub fn assert_cleaned(rig: &mut PostgresRig, server: EndId) {
    rig.wait(SOON);
    let sent = text(&rig.take_received(server));
    for part in ["BEGIN", "RESET ALL", "DISCARD TEMP", "pg_advisory_unlock_all", "DEALLOCATE ALL", "COMMIT"] {
        assert!(sent.contains(part), "{sent}");
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "~").replace(postgres_session::STATEMENT_PREFIX.as_str(), "poolhouse_")
}

pub fn error_code(bytes: &[u8]) -> String {
    // The code follows the severity, which ends with R or L.
    let at = bytes.windows(3).position(|w| w == b"R\0C" || w == b"L\0C").expect("an error") + 3;
    String::from_utf8_lossy(&bytes[at..at + 5]).into_owned()
}

pub const UNKNOWN_ORIGIN: Origin = Origin { listener: 0, address: None, port: 0, uid: None };

/// No other session exists.
pub struct NoSessions;

impl<T, S> Sessions<T, S> for NoSessions {
    fn get(&mut self, _: T) -> Option<&mut S> {
        None
    }
}

pub fn input(bytes: &[u8]) -> Input<'_> {
    Input { bytes, full: false, unread: false, now: std::time::Duration::ZERO }
}
