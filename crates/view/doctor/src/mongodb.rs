//! Looks at a MongoDB itself over some time, and what they tell of its connections: of all together, and of each
//! application as far as it lists them. Sums are kept, and two looks. Judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use admin_api::{Mongo, Session};

use crate::{
    course::Course,
    database::{Level, Swings},
};

/// Applications that are told apart; the connections of all further applications count as one.
const MAX_ORIGINS: usize = 1_000;
/// A pause within a transaction is long if it has lasted this long when it is seen: on average half of it is over by
/// then. Where connections were listed only once, it is the sum of the pauses of a transaction.
pub(crate) const SEEN_PAUSE_MS: f64 = 50.0;
/// Commands that the doctor itself sends for each look.
const COMMANDS_PER_LOOK: u64 = 1;
/// Commands that the doctor itself sends for each list of connections.
const COMMANDS_PER_LIST: u64 = 1;
/// Commands that the doctor itself sends when it connects again.
const COMMANDS_PER_RECONNECT: u64 = 3;
/// A connection that was idle for this long before it closed did not close because its work was done.
const MIN_IDLE_BEFORE_CLOSE: Duration = Duration::from_millis(500);
/// Looks within that time that are remembered; the oldest go first.
const MAX_RECENT_LOOKS: usize = 100;

/// All looks at one run of one server, in order.
#[derive(Clone, Debug, Default)]
pub struct MongoWindow {
    course: Course<Mongo>,
    pub(crate) sums: MongoSums,
    origins: BTreeMap<MongoOrigin, MongoOriginWindow>,
    /// Connections of the last list.
    present: BTreeSet<u64>,
    /// Transactions that every list showed without a command for longer than the window had lasted, and that have had
    /// none in between: how many of whom that had commands for so long.
    standing: BTreeMap<(MongoOrigin, Option<u64>), u64>,
    /// Looks that listed connections.
    lists: usize,
    /// Commands of the one who looks since the last look's figures.
    own: u64,
    /// When, how many connections, and how many commands since the look before: of the last while.
    recent: VecDeque<(Duration, u64, u64)>,
}

/// Whose connections these are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct MongoOrigin {
    application: String,
    user: String,
    host: String,
}

/// What was seen of one application.
#[derive(Clone, Debug, Default)]
pub(crate) struct MongoOriginWindow {
    /// Connections of the last list.
    pub(crate) now: u64,
    /// Connections that were in a list and not in the one before.
    pub(crate) came: u64,
    /// Transactions without a command for [`SEEN_PAUSE_MS`], the most at once.
    pub(crate) paused: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MongoSums {
    pub(crate) connections: Level,
    /// With a command under way.
    pub(crate) active: Level,
    /// Reads and writes under way, and those that wait for a lock or a ticket.
    pub(crate) running: Level,
    pub(crate) queued: Level,
    /// Transactions that are open, and that have no command.
    pub(crate) open: Level,
    pub(crate) inactive: Level,
    /// The fewest without a command.
    pub(crate) least_inactive: Option<u64>,
    /// Transactions that had no command at any list, and none in between.
    pub(crate) kept_inactive: u64,
    /// The most that one has paused, all its pauses together.
    pub(crate) longest_ms: f64,
    /// Pauses that were seen where connections were listed twice, and those of them that went on for [`SEEN_PAUSE_MS`].
    pub(crate) pauses: u64,
    pub(crate) lasting: u64,
    /// Some connections were listed once more.
    pub(crate) seen_again: bool,
    /// Commands of the one who looks, between the first look and the last.
    pub(crate) own: u64,
    pub(crate) swings: Swings,
    /// Falls of the number of connections before which hardly anything was asked for a while, and the most connections
    /// before one.
    pub(crate) idle_falls: u64,
    pub(crate) fell_from: u64,
}

impl MongoWindow {
    /// False if this look is at another run of the server than those before: then the window begins anew with it.
    pub fn add(&mut self, at: Duration, mut look: Mongo) -> bool {
        let is_another = self.course.last().is_some_and(|(_, last)| !look.is_after(last));
        if is_another {
            *self = Self::default();
        }
        let asked = self.course.last().map_or(0, |(_, last)| look.operations.saturating_sub(last.operations));
        let have_come = self.course.last().is_some_and(|(_, last)| look.created > last.created);
        let own = if self.looks() == 0 { 0 } else { self.own + COMMANDS_PER_LOOK };
        self.sums.own = self.sums.own.saturating_add(own);
        self.count(at, &look, asked.saturating_sub(own));
        self.own = match (&look.sessions, look.seen_again) {
            (_, true) => COMMANDS_PER_RECONNECT,
            (Some(_), false) => COMMANDS_PER_LIST,
            (None, false) => 0,
        };
        if let Some(sessions) = look.sessions.take() {
            self.list(&sessions, look.seen_again, self.course.until(at));
        }
        // What was known once is known: it is not asked for at each look.
        if let Some((_, last)) = self.course.last() {
            look.processors = look.processors.or(last.processors);
            look.hides_sessions = look.hides_sessions.or(last.hides_sessions.clone());
        }
        self.course.add(at, look, have_come);
        !is_another
    }

