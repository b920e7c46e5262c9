//! The topology description that all workers share: what each host is, which monitor watches it, and which clients wait
//! for a host. It reaches sessions by posts.
//!
//! When a host's type changes, all hosts are checked at once, and often while a replica set has no primary, but never
//! more often than `MIN_HEARTBEAT_INTERVAL`. All clients are notified then, because some may wait for a server of a
//! host that no longer serves them.

mod checks;
mod client_notices;

use std::{sync::Arc, time::Duration};

use seam::{Effect, Outbox, Peer, ServerTag};

#[cfg(test)]
pub use self::checks::HEARTBEAT_INTERVAL;
use self::checks::{CheckSchedule, MIN_HEARTBEAT_INTERVAL};
pub use self::{
    checks::CheckRequest,
    client_notices::{ClientNotices, post},
};
use crate::{
    cluster_time::ClusterTime,
    routes::{ReadPreference, Target},
    selection::{DEFAULT_LOCAL_THRESHOLD, LastWrite, ReadRequirements, average, filter_stale, within_local_threshold},
    server_description::{Election, ServerDescription, ServerType},
    tags::{self, TagSet},
};

/// Maximum number of hosts over all configurations of a process.
const MAX_HOSTS: usize = 1024;

/// How long a primary of an earlier election is ignored. A replaced primary steps down sooner (`electionTimeoutMillis`
/// is 10 seconds), and a replica set that is created anew counts its elections from the beginning.
const STALE_PRIMARY_TIME: Duration = Duration::from_secs(60);

/// `maxWireVersion` that clients are told at most: that of MongoDB 8.0.
const MAX_WIRE_VERSION: i32 = 25;

#[derive(Default)]
pub struct Topology {
    now: Duration,
    last_key: u64,
    /// Counts choices among hosts that are equally good, so that each gets its turn.
    choices: usize,
    /// How much longer than the nearest host's another host's round trip may be.
    local_threshold: Duration,
    hosts: Vec<Host>,
    configured: Option<Vec<usize>>,
    /// The latest election known, and when a host last told of it. A primary of an earlier election is stale, even
    /// while its successor is unreachable.
    latest_election: Option<(Election, Duration)>,
    checks: CheckSchedule,
    pub clients: ClientNotices,
}

#[derive(Default, Clone)]
struct Host {
    /// Its last description. Kept when the host is down: clients are told its wire version.
    description: Option<ServerDescription>,
    up: bool,
    monitor: Option<(ServerTag, u64)>,
    heard_at: Duration,
    round_trip: Option<Duration>,
    /// When it was last checked because of an error that it sent.
    last_error_check: Option<Duration>,
}

/// When a `hello` reply came, and its round trip if that was measured.
#[derive(Clone, Copy, Default, Debug)]
pub struct HelloReceived {
    pub at: Duration,
    pub round_trip: Option<Duration>,
}

/// What clients are told about the upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdvertisedTopology {
    /// The upstream has several hosts, and Poolhouse shows itself as a mongos in front of them.
    pub mongos: bool,
    pub wire: i32,
    pub session_minutes: Option<i32>,
}

/// A post may reach a session of another protocol with the same tag, so the keys of each protocol begin with a letter
/// of its own.
const FIRST_KEY: u64 = (b'M' as u64) << 56;

impl Topology {
    pub fn new() -> Self {
        Self { last_key: FIRST_KEY, local_threshold: DEFAULT_LOCAL_THRESHOLD, ..Self::default() }
    }

    pub fn now(&self) -> Duration {
        self.now
    }

    pub fn set_local_threshold(&mut self, threshold: Duration) {
        self.local_threshold = threshold;
    }

    pub fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    fn hosts_up(&self) -> impl Iterator<Item = (usize, &ServerDescription)> {
        let up = self.hosts.iter().enumerate().filter(|(_, host)| host.up);
        up.filter_map(|(number, host)| Some((number, host.description.as_ref()?)))
    }

    fn description(&self, host: usize) -> Option<&ServerDescription> {
        self.hosts.get(host)?.description.as_ref()
    }

    /// The primary of the latest election, if it is up.
    fn primary(&self) -> Option<(usize, &ServerDescription)> {
        let primaries = self.hosts_up().filter(|(_, description)| {
            description.server_type == ServerType::Primary && !self.is_replaced(description)
        });
        primaries.max_by_key(|(_, description)| description.election)
    }

