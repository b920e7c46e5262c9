//! The topology description that all workers share: what each host is, which monitor watches it, and which clients wait
//! for a host. It reaches sessions by posts.
//!
//! When a host's type changes, all hosts are checked at once, and often while a replica set has no primary, but never
//! more often than [`MIN_HEARTBEAT_INTERVAL`]. All clients are notified then, because some may wait for a server of a
//! host that no longer serves them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use seam::{ClientTag, Effect, Outbox, Peer, ServerTag};

use crate::{
    cluster_time::ClusterTime,
    routes::{ReadPreference, Target},
    selection::{DEFAULT_LOCAL_THRESHOLD, LastWrite, ReadRequirements, average, filter_stale, within_local_threshold},
    server_description::{ServerDescription, ServerType},
    tags::{self, TagSet},
};

/// Time between two checks of a host (`heartbeatFrequencyMS`).
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two checks of a host (`minHeartbeatFrequencyMS`), and between two notifications of clients.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// How long hosts are checked at the minimum interval after a primary was lost. MongoDB elects another within 12
/// seconds (`electionTimeoutMillis` is 10 seconds).
const PRIMARY_SEARCH_TIME: Duration = Duration::from_secs(20);

/// Maximum number of hosts over all configurations of a process.
const MAX_HOSTS: usize = 1024;

/// How long a primary of an earlier election is ignored. A replaced primary steps down sooner (`electionTimeoutMillis`
/// is 10 seconds), and a replica set that is created anew counts its elections from the beginning.
const STALE_PRIMARY_TIME: Duration = Duration::from_secs(60);

/// What a monitor is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckRequest {
    /// To check its host, unless a check is under way.
    Scheduled = 0,
    /// To check its host. If a check is under way, its result may be out of date: the host is checked again.
    Immediate = 1,
    /// To check its host again if a check is under way, whose result may be out of date.
    Repeat = 2,
}

impl CheckRequest {
    pub fn read(bytes: &[u8]) -> Self {
        match bytes {
            [1, ..] => Self::Immediate,
            [2, ..] => Self::Repeat,
            _ => Self::Scheduled,
        }
    }
}

/// `maxWireVersion` that clients are told at most: that of MongoDB 8.0.
const MAX_WIRE_VERSION: i32 = 25;

#[derive(Default)]
pub struct Topology {
    pub now: Duration,
    next_check: Duration,
    last_check: Duration,
    /// When the replica set lost its primary, while it has none.
    primary_lost: Option<Duration>,
    last_key: u64,
    next_choice: usize,
    /// How much longer than the nearest host's another host's round trip may be.
    pub local_threshold: Duration,
    hosts: Vec<Host>,
    /// The latest election known, and when a host last told of it. A primary of an earlier election is stale, even
    /// while its successor is unreachable.
    latest: Option<(Election, Duration)>,
    /// The configured hosts; `None` until they are known.
    configured: Option<Vec<usize>>,
    /// Clients that wait for a host, by key.
    waiting: BTreeMap<u64, ClientTag>,
    /// All clients that may ask for a server, by key.
    clients: BTreeMap<u64, ClientTag>,
    /// A host no longer serves its clients, and they have not been notified; and when they may be.
    host_lost: bool,
    next_notification: Duration,
    /// Deadlines of waiting clients, by key.
    due: BTreeMap<u64, (Duration, ClientTag)>,
}

/// Greater is later.
type Election = ([u8; 12], i64);

fn election(description: &ServerDescription) -> Election {
    (description.election.1, description.election.0)
}

#[derive(Default, Clone)]
struct Host {
    /// Its last description. Kept when the host is down: clients are told its wire version.
    last: Option<ServerDescription>,
    up: bool,
    monitor: Option<(ServerTag, u64)>,
    heard_at: Duration,
    /// The average round trip of its `hello`, if known.
    round_trip: Option<Duration>,
    /// When it was last checked because of an error that it sent.
    last_repeat: Option<Duration>,
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

impl Topology {
    pub fn new() -> Self {
        // A post may reach a session of another protocol with the same tag, whose keys are smaller.
        Self { last_key: 1 << 62, local_threshold: DEFAULT_LOCAL_THRESHOLD, ..Self::default() }
    }

