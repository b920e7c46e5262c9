//! `/api/history`: what each pool did in the last hour, whether or not a page was open. Each [`SAMPLE_INTERVAL`] a
//! sample of all pools becomes one point of each. It is bounded in pools and in points, and ends with the process. It
//! does not know how the points are drawn.

use std::{
    collections::{HashMap, VecDeque},
    mem::size_of,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admin_api::Times;
use driver::{BUCKET_BOUNDS_US, PoolSnapshot};
use seam::PoolId;
use serde::{Serialize, Serializer, ser::SerializeSeq};

use super::{
    api::times,
    json_list::{JsonList, write},
};

/// Time from one sample to the next.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Points of a pool: an hour.
pub const MAX_POINTS: usize = 360;
/// With more pools no points are kept, as with the doctor's samples.
pub const MAX_POOLS: usize = super::findings::MAX_POOLS;

/// The names of a point's values, in their order.
const FIELDS: [&str; VALUES + 1] = [
    "at_ms",
    "transactions_per_s",
    "waiters",
    "in_use",
    "open",
    "hold_p99_ms",
    "queued_p99_ms",
    "created_p99_ms",
    "made_per_min",
    "closed_per_min",
    "checkout_failed_per_s",
];
const VALUES: usize = 10;

#[derive(Default)]
pub struct History(Mutex<Pools>);

#[derive(Default)]
struct Pools {
    /// The time of the last sample, since the process began; `None` before the first, and after there were too many
    /// pools.
    at: Option<Duration>,
    pools: HashMap<PoolId, Past>,
}

struct Past {
    labels: Labels,
    before: Counters,
    points: VecDeque<Point>,
}

#[derive(Clone, PartialEq, Serialize)]
struct Labels {
    protocol: &'static str,
    database: String,
    user: String,
}

/// The values of one sample. A percentile of nothing is not a number.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    at_ms: u64,
    values: [f32; VALUES],
}

/// What a pool counts from its start on.
#[derive(Default)]
struct Counters {
    transactions: u64,
    made: u64,
    closed: u64,
    failed: u64,
    hold: Times,
    queued: Times,
    created: Times,
}

/// The points of a pool, for one answer.
struct PoolPoints {
    id: PoolId,
    labels: Labels,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Shown<'t> {
    id: u32,
    #[serde(flatten)]
    labels: &'t Labels,
    points: &'t [Point],
}

impl History {
    /// Adds a sample of all pools; `None` if there are too many.
    pub fn add_sample(&self, at: Duration, pools: Option<&[PoolSnapshot]>) {
        let mut kept = self.lock();
        match pools {
            Some(pools) if pools.len() <= MAX_POOLS => kept.add(at, pools),
            _ => *kept = Pools::default(),
        }
    }

    /// The points of one pool or of all pools, as JSON in pieces.
    pub fn json(
        &self,
        only: Option<PoolId>,
        (instance, uptime): (&str, Duration),
    ) -> impl Iterator<Item = Vec<u8>> + Send + Unpin + use<> {
        let begin = serde_json::json!({ "every_ms": SAMPLE_INTERVAL.as_millis() as u64, "fields": FIELDS,
            "instance": instance, "most_pools": MAX_POOLS, "uptime_ms": uptime.as_secs_f64() * 1e3 });
        let mut begin = begin.to_string().into_bytes();
        begin.pop();
        begin.extend_from_slice(b",\"pools\":[");
        let write_pool = |text: &mut Vec<u8>, pool: PoolPoints| {
            write(text, &Shown { id: pool.id.0, labels: &pool.labels, points: &pool.points });
        };
        JsonList::new(begin, self.lock().of(only), write_pool, b"]}".to_vec())
    }