    /// A writable host, if one is known: the primary of the latest election, or the near mongos whose turn it is.
    fn writable_host(&self) -> Option<usize> {
        if let Some((host, _)) = self.primary() {
            return Some(host);
        }
        let others = self
            .hosts_up()
            .filter(|(_, description)| matches!(description.server_type, ServerType::Standalone | ServerType::Mongos));
        self.choose_near(others.map(|(host, _)| host).collect())
    }

    fn choose_near(&self, hosts: Vec<usize>) -> Option<usize> {
        let near = within_local_threshold(hosts, self.local_threshold, |host| self.hosts[host].round_trip);
        near.get(self.choices % near.len().max(1)).copied()
    }

    fn is_replaced(&self, primary: &ServerDescription) -> bool {
        self.latest_election
            .is_some_and(|(latest, heard_at)| primary.election < latest && self.now < heard_at + STALE_PRIMARY_TIME)
    }

    /// Selects a host, and takes a turn if it is one of several equal hosts; `None` if no suitable one is known.
    pub fn choose(&mut self, target: Target, requirements: Option<&ReadRequirements>) -> Option<usize> {
        let chosen = self.suitable_host(target, requirements)?;
        let is_turn = match target {
            Target::Host(_) => false,
            Target::HostIfUp(host) if self.is_up(host) => false,
            Target::HostIfUp(_) | Target::Writable => self.primary().is_none(),
            Target::Read(_) => true,
        };
        if is_turn {
            self.choices = self.choices.wrapping_add(1);
        }
        Some(chosen)
    }

    /// The host that [`Topology::choose`] would select. This takes no turn.
    pub fn suitable_host(&self, target: Target, requirements: Option<&ReadRequirements>) -> Option<usize> {
        let preference = match target {
            Target::Host(host) => return Some(host),
            Target::HostIfUp(host) if self.is_up(host) => return Some(host),
            Target::HostIfUp(_) | Target::Writable => return self.writable_host(),
            Target::Read(preference) => preference,
        };
        let primary = self.writable_host();
        if primary.and_then(|host| self.description(host)).is_some_and(|description| description.set.is_none()) {
            // Standalone servers and mongos apply read preferences themselves.
            return primary;
        }
        let secondaries = self.hosts_up().filter(|(_, description)| description.server_type == ServerType::Secondary);
        let mut secondaries: Vec<usize> = secondaries.map(|(host, _)| host).collect();
        if let Some(most) = requirements.and_then(|requirements| requirements.max_staleness) {
            let of_primary = primary.and_then(|host| self.last_write(host));
            let limit = (most, checks::HEARTBEAT_INTERVAL);
            secondaries = filter_stale(secondaries, of_primary, limit, |host| self.last_write(host));
        }
        let no_tags = TagSet::new();
        let tags_of = |host: usize| self.description(host).map_or(&no_tags, |description| &description.tags);
        let sets = requirements.map_or(&[][..], |requirements| &requirements.tags);
        let any = |hosts: Vec<usize>| self.choose_near(tags::allowed(sets, hosts, tags_of));
        match preference {
            ReadPreference::PrimaryPreferred => primary.or_else(|| any(secondaries)),
            ReadPreference::Secondary => any(secondaries),
            ReadPreference::SecondaryPreferred => any(secondaries).or(primary),
            ReadPreference::Nearest => any([secondaries, primary.into_iter().collect()].concat()),
        }
    }

    fn last_write(&self, host: usize) -> Option<LastWrite> {
        let host = self.hosts.get(host)?;
        Some(LastWrite { last: host.description.as_ref()?.last_write?, heard_at: host.heard_at })
    }

    /// The members that the primary lists; none without a primary.
    pub fn members(&self) -> &[Arc<str>] {
        self.primary().map_or(&[], |(_, description)| &description.members)
    }

    /// What a host calls itself (`me`), if known.
    pub fn own_name(&self, host: usize) -> Option<Arc<str>> {
        self.description(host)?.me.clone()
    }

    /// Whether a host's description is current.
    pub fn is_up(&self, host: usize) -> bool {
        self.hosts.get(host).is_some_and(|host| host.up)
    }

    /// All hosts that are up, a writable one first.
    pub fn reachable_hosts(&self) -> Vec<usize> {
        let first = self.writable_host();
        let others = self.hosts_up().map(|(host, _)| host).filter(|host| Some(*host) != first);
        first.into_iter().chain(others).collect()
    }

