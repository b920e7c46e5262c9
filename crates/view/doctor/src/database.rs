//! Looks at a PostgreSQL itself over some time, and what they tell of whose sessions are there: by origin, and of all
//! together. Sums are kept, and of the last look the sessions. Judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use admin_api::{Activity, Backend};

use crate::course::Course;

/// Origins that are told apart; the sessions of all further origins count as one origin.
const MAX_ORIGINS: usize = 1_000;
/// A pause within a transaction that no ordinary work needs.
pub(crate) const LONG_PAUSE_MS: f64 = 200.0;
/// A pause so long that ending the transaction is the lesser evil.
pub(crate) const OVERLONG_PAUSE_MS: f64 = 5_000.0;
/// A session that was idle for this long before it closed did not close because its work was done.
const MIN_IDLE_BEFORE_CLOSE_MS: f64 = 1_000.0;

/// All looks at one run of one server, in order.
#[derive(Clone, Debug, Default)]
pub struct DatabaseWindow {
    course: Course<Activity>,
    /// Transactions that ended, and sessions that were begun where that is counted. A counter that has gone back adds
    /// nothing: its statistics were reset, or a database was dropped with its own.
    ended: u64,
    begun: Option<u64>,
    origins: BTreeMap<Origin, OriginWindow>,
    /// Sessions of the last look: whose, whether idle, and for how long.
    present: BTreeMap<(u32, u64), Present>,
    all: Sums,
}

/// Whose sessions these are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) application: String,
    pub(crate) address: String,
}

#[derive(Clone, Debug)]
struct Present {
    origin: Origin,
    idle_ms: Option<f64>,
    /// Looks one after the other, up to this one, at which its client did not take an answer.
    not_taken: usize,
    /// The same, at which it paused within a transaction.
    paused: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) sessions: Level,
    /// With something to do: a statement, or an open transaction.
    pub(crate) busy: Level,
    pub(crate) working: Level,
    /// Working sessions that wait for nothing but a processor.
    pub(crate) ready: Level,
    /// Working sessions that wait for a lock.
    pub(crate) locked: Level,
    /// The client's turn within a transaction.
    pub(crate) pausing: Level,
    pub(crate) long_pausing: Level,
    pub(crate) overlong_pausing: Level,
    pub(crate) longest_pause_ms: f64,
}

/// Something that is counted at each look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    sum: u64,
    pub(crate) most: u64,
    /// Looks at which it was not nought.
    some: usize,
    /// Every count, and at how many looks it was that.
    counts: BTreeMap<u64, usize>,
}

/// What was seen of one origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct OriginWindow {
    pub(crate) sums: Sums,
    pub(crate) now: u64,
    /// Sessions that came after the first look, and that went before the last.
    pub(crate) came: u64,
    pub(crate) went: u64,
    /// Closed sessions that had been idle for a while when last seen, and the sum of their idle times.
    pub(crate) went_idle: u64,
    pub(crate) idle_before_ms: f64,
    pub(crate) swings: Swings,
}

/// How often a number has fallen to half of what it was, after it had risen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Swings {
    high: u64,
    low: u64,
    falling: bool,
    pub(crate) falls: u64,
}

