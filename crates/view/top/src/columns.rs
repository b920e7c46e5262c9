//! The columns of the tables: their heads, widths, cells, and what they sort by. A narrow terminal shows the first
//! ones.

use std::cmp::Ordering;

use crate::{
    names::format_name,
    numbers::{UNKNOWN, format_rate, format_time},
    report::{ClientRow, PoolRow},
};

/// A column of a table of `R`.
pub struct Column<R> {
    pub head: &'static str,
    pub width: u16,
    content: Content<R>,
}

/// What a column shows.
enum Content<R> {
    Name(fn(&R) -> &str),
    /// The text, and the number that it is sorted by.
    Number(fn(&R) -> String, fn(&R) -> Option<f64>),
}

impl<R> Column<R> {
    const fn name(head: &'static str, width: u16, of: fn(&R) -> &str) -> Self {
        Self { head, width, content: Content::Name(of) }
    }

    const fn number(head: &'static str, width: u16, cell: fn(&R) -> String, of: fn(&R) -> Option<f64>) -> Self {
        Self { head, width, content: Content::Number(cell, of) }
    }

    /// Numbers stand at the right.
    pub fn is_number(&self) -> bool {
        matches!(self.content, Content::Number(..))
    }

    pub fn cell(&self, row: &R) -> String {
        match self.content {
            Content::Name(of) => format_name(of(row)),
            Content::Number(cell, _) => cell(row),
        }
    }

    /// The order of two rows that are sorted by the column: by the alphabet, and larger numbers first. Unknown numbers
    /// come last; a reversed order has them first.
    pub fn order(&self, a: &R, b: &R) -> Ordering {
        match self.content {
            Content::Name(of) => of(a).to_lowercase().cmp(&of(b).to_lowercase()),
            Content::Number(_, of) => of(b).unwrap_or(f64::NEG_INFINITY).total_cmp(&of(a).unwrap_or(f64::NEG_INFINITY)),
        }
    }
}

fn path(pool: &PoolRow, path: &str) -> Option<f64> {
    pool.checkout_p99_ms.get(path).copied().flatten()
}

/// The state of a pool in at most five letters, so that the first columns fit into 80.
fn state(state: &'static str) -> &'static str {
    match state {
        "paused" => "pause",
        "drained" => "drain",
        "unavailable" => "down",
        "disabled" => "shut",
        other => other,
    }
}

/// Columns of the pools. HOLD, QUEUED and CREATED are 99th percentiles: how long servers are held, and how long it took
/// to get one that others held first, or that had to be made first.
pub const POOLS: &[Column<PoolRow>] = &[
    Column::name("DATABASE", 10, |pool| &pool.database),
    Column::name("USER", 8, |pool| &pool.user),
    Column::number("WAIT", 5, |pool| pool.waiters.to_string(), |pool| Some(pool.waiters as f64)),
    Column::number("OLDEST", 6, |pool| format_time(pool.oldest_wait_ms), |pool| pool.oldest_wait_ms),
    Column::number(
        "USE/MAX",
        7,
        |pool| format!("{}/{}", pool.in_use, pool.max_size),
        |pool| Some(pool.in_use as f64 / pool.max_size.max(1) as f64),
    ),
    Column::number("TPS", 5, |pool| format_rate(pool.transactions_per_s), |pool| pool.transactions_per_s),
    Column::number("HOLD", 5, |pool| format_time(pool.hold_p99_ms), |pool| pool.hold_p99_ms),
    Column::number("QUEUED", 6, |pool| format_time(path(pool, "queued")), |pool| path(pool, "queued")),
    Column::number("CREATED", 7, |pool| format_time(path(pool, "created")), |pool| path(pool, "created")),
    Column::number("FAIL/S", 6, |pool| format_rate(pool.failed_per_s), |pool| pool.failed_per_s),
    Column::name("STATE", 5, |pool| state(pool.state)),
    Column::number("IDLE", 5, |pool| pool.idle.to_string(), |pool| Some(pool.idle as f64)),
    Column::number("CLIENTS", 7, |pool| pool.clients.to_string(), |pool| Some(pool.clients as f64)),
    Column::number("NEW/MIN", 7, |pool| format_rate(pool.created_per_min), |pool| pool.created_per_min),
    Column::name("PROTOCOL", 8, |pool| &pool.protocol),
    Column::name("ADDRESS", 21, |pool| &pool.address),
];

/// Columns of the clients that hold a server or wait for one.
pub const CLIENTS: &[Column<ClientRow>] = &[
    Column::number("FOR", 5, |client| format_time(Some(client.state_ms)), |client| Some(client.state_ms)),
    Column::number("ID", 6, |client| client.id.to_string(), |client| Some(client.id as f64)),
    Column::name("STATE", 11, |client| &client.state),
    Column::name("PINNED", 9, |client| client.pinned.as_deref().unwrap_or(UNKNOWN)),
    Column::name("DATABASE", 12, |client| &client.database),
    Column::name("USER", 8, |client| &client.user),
    Column::name("ADDRESS", 21, |client| &client.address),
    Column::name("PROTOCOL", 8, |client| &client.protocol),
];
