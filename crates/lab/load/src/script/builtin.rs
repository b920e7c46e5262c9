//! The built-in scripts, as scripts. pgbench's three are described in its manual: three tables whose sizes grow with
//! the scale factor, and a history that only grows. Those of Redis are a PING, and reads and writes of keys; those of
//! MongoDB a ping, and reads and writes of one collection.

/// Accounts for each unit of the scale factor.
pub const ACCOUNTS: u32 = 100_000;
/// Tellers for each unit of the scale factor.
pub const TELLERS: u32 = 10;
/// Branches for each unit of the scale factor.
pub const BRANCHES: u32 = 1;

/// One account by its key.
pub(super) const SELECT_ONLY: &str = "\
\\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
";

/// A transaction in the manner of TPC-B: its clients contend for the rows of branches and tellers.
pub(super) const TPCB_LIKE: &str = "\
\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
";

/// The same without the rows that clients contend for.
pub(super) const SIMPLE_UPDATE: &str = "\
\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
";

/// Redis: nothing but a round trip.
pub const PING: &str = "PING";

/// Redis: one key of `:keys`, which `:writes` of a million operations set to `:value` and the others read.
pub const GET_SET: &str = "\
\\set key random(1, :keys)
\\if random(1, 1000000) <= :writes
SET poolhouse_bench::key :value
\\else
GET poolhouse_bench::key
\\endif
";

/// MongoDB: nothing but a round trip.
pub const MONGODB_PING: &str = r#"{"ping": 1}"#;

/// MongoDB: one document of `:documents` by its id.
pub const MONGODB_FIND_ONE: &str = r#"
\set id random(1, :documents)
{"find": "poolhouse_bench", "filter": {"_id": :id}, "limit": 1, "singleBatch": true}
"#;

/// MongoDB: a new document with `:value`, in a collection that only grows.
pub const MONGODB_INSERT: &str = r#"
\set id random(1, 9000000000000000000)
{"insert": "poolhouse_bench.inserts", "documents": [{"_id": :id, "value": ":value"}]}
"#;

/// MongoDB: a counter in one document of `:documents`.
pub const MONGODB_UPDATE: &str = r#"
\set id random(1, :documents)
{"update": "poolhouse_bench", "updates": [{"q": {"_id": :id}, "u": {"$inc": {"count": 1}}}]}
"#;

/// MongoDB: the sum of counters over a hundred documents.
pub const MONGODB_AGGREGATE: &str = r#"
\set from random(1, :documents)
{
  "aggregate": "poolhouse_bench",
  "pipeline": [
    {"$match": {"_id": {"$gte": :from}}},
    {"$sort": {"_id": 1}},
    {"$limit": 100},
    {"$group": {"_id": null, "sum": {"$sum": "$count"}}}
  ],
  "cursor": {}
}
"#;
