//! What looks at a PostgreSQL tell of its sessions: by origin, and of all together. Judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use admin_api::{Activity, Backend};

use crate::{
    gauge::{Gauge, HalvingCounter},
    origin::{MAX_ORIGINS, OTHER_CLIENTS},
    series::{Series, ServerWindow, Tally},
};

/// A pause within a transaction that no ordinary work needs.
pub(crate) const LONG_PAUSE_MS: f64 = 200.0;
/// A pause so long that ending the transaction is better.
pub(crate) const OVERLONG_PAUSE_MS: f64 = 5_000.0;
/// A session that was idle for this long before it closed did not close because its work was done.
const MIN_IDLE_BEFORE_CLOSE_MS: f64 = 1_000.0;

pub type PostgresWindow = ServerWindow<PostgresTally>;

/// The process and the start of a session: unique on its server.
type SessionId = (u32, u64);

#[derive(Clone, Debug, Default)]
pub struct PostgresTally {
    /// Transactions that ended. A counter that has gone back adds nothing: its statistics were reset, or a database was
    /// dropped with its own.
    pub(crate) ended: u64,
    /// Sessions that were begun, where the server counts them.
    pub(crate) begun: Option<u64>,
    pub(crate) all: SessionGauges,
    origins: BTreeMap<PostgresOrigin, OriginTally>,
    /// Sessions of the last look.
    present: BTreeMap<SessionId, PresentSession>,
}

/// Where sessions come from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct PostgresOrigin {
    user: String,
    database: String,
    application: String,
    address: String,
}