    /// The hosts that may have a cursor, a writable one first. Arbiters and members that are starting serve no reads.
    pub fn readable_hosts(&self) -> Vec<usize> {
        let mut hosts = self.reachable_hosts();
        hosts.retain(|host| self.description(*host).is_some_and(|known| known.server_type != ServerType::Other));
        hosts
    }

    /// Whether a transaction that started at this host can no longer commit there: another primary was elected later,
    /// or the host is gone.
    pub fn has_lost_transactions(&self, host: usize) -> bool {
        let Some(known) = self.hosts.get(host) else { return true };
        let primary = known.description.as_ref().filter(|known| known.server_type == ServerType::Primary);
        let is_later = |(number, other): (usize, &ServerDescription)| {
            number != host
                && other.server_type == ServerType::Primary
                && primary.is_none_or(|primary| other.election > primary.election)
        };
        (!known.up && known.monitor.is_none())
            || primary.is_some_and(|primary| self.is_replaced(primary))
            || self.hosts_up().any(is_later)
    }

    /// Whether the hosts are mongos, each of which has its own transactions.
    pub fn is_sharded(&self) -> bool {
        self.hosts_up().any(|(_, description)| description.server_type == ServerType::Mongos)
    }

    /// A host has sent a state change error: it is marked unknown, unless it is a standalone server, and all hosts are
    /// checked.
    pub fn mark_unknown(&mut self, number: usize, out: &mut Outbox) {
        let before = self.server_types();
        let now = self.now;
        let Some(host) = self.hosts.get_mut(number) else { return };
        if host.description.as_ref().is_some_and(|known| known.server_type != ServerType::Standalone) {
            host.up = false;
        }
        let is_repeated = host.last_error_check.is_some_and(|last| now < last + MIN_HEARTBEAT_INTERVAL);
        if !is_repeated {
            host.last_error_check = Some(now);
        }
        if let Some((monitor, key)) = host.monitor {
            let here = out.inserted.len();
            out.inserted.push(if is_repeated { CheckRequest::Repeat } else { CheckRequest::Immediate } as u8);
            out.push(Effect::Post { to: Peer::Server(monitor), key, bytes: here..here + 1 });
        }
        self.note_changes(&before, out);
        self.request_checks(out);
    }

    /// Checks all hosts, as soon as the minimum interval allows.
    pub fn request_checks(&mut self, out: &mut Outbox) {
        self.checks.hasten();
        if self.checks.is_due(self.now) {
            self.check_all(out);
        }
    }

    fn check_all(&mut self, out: &mut Outbox) {
        self.checks.begin(self.now);
        let monitors = self.hosts.iter().filter_map(|host| host.monitor);
        monitors.for_each(|(monitor, key)| post(Peer::Server(monitor), key, out));
    }

    /// The type of each host, as [`Topology::server_type`] tells it.
    fn server_types(&self) -> Vec<Option<ServerType>> {
        (0..self.hosts.len()).map(|host| self.server_type(host)).collect()
    }

    /// The type of a host that serves clients; `None` if it is down or a stale primary.
    fn server_type(&self, host: usize) -> Option<ServerType> {
        let description = self.hosts.get(host).filter(|host| host.up)?.description.as_ref()?;
        (description.server_type != ServerType::Primary || !self.is_replaced(description))
            .then_some(description.server_type)
    }

    /// Compares the types of all hosts with those before, and notifies clients of a change.
    fn note_changes(&mut self, before: &[Option<ServerType>], out: &mut Outbox) {
        let now = self.server_types();
        let has_primary = |types: &[Option<ServerType>]| types.contains(&Some(ServerType::Primary));
        self.checks.note_primary(has_primary(before), has_primary(&now), self.now);
        if before.iter().zip(&now).any(|(before, now)| before.is_some() && before != now) {
            self.clients.note_host_lost();
        }
        self.clients.notify_if_due(self.now, out);
    }

