//! What looks at a MongoDB tell of its connections: of all together, and by application as far as it lists them. Judges
//! nothing.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use admin_api::{Mongo, SessionRow};

use crate::{
    gauge::{Gauge, HalvingCounter},
    origin::{MAX_ORIGINS, OTHER_CLIENTS, name_largest},
    series::{Series, ServerWindow, Tally},
};

/// A pause is long if it went on for this long between two lists of the connections. Where connections were listed only
/// once, the sum of a transaction's pauses is compared.
pub(crate) const MIN_LONG_PAUSE_MS: f64 = 50.0;
/// Commands that the doctor itself sends for each look.
const COMMANDS_PER_LOOK: u64 = 1;
/// Commands that the doctor itself sends for each list of connections.
const COMMANDS_PER_LIST: u64 = 1;
/// Commands that the doctor itself sends when it connects again.
const COMMANDS_PER_RECONNECT: u64 = 3;
/// Commands that a connection sends before its client asks for anything: a hello, and a step of the login.
const COMMANDS_PER_CONNECTION: u64 = 2;
/// A connection that was idle for this long before it closed did not close because its work was done.
const MIN_IDLE_BEFORE_CLOSE: Duration = Duration::from_millis(500);
/// Looks within that time that are remembered; the oldest go first.
const MAX_RECENT_LOOKS: usize = 100;
/// The origin of connections that may not be seen.
const UNKNOWN_CLIENTS: &str = "all clients";

pub type MongoWindow = ServerWindow<MongoTally>;

#[derive(Clone, Debug, Default)]
pub struct MongoTally {
    pub(crate) connections: Gauge,
    /// Connections with a command under way.
    pub(crate) active: Gauge,
    /// Reads and writes under way.
    pub(crate) running: Gauge,
    /// Reads and writes that wait for a lock or a ticket.
    pub(crate) queued: Gauge,
    pub(crate) transactions: TransactionTally,
    pub(crate) halvings: HalvingCounter,
    /// Halvings of the number of connections before which hardly any command came for a while.
    pub(crate) idle_halvings: u64,
    /// The most connections before one of these.
    pub(crate) max_before_halving: u64,
    origins: BTreeMap<MongoOrigin, MongoOriginTally>,
    /// Connections of the last list.
    present: BTreeSet<u64>,
    /// Looks that listed connections.
    lists: usize,
    /// Commands of the doctor itself, between the first look and the last.
    own_commands: u64,
    /// Commands of the doctor itself since the figures of the last look.
    own_since_look: u64,
    /// The last looks: time, connections, and commands of clients since the look before.
    recent: VecDeque<(Duration, u64, u64)>,
}

/// Transactions without a command under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransactionTally {
    pub(crate) open: Gauge,
    pub(crate) inactive: Gauge,
    pub(crate) min_inactive: Option<u64>,
    /// Inactive transactions of every list that had no command in between.
    pub(crate) inactive_throughout: u64,
    /// The longest sum of the pauses of one transaction.
    pub(crate) longest_ms: f64,
    /// Pauses that were seen where connections were listed twice.
    pub(crate) pauses: u64,
    /// The pauses among them that went on for [`MIN_LONG_PAUSE_MS`].
    pub(crate) lasting: u64,
    /// Some connections were listed twice.
    pub(crate) are_listed_twice: bool,
    /// Transactions that every list showed without a command for longer than the window had lasted, by origin and the
    /// time that they have worked, which stays the same while they pause.
    standing: BTreeMap<(MongoOrigin, Option<u64>), u64>,
}

/// Where connections come from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct MongoOrigin {
    application: String,
    user: String,
    host: String,
}

#[derive(Clone, Debug, Default)]
struct MongoOriginTally {
    /// Connections of the last list.
    now: u64,
    /// Connections that were in a list and not in the one before.
    came: u64,
    /// The most transactions at once without a command for [`MIN_LONG_PAUSE_MS`].
    paused: u64,
}

impl Tally for MongoTally {
    type Look = Mongo;

    fn is_same_run(before: &Mongo, look: &Mongo) -> bool {
        look.is_same_run_as(before)
    }

