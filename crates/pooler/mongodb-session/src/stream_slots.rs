//! Slots for requests that keep a server while they wait for other clients' writes: a `getMore` of a change stream or
//! of a tailable `awaitData` cursor, and exhaust replies. Each pool has a limited number of slots.

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

/// The number of slots in use, by pool.
#[derive(Default)]
pub struct StreamSlots(Mutex<HashMap<PoolId, Arc<AtomicU32>>>);

#[derive(Debug)]
pub struct StreamSlot(Arc<AtomicU32>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl StreamSlots {
    /// Takes a slot of a pool; `None` if all `max` are in use.
    pub fn acquire(&self, pool: PoolId, max: u32) -> Option<StreamSlot> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|of, count| *of == pool || Arc::strong_count(count) > 1);
        let count = all.entry(pool).or_default();
        // The count only grows under this lock.
        if count.load(Relaxed) >= max {
            return None;
        }
        count.fetch_add(1, Relaxed);
        Some(StreamSlot(Arc::clone(count)))
    }
}

/// Whether a command opens a change stream or an `awaitData` cursor.
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
        let streams = StreamSlots::default();
        let one = streams.acquire(PoolId(1), 2).unwrap();
        let other = streams.acquire(PoolId(1), 2).unwrap();
        assert!(streams.acquire(PoolId(1), 2).is_none() && streams.acquire(PoolId(2), 2).is_some());
        drop(one);
        assert!(streams.acquire(PoolId(1), 2).is_some());
        drop(other);
        assert!(streams.acquire(PoolId(1), 0).is_none());
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
