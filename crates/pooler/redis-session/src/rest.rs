//! Redis over HTTP, after the contract that Upstash publishes for its REST API
//! (<https://upstash.com/docs/redis/features/restapi>): the requests, which commands they may have, and the answers.
//!
//! The crate `http-sansio` has HTTP itself. Nothing here knows a connection or a pool: `client::http` sends commands to
//! servers.

pub(crate) mod call;
pub(crate) mod json;
pub(crate) mod messages;
pub(crate) mod result_format;
pub(crate) mod rules;

use http_sansio::{Answer, Denied, Service};

use self::result_format::ResultFormat;
use crate::refusal::NO_SERVER;

/// The service for the HTTP crate.
pub(crate) static SERVICE: Service = Service {
    fields: &[result_format::ENCODING, result_format::FORMAT],
    query_token: "_token",
    exposed: SYNC_TOKEN,
    refusal_type: JSON,
    refusal: json::error,
};

/// The field of an answer that names the state which holds the request's writes.
const SYNC_TOKEN: &str = "upstash-sync-token";

const JSON: &str = "application/json";

pub(crate) const MAX_COMMANDS: usize = 100_000;

/// Largest command, in bytes. It is sent whole, and the driver takes at most 192 MB for a server at a time, earlier
/// commands included.
pub(crate) const MAX_COMMAND: usize = 190 * 1024 * 1024;

/// Largest answer, in bytes. It is held whole before it is sent.
pub(crate) const MAX_ANSWER: usize = 128 * 1024 * 1024;

/// The answer for an error of Redis, or of Poolhouse without a server.
pub(crate) fn denied_by(error: &[u8]) -> Denied {
    let is_own = error.starts_with(b"ERR Poolhouse") || error.starts_with(NO_SERVER.as_bytes());
    let status = if is_own { 503 } else { 400 };
    Denied::new(status, String::from_utf8_lossy(error))
}

/// The answer with results. `token` names the state that holds its writes.
pub(crate) fn results(status: u16, format: ResultFormat, token: u64, body: Vec<u8>) -> Answer {
    let content = if format == ResultFormat::Resp2 { "application/octet-stream" } else { JSON };
    let mut answer = Answer::new(status, content, body);
    answer.fields.push((SYNC_TOKEN, token.to_string()));
    answer
}
