//! Looks at the database while a load runs: how many connections it serves and what memory their backends hold.
//!
//! Refuses to know who the connections come from.

use std::fs;

use clients::postgres::Querier;
use settings::Secret;

use super::cluster::{QUERY_TIMEOUT, connect};

/// Those that were used within the last second: idle servers of the pooler whose turn it is not do not count.
const BACKENDS: &str = "select pid from pg_stat_activity where backend_type = 'client backend' \
    and pid <> pg_backend_pid() and (state <> 'idle' or state_change > now() - interval '1 second')";

/// Bounds the backends that a look counts.
const MAX_BACKENDS: usize = 10_000;

/// A look at the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Connections from applications or poolers.
    pub servers: usize,
    /// Bytes of memory that their backends add to the database: pages in common count by their share, the shared
    /// buffers, which are there anyway, not at all. `None` where it cannot be read.
    pub memory: Option<u64>,
}

/// A standing superuser session that looks.
pub struct Watch {
    session: Querier<'static>,
}

impl Watch {
    /// Logs in.
    pub fn new(superuser: &Secret) -> anyhow::Result<Watch> {
        println!("# server connections below: {BACKENDS}");
        println!("# and their memory: Pss - Pss_Shmem of /proc/PID/smaps_rollup");
        Ok(Watch { session: connect(superuser)? })
    }

    /// Looks once.
    pub fn sample(&mut self) -> anyhow::Result<Sample> {
        let answer = self.session.query_rows(BACKENDS, MAX_BACKENDS, QUERY_TIMEOUT)?;
        let pids = answer.kept.iter().map(|row| row[0].1.as_deref().unwrap_or_default());
        Ok(Sample { servers: answer.kept.len(), memory: pids.map(memory_of).sum() })
    }

    /// Ends the backends of all applications and poolers, as a failing machine or a careless operator would.
    pub fn terminate_backends(&mut self) -> anyhow::Result<usize> {
        let sql = BACKENDS.replace("select pid", "select pg_terminate_backend(pid)");
        println!("sql> {sql}");
        Ok(self.session.query(&sql, QUERY_TIMEOUT)?.rows as usize)
    }
}

fn memory_of(pid: &str) -> Option<u64> {
    let kilobytes = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .ok()
        .and_then(|text| Some(kilobytes(&text, "Pss:")? - kilobytes(&text, "Pss_Shmem:")?))
        .or_else(|| kilobytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "RssAnon:"));
    kilobytes.map(|value| value * 1024)
}

/// The value of a line like `Pss:     1234 kB`.
fn kilobytes(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(label))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_not_mistaken_for_its_parts() {
        let text = "Rss:  900 kB\nPss:  500 kB\nPss_Anon:  200 kB\n";
        assert_eq!(kilobytes(text, "Pss:"), Some(500));
        assert_eq!(kilobytes(text, "Swap:"), None);
    }
}
