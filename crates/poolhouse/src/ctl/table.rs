//! Lists of the admin address as tables for people. Of a list that is longer than a Poolhouse makes it, the rest is not
//! shown: a line takes more room than its entry in the answer.

use std::collections::HashMap;

use admin_api::{Clients, Look, Servers};
use serde_json::Value;
use serve::MAX_LIMIT;

/// Lines of cells, the first of them the head.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&cell| cell.to_owned()).collect()])
    }

    /// Names of databases may have been chosen by strangers, who are not to steer the terminal.
    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().map(|cell| top::format_name(&cell)).collect());
    }

    /// In columns as wide as their widest cell.
    fn show(&self) -> String {
        let cell_width = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| top::text_width(cell));
        let width = |column: usize| self.0.iter().map(|row| cell_width(row, column)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.0.iter().map(Vec::len).max().unwrap_or(0)).map(width).collect();
        let line = |row: &Vec<String>| {
            let blanks = |cell: &str, width: usize| " ".repeat(width - top::text_width(cell));
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell}{}", blanks(cell, *width)));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.0.iter().map(line).collect()
    }
}

/// Lists of the console that `show pools` shows beside the pools.
#[derive(Default)]
pub struct Beside {
    /// The pools' modes are there.
    pub pools: Value,
    /// A configured database may have no pool yet.
    pub databases: Value,
    /// The mode of databases without one of their own.
    pub config: Value,
}