    fn count(&mut self, series: &Series<Mongo>, at: Duration, look: &mut Mongo) -> bool {
        let last = series.last();
        let commands = last.map_or(0, |last| look.operations.saturating_sub(last.operations));
        let own = if last.is_none() { 0 } else { self.own_since_look + COMMANDS_PER_LOOK };
        self.own_commands = self.own_commands.saturating_add(own);
        self.count_figures(look);
        self.count_halving(at, look.current, commands.saturating_sub(own));
        self.own_since_look = match (&look.sessions, look.are_listed_twice) {
            (_, true) => COMMANDS_PER_RECONNECT,
            (Some(_), false) => COMMANDS_PER_LIST,
            (None, false) => 0,
        };
        if let Some(sessions) = look.sessions.take() {
            self.count_list(&sessions, look.are_listed_twice, series.duration_until(at));
        }
        // The doctor asks for these once, and not for each look.
        if let Some(last) = last {
            look.processors = look.processors.or(last.processors);
            look.hides_sessions = look.hides_sessions.take().or_else(|| last.hides_sessions.clone());
        }
        last.is_some_and(|last| look.created > last.created)
    }
}

impl MongoTally {
    fn count_figures(&mut self, look: &Mongo) {
        self.connections.add(look.current);
        let known =
            [(&mut self.active, look.active), (&mut self.running, look.running), (&mut self.queued, look.queued)];
        for (gauge, value) in known {
            value.into_iter().for_each(|value| gauge.add(value));
        }
        if let Some(transactions) = look.transactions {
            self.transactions.open.add(transactions.open);
            self.transactions.inactive.add(transactions.inactive);
            let min = self.transactions.min_inactive.unwrap_or(u64::MAX);
            self.transactions.min_inactive = Some(min.min(transactions.inactive));
        }
    }

    /// `commands`: those of clients since the look before.
    fn count_halving(&mut self, at: Duration, connections: u64, commands: u64) {
        let falls = self.halvings.falls();
        self.halvings.add(connections);
        if self.halvings.falls() > falls {
            let max = self.recent.iter().map(|(_, connections, _)| *connections).max().unwrap_or(0);
            let commands = self.recent.iter().fold(commands, |sum, (.., commands)| sum.saturating_add(*commands));
            let lasted = self.recent.front().map_or(Duration::ZERO, |(first, ..)| at.saturating_sub(*first));
            if lasted >= MIN_IDLE_BEFORE_CLOSE && commands < max.saturating_sub(connections) {
                self.idle_halvings += 1;
                self.max_before_halving = self.max_before_halving.max(max);
            }
        }
        self.recent.push_back((at, connections, commands));
        // One look that is older stays, so that the others span the whole time.
        while self.recent.len() > MAX_RECENT_LOOKS
            || self.recent.get(1).is_some_and(|(second, ..)| at.saturating_sub(*second) >= MIN_IDLE_BEFORE_CLOSE)
        {
            self.recent.pop_front();
        }
    }

    /// `again`: the connections were listed twice for this look. `window`: the time since the first look.
    fn count_list(&mut self, sessions: &[SessionRow], again: bool, window: Duration) {
        let window_ms = window.as_millis() as f64;
        self.origins.values_mut().for_each(|origin| origin.now = 0);
        self.transactions.are_listed_twice |= again;
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
            let Some(paused_ms) = session.paused_ms else { continue };
            if paused_ms >= window_ms {
                *standing.entry((origin.clone(), session.worked_us)).or_default() += 1;
            }
            if self.transactions.count_pause(session, paused_ms, again) {
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
                *count = self.transactions.standing.get(key).copied().unwrap_or(0).min(*count);
                *count > 0
            });
        }
        self.transactions.inactive_throughout = if window > Duration::ZERO { standing.values().sum() } else { 0 };
        self.transactions.standing = standing;
        self.present = sessions.iter().filter_map(|session| session.id).collect();
        self.lists += 1;
    }

    pub(crate) fn has_lists(&self) -> bool {
        self.lists > 0
    }

    pub(crate) fn name_largest_origins(&self) -> String {
        let now = self.origins.iter().filter(|(_, own)| own.now > 0);
        name_largest(now.map(|(origin, own)| (origin.name(), own.now)))
    }

    /// The origin from which most connections came.
    pub(crate) fn name_most_coming(&self) -> String {
        self.name_max(|own| own.came)
    }

    /// The origin with most transactions that pause for long.
    pub(crate) fn name_most_paused(&self) -> String {
        self.name_max(|own| own.paused)
    }

    fn name_max(&self, of: fn(&MongoOriginTally) -> u64) -> String {
        let max = self.origins.iter().max_by_key(|(_, own)| of(own)).filter(|(_, own)| of(own) > 0);
        max.map_or_else(|| UNKNOWN_CLIENTS.to_owned(), |(origin, _)| origin.name())
    }
}