impl DatabaseWindow {
    /// False if this look is at another run of the server than those before: then the window begins anew with it.
    pub fn add(&mut self, at: Duration, look: Activity) -> bool {
        let is_another = self.course.last().is_some_and(|(_, last)| last.started_us != look.started_us);
        if is_another {
            *self = Self::default();
        }
        let mut own: BTreeMap<Origin, Vec<&Backend>> = BTreeMap::new();
        let mut present = BTreeMap::new();
        for backend in &look.backends {
            let mut origin = Origin::of(backend);
            if own.len() >= MAX_ORIGINS && !own.contains_key(&origin) {
                origin = Origin::default();
            }
            let idle_ms = (backend.state == "idle").then_some(backend.state_ms);
            let key = (backend.pid, backend.started_us);
            let (not_taken, paused) = self.present.get(&key).map_or((0, 0), |before| (before.not_taken, before.paused));
            let not_taken = if backend.waits_for_client_to_take() { not_taken + 1 } else { 0 };
            let paused = if backend.pauses() { paused + 1 } else { 0 };
            present.insert(key, Present { origin: origin.clone(), idle_ms, not_taken, paused });
            own.entry(origin).or_default().push(backend);
        }
        // Which sessions are listed is chance where not all are: those that it lacks have not gone.
        let are_all = look.left_out == 0 && self.course.last().is_none_or(|(_, last)| last.left_out == 0);
        let have_come = (are_all && present.keys().any(|key| !self.present.contains_key(key)))
            || self.course.last().is_some_and(|(_, last)| look.sessions > last.sessions);
        self.count(&look);
        if are_all {
            self.note_changes(&present);
        }
        let backends: Vec<&Backend> = look.backends.iter().collect();
        self.all.add(&backends, look.hidden.saturating_add(look.left_out));
        for (origin, window) in &mut self.origins {
            let backends = own.remove(origin).unwrap_or_default();
            window.add(&backends, are_all);
        }
        for (origin, backends) in own {
            if self.origins.len() < MAX_ORIGINS {
                self.origins.entry(origin).or_default().add(&backends, are_all);
            }
        }
        self.present = present;
        self.course.add(at, look, have_come);
        !is_another
    }

    /// What has ended and begun since the last look.
    fn count(&mut self, look: &Activity) {
        let (ended, begun) = match self.course.last() {
            Some((_, last)) => (
                look.transactions.saturating_sub(last.transactions),
                last.sessions.zip(look.sessions).map(|(before, now)| now.saturating_sub(before)),
            ),
            None => (0, look.sessions.map(|_| 0)),
        };
        self.ended = self.ended.saturating_add(ended);
        self.begun = begun.map(|begun| begun.saturating_add(self.begun.unwrap_or(0)));
    }

    /// Who has come, and who has gone.
    fn note_changes(&mut self, present: &BTreeMap<(u32, u64), Present>) {
        if self.looks() == 0 {
            return;
        }
        let room = MAX_ORIGINS.saturating_sub(self.origins.len());
        let new: BTreeSet<&Origin> =
            present.values().map(|one| &one.origin).filter(|origin| !self.origins.contains_key(*origin)).collect();
        for origin in new.into_iter().take(room) {
            self.origins.insert(origin.clone(), OriginWindow::default());
        }
        for (_, one) in present.iter().filter(|(key, _)| !self.present.contains_key(*key)) {
            if let Some(window) = self.origins.get_mut(&one.origin) {
                window.came += 1;
            }
        }
        for (_, one) in self.present.iter().filter(|(key, _)| !present.contains_key(*key)) {
            let Some(window) = self.origins.get_mut(&one.origin) else { continue };
            window.went += 1;
            if let Some(ms) = one.idle_ms.filter(|ms| *ms >= MIN_IDLE_BEFORE_CLOSE_MS) {
                window.went_idle += 1;
                window.idle_before_ms += ms;
            }
        }
    }

    pub fn looks(&self) -> usize {
        self.course.looks()
    }

    /// From the first look to the last.
    pub fn lasts(&self) -> Duration {
        self.course.lasts()
    }

    /// The first look and the last; `None` before there is one.
    pub(crate) fn ends(&self) -> Option<(&Activity, &Activity)> {
        self.course.ends()
    }

    /// Transactions that ended, and sessions that were begun where that is counted.
    pub(crate) fn counted(&self) -> (u64, Option<u64>) {
        (self.ended, self.begun)
    }

    /// The share of looks before which sessions had come.
    pub(crate) fn arrivals(&self) -> f64 {
        self.course.arrivals()
    }

    /// Sessions of which every look showed that their client does not take an answer.
    pub(crate) fn not_taken_throughout(&self) -> impl Iterator<Item = &Backend> {
        self.throughout(|present| present.not_taken)
    }

    /// Sessions of which every look showed that they pause within a transaction.
    pub(crate) fn paused_throughout(&self) -> impl Iterator<Item = &Backend> {
        self.throughout(|present| present.paused)
    }