#[derive(Clone, Debug)]
struct PresentSession {
    origin: PostgresOrigin,
    idle_ms: Option<f64>,
    /// Looks in a row, up to the last one, at which its client did not take an answer.
    unread_looks: usize,
    /// Looks in a row, up to the last one, at which it paused within a transaction.
    paused_looks: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SessionGauges {
    pub(crate) sessions: Gauge,
    /// Sessions with a statement or an open transaction.
    pub(crate) busy: Gauge,
    pub(crate) working: Gauge,
    /// Working sessions that wait for nothing but a processor.
    pub(crate) ready: Gauge,
    /// Working sessions that wait for a lock.
    pub(crate) locked: Gauge,
    /// Sessions in a transaction without a statement.
    pub(crate) pausing: Gauge,
    pub(crate) long_pausing: Gauge,
    pub(crate) overlong_pausing: Gauge,
    pub(crate) longest_pause_ms: f64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct OriginTally {
    pub(crate) gauges: SessionGauges,
    pub(crate) now: u64,
    /// Sessions that came after the first look.
    pub(crate) came: u64,
    /// Sessions that went before the last look.
    pub(crate) went: u64,
    /// Closed sessions that had been idle for a while when last seen, and the sum of their idle times.
    pub(crate) went_idle: u64,
    pub(crate) idle_before_ms: f64,
    pub(crate) halvings: HalvingCounter,
}

impl Tally for PostgresTally {
    type Look = Activity;

    fn is_same_run(before: &Activity, look: &Activity) -> bool {
        before.started_us == look.started_us
    }

    fn count(&mut self, series: &Series<Activity>, _: Duration, look: &mut Activity) -> bool {
        let last = series.last();
        let mut by_origin: BTreeMap<PostgresOrigin, Vec<&Backend>> = BTreeMap::new();
        let mut present = BTreeMap::new();
        for backend in &look.backends {
            let mut origin = PostgresOrigin::of(backend);
            if by_origin.len() >= MAX_ORIGINS && !by_origin.contains_key(&origin) {
                origin = PostgresOrigin::default();
            }
            let id = (backend.pid, backend.started_us);
            present.insert(id, PresentSession::new(backend, origin.clone(), self.present.get(&id)));
            by_origin.entry(origin).or_default().push(backend);
        }
        // Which sessions are listed is chance where some are left out: a session that the list lacks has not gone.
        let are_all = look.left_out == 0 && last.is_none_or(|last| last.left_out == 0);
        let have_come = (are_all && present.keys().any(|id| !self.present.contains_key(id)))
            || last.is_some_and(|last| look.sessions > last.sessions);
        self.count_ended_and_begun(last, look);
        if are_all && last.is_some() {
            self.count_changes(&present);
        }
        let backends: Vec<&Backend> = look.backends.iter().collect();
        self.all.add(&backends, look.hidden.saturating_add(look.left_out));
        for (origin, tally) in &mut self.origins {
            tally.add(&by_origin.remove(origin).unwrap_or_default(), are_all);
        }
        for (origin, backends) in by_origin {
            if self.origins.len() < MAX_ORIGINS {
                self.origins.entry(origin).or_default().add(&backends, are_all);
            }
        }
        self.present = present;
        have_come
    }
}

impl PostgresTally {
    fn count_ended_and_begun(&mut self, last: Option<&Activity>, look: &Activity) {
        let (ended, begun) = match last {
            Some(last) => (
                look.transactions.saturating_sub(last.transactions),
                last.sessions.zip(look.sessions).map(|(before, now)| now.saturating_sub(before)),
            ),
            None => (0, look.sessions.map(|_| 0)),
        };
        self.ended = self.ended.saturating_add(ended);
        self.begun = begun.map(|begun| begun.saturating_add(self.begun.unwrap_or(0)));
    }

    /// Counts the sessions that have come, and those that have gone.
    fn count_changes(&mut self, present: &BTreeMap<SessionId, PresentSession>) {
        let free_origins = MAX_ORIGINS.saturating_sub(self.origins.len());
        let new: BTreeSet<&PostgresOrigin> =
            present.values().map(|one| &one.origin).filter(|origin| !self.origins.contains_key(*origin)).collect();
        for origin in new.into_iter().take(free_origins) {
            self.origins.insert(origin.clone(), OriginTally::default());
        }
        for (_, one) in present.iter().filter(|(id, _)| !self.present.contains_key(*id)) {
            if let Some(tally) = self.origins.get_mut(&one.origin) {
                tally.came += 1;
            }
        }
        for (_, one) in self.present.iter().filter(|(id, _)| !present.contains_key(*id)) {
            let Some(tally) = self.origins.get_mut(&one.origin) else { continue };
            tally.went += 1;
            if let Some(ms) = one.idle_ms.filter(|ms| *ms >= MIN_IDLE_BEFORE_CLOSE_MS) {
                tally.went_idle += 1;
                tally.idle_before_ms += ms;
            }
        }
    }

    pub(crate) fn origins(&self) -> impl Iterator<Item = (&PostgresOrigin, &OriginTally)> {
        self.origins.iter()
    }
}

impl PostgresWindow {
    /// Sessions whose client took no answer at any look.
    pub(crate) fn unread_throughout(&self) -> impl Iterator<Item = &Backend> {
        self.sessions_throughout(|session| session.unread_looks)
    }

    /// Sessions that paused within a transaction at every look.
    pub(crate) fn paused_throughout(&self) -> impl Iterator<Item = &Backend> {
        self.sessions_throughout(|session| session.paused_looks)
    }

    fn sessions_throughout(&self, looks_of: fn(&PresentSession) -> usize) -> impl Iterator<Item = &Backend> {
        let is_throughout = move |backend: &&Backend| {
            let session = self.tally().present.get(&(backend.pid, backend.started_us));
            session.is_some_and(|session| looks_of(session) >= self.looks())
        };
        self.series().last().into_iter().flat_map(|look| &look.backends).filter(is_throughout)
    }
}

impl PresentSession {
    fn new(backend: &Backend, origin: PostgresOrigin, before: Option<&Self>) -> Self {
        let in_a_row = |is_so: bool, looks: fn(&Self) -> usize| if is_so { before.map_or(0, looks) + 1 } else { 0 };
        Self {
            origin,
            idle_ms: (backend.state == "idle").then_some(backend.state_ms),
            unread_looks: in_a_row(backend.waits_for_client_to_take(), |before| before.unread_looks),
            paused_looks: in_a_row(backend.pauses(), |before| before.paused_looks),
        }
    }
}

impl PostgresOrigin {
    pub(crate) fn of(backend: &Backend) -> Self {
        Self {
            user: backend.user.clone(),
            database: backend.database.clone(),
            application: backend.application.clone(),
            address: backend.address.clone(),
        }
    }

    pub(crate) fn is_of(&self, backend: &Backend) -> bool {
        self.user == backend.user
            && self.database == backend.database
            && self.application == backend.application
            && self.address == backend.address
    }

    pub(crate) fn name(&self) -> String {
        if *self == Self::default() {
            return OTHER_CLIENTS.to_owned();
        }
        let application = match self.application.as_str() {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        let from = match self.address.as_str() {
            "" => "a Unix socket",
            address => address,
        };
        format!("{} as {} from {from}{application}", self.database, self.user)
    }
}

impl SessionGauges {
    /// `more`: sessions of which nothing but the number is known.
    fn add(&mut self, backends: &[&Backend], more: u64) {
        let count = |is: &dyn Fn(&Backend) -> bool| backends.iter().filter(|backend| is(backend)).count() as u64;
        self.sessions.add((backends.len() as u64).saturating_add(more));
        self.busy.add(count(&|backend| backend.works() || backend.pauses()));
        self.working.add(count(&Backend::works));
        self.ready.add(count(&Backend::is_ready));
        self.locked.add(count(&Backend::waits_for_lock));
        self.pausing.add(count(&Backend::pauses));
        self.long_pausing.add(count(&|backend| backend.pauses() && backend.state_ms >= LONG_PAUSE_MS));
        self.overlong_pausing.add(count(&|backend| backend.pauses() && backend.state_ms > OVERLONG_PAUSE_MS));
        let pauses = backends.iter().filter(|backend| backend.pauses());
        self.longest_pause_ms = pauses.map(|backend| backend.state_ms).fold(self.longest_pause_ms, f64::max);
    }
}

impl OriginTally {
    /// `are_all`: neither this look nor the one before left out a session.
    fn add(&mut self, backends: &[&Backend], are_all: bool) {
        self.gauges.add(backends, 0);
        self.now = backends.len() as u64;
        if are_all {
            self.halvings.add(self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_origins_are_bounded() {
        let mut window = PostgresWindow::default();
        for at in 0..3u32 {
            let backend = |n: u32| Backend { pid: n, application: format!("{at}-{n}"), ..Backend::default() };
            let look = Activity { backends: (0..2_000).map(backend).collect(), ..Activity::default() };
            window.add(Duration::from_secs(u64::from(at)), look);
        }
        assert!(window.tally().origins().count() <= MAX_ORIGINS);
        assert_eq!(window.tally().all.sessions.mean(), 2_000.0);
    }
}