impl TransactionTally {
    /// Counts a transaction without a command. True if its pause is long.
    fn count_pause(&mut self, session: &SessionRow, paused_ms: f64, again: bool) -> bool {
        self.longest_ms = self.longest_ms.max(paused_ms);
        let is_long = match session.pause_ms {
            Some(pause) => pause >= MIN_LONG_PAUSE_MS,
            None => !again && paused_ms >= MIN_LONG_PAUSE_MS,
        };
        if session.pause_ms.is_some() {
            self.pauses = self.pauses.saturating_add(1);
            self.lasting = self.lasting.saturating_add(u64::from(is_long));
        }
        is_long
    }
}

impl MongoWindow {
    /// Connections with a command under way, or, of a server that does not count these, operations.
    pub(crate) fn busy(&self) -> Option<&Gauge> {
        let (_, last) = self.first_and_last()?;
        match (last.active, last.running) {
            (Some(_), _) => Some(&self.tally().active),
            (None, Some(_)) => Some(&self.tally().running),
            (None, None) => None,
        }
    }

    /// Connections that were made in the window, and the commands of clients beyond those that each connection sends by
    /// itself; `None` if the server does not count both.
    pub(crate) fn connections_and_commands(&self) -> Option<(u64, u64)> {
        let (first, last) = self.first_and_last()?;
        // A look is a command, too: a server that counts commands has counted at least one.
        if last.operations == 0 {
            return None;
        }
        let came = last.created?.saturating_sub(first.created?);
        let commands = last.operations.saturating_sub(first.operations);
        let own = COMMANDS_PER_CONNECTION.saturating_mul(came).saturating_add(self.tally().own_commands);
        Some((came, commands.saturating_sub(own)))
    }
}

impl MongoOrigin {
    fn of(session: &SessionRow) -> Self {
        Self { application: session.application.clone(), user: session.user.clone(), host: session.host.clone() }
    }

    fn name(&self) -> String {
        if *self == Self::default() {
            return OTHER_CLIENTS.to_owned();
        }
        let application = if self.application.is_empty() { "a client without a name" } else { &self.application };
        let user = if self.user.is_empty() { String::new() } else { format!(" as {}", self.user) };
        let host = if self.host.is_empty() { "an unknown host" } else { &self.host };
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
    fn many_applications_are_bounded() {
        let mut window = MongoWindow::default();
        for at in 0..3u64 {
            let session =
                |n: u64| SessionRow { id: Some(n), application: format!("{at}-{n}"), ..SessionRow::default() };
            let sessions = Some((0..2_000).map(session).collect());
            window.add(Duration::from_secs(at), Mongo { sessions, ..look(2_000, 9) });
        }
        assert!(window.tally().origins.len() <= MAX_ORIGINS + 1);
    }

    #[test]
    fn commands_of_the_doctor_are_not_those_of_clients() {
        // A look, and a list that is asked for twice over a new connection.
        let listed = |n: u64| {
            let current = if n % 20 < 14 { 6 } else { 1 };
            Mongo { sessions: Some(Vec::new()), are_listed_twice: true, ..look(current, 100 + n * 4) }
        };
        let mut window = MongoWindow::default();
        (0..40).for_each(|n| assert!(window.add(Duration::from_millis(n * 100), listed(n))));
        assert_eq!(
            (window.tally().own_commands, window.tally().idle_halvings),
            (39 * 4, 2),
            "no other client sent a command"
        );
    }
}
