//! Replies to `hello` and `isMaster`: they describe Poolhouse, not the upstream.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{
    bson::{Value, Writer},
    cluster_time::ClusterTime,
    command::Command,
    topology::AdvertisedTopology,
};

/// Limits that clients are told: those of MongoDB's servers since version 3.6.
const MAX_DOCUMENT: i32 = 16 * 1024 * 1024;
const MAX_BATCH: i32 = 100_000;

/// The mechanisms of clients' logins.
pub const MECHANISMS: &[&str] = &["SCRAM-SHA-256"];

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct HelloRequest {
    hello_ok: bool,
    /// `saslSupportedMechs`.
    mechanisms: bool,
    load_balanced: bool,
    /// It was `isMaster`.
    is_legacy: bool,
}

impl HelloRequest {
    pub fn read(command: &Command<'_>) -> Self {
        let mut request = Self { is_legacy: command.name != "hello", ..Self::default() };
        for element in command.body.elements().flatten() {
            let value = element.value().unwrap_or(Value::Null);
            match element.name {
                "helloOk" => request.hello_ok = value.truth(),
                "saslSupportedMechs" => request.mechanisms = true,
                "loadBalanced" => request.load_balanced = value.truth(),
                _ => {}
            }
        }
        request
    }

    pub fn is_load_balanced(self) -> bool {
        self.load_balanced
    }

    /// Writes the reply. `service` stays the same for the life of a process.
    pub fn answer(
        self,
        (topology_shown, time): (AdvertisedTopology, Option<&ClusterTime>),
        connection: i32,
        service: [u8; 12],
        answer: &mut Writer<'_>,
    ) {
        answer.bool(if self.is_legacy { "ismaster" } else { "isWritablePrimary" }, true);
        if self.hello_ok {
            answer.bool("helloOk", true);
        }
        if topology_shown.mongos || self.load_balanced {
            answer.text("msg", "isdbgrid");
        }
        if self.load_balanced {
            answer.object_id("serviceId", service);
        }
        answer.int32("maxBsonObjectSize", MAX_DOCUMENT);
        answer.int32("maxMessageSizeBytes", crate::wire::MAX_MESSAGE as i32);
        answer.int32("maxWriteBatchSize", MAX_BATCH);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        answer.time("localTime", now.as_millis() as i64);
        if let Some(minutes) = topology_shown.session_minutes {
            answer.int32("logicalSessionTimeoutMinutes", minutes);
        }
        answer.int32("connectionId", connection);
        answer.int32("minWireVersion", 0).int32("maxWireVersion", topology_shown.wire).bool("readOnly", false);
        if self.mechanisms {
            answer.texts("saslSupportedMechs", MECHANISMS);
        }
        answer.double("ok", 1.0);
        if let Some(time) = time {
            time.write(answer);
        }
    }
}
