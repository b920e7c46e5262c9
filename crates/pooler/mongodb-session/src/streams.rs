//! Requests that wait at their server for what others may write: the next batch of a change stream or of a tailable
//! cursor, for a second or for as long as the client likes, and answers that a server sends until a cursor is at its
//! end. Each has a server connection for itself meanwhile, so there may be so many for each pool and no more.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use seam::PoolId;

use crate::{
    bson::{Document, Malformed, Value},
    command::Command,
};

/// How many wait, by pool.
#[derive(Default)]
pub struct Streams(Mutex<HashMap<PoolId, Arc<AtomicU32>>>);

/// One that waits, until this is dropped.
#[derive(Debug)]
pub struct Waiting(Arc<AtomicU32>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Streams {
    /// One more is to wait with a server of this pool; `None` if there are so many already.
    pub fn enter(&self, pool: PoolId, most: u32) -> Option<Waiting> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|of, count| *of == pool || Arc::strong_count(count) > 1);
        let count = all.entry(pool).or_default();
        // Nobody else adds to it meanwhile.
        if count.load(Relaxed) >= most {
            return None;
        }
        count.fetch_add(1, Relaxed);
        Some(Waiting(Arc::clone(count)))
    }
}

/// Whether the cursor that a command opens is one whose batches are waited for.
pub fn opens_stream(command: &Command<'_>) -> Result<bool, Malformed> {
    match command.name {
        "find" => Ok(command.body.get("awaitData")?.is_some_and(Value::truth)),
        "aggregate" => {
            let pipeline = command.body.get("pipeline")?.and_then(Value::array);
            let first = pipeline.and_then(|pipeline| pipeline.elements().next()).transpose()?;
            let stage = first.map(|first| first.value()).transpose()?.and_then(Value::document);
            stage.map_or(Ok(false), |stage: Document<'_>| Ok(stage.get_nested("$changeStream")?.is_some()))
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bson::Writer;

    #[test]
    fn there_are_so_many_for_each_pool_and_no_more() {
        let streams = Streams::default();
        let one = streams.enter(PoolId(1), 2).unwrap();
        let other = streams.enter(PoolId(1), 2).unwrap();
        assert!(streams.enter(PoolId(1), 2).is_none() && streams.enter(PoolId(2), 2).is_some());
        drop(one);
        assert!(streams.enter(PoolId(1), 2).is_some());
        drop(other);
        assert!(streams.enter(PoolId(1), 0).is_none());
    }

    #[test]
    fn a_change_stream_and_a_tailable_cursor_are_seen() {
        let opens = |write: &dyn Fn(&mut Writer<'_>)| {
            let mut bytes = Vec::new();
            write(&mut Writer::new(&mut bytes));
            opens_stream(&Command::read(Document::read(&bytes).unwrap(), "app").unwrap()).unwrap()
        };
        let pipeline = |stage: &'static str| {
            move |command: &mut Writer<'_>| {
                command.int32("aggregate", 1).array("pipeline", |pipeline| {
                    pipeline.document("0", |one| _ = one.document(stage, |_| {}));
                });
            }
        };
        assert!(opens(&pipeline("$changeStream")) && !opens(&pipeline("$match")));
        assert!(opens(&|command| _ = command.text("find", "a").bool("tailable", true).bool("awaitData", true)));
        assert!(!opens(&|command| _ = command.text("find", "a").bool("tailable", true)));
        assert!(!opens(&|command| _ = command.int32("aggregate", 1)));
    }
}
