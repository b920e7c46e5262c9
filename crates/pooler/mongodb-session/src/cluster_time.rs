//! `$clusterTime` and `operationTime`. Drivers gossip the greatest cluster time that they have seen.

use crate::bson::{Document, Malformed, Value, Writer};

/// Maximum size of `$clusterTime` with its signature, in bytes; servers' own is smaller.
const MAX_DOCUMENT_LENGTH: usize = 1024;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClusterTime {
    time: u64,
    /// `operationTime` of the same reply, or 0.
    operation: u64,
    /// `$clusterTime` as the host sent it: only servers can sign one.
    document: Box<[u8]>,
}

impl ClusterTime {
    pub fn read(answer: Document<'_>) -> Result<Option<Self>, Malformed> {
        let Some(Value::Document(cluster_time)) = answer.get("$clusterTime")? else { return Ok(None) };
        let Some(Value::Timestamp(time)) = cluster_time.get("clusterTime")? else { return Ok(None) };
        let operation = match answer.get("operationTime")? {
            Some(Value::Timestamp(operation)) => operation,
            _ => 0,
        };
        let mut document = Vec::new();
        cluster_time.append_to(&mut document);
        Ok((document.len() <= MAX_DOCUMENT_LENGTH).then(|| Self { time, operation, document: document.into() }))
    }

    /// Writes both into a reply, as a mongos does.
    pub fn write(&self, answer: &mut Writer<'_>) {
        if let Ok(document) = Document::read(&self.document) {
            answer.embed("$clusterTime", document);
        }
        if self.operation > 0 {
            answer.timestamp("operationTime", self.operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_time(time: u64, operation: u64, padding: usize) -> Option<ClusterTime> {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes)
            .document("$clusterTime", |inner| _ = inner.timestamp("clusterTime", time).text("by", &"x".repeat(padding)))
            .timestamp("operationTime", operation);
        ClusterTime::read(Document::read(&bytes).unwrap()).unwrap()
    }

    #[test]
    fn a_cluster_time_that_no_server_would_send_is_ignored() {
        assert_eq!(read_time(1, 1, 5000), None);
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).int32("$clusterTime", 1);
        assert_eq!(ClusterTime::read(Document::read(&bytes).unwrap()).unwrap(), None);
    }
}
