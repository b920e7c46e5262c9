//! The commands of a host, and which of them need a primary.

use mongodb_session::bson::{Document, Value};

use super::{
    MongoDb, document,
    errors::write_error,
    message::Request,
    transactions::{HOT, transaction_start},
    writes::Outcome,
};
use crate::databases::Connection;

fn error(text: &str, code: i32) -> Vec<u8> {
    document(|error| write_error(error, text, code))
}

fn is_true(body: Document<'_>, name: &str) -> bool {
    body.get(name).ok().flatten().is_some_and(Value::truth)
}

/// Whether a read may be executed by a secondary.
fn allows_secondary(body: Document<'_>) -> bool {
    let preference = body.get("$readPreference").ok().flatten().and_then(Value::document);
    preference.and_then(|document| document.get("mode").ok().flatten()?.text()).is_some_and(|mode| mode != "primary")
}

impl MongoDb {
    pub(super) fn handle(&mut self, from: Connection, message: &[u8]) {
        let Ok(request) = Request::read(message) else { return self.drop_session(from) };
        if let Some(answer) = self.answer(from, &request, message).filter(|_| !request.silent) {
            self.send_answer(from, request.answers, &answer);
        }
    }

    /// Executes a command; `None` if it is not answered now.
    fn answer(&mut self, from: Connection, request: &Request<'_>, message: &[u8]) -> Option<Vec<u8>> {
        let host = self.sessions.get(&from).expect("it speaks").host;
        let Some(Ok((name, subject))) = request.body.elements().next().map(|first| {
            let first = first?;
            Ok::<_, mongodb_session::bson::Malformed>((first.name, first.value()?))
        }) else {
            return Some(error("a command without a name", 9));
        };
        if request.body.elements().any(|element| element.is_err()) {
            return Some(error("a body that is malformed", 9));
        }
        if let Some(begins) = transaction_start(request.body).filter(|_| !self.is_reference) {
            return self.in_transaction(from, (name, subject), request, begins);
        }
        let ok = || document(|answer| _ = answer.double("ok", 1.0));
        Some(match (name, subject) {
            ("hello" | "isMaster" | "ismaster", _) => self.hello(from, host, name, request.body),
            ("ping", _) => ok(),
            ("insert" | "update", Value::Text(_)) if !self.takes_writes(host) => error("not primary", 10_107),
            ("insert" | "update", Value::Text(HOT)) if self.is_hot_locked(host, None) => {
                self.wait_for_hot(from, message);
                return None;
            }
            ("insert" | "update", Value::Text(collection)) => match self.write(from, name, collection, request)? {
                Outcome::Done(_) if self.answer_lost_until.take().is_some() => {
                    self.drop_session(from);
                    return None;
                }
                Outcome::Done(answer) | Outcome::Nothing(answer) => answer,
            },
            ("find", Value::Text(_)) if !self.takes_writes(host) && !allows_secondary(request.body) => {
                error("not primary and secondaryOk=false", 13_435)
            }
            ("find", Value::Text(collection)) if is_true(request.body, "tailable") => {
                self.tail(from, collection, request.body)
            }
            ("find", Value::Text(collection)) => self.find(from, collection, request.body),
            ("getMore", Value::Int64(id)) => return self.next_batch(from, id, request, message),
            ("killCursors", Value::Text(_)) => self.kill_cursors(from, request),
            ("endSessions" | "killSessions", Value::Array(named)) => {
                let (host, user) = (self.sessions[&from].host, self.sessions[&from].user);
                for session in named.elements().flatten().filter_map(|element| element.value().ok()?.document()) {
                    if let Ok(Some(Value::Binary(_, id))) = session.get("id") {
                        self.end_session(host, &(user, id.to_vec()));
                    }
                }
                ok()
            }
            _ => error(&format!("no such command: '{}'", name.escape_default()), 59),
        })
    }
}
