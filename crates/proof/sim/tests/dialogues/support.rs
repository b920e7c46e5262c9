//! Who is on stage, and what of a dialogue is looked at.

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

/// Bytes that are held for a connection, where a dialogue is not about that.
pub const HELD: usize = 16 * 1024;
/// Who has been given back soiled is cleaned by then if nobody takes it.
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

/// Holds a dialogue with a client and a server in every manner of arrival.
pub fn in_all_pieces(mode: PoolMode, dialogue: impl Fn(&mut PostgresRig, EndId, EndId)) {
    for pieces in all_pieces() {
        let mut rig = trusting(mode);
        let (server, client) = (add_server(&mut rig), add_client(&mut rig));
        rig.pieces = pieces;
        dialogue(&mut rig, client, server);
    }
}

/// Does something with all that is said arriving whole.
pub fn whole<T>(rig: &mut PostgresRig, act: impl FnOnce(&mut PostgresRig) -> T) -> T {
    let pieces = std::mem::replace(&mut rig.pieces, Pieces::Whole);
    let result = act(rig);
    rig.pieces = pieces;
    result
}

/// One more server, which has let Poolhouse in. Of those that are idle it is the next to be taken.
pub fn add_server(rig: &mut PostgresRig) -> EndId {
    let server = rig.server();
    rig.received(server);
    whole(rig, |rig| rig.send(server, &server_welcome()));
    rig.received(server);
    server
}

pub fn add_client(rig: &mut PostgresRig) -> EndId {
    let client = add_client_with(rig, &[]);
    rig.received(client);
    client
}

/// A client that asks for these parameters.
pub fn add_client_with(rig: &mut PostgresRig, parameters: &[(&str, &str)]) -> EndId {
    let client = rig.client();
    let parameters = [&[("user", "app")], parameters].concat();
    whole(rig, |rig| rig.send(client, &startup(3 << 16, &parameters)));
    client
}

/// Nobody has the server any more, which is not cleaned.
pub fn assert_clean(rig: &mut PostgresRig, server: EndId) {
    rig.received(server);
    rig.wait(SOON);
    assert_eq!((text(&rig.received(server)), rig.is_closed(server)), (String::new(), false));
    assert!(rig.servers().idle > 0, "{:?}", rig.servers());
}

/// The server is asked what was left behind in it, and answers.
pub fn assert_surveyed(rig: &mut PostgresRig, server: EndId, rows: &[[&str; 3]]) {
    let asked = rig.received(server);
    assert!(text(&asked).contains("/* poolhouse */ SELECT"), "{}", text(&asked));
    rig.send(server, &survey_answer(rows));
}

/// The server has just been sent this ahead of this query.
pub fn assert_prefaced(rig: &mut PostgresRig, server: EndId, sql: &str, query: &str) {
    let sent = text(&rig.received(server));
    let parts = ["BEGIN", sql, "COMMIT~", query];
    let places: Vec<_> =
        parts.iter().map(|part| sent.find(part).unwrap_or_else(|| panic!("no {part} in {sent}"))).collect();
    assert!(places.is_sorted(), "{sent}");
}

/// The server has just been told to forget everything, or is when nobody takes it.
pub fn assert_cleaned(rig: &mut PostgresRig, server: EndId) {
    rig.wait(SOON);
    let sent = text(&rig.received(server));
    for part in ["BEGIN", "RESET ALL", "DISCARD TEMP", "pg_advisory_unlock_all", "DEALLOCATE ALL", "COMMIT"] {
        assert!(sent.contains(part), "{sent}");
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "~").replace(postgres_session::STATEMENT_PREFIX.as_str(), "poolhouse_")
}

pub fn error_code(bytes: &[u8]) -> String {
    // Where the severity, which is the first field, ends in an error's body.
    let at = bytes.windows(3).position(|w| w == b"R\0C" || w == b"L\0C").expect("an error") + 3;
    String::from_utf8_lossy(&bytes[at..at + 5]).into_owned()
}

// ---- for a look at a single call of a session, of which no more can be seen on a stage ----

/// Where a client may come from.
pub const UNKNOWN_ORIGIN: Origin = Origin { listener: 0, address: None, port: 0 };

/// No other session is there.
pub struct NoSessions;

impl<T, S> Sessions<T, S> for NoSessions {
    fn get(&mut self, _: T) -> Option<&mut S> {
        None
    }
}

pub fn input(bytes: &[u8]) -> Input<'_> {
    Input { bytes, full: false, unread: false, now: std::time::Duration::ZERO }
}
