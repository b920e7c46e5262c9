//! Who is on stage, and what of a dialogue is looked at.

use std::time::Duration;

use postgres_session::{PoolMode, Postgres};
use seam::{Input, Origin, Sessions};
use sim::{
    network::EndId,
    stage::{
        Pieces, Stage,
        postgres::{Doors, server_welcome, startup, survey_answer},
    },
};

pub type Play = Stage<Postgres>;

/// Bytes that are held for a connection, where a dialogue is not about that.
pub const HELD: usize = 16 * 1024;
/// Who has been given back soiled is cleaned by then if nobody takes it.
pub const SOON: Duration = Duration::from_millis(2);

pub fn trusting(mode: PoolMode) -> Play {
    Doors { mode, ..Doors::default() }.stage(HELD)
}

/// A server and a client in transaction mode.
pub fn one_of_each() -> (Play, EndId, EndId) {
    let mut stage = trusting(PoolMode::Transaction);
    let (server, client) = (add_server(&mut stage), add_client(&mut stage));
    (stage, server, client)
}

pub fn all_pieces() -> impl Iterator<Item = Pieces> {
    let splits = (1..60).map(Pieces::SplitAt);
    [Pieces::Whole].into_iter().chain(splits).chain([1, 2, 7].map(Pieces::Of))
}

/// Holds a dialogue with a client and a server in every manner of arrival.
pub fn in_all_pieces(mode: PoolMode, dialogue: impl Fn(&mut Play, EndId, EndId)) {
    for pieces in all_pieces() {
        let mut stage = trusting(mode);
        let (server, client) = (add_server(&mut stage), add_client(&mut stage));
        stage.pieces = pieces;
        dialogue(&mut stage, client, server);
    }
}

/// Does something with all that is said arriving whole.
pub fn whole<T>(stage: &mut Play, act: impl FnOnce(&mut Play) -> T) -> T {
    let pieces = std::mem::replace(&mut stage.pieces, Pieces::Whole);
    let result = act(stage);
    stage.pieces = pieces;
    result
}

/// One more server, which has let Poolhouse in. Of those that are idle it is the next to be taken.
pub fn add_server(stage: &mut Play) -> EndId {
    let server = stage.server();
    stage.got(server);
    whole(stage, |stage| stage.says(server, &server_welcome()));
    stage.got(server);
    server
}

pub fn add_client(stage: &mut Play) -> EndId {
    let client = add_client_with(stage, &[]);
    stage.got(client);
    client
}

/// A client that asks for these parameters.
pub fn add_client_with(stage: &mut Play, parameters: &[(&str, &str)]) -> EndId {
    let client = stage.client();
    let parameters = [&[("user", "app")], parameters].concat();
    whole(stage, |stage| stage.says(client, &startup(3 << 16, &parameters)));
    client
}

/// Nobody has the server any more, which is not cleaned.
pub fn assert_clean(stage: &mut Play, server: EndId) {
    stage.got(server);
    stage.wait(SOON);
    assert_eq!((text(&stage.got(server)), stage.is_over(server)), (String::new(), false));
    assert!(stage.servers().idle > 0, "{:?}", stage.servers());
}

/// The server is asked what was left behind in it, and answers.
pub fn assert_surveyed(stage: &mut Play, server: EndId, rows: &[[&str; 3]]) {
    let asked = stage.got(server);
    assert!(text(&asked).contains("/* poolhouse */ SELECT"), "{}", text(&asked));
    stage.says(server, &survey_answer(rows));
}

/// The server has just been sent this ahead of this query.
pub fn assert_prefaced(stage: &mut Play, server: EndId, sql: &str, query: &str) {
    let sent = text(&stage.got(server));
    let parts = ["BEGIN", sql, "COMMIT~", query];
    let places: Vec<_> =
        parts.iter().map(|part| sent.find(part).unwrap_or_else(|| panic!("no {part} in {sent}"))).collect();
    assert!(places.is_sorted(), "{sent}");
}

/// The server has just been told to forget everything, or is when nobody takes it.
pub fn assert_cleaned(stage: &mut Play, server: EndId) {
    stage.wait(SOON);
    let sent = text(&stage.got(server));
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
pub const NOWHERE: Origin = Origin { listener: 0, address: None, port: 0 };

/// No other session is there.
pub struct Nobody;

impl<T, S> Sessions<T, S> for Nobody {
    fn get(&mut self, _: T) -> Option<&mut S> {
        None
    }
}

pub fn input(bytes: &[u8]) -> Input<'_> {
    Input { bytes, full: false, unread: false, now: std::time::Duration::ZERO }
}