    fn throughout(&self, at_looks: fn(&Present) -> usize) -> impl Iterator<Item = &Backend> {
        let throughout = move |backend: &&Backend| {
            let present = self.present.get(&(backend.pid, backend.started_us));
            present.is_some_and(|present| at_looks(present) >= self.looks())
        };
        self.course.last().into_iter().flat_map(|(_, look)| &look.backends).filter(throughout)
    }

    pub(crate) fn all(&self) -> &Sums {
        &self.all
    }

    pub(crate) fn origins(&self) -> impl Iterator<Item = (&Origin, &OriginWindow)> {
        self.origins.iter()
    }
}

impl Origin {
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
            return "all other clients".to_owned();
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

impl Sums {
    /// `more`: sessions of which nothing else is known.
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

impl OriginWindow {
    /// `are_all`: none is left out, in this look or the one before.
    fn add(&mut self, backends: &[&Backend], are_all: bool) {
        self.sums.add(backends, 0);
        self.now = backends.len() as u64;
        if are_all {
            self.swings.add(self.now);
        }
    }
}

impl Level {
    pub(crate) fn add(&mut self, count: u64) {
        self.sum = self.sum.saturating_add(count);
        self.most = self.most.max(count);
        self.some += usize::from(count > 0);
        *self.counts.entry(count).or_default() += 1;
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum as f64 / self.looks().max(1) as f64
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// The share of looks at which it was not nought.
    pub(crate) fn share(&self) -> f64 {
        self.some as f64 / self.looks().max(1) as f64
    }

    /// The share of looks at which it was so much, or more.
    pub(crate) fn share_from(&self, least: f64) -> f64 {
        let looks: usize =
            self.counts.iter().filter(|(count, _)| **count as f64 >= least).map(|(_, looks)| looks).sum();
        looks as f64 / self.looks().max(1) as f64
    }

    fn looks(&self) -> usize {
        self.counts.values().sum()
    }
}

impl Swings {
    /// Numbers below this do not swing, they dither.
    const LEAST: u64 = 4;

    pub(crate) fn add(&mut self, count: u64) {
        if self.falling {
            self.low = self.low.min(count);
            if count >= Self::LEAST && count / 2 >= self.low {
                (self.falling, self.high) = (false, count);
            }
        } else {
            self.high = self.high.max(count);
            if self.high >= Self::LEAST && count <= self.high / 2 {
                (self.falling, self.low) = (true, count);
                self.falls += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rise_after_a_fall_makes_another_fall() {
        let falls = |counts: &[u64]| {
            let mut swings = Swings::default();
            counts.iter().for_each(|count| swings.add(*count));
            swings.falls
        };
        assert_eq!(falls(&[8, 8, 1, 8, 3, 0, 5, 1]), 3);
        assert_eq!(falls(&[8, 7, 6, 7, 8, 5]), 0, "as in a deployment, one instance after the other");
        assert_eq!(falls(&[8, 2, 1, 0, 1, 0]), 1);
        assert_eq!(falls(&[2, 0, 2, 0, 3, 1]), 0, "so few dither");
    }

    #[test]
    fn another_run_of_the_server_begins_the_window_anew() {
        let mut window = DatabaseWindow::default();
        let look = |started_us| Activity { started_us, ..Activity::default() };
        assert!(window.add(Duration::ZERO, look(1)) && window.add(Duration::from_secs(1), look(1)));
        assert!(!window.add(Duration::from_secs(2), look(2)));
        assert_eq!((window.looks(), window.lasts()), (1, Duration::ZERO));
    }

    #[test]
    fn many_origins_are_bounded() {
        let mut window = DatabaseWindow::default();
        for at in 0..3u32 {
            let backend = |n: u32| Backend { pid: n, application: format!("{at}-{n}"), ..Backend::default() };
            let look = Activity { backends: (0..2_000).map(backend).collect(), ..Activity::default() };
            window.add(Duration::from_secs(u64::from(at)), look);
        }
        assert!(window.origins().count() <= MAX_ORIGINS);
        assert_eq!(window.all().sessions.mean(), 2_000.0);
    }
}
