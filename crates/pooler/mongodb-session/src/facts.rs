//! What a server tells of itself in its answer to `hello` or `isMaster`.

use std::sync::Arc;

use crate::{
    bson::{Document, Malformed, Value},
    cluster_time::ClusterTime,
    tags::{self, TagSet},
};

/// Members of a replica set at most, as MongoDB has it.
const MAX_MEMBERS: usize = 50;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Standalone,
    Mongos,
    Primary,
    Secondary,
    /// A member of a replica set that serves nobody now: an arbiter, one that is hidden, or one that starts.
    Other,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    pub role: Role,
    /// The name of its replica set.
    pub set: Option<Arc<str>>,
    /// The latest version of the wire protocol that it speaks.
    pub wire: i32,
    /// It knows sessions, and for how many minutes it keeps them.
    pub session_minutes: Option<i32>,
    /// What its deployment says of it.
    pub tags: TagSet,
    /// Which election made it the primary: what is greater is later.
    pub election: (i64, [u8; 12]),
    /// The date of its last write, by the clock of the primary that did it, in milliseconds.
    pub last_write: Option<i64>,
    /// The time of its deployment.
    pub time: Option<Arc<ClusterTime>>,
    pub me: Option<Arc<str>>,
    /// The members of its replica set that have data, as it knows them.
    pub members: Vec<Arc<str>>,
}

impl Facts {
    pub fn read(answer: Document<'_>) -> Result<Self, Malformed> {
        let mut facts = Self {
            role: Role::Standalone,
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
                "setName" => facts.set = value.text().map(Arc::from),
                "maxWireVersion" => facts.wire = value.integer().and_then(|wire| wire.try_into().ok()).unwrap_or(0),
                "logicalSessionTimeoutMinutes" => {
                    facts.session_minutes = value.integer().and_then(|minutes| minutes.try_into().ok());
                }
                "me" => facts.me = value.text().map(Arc::from),
                // The second are members that are never elected.
                "hosts" | "passives" => {
                    for member in value.array().into_iter().flat_map(Document::elements) {
                        let member = member?.value()?.text().filter(|_| facts.members.len() < MAX_MEMBERS);
                        facts.members.extend(member.map(Arc::from));
                    }
                }
                "tags" => facts.tags = tags::of_member(value),
                "lastWrite" => {
                    let date = value.document().map(|last| last.get("lastWriteDate")).transpose()?.flatten();
                    facts.last_write = if let Some(Value::Time(date)) = date { Some(date) } else { None };
                }
                "setVersion" => facts.election.0 = value.integer().unwrap_or(0),
                "electionId" => {
                    if let Value::ObjectId(id) = value {
                        facts.election.1 = id;
                    }
                }
                _ => {}
            }
        }
        facts.role = match (mongos, facts.set.is_some() || uninitialised) {
            (true, _) => Role::Mongos,
            (false, false) => Role::Standalone,
            (false, true) if primary => Role::Primary,
            // Who is hidden is not for clients.
            (false, true) if secondary && !hidden => Role::Secondary,
            (false, true) => Role::Other,
        };
        Ok(facts)
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
        let facts = Facts::read(Document::read(&answer).unwrap()).unwrap();
        assert_eq!((facts.role, facts.me.as_deref()), (Role::Primary, Some("a:1")));
        assert_eq!(facts.members, ["a:1", "b:1", "c:1"].map(Arc::<str>::from), "an arbiter has no data");
        let many: Vec<String> = (0..80).map(|number| format!("m{number}:1")).collect();
        let mut answer = Vec::new();
        Writer::new(&mut answer).texts("hosts", &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(Facts::read(Document::read(&answer).unwrap()).unwrap().members.len(), MAX_MEMBERS);
    }
}
