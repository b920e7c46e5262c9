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

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ServerType {
    #[default]
    Standalone,
    Mongos,
    Primary,
    Secondary,
    /// A member that serves no clients: an arbiter, a hidden member, or one that is starting.
    Other,
}

/// The election in which a primary was elected. The greater one is the later.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Election {
    /// `electionId`.
    id: [u8; 12],
    /// `setVersion`, which decides between equal ids.
    set_version: i64,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ServerDescription {
    pub server_type: ServerType,
    /// `setName`.
    pub set: Option<Arc<str>>,
    /// `maxWireVersion`.
    pub wire: i32,
    /// `logicalSessionTimeoutMinutes`; `None` if the server has no sessions.
    pub session_minutes: Option<i32>,
    pub tags: TagSet,
    pub election: Election,
    /// `lastWrite.lastWriteDate`, in milliseconds by the clock of the primary that wrote.
    pub last_write: Option<i64>,
    /// `$clusterTime`.
    pub time: Option<Arc<ClusterTime>>,
    pub me: Option<Arc<str>>,
    /// The members that hold data: `hosts` and `passives`.
    pub members: Vec<Arc<str>>,
}

#[cfg(test)]
impl Election {
    pub fn of_term(term: u8) -> Self {
        Self { id: [term; 12], set_version: 1 }
    }
}

impl ServerDescription {
    pub fn read(answer: Document<'_>) -> Result<Self, Malformed> {
        let mut description = Self { time: ClusterTime::read(answer)?.map(Arc::new), ..Self::default() };
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
                "setVersion" => description.election.set_version = value.integer().unwrap_or(0),
                "electionId" => {
                    if let Value::ObjectId(id) = value {
                        description.election.id = id;
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
    fn no_more_members_are_read_than_a_replica_set_may_have() {
        let many: Vec<String> = (0..80).map(|number| format!("m{number}:1")).collect();
        let mut answer = Vec::new();
        Writer::new(&mut answer).texts("hosts", &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ServerDescription::read(Document::read(&answer).unwrap()).unwrap().members.len(), MAX_MEMBERS);
    }
}