    fn count(&mut self, at: Duration, look: &Mongo, asked: u64) {
        let sums = &mut self.sums;
        sums.connections.add(look.current);
        for (level, count) in
            [(&mut sums.active, look.active), (&mut sums.running, look.running), (&mut sums.queued, look.queued)]
        {
            if let Some(count) = count {
                level.add(count);
            }
        }
        if let Some(transactions) = look.transactions {
            sums.open.add(transactions.open);
            sums.inactive.add(transactions.inactive);
            let least = sums.least_inactive.unwrap_or(u64::MAX);
            sums.least_inactive = Some(least.min(transactions.inactive));
        }
        let falls = sums.swings.falls;
        sums.swings.add(look.current);
        if sums.swings.falls > falls {
            let most = self.recent.iter().map(|(_, current, _)| *current).max().unwrap_or(0);
            let asked = self.recent.iter().fold(asked, |sum, (.., asked)| sum.saturating_add(*asked));
            let lasted = self.recent.front().map_or(Duration::ZERO, |(first, ..)| at.saturating_sub(*first));
            if lasted >= MIN_IDLE_BEFORE_CLOSE && asked < most.saturating_sub(look.current) {
                sums.idle_falls += 1;
                sums.fell_from = sums.fell_from.max(most);
            }
        }
        self.recent.push_back((at, look.current, asked));
        // One that is older stays, so that the others last for long enough.
        while self.recent.len() > MAX_RECENT_LOOKS
            || self.recent.get(1).is_some_and(|(second, ..)| at.saturating_sub(*second) >= MIN_IDLE_BEFORE_CLOSE)
        {
            self.recent.pop_front();
        }
    }

    fn list(&mut self, sessions: &[Session], again: bool, lasts: Duration) {
        let long = lasts.as_millis() as f64;
        let present: BTreeSet<u64> = sessions.iter().filter_map(|session| session.id).collect();
        self.origins.values_mut().for_each(|origin| origin.now = 0);
        self.sums.seen_again |= again;
        let mut paused: BTreeMap<MongoOrigin, u64> = BTreeMap::new();
        let mut standing: BTreeMap<(MongoOrigin, Option<u64>), u64> = BTreeMap::new();
        for session in sessions {
            let mut origin = MongoOrigin::of(session);
            if self.origins.len() >= MAX_ORIGINS && !self.origins.contains_key(&origin) {
                origin = MongoOrigin::default();
            }
            let own = self.origins.entry(origin.clone()).or_default();
            own.now += u64::from(session.id.is_some());
            own.came += u64::from(self.lists > 0 && session.id.is_some_and(|id| !self.present.contains(&id)));
            let Some(ms) = session.paused_ms else { continue };
            self.sums.longest_ms = self.sums.longest_ms.max(ms);
            let lasts = match session.pause_ms {
                Some(pause) => pause >= SEEN_PAUSE_MS,
                None => !again && ms >= SEEN_PAUSE_MS,
            };
            if session.pause_ms.is_some() {
                self.sums.pauses = self.sums.pauses.saturating_add(1);
                self.sums.lasting = self.sums.lasting.saturating_add(u64::from(lasts));
            }
            if ms >= long {
                *standing.entry((origin.clone(), session.worked_us)).or_default() += 1;
            }
            if lasts {
                *paused.entry(origin).or_default() += 1;
            }
        }
        for (origin, count) in paused {
            if let Some(own) = self.origins.get_mut(&origin) {
                own.paused = own.paused.max(count);
            }
        }
        if self.lists > 0 {
            standing.retain(|key, count| {
                *count = self.standing.get(key).copied().unwrap_or(0).min(*count);
                *count > 0
            });
        }
        self.standing = standing;
        self.sums.kept_inactive = if lasts > Duration::ZERO { self.standing.values().sum() } else { 0 };
        self.present = present;
        self.lists += 1;
    }

