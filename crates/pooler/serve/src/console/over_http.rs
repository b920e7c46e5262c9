//! The console's lists over HTTP, for `poolhouse ctl show`.

use std::sync::Arc;

use axum::{
    Router,
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use console::{Show, Table};
use serde_json::{Value, json};

use super::Console;
use crate::admin::Admin;

/// Rows of an answer.
const MAX_ROWS: usize = 1_000;

/// The lists that `/api/clients` and `/api/servers` do not have.
const LISTS: [(&str, Show); 9] = [
    ("config", Show::Config),
    ("databases", Show::Databases),
    ("lists", Show::Lists),
    ("pools", Show::Pools),
    ("state", Show::State),
    ("stats", Show::Stats),
    ("totals", Show::Totals),
    ("users", Show::Users),
    ("version", Show::Version),
];

impl Console {
    /// `/api/show/LIST`, to be put behind the guard of the admin address.
    pub fn routes(self: &Arc<Self>) -> Router<Admin> {
        let console = Arc::clone(self);
        Router::new().route("/api/show/{list}", get(move |Path(list): Path<String>| answer(console.clone(), list)))
    }
}

async fn answer(console: Arc<Console>, list: String) -> Response {
    let Some((_, show)) = LISTS.iter().find(|(name, _)| *name == list) else {
        let names = LISTS.map(|(name, _)| name).join(", ");
        return (StatusCode::NOT_FOUND, format!("the lists are {names}\n")).into_response();
    };
    let table = console.admin.query({
        let (console, show) = (Arc::clone(&console), *show);
        move |_| console.show(show)
    });
    match table.await {
        Some(table) => axum::Json(as_json(&table)).into_response(),
        None => crate::admin::busy(),
    }
}

fn as_json(table: &Table) -> Value {
    let columns: Vec<&str> = table.columns().iter().map(|(name, _)| *name).collect();
    let rows: Vec<_> = table.texts().take(MAX_ROWS).collect();
    json!({ "columns": columns, "rows": rows })
}
