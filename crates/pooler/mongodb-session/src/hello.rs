//! What drivers are told when they ask whom they speak with: never what the upstream said, but what Poolhouse is.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{
    bson::{Value, Writer},
    cluster_time::ClusterTime,
    command::Command,
    topology::Pose,
};

/// What Poolhouse takes of clients: the figures of MongoDB's servers, which have not changed since version 3.6.
const MAX_DOCUMENT: i32 = 16 * 1024 * 1024;
const MAX_BATCH: i32 = 100_000;

/// How clients may log in.
pub const MECHANISMS: &[&str] = &["SCRAM-SHA-256"];

/// What a client asked for beside.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Asked {
    /// It would go on with `hello`, if that is known.
    hello_ok: bool,
    /// It wants to know how a user may log in.
    mechanisms: bool,
    /// It believes that a load balancer stands between.
    load_balanced: bool,
    /// It asked with the command of old.
    old: bool,
}

impl Asked {
    pub fn of(command: &Command<'_>) -> Self {
        let mut asked = Self { old: command.name != "hello", ..Self::default() };
        for element in command.body.elements().flatten() {
            let value = element.value().unwrap_or(Value::Null);
            match element.name {
                "helloOk" => asked.hello_ok = value.truth(),
                "saslSupportedMechs" => asked.mechanisms = true,
                "loadBalanced" => asked.load_balanced = value.truth(),
                _ => {}
            }
        }
        asked
    }

    pub fn is_load_balanced(self) -> bool {
        self.load_balanced
    }

    /// Writes the answer. `service` is the same for all of a process's life.
    pub fn answer(
        self,
        (pose, time): (Pose, Option<&ClusterTime>),
        connection: i32,
        service: [u8; 12],
        answer: &mut Writer<'_>,
    ) {
        answer.bool(if self.old { "ismaster" } else { "isWritablePrimary" }, true);
        if self.hello_ok {
            answer.bool("helloOk", true);
        }
        if pose.mongos || self.load_balanced {
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
        if let Some(minutes) = pose.session_minutes {
            answer.int32("logicalSessionTimeoutMinutes", minutes);
        }
        answer.int32("connectionId", connection);
        answer.int32("minWireVersion", 0).int32("maxWireVersion", pose.wire).bool("readOnly", false);
        if self.mechanisms {
            answer.texts("saslSupportedMechs", MECHANISMS);
        }
        answer.double("ok", 1.0);
        if let Some(time) = time {
            time.write(answer);
        }
    }
}