    pub fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    fn up(&self) -> impl Iterator<Item = (usize, &ServerDescription)> {
        let known = |(number, host): (usize, &'_ Host)| host.up.then_some(number);
        let numbers = self.hosts.iter().enumerate().filter_map(known);
        numbers.filter_map(|number| Some((number, self.hosts[number].last.as_ref()?)))
    }

    /// A writable host, if one is known: the primary of the latest election, or any mongos.
    pub fn writable(&mut self) -> Option<usize> {
        let primaries = self.up().filter(|(_, description)| {
            description.server_type == ServerType::Primary && !self.is_replaced(description)
        });
        if let Some((host, _)) = primaries.max_by_key(|(_, description)| election(description)) {
            return Some(host);
        }
        let all = || {
            self.up().filter(|(_, description)| {
                matches!(description.server_type, ServerType::Standalone | ServerType::Mongos)
            })
        };
        let soonest = all().filter_map(|(host, _)| self.hosts[host].round_trip).min();
        let is_near = |host: usize| match (self.hosts[host].round_trip, soonest) {
            (Some(round_trip), Some(soonest)) => round_trip <= soonest.saturating_add(self.local_threshold),
            _ => true,
        };
        let others = || all().map(|(host, _)| host).filter(|host| is_near(*host));
        let chosen = others().nth(self.next_choice % others().count().max(1));
        if chosen.is_some() {
            self.next_choice = self.next_choice.wrapping_add(1);
        }
        chosen
    }

    /// Whether a primary was elected later than this one.
    fn is_replaced(&self, description: &ServerDescription) -> bool {
        self.latest.is_some_and(|(latest, told)| election(description) < latest && self.now < told + STALE_PRIMARY_TIME)
    }

    /// Selects a host; `None` if no suitable one is known.
    pub fn choose(&mut self, target: Target, requirements: Option<&ReadRequirements>) -> Option<usize> {
        let preference = match target {
            Target::Host(host) => return Some(host),
            Target::HostIfUp(host) if self.is_up(host) => return Some(host),
            Target::HostIfUp(_) | Target::Writable => return self.writable(),
            Target::Read(preference) => preference,
        };
        let primary = self.writable();
        if primary
            .is_some_and(|host| self.hosts[host].last.as_ref().is_some_and(|description| description.set.is_none()))
        {
            // Standalone servers and mongos apply read preferences themselves.
            return primary;
        }
        let mut secondaries: Vec<usize> = self
            .up()
            .filter(|(_, description)| description.server_type == ServerType::Secondary)
            .map(|(host, _)| host)
            .collect();
        if let Some(most) = requirements.and_then(|requirements| requirements.max_staleness) {
            let of_primary = primary.and_then(|host| self.written(host));
            secondaries = filter_stale(secondaries, of_primary, (most, HEARTBEAT_INTERVAL), |host| self.written(host));
        }
        let empty = TagSet::new();
        let tags_of = |host: usize| self.hosts[host].last.as_ref().map_or(&empty, |description| &description.tags);
        let sets = requirements.map_or(&[][..], |requirements| &requirements.tags);
        let any = |hosts: Vec<usize>| {
            let hosts = tags::allowed(sets, hosts, tags_of);
            let hosts = within_local_threshold(hosts, self.local_threshold, |host| self.hosts[host].round_trip);
            hosts.get(self.next_choice % hosts.len().max(1)).copied()
        };
        let chosen = match preference {
            ReadPreference::PrimaryPreferred => primary.or_else(|| any(secondaries)),
            ReadPreference::Secondary => any(secondaries),
            ReadPreference::SecondaryPreferred => any(secondaries).or(primary),
            ReadPreference::Nearest => any([secondaries, primary.into_iter().collect()].concat()),
        };
        self.next_choice = self.next_choice.wrapping_add(1);
        chosen
    }

    fn written(&self, host: usize) -> Option<LastWrite> {
        let host = self.hosts.get(host)?;
        Some(LastWrite { last: host.last.as_ref()?.last_write?, heard_at: host.heard_at })
    }

    /// The members that the primary lists; none without a primary.
    pub fn members(&self) -> &[Arc<str>] {
        let primaries = self.up().filter(|(_, description)| {
            description.server_type == ServerType::Primary && !self.is_replaced(description)
        });
        primaries
            .max_by_key(|(_, description)| election(description))
            .map_or(&[], |(_, description)| &description.members)
    }

    /// What a host calls itself (`me`), if known.
    pub fn own_name(&self, host: usize) -> Option<Arc<str>> {
        self.hosts.get(host)?.last.as_ref()?.me.clone()
    }

    /// Whether a host's description is current.
    pub fn is_up(&self, host: usize) -> bool {
        self.hosts.get(host).is_some_and(|host| host.up)
    }

    /// All hosts that are up, a writable one first.
    pub fn all(&mut self) -> Vec<usize> {
        let first = self.writable();
        let others = self.up().map(|(host, _)| host).filter(|host| Some(*host) != first);
        first.into_iter().chain(others).collect()
    }

    /// The hosts that may have a cursor, a writable one first. Arbiters and members that are starting serve no reads.
    pub fn all_read_from(&mut self) -> Vec<usize> {
        let mut all = self.all();
        all.retain(|host| {
            self.hosts[*host].last.as_ref().is_some_and(|description| description.server_type != ServerType::Other)
        });
        all
    }

    /// Whether a transaction that started at this host can no longer commit there: another primary was elected later,
    /// or the host is gone.
    pub fn has_lost_transactions(&self, host: usize) -> bool {
        let Some(known) = self.hosts.get(host) else { return true };
        let primary = known.last.as_ref().filter(|description| description.server_type == ServerType::Primary);
        let own = primary.map(election);
        let later = |(number, description): (usize, &ServerDescription)| {
            number != host
                && description.server_type == ServerType::Primary
                && own.is_none_or(|own| election(description) > own)
        };
        (!known.up && known.monitor.is_none())
            || primary.is_some_and(|description| self.is_replaced(description))
            || self.up().any(later)
    }

    /// Whether the hosts are mongos, each of which has its own transactions.
    pub fn is_sharded(&self) -> bool {
        self.up().any(|(_, description)| description.server_type == ServerType::Mongos)
    }

    /// A host has sent a state change error: it is marked unknown, and all hosts are checked.
    pub fn mark_unknown(&mut self, number: usize, out: &mut Outbox) {
        let before = self.server_types();
        let now = self.now;
        let Some(host) = self.hosts.get_mut(number) else { return };
        if host.last.as_ref().is_some_and(|description| description.server_type != ServerType::Standalone) {
            host.up = false;
        }
        let is_repeated = host.last_repeat.is_some_and(|last_repeat| now < last_repeat + MIN_HEARTBEAT_INTERVAL);
        if !is_repeated {
            host.last_repeat = Some(now);
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
        self.next_check = self.next_check.min(self.last_check + MIN_HEARTBEAT_INTERVAL);
        if self.now >= self.next_check {
            self.check_all(out);
        }
    }

    fn check_all(&mut self, out: &mut Outbox) {
        let seeks = self.primary_lost.is_some_and(|primary_lost| self.now < primary_lost + PRIMARY_SEARCH_TIME);
        (self.last_check, self.next_check) =
            (self.now, self.now + if seeks { MIN_HEARTBEAT_INTERVAL } else { HEARTBEAT_INTERVAL });
        let monitors = self.hosts.iter().filter_map(|host| host.monitor);
        monitors.for_each(|(monitor, key)| post(Peer::Server(monitor), key, out));
    }

    /// The type of each host, as [`Topology::server_type`] tells it.
    fn server_types(&self) -> Vec<Option<ServerType>> {
        (0..self.hosts.len()).map(|host| self.server_type(host)).collect()
    }

    /// The type of a host that serves clients; `None` if it is down or a stale primary.
    fn server_type(&self, host: usize) -> Option<ServerType> {
        let description = self.hosts.get(host).filter(|host| host.up)?.last.as_ref()?;
        (description.server_type != ServerType::Primary || !self.is_replaced(description))
            .then_some(description.server_type)
    }

    /// Compares the types of all hosts with those before, and notifies clients of a change.
    fn note_changes(&mut self, before: &[Option<ServerType>], out: &mut Outbox) {
        let now = self.server_types();
        let had_primary = before.contains(&Some(ServerType::Primary));
        if now.contains(&Some(ServerType::Primary)) {
            self.primary_lost = None;
        } else if had_primary {
            self.primary_lost = Some(self.now);
        }
        self.host_lost |= before.iter().zip(&now).any(|(before, now)| before.is_some() && before != now);
        self.notify_clients(out);
    }

    /// Notifies all clients that a host no longer serves them, as soon as the minimum interval allows.
    fn notify_clients(&mut self, out: &mut Outbox) {
        if self.host_lost && self.now >= self.next_notification {
            (self.host_lost, self.next_notification) = (false, self.now + MIN_HEARTBEAT_INTERVAL);
            self.clients.iter().for_each(|(key, client)| post(Peer::Client(*client), *key, out));
        }
    }

    /// A client may ask for servers from now on.
    pub fn enter(&mut self, client: ClientTag, key: u64) {
        self.clients.insert(key, client);
    }

    pub fn leave(&mut self, key: u64) {
        self.clients.remove(&key);
        self.due.remove(&key);
    }

    /// A client is to check at this time whether it has waited long enough.
    pub fn look_at(&mut self, at: Duration, client: ClientTag, key: u64) {
        self.due.insert(key, (at, client));
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
        let all = || self.hosts.iter().filter_map(|host| host.last.as_ref());
        let any = all().any(|description| serves(&description));
        let known = || all().filter(|description| !any || serves(description));
        Some(AdvertisedTopology {
            mongos: known().next()?.server_type != ServerType::Standalone,
            wire: known().map(|description| description.wire).min()?.min(MAX_WIRE_VERSION),
            session_minutes: known().map(|description| description.session_minutes).min()?,
        })
    }

    /// The greatest cluster time that a host has sent.
    pub fn cluster_time(&self) -> Option<Arc<ClusterTime>> {
        self.hosts.iter().filter_map(|host| host.last.as_ref()?.time.as_ref()).max().cloned()
    }

    /// Stores a host's description, and wakes the clients that wait for a host.
    pub fn learn(&mut self, host: usize, description: ServerDescription, heard: HelloReceived, out: &mut Outbox) {
        if !self.is_configured(host) {
            return;
        }
        self.now = self.now.max(heard.at);
        self.make_room(host);
        let before = self.server_types();
        if description.server_type == ServerType::Primary && !self.is_replaced(&description) {
            self.latest = Some((election(&description), self.now));
        }
        let Some(host) = self.hosts.get_mut(host) else { return };
        (host.last, host.up, host.heard_at) = (Some(description), true, heard.at);
        if let Some(round_trip) = heard.round_trip {
            host.round_trip = Some(average(host.round_trip, round_trip));
        }
        self.wake_waiting(out);
        self.note_changes(&before, out);
    }

    /// Adds a host that is new.
    fn make_room(&mut self, host: usize) {
        if host >= self.hosts.len() && host < MAX_HOSTS {
            self.hosts.resize(host + 1, Host::default());
        }
    }

    /// A monitor of the host is connected. A description that the host has sent before is asked for again.
    pub fn monitor_started(&mut self, host: usize, monitor: ServerTag, key: u64) {
        self.make_room(host);
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

    pub fn park(&mut self, client: ClientTag, key: u64) {
        self.waiting.insert(key, client);
    }

    pub fn forget(&mut self, key: u64) {
        self.waiting.remove(&key);
    }

    fn wake_waiting(&mut self, out: &mut Outbox) {
        std::mem::take(&mut self.waiting).into_iter().for_each(|(key, client)| post(Peer::Client(client), key, out));
    }

    /// Forgets hosts that are no longer configured.
    pub fn retain_only(&mut self, configured: Vec<usize>, out: &mut Outbox) {
        let before = self.server_types();
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if !configured.contains(&number) {
                (host.last, host.up) = (None, false);
            }
        }
        self.configured = Some(configured);
        self.note_changes(&before, out);
    }

    /// Whether a host is configured, as far as is known.
    pub fn is_configured(&self, host: usize) -> bool {
        self.configured.as_ref().is_none_or(|configured| configured.contains(&host))
    }

    pub fn is_check_due(&self, now: Duration) -> bool {
        now >= self.next_check
    }

    /// Wakes waiting clients so that they check their deadlines, and checks hosts when that is due.
    pub fn on_tick(&mut self, now: Duration, out: &mut Outbox) {
        self.now = self.now.max(now);
        self.wake_waiting(out);
        self.notify_clients(out);
        let now = self.now;
        self.due.retain(|key, (at, client)| {
            if *at <= now {
                post(Peer::Client(*client), *key, out);
            }
            *at > now
        });
        if now >= self.next_check {
            self.check_all(out);
        }
    }
}

/// Wakes a session that waits for something.
pub fn post(to: Peer, key: u64, out: &mut Outbox) {
    let here = out.inserted.len();
    out.push(Effect::Post { to, key, bytes: here..here });
}

/// Whether a host belongs to another replica set than the configured one.
pub fn is_other_set(description: &ServerDescription, requirements: Option<&Arc<str>>) -> bool {
    requirements.is_some_and(|requirements| description.set.as_ref() != Some(requirements))
}

#[cfg(test)]
mod tests;
