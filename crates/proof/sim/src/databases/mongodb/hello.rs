//! The answer to `hello`, and to its older form `isMaster`.

use mongodb_session::bson::{Document, Value};

use super::{HOSTS, Kind, MongoDb, document};
use crate::databases::Connection;

/// The version of the wire protocol: that of MongoDB 7.0.
const WIRE: i32 = 21;
const SESSION_MINUTES: i32 = 30;

impl MongoDb {
    pub(super) fn hello(&mut self, from: Connection, host: usize, name: &str, body: Document<'_>) -> Vec<u8> {
        self.hosts[host].last_hello = self.now;
        self.note_hello(from, host);
        let (term, version) = self.believed(host);
        let primary = self.takes_writes(host);
        let hello_ok = body.get("helloOk").ok().flatten().is_some_and(Value::truth);
        document(|answer| {
            answer.bool(if name == "hello" { "isWritablePrimary" } else { "ismaster" }, primary);
            if hello_ok {
                answer.bool("helloOk", true);
            }
            if self.kind == Kind::Sharded || (self.is_reference && self.kind == Kind::Set) {
                answer.text("msg", "isdbgrid");
            }
            if !self.is_reference && self.kind == Kind::Set {
                answer.texts("hosts", &["host0:27017", "host1:27017", "host2:27017"][..HOSTS]);
                answer.text("setName", "rs").int32("setVersion", version);
                answer.bool("secondary", !primary);
                if primary {
                    let mut id = [0; 12];
                    id[0] = 0x7f;
                    id[4..].copy_from_slice(&term.to_be_bytes());
                    answer.object_id("electionId", id);
                }
            }
            answer.int32("maxBsonObjectSize", 16 << 20).int32("maxMessageSizeBytes", 48_000_000);
            answer.int32("maxWriteBatchSize", 100_000).time("localTime", 0);
            answer.int32("logicalSessionTimeoutMinutes", SESSION_MINUTES).int32("connectionId", 1);
            answer.int32("minWireVersion", 0).int32("maxWireVersion", WIRE).bool("readOnly", false);
            answer.double("ok", 1.0);
        })
    }
}
