//! A look at a pooler beside one at its database: which of the database's sessions are servers of which pool, and what
//! these do.

use std::collections::BTreeMap;

use crate::{Backend, Look, Work};

/// A server of a pooler: its pool by database and user, and its process at the database.
#[derive(Clone, Copy, Debug)]
pub struct ServerOf<'s> {
    pub database: &'s str,
    /// Whose servers these are.
    pub user: &'s str,
    pub pid: u32,
}

impl Look {
    /// Notes of each pool of PostgreSQL what the database says of its servers' sessions.
    pub fn note_work<'s>(
        &mut self,
        servers: impl Iterator<Item = ServerOf<'s>>,
        backends: &[Backend],
        processors: Option<u64>,
    ) {
        let all_ready = backends.iter().filter(|backend| backend.is_ready()).count() as u64;
        let by_pid: BTreeMap<u32, &Backend> = backends.iter().map(|backend| (backend.pid, backend)).collect();
        let mut works: BTreeMap<(&str, &str), Work> = BTreeMap::new();
        for server in servers {
            // A process of that number on another machine is most likely another user's.
            if let Some(backend) = by_pid.get(&server.pid).filter(|backend| backend.user == server.user) {
                works.entry((server.database, server.user)).or_default().count(backend);
            }
        }
        for pool in self.pools.iter_mut().filter(|pool| pool.protocol == "postgres") {
            let work = works.get(&(pool.database.as_str(), pool.user.as_str())).copied().unwrap_or_default();
            pool.work = Some(Work { all_ready, processors, ..work });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn sessions_are_counted_to_their_pool_by_what_they_wait_for() {
        let backend = |pid, user: &str, state: &str, wait: Option<&str>| Backend {
            pid,
            user: user.to_owned(),
            state: state.to_owned(),
            wait: wait.map(str::to_owned),
            ..Backend::default()
        };
        let backends = [
            backend(1, "app", "active", None),
            backend(2, "app", "active", Some("Lock")),
            backend(3, "app", "active", Some("Timeout")),
            backend(4, "app", "idle in transaction", Some("Client")),
            backend(5, "other", "active", None),
            backend(6, "app", "active", Some("IO")),
        ];
        let pool = |database: &str, user: &str| Pool {
            protocol: "postgres".to_owned(),
            database: database.to_owned(),
            user: user.to_owned(),
            ..Pool::default()
        };
        let mut look = Look { pools: vec![pool("shop", "app"), pool("shop", "other")], ..Look::default() };
        let server = |pid| ServerOf { database: "shop", user: "app", pid };
        look.note_work([1, 2, 3, 4, 5, 9].into_iter().map(server), &backends, Some(8));
        let work = look.pools[0].work.unwrap();
        assert_eq!((work.sessions, work.ready, work.locked, work.others, work.disks), (4, 1, 1, 1, 0));
        assert_eq!((work.working(), work.all_ready, work.processors), (3, 2, Some(8)));
        assert_eq!(look.pools[1].work.map(|work| (work.sessions, work.all_ready)), Some((0, 2)));
    }
}