    /// The bytes that all points take.
    pub fn bytes(&self) -> u64 {
        let of = |past: &Past| {
            let Labels { protocol: _, database, user } = &past.labels;
            let times = [&past.before.hold, &past.before.queued, &past.before.created];
            let buckets: usize = times.map(|times| times.buckets.capacity() * size_of::<u64>()).iter().sum();
            let points = past.points.capacity() * size_of::<Point>();
            size_of::<(PoolId, Past)>() + points + buckets + database.capacity() + user.capacity()
        };
        self.lock().pools.values().map(of).sum::<usize>() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pools {
    fn add(&mut self, at: Duration, pools: &[PoolSnapshot]) {
        let before = self.at.replace(at);
        let mut past = std::mem::take(&mut self.pools);
        for pool in pools {
            let labels = Labels { protocol: pool.protocol, database: pool.database.clone(), user: pool.user.clone() };
            // The counters of a pool that was made since the last sample began at zero.
            let kept = past.remove(&pool.id).filter(|past| past.labels == labels);
            let mut kept = kept.unwrap_or_else(|| Past {
                labels,
                before: Counters::default(),
                points: VecDeque::with_capacity(MAX_POINTS),
            });
            let now = Counters::of(pool);
            if let Some(before) = before {
                if kept.points.len() == MAX_POINTS {
                    kept.points.pop_front();
                }
                kept.points.push_back(Point::between(pool, (&kept.before, &now), (before, at)));
            }
            kept.before = now;
            self.pools.insert(pool.id, kept);
        }
    }

    fn of(&self, only: Option<PoolId>) -> Vec<PoolPoints> {
        let wanted = self.pools.iter().filter(|(id, _)| only.is_none_or(|only| only == **id));
        let points = wanted.map(|(id, past)| PoolPoints {
            id: *id,
            labels: past.labels.clone(),
            points: past.points.iter().copied().collect(),
        });
        let mut points: Vec<_> = points.collect();
        points.sort_by_key(|pool| pool.id);
        points
    }
}

impl Counters {
    fn of(pool: &PoolSnapshot) -> Self {
        let [_, created, queued] = &pool.totals.checkout;
        let sum = |counts: &[(&str, u64)]| counts.iter().map(|(_, count)| count).sum();
        Self {
            transactions: pool.totals.transactions,
            made: pool.totals.created,
            closed: sum(&pool.totals.closed),
            failed: sum(&pool.totals.checkout_failed),
            hold: times(&pool.totals.hold),
            queued: times(&queued.1),
            created: times(&created.1),
        }
    }
}

impl Point {
    fn between(pool: &PoolSnapshot, (then, now): (&Counters, &Counters), (before, at): (Duration, Duration)) -> Self {
        let seconds = at.saturating_sub(before).as_secs_f32().max(1.0);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f32 / seconds;
        let values = [
            rate(now.transactions, then.transactions),
            pool.counts.waiters as f32,
            pool.counts.in_use as f32,
            pool.counts.total as f32,
            percentile(&now.hold, &then.hold),
            percentile(&now.queued, &then.queued),
            percentile(&now.created, &then.created),
            rate(now.made, then.made) * 60.0,
            rate(now.closed, then.closed) * 60.0,
            rate(now.failed, then.failed),
        ];
        Self { at_ms: at.as_millis() as u64, values }
    }
}

/// A list, so that no name is repeated for each point.
impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(FIELDS.len()))?;
        list.serialize_element(&self.at_ms)?;
        self.values.iter().try_for_each(|value| list.serialize_element(value))?;
        list.end()
    }
}

/// The 99th percentile in milliseconds of what came in between; beyond the last bound it is that bound.
fn percentile(now: &Times, then: &Times) -> f32 {
    let (came, bounds) = (now.since(then), BUCKET_BOUNDS_US.map(|us| us as f64 / 1e3));
    if came.count() == 0 {
        return f32::NAN;
    }
    came.quantile_ms(0.99, &bounds).unwrap_or(bounds[bounds.len() - 1]) as f32
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::admin::metrics::tests::pool;

    fn json(history: &History, only: Option<u32>) -> Value {
        let pieces = history.json(only.map(PoolId), ("i", Duration::from_secs(99))).collect::<Vec<_>>();
        serde_json::from_slice(&pieces.concat()).expect("it is JSON")
    }

    fn seconds(number: usize) -> Duration {
        SAMPLE_INTERVAL * number as u32
    }

    #[test]
    fn each_sample_after_the_first_is_a_point_of_what_came_since_the_sample_before() {
        let (history, mut pool) = (History::default(), pool("d", "u"));
        history.add_sample(seconds(1), Some(&[pool.clone()]));
        assert_eq!(json(&history, None)["pools"][0]["points"], json!([]));
        pool.totals.transactions += 50;
        pool.totals.created += 1;
        pool.totals.hold.buckets[4] += 10;
        history.add_sample(seconds(2), Some(&[pool.clone()]));
        let said = json(&history, Some(0));
        let point = said["pools"][0]["points"][0].as_array().unwrap().clone();
        assert_eq!((&point[0], &point[1], &point[2]), (&json!(20_000), &json!(5.0), &json!(4.0)));
        assert!((0.5..=1.0).contains(&point[5].as_f64().unwrap()), "{point:?}");
        assert_eq!((&point[6], &point[8]), (&Value::Null, &json!(6.0)), "no wait, one connection");
        assert_eq!((&said["pools"][0]["database"], &said["every_ms"]), (&json!("d"), &json!(10_000)));
        assert_eq!(json(&history, Some(7))["pools"], json!([]));
    }

    #[test]
    fn a_pool_that_is_new_counts_from_zero_and_one_that_is_gone_is_forgotten() {
        let (history, new) = (History::default(), PoolSnapshot { id: PoolId(1), ..pool("e", "u") });
        history.add_sample(seconds(1), Some(&[pool("d", "u")]));
        history.add_sample(seconds(2), Some(&[new]));
        let said = json(&history, None);
        assert_eq!(said["pools"].as_array().map(Vec::len), Some(1));
        assert_eq!(said["pools"][0]["points"][0][1], json!(10.0), "100 transactions in ten seconds");
    }

    #[test]
    fn points_and_pools_are_bounded_and_its_bytes_are_counted() {
        let history = History::default();
        let mut pools: Vec<_> =
            (0..MAX_POOLS as u32).map(|id| PoolSnapshot { id: PoolId(id), ..pool("d", &id.to_string()) }).collect();
        for number in 0..MAX_POINTS + 20 {
            history.add_sample(seconds(number), Some(&pools));
        }
        let points = json(&history, Some(3))["pools"][0]["points"].as_array().unwrap().clone();
        assert_eq!((points.len(), &points[MAX_POINTS - 1][0]), (MAX_POINTS, &json!(3_790_000)));
        assert!((3_000_000..4_000_000).contains(&history.bytes()), "{}", history.bytes());
        pools.push(PoolSnapshot { id: PoolId(999), ..pool("d", "one too many") });
        history.add_sample(seconds(9_999), Some(&pools));
        assert_eq!((json(&history, None)["pools"].clone(), history.bytes()), (json!([]), 0));
    }
}
