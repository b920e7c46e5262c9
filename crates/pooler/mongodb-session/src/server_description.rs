//! What a server tells about itself in a `hello` reply: `ServerDescription` of the drivers' specification "Server
//! Discovery and Monitoring".

use std::sync::Arc;

use crate::{
    bson::{Document, Malformed, Value},
    cluster_time::ClusterTime,
    tags::{self, TagSet},
};

/// MongoDB's limit of members in a replica set.
const MAX_MEMBERS: usize = 50;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerType {
    Standalone,
    Mongos,
    Primary,
    Secondary,
    /// A member that serves no clients: an arbiter, a hidden member, or one that is starting.
    Other,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerDescription {
    pub server_type: ServerType,
    /// `setName`.
    pub set: Option<Arc<str>>,
    /// `maxWireVersion`.
    pub wire: i32,
    /// `logicalSessionTimeoutMinutes`; `None` if the server has no sessions.
    pub session_minutes: Option<i32>,
    pub tags: TagSet,
    /// `setVersion` and `electionId` of a primary.
    pub election: (i64, [u8; 12]),
    /// `lastWrite.lastWriteDate`, in milliseconds by the clock of the primary that wrote.
    pub last_write: Option<i64>,
    /// `$clusterTime`.
    pub time: Option<Arc<ClusterTime>>,
    pub me: Option<Arc<str>>,
    /// The members that hold data: `hosts` and `passives`.
    pub members: Vec<Arc<str>>,
}

impl ServerDescription {
    pub fn read(answer: Document<'_>) -> Result<Self, Malformed> {
        let mut description = Self {
            server_type: ServerType::Standalone,
            set: None,
            wire: 0,
            session_minutes: None,
            tags: TagSet::new(),
            election: (0, [0; 12]),
            last_write: None,
            time: ClusterTime::read(answer)?.map(Arc::new),
            me: None,
            members: Vec::new(),
        };
        let (mut primary, mut secondary, mut mongos, mut uninitialised) = (false, false, false, false);
        let mut hidden = false;
        for element in answer.elements() {
            let element = element?;
            let value = element.value()?;
            match element.name {
                "ismaster" | "isWritablePrimary" => primary = value.truth(),
                "secondary" => secondary = value.truth(),
                "msg" => mongos = value.text() == Some("isdbgrid"),
                "hidden" => hidden = value.truth(),
                "isreplicaset" => uninitialised = value.truth(),
                "setName" => description.set = value.text().map(Arc::from),
                "maxWireVersion" => {
                    description.wire = value.integer().and_then(|wire| wire.try_into().ok()).unwrap_or(0)
                }
                "logicalSessionTimeoutMinutes" => {
                    description.session_minutes = value.integer().and_then(|minutes| minutes.try_into().ok());
                }
                "me" => description.me = value.text().map(Arc::from),
                "hosts" | "passives" => {
                    for member in value.array().into_iter().flat_map(Document::elements) {
                        let member = member?.value()?.text().filter(|_| description.members.len() < MAX_MEMBERS);
                        description.members.extend(member.map(Arc::from));
                    }
                }
                "tags" => description.tags = tags::of_member(value),
                "lastWrite" => {
                    let date = value.document().map(|last| last.get("lastWriteDate")).transpose()?.flatten();
                    description.last_write = if let Some(Value::Time(date)) = date { Some(date) } else { None };
                }
                "setVersion" => description.election.0 = value.integer().unwrap_or(0),
                "electionId" => {
                    if let Value::ObjectId(id) = value {
                        description.election.1 = id;
                    }
                }
                _ => {}
            }
        }
        description.server_type = match (mongos, description.set.is_some() || uninitialised) {
            (true, _) => ServerType::Mongos,
            (false, false) => ServerType::Standalone,
            (false, true) if primary => ServerType::Primary,
            // Hidden members do not serve clients.
            (false, true) if secondary && !hidden => ServerType::Secondary,
            (false, true) => ServerType::Other,
        };
        Ok(description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bson::Writer;

    #[test]
    fn a_member_tells_what_it_and_the_others_are_called() {
        let mut answer = Vec::new();
        let mut writer = Writer::new(&mut answer);
        writer.bool("ismaster", true).text("setName", "rs").text("me", "a:1").int32("maxWireVersion", 21);
        writer.texts("hosts", &["a:1", "b:1"]).texts("passives", &["c:1"]).texts("arbiters", &["d:1"]);
        drop(writer);
        let description = ServerDescription::read(Document::read(&answer).unwrap()).unwrap();
        assert_eq!((description.server_type, description.me.as_deref()), (ServerType::Primary, Some("a:1")));
        assert_eq!(description.members, ["a:1", "b:1", "c:1"].map(Arc::<str>::from), "an arbiter has no data");
        let many: Vec<String> = (0..80).map(|number| format!("m{number}:1")).collect();
        let mut answer = Vec::new();
        Writer::new(&mut answer).texts("hosts", &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ServerDescription::read(Document::read(&answer).unwrap()).unwrap().members.len(), MAX_MEMBERS);
    }
}