    /// Whether a host still serves a request that waits for a server of it.
    pub fn serves(&self, host: usize, target: Target) -> bool {
        let Some(server_type) = self.server_type(host) else { return matches!(target, Target::Host(_)) };
        let has_primary = || self.server_types().contains(&Some(ServerType::Primary));
        match (target, server_type) {
            (Target::Host(_) | Target::HostIfUp(_), _) => true,
            (_, ServerType::Standalone | ServerType::Mongos) => true,
            (_, ServerType::Other) => false,
            (Target::Writable, server_type) => server_type == ServerType::Primary,
            (Target::Read(ReadPreference::Secondary), server_type) => server_type == ServerType::Secondary,
            (Target::Read(ReadPreference::PrimaryPreferred), server_type) => {
                server_type == ServerType::Primary || !has_primary()
            }
            (Target::Read(ReadPreference::SecondaryPreferred | ReadPreference::Nearest), _) => true,
        }
    }

    /// What clients are told; `None` if no host has been described yet.
    pub fn advertised(&self) -> Option<AdvertisedTopology> {
        // Arbiters have no sessions, and serve no clients.
        let serves = |description: &&ServerDescription| description.server_type != ServerType::Other;
        let all = || self.hosts.iter().filter_map(|host| host.description.as_ref());
        let any = all().any(|description| serves(&description));
        let known = || all().filter(|description| !any || serves(description));
        Some(AdvertisedTopology {
            mongos: known().next()?.server_type != ServerType::Standalone,
            wire: known().map(|description| description.wire).min()?.min(MAX_WIRE_VERSION),
            session_minutes: known().map(|description| description.session_minutes).min()?,
        })
    }

    pub fn cluster_time(&self) -> Option<Arc<ClusterTime>> {
        self.hosts.iter().filter_map(|host| host.description.as_ref()?.time.as_ref()).max().cloned()
    }

    pub fn learn(&mut self, host: usize, description: ServerDescription, heard: HelloReceived, out: &mut Outbox) {
        if !self.is_configured(host) {
            return;
        }
        self.now = self.now.max(heard.at);
        self.add_host(host);
        let before = self.server_types();
        if description.server_type == ServerType::Primary && !self.is_replaced(&description) {
            self.latest_election = Some((description.election, self.now));
        }
        let Some(host) = self.hosts.get_mut(host) else { return };
        (host.description, host.up, host.heard_at) = (Some(description), true, heard.at);
        if let Some(round_trip) = heard.round_trip {
            host.round_trip = Some(average(host.round_trip, round_trip));
        }
        self.clients.wake_waiting(out);
        self.note_changes(&before, out);
    }

    fn add_host(&mut self, host: usize) {
        if host >= self.hosts.len() && host < MAX_HOSTS {
            self.hosts.resize(host + 1, Host::default());
        }
    }

    /// A monitor of the host is connected. A description that the host has sent before is asked for again.
    pub fn monitor_started(&mut self, host: usize, monitor: ServerTag, key: u64) {
        self.add_host(host);
        if let Some(host) = self.hosts.get_mut(host) {
            host.monitor = Some((monitor, key));
        }
    }

    /// The host's monitor has lost its connection, so the host's state is unknown. All others are checked.
    pub fn monitor_lost(&mut self, host: usize, key: u64, out: &mut Outbox) {
        let before = self.server_types();
        let Some(host) = self.hosts.get_mut(host) else { return };
        if host.monitor.take_if(|monitor| monitor.1 == key).is_some() {
            host.up = false;
            self.note_changes(&before, out);
            self.request_checks(out);
        }
    }

    pub fn retain_only(&mut self, configured: Vec<usize>, out: &mut Outbox) {
        let before = self.server_types();
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if !configured.contains(&number) {
                (host.description, host.up) = (None, false);
            }
        }
        self.configured = Some(configured);
        self.note_changes(&before, out);
    }

    pub fn is_configured(&self, host: usize) -> bool {
        self.configured.as_ref().is_none_or(|configured| configured.contains(&host))
    }

    pub fn is_check_due(&self, now: Duration) -> bool {
        self.checks.is_due(now)
    }

    /// Notifies clients, and checks hosts when that is due.
    pub fn on_tick(&mut self, now: Duration, out: &mut Outbox) {
        self.now = self.now.max(now);
        self.clients.on_tick(self.now, out);
        if self.checks.is_due(self.now) {
            self.check_all(out);
        }
    }
}

/// Whether a host belongs to another replica set than the configured one.
pub fn is_other_set(description: &ServerDescription, configured: Option<&Arc<str>>) -> bool {
    configured.is_some_and(|configured| description.set.as_ref() != Some(configured))
}

#[cfg(test)]
mod tests;