    pub fn looks(&self) -> usize {
        self.course.looks()
    }

    /// From the first look to the last.
    pub fn lasts(&self) -> Duration {
        self.course.lasts()
    }

    /// The first look and the last, without their lists; `None` before there is one.
    pub(crate) fn ends(&self) -> Option<(&Mongo, &Mongo)> {
        self.course.ends()
    }

    /// The share of looks before which connections had come.
    pub(crate) fn arrivals(&self) -> f64 {
        self.course.arrivals()
    }

    /// Its connections were listed.
    pub(crate) fn has_lists(&self) -> bool {
        self.lists > 0
    }

    pub(crate) fn origins(&self) -> impl Iterator<Item = (&MongoOrigin, &MongoOriginWindow)> {
        self.origins.iter()
    }
}

impl MongoOrigin {
    fn of(session: &Session) -> Self {
        Self { application: session.application.clone(), user: session.user.clone(), host: session.host.clone() }
    }

    pub(crate) fn name(&self) -> String {
        if *self == Self::default() {
            return "all other clients".to_owned();
        }
        let application = if self.application.is_empty() { "a client without a name" } else { &self.application };
        let user = if self.user.is_empty() { String::new() } else { format!(" as {}", self.user) };
        let host = if self.host.is_empty() { "a place that is not told" } else { &self.host };
        format!("{application}{user} from {host}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(current: u64, operations: u64) -> Mongo {
        Mongo { current, operations, created: Some(operations), ..Mongo::default() }
    }

    #[test]
    fn another_run_of_the_server_begins_the_window_anew() {
        let mut window = MongoWindow::default();
        assert!(window.add(Duration::ZERO, look(1, 5)) && window.add(Duration::from_secs(1), look(1, 5)));
        assert!(!window.add(Duration::from_secs(2), look(1, 4)));
        assert_eq!((window.looks(), window.lasts()), (1, Duration::ZERO));
    }

    #[test]
    fn many_applications_are_bounded() {
        let mut window = MongoWindow::default();
        for at in 0..3u64 {
            let session = |n: u64| Session { id: Some(n), application: format!("{at}-{n}"), ..Session::default() };
            let sessions = Some((0..2_000).map(session).collect());
            window.add(Duration::from_secs(at), Mongo { sessions, ..look(2_000, 9) });
        }
        // And one for those beyond.
        assert!(window.origins().count() <= MAX_ORIGINS + 1);
    }

    #[test]
    fn only_a_fall_after_a_quiet_while_is_one_of_idle_connections() {
        let falls = |asked: u64| {
            let mut window = MongoWindow::default();
            for n in 0..40 {
                let current = if n % 20 < 14 { 12 } else { 2 };
                window.add(Duration::from_millis(n * 100), look(current, n * asked));
            }
            (window.sums.swings.falls, window.sums.idle_falls)
        };
        assert_eq!(falls(0), (2, 2));
        assert_eq!(falls(5), (2, 0), "they worked to the end");
    }

    #[test]
    fn what_the_one_who_looks_asks_is_not_what_was_asked() {
        // A look, a list, and two more of these.
        let listed = |n: u64| {
            let current = if n % 20 < 14 { 6 } else { 1 };
            Mongo { sessions: Some(Vec::new()), seen_again: true, ..look(current, 100 + n * 4) }
        };
        let mut window = MongoWindow::default();
        (0..40).for_each(|n| assert!(window.add(Duration::from_millis(n * 100), listed(n))));
        assert_eq!((window.sums.own, window.sums.idle_falls), (39 * 4, 2), "no other client sent a command");
    }

    #[test]
    fn figures_at_the_end_of_their_range_do_not_overflow() {
        let mut window = MongoWindow::default();
        for at in 0..9 {
            let transactions = Some(admin_api::Transactions {
                started: u64::MAX,
                ended: u64::MAX,
                open: u64::MAX,
                inactive: u64::MAX,
            });
            let most = Mongo {
                active: Some(u64::MAX),
                running: Some(u64::MAX),
                queued: Some(u64::MAX),
                transactions,
                ..look(u64::MAX, u64::MAX)
            };
            window.add(Duration::from_secs(at), most);
        }
        assert_eq!(window.sums.connections.most, u64::MAX);
    }
}