/// A list of the console: its rows, each by the names of the columns.
fn named_rows(list: &Value) -> impl Iterator<Item = HashMap<&str, &str>> {
    let columns: Vec<&str> = list["columns"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    list["rows"].as_array().into_iter().flatten().map(move |row| {
        let values = row.as_array().into_iter().flatten().map(|value| value.as_str().unwrap_or("-"));
        columns.iter().copied().zip(values).collect()
    })
}

/// A list of the console as a table.
pub fn rows(list: &Value) -> String {
    let columns: Vec<String> = names_of_columns(list).map(|name| name.to_uppercase()).collect();
    let mut table = Table(vec![columns]);
    for row in list["rows"].as_array().into_iter().flatten().take(MAX_LIMIT) {
        table.row(row.as_array().into_iter().flatten().take(table.0[0].len()).map(cell).collect::<Vec<_>>());
    }
    table.show()
}

/// A list of the console with many columns: a table for each row.
pub fn records(list: &Value) -> String {
    let columns: Vec<&str> = names_of_columns(list).collect();
    let records = list["rows"].as_array().into_iter().flatten().map(|row| {
        let mut table = Table(Vec::new());
        let values = row.as_array().into_iter().flatten();
        columns.iter().zip(values).for_each(|(name, value)| table.row([(*name).to_owned(), cell(value)]));
        table.show()
    });
    records.collect::<Vec<_>>().join("\n")
}

fn names_of_columns(list: &Value) -> impl Iterator<Item = &str> {
    list["columns"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// `show pools`: those that are there, and databases that will have one with their first client.
pub fn pools(look: &Look, beside: &Beside) -> String {
    let modes: HashMap<(&str, &str), &str> = named_rows(&beside.pools)
        .filter_map(|row| Some(((*row.get("database")?, *row.get("user")?), *row.get("pool_mode")?)))
        .collect();
    let mut table = Table::new(&[
        "PROTOCOL",
        "DATABASE",
        "USER",
        "ADDRESS",
        "MODE",
        "STATE",
        "CLIENTS",
        "WAITERS",
        "IN USE",
        "IDLE",
        "CONNECTING",
        "MAX",
        "TRANSACTIONS",
    ]);
    for pool in look.pools.iter().take(MAX_LIMIT) {
        let servers = &pool.servers;
        let names = [&pool.protocol, &pool.database, &pool.user, &pool.address].map(String::clone);
        let counts = [pool.clients, pool.waiters, servers.in_use, servers.idle, servers.connecting, pool.max_size];
        let mode = modes.get(&(pool.database.as_str(), pool.user.as_str())).filter(|_| pool.protocol == "postgres");
        let state = [mode.copied().unwrap_or("-").to_owned(), pool.state().to_owned()];
        let counts = counts.into_iter().chain([pool.transactions]).map(|count| count.to_string());
        table.row(names.into_iter().chain(state).chain(counts));
    }
    let default_mode = named_rows(&beside.config).find(|row| row.get("key") == Some(&"pool_mode"));
    let default_mode = default_mode.and_then(|row| row.get("value").copied()).unwrap_or("-");
    let has_pool = |name: &str| look.pools.iter().any(|pool| pool.protocol == "postgres" && pool.database == name);
    for row in named_rows(&beside.databases) {
        let value = |name: &str| (*row.get(name).unwrap_or(&"-")).to_owned();
        // The console's own database has no host.
        if has_pool(&value("name")) || value("host") == "-" {
            continue;
        }
        let address = format!("{}:{}", value("host"), value("port"));
        let names = ["postgres".to_owned(), value("name"), value("force_user"), address];
        let mode = Some(value("pool_mode")).filter(|mode| mode != "-").unwrap_or_else(|| default_mode.to_owned());
        let state = [mode, "unused".to_owned()];
        let counts = ["0", "0", "0", "0", "0"].map(str::to_owned).into_iter();
        table.row(names.into_iter().chain(state).chain(counts).chain([value("pool_size"), "0".to_owned()]));
    }
    table.show()
}

/// `show clients`.
pub fn clients(clients: &Clients) -> String {
    let mut table =
        Table::new(&["ID", "ADDRESS", "PROTOCOL", "DATABASE", "USER", "STATE", "FOR", "CONNECTED", "SERVER", "PINNED"]);
    for client in clients.clients.iter().take(MAX_LIMIT) {
        let names = [&client.address, &client.protocol, &client.database, &client.user, &client.state];
        let [address, protocol, database, user, state] = names.map(String::clone);
        let (id, state_for, connected) = (client.id.to_string(), time(client.state_ms), time(client.connected_ms));
        let (server, pinned) = (known(client.server), known(client.pinned.as_ref()));
        table.row([id, address, protocol, database, user, state, state_for, connected, server, pinned]);
    }
    table.show()
}

/// `show servers`.
pub fn servers(servers: &Servers) -> String {
    let mut table =
        Table::new(&["ID", "ADDRESS", "PROTOCOL", "DATABASE", "USER", "STATE", "FOR", "AGE", "PID", "CLIENT"]);
    for server in servers.servers.iter().take(MAX_LIMIT) {
        let names = [&server.address, &server.protocol, &server.database, &server.user, &server.state];
        let [address, protocol, database, user, state] = names.map(String::clone);
        let (id, state_for, age) = (server.id.to_string(), time(server.state_ms), time(server.age_ms));
        let (backend, client) = (known(server.backend), known(server.client));
        table.row([id, address, protocol, database, user, state, state_for, age, backend, client]);
    }
    table.show()
}

/// The pools that an order concerned.
pub fn states(body: &Value) -> String {
    let mut table = Table::new(&["PROTOCOL", "DATABASE", "USER", "CLIENTS", "WAITERS", "SERVERS", "IN USE"]);
    for pool in body["pools"].as_array().into_iter().flatten().take(MAX_LIMIT) {
        let servers = &pool["servers"];
        let cells = [
            &pool["protocol"],
            &pool["database"],
            &pool["user"],
            &pool["clients"],
            &pool["waiters"],
            &servers["total"],
            &servers["in_use"],
        ];
        table.row(cells.map(cell));
    }
    if table.0.len() == 1 { String::new() } else { table.show() }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Milliseconds as people say them.
fn time(ms: f64) -> String {
    match ms / 1e3 {
        s if s < 1.0 => format!("{ms:.0}ms"),
        s if s < 120.0 => format!("{s:.1}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s => format!("{:.0}h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use admin_api::Pool;
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let body = json!({ "pools": [
            {
                "protocol": "postgres", "database": "shop", "user": "app", "clients": 3, "waiters": 0,
                "servers": { "total": 2, "in_use": 1 },
            },
        ]});
        assert_eq!(
            states(&body),
            "PROTOCOL  DATABASE  USER  CLIENTS  WAITERS  SERVERS  IN USE\n\
             postgres  shop      app   3        0        2        1\n"
        );
        assert_eq!(states(&json!({ "pools": [] })), "");
    }

    #[test]
    fn unknown_values_are_a_dash_and_names_cannot_steer_a_terminal() {
        assert_eq!(cell(&Value::Null), "-");
        let mut table = Table::new(&["DATABASE", "USER"]);
        table.row(["a\u{1b}[2J\u{202e}b", ""].map(str::to_owned));
        assert_eq!(table.show(), "DATABASE  USER\na\u{fffd}[2J\u{fffd}b   -\n");
    }

    #[test]
    fn a_table_has_no_more_lines_than_a_poolhouse_lists() {
        let lines = pools(&Look { pools: vec![Pool::default(); MAX_LIMIT + 9], ..Look::default() }, &Beside::default());
        assert_eq!(lines.lines().count(), MAX_LIMIT + 1);
    }

    #[test]
    fn times_are_short() {
        let shown = [12.0, 1500.0, 600_000.0, 10_800_000.0].map(time);
        assert_eq!(shown, ["12ms", "1.5s", "10m", "3h"]);
    }
}
