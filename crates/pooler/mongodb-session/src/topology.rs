//! What is known of the upstream's hosts, shared by all workers: what each of them is, who watches it, and which
//! clients wait until one is known. It tells sessions by posts, and knows nothing of their states.
//!
//! When a host is no longer what it was, all are asked what they are at once, and while a replica set has no primary so
//! often that the next one is found soon; but whatever hosts say, no more often than [`HURRY`] allows. Then all clients
//! hear of it, because some may wait for a server of a host that does not serve them any more.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use seam::{ClientTag, Effect, Outbox, Peer, ServerTag};

use crate::{
    cluster_time::ClusterTime,
    facts::{Facts, Role},
    routes::{Goal, Preference},
    selection::{WINDOW, Wanted, Written, average, fresh, near},
    tags::{self, TagSet},
};

/// How often hosts are asked what they are.
pub const BEAT: Duration = Duration::from_secs(1);

/// How often they are asked at most, whatever happens, and how often clients hear at most that a host does not serve
/// any more.
const HURRY: Duration = Duration::from_millis(100);

/// How long hosts are asked in a hurry after a primary was lost. MongoDB elects another one within 12 seconds
/// (`electionTimeoutMillis` is 10 seconds).
const SEEKS: Duration = Duration::from_secs(20);

/// Hosts that there may ever have been, over all configurations.
const MAX_HOSTS: usize = 1024;

/// A primary that another one has replaced finds out sooner than this (`electionTimeoutMillis` is 10 seconds). What is
/// forgotten then is of use only while it does not: a replica set that was made anew counts its elections from the
/// beginning.
const STALE: Duration = Duration::from_secs(60);

/// What a monitor is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// To ask its host what it is, unless it has asked.
    Beat = 0,
    /// The same, and what the host is about to say may no longer be true.
    Urgent = 1,
    /// What the host is about to say may no longer be true.
    Doubt = 2,
}

impl Ask {
    pub fn read(bytes: &[u8]) -> Self {
        match bytes {
            [1, ..] => Self::Urgent,
            [2, ..] => Self::Doubt,
            _ => Self::Beat,
        }
    }
}

/// The latest version of the wire protocol that Poolhouse passes on: that of MongoDB 8.0.
const WIRE: i32 = 25;

#[derive(Default)]
pub struct Topology {
    /// The time, as the driver tells it.
    pub now: Duration,
    next_beat: Duration,
    last_beat: Duration,
    /// Since when a replica set has had no primary, after it had one.
    lost: Option<Duration>,
    last_key: u64,
    turn: usize,
    /// How much longer than those of the nearest host a host's answers may take.
    pub window: Duration,
    hosts: Vec<Host>,
    /// The latest election that any host has told of, and when one did last: a primary of an earlier one has been
    /// replaced, even if nothing is known of its successor just now.
    latest: Option<(Election, Duration)>,
    /// Those that are configured now; `None` until that is known.
    present: Option<Vec<usize>>,
    /// Who waits until a host is known, with their keys.
    parked: BTreeMap<u64, ClientTag>,
    /// All clients who may ask for a server, by their keys.
    roll: BTreeMap<u64, ClientTag>,
    /// A host does not serve any more whom it served, and clients have not heard of it; and when they may hear of the
    /// next.
    left: bool,
    next_call: Duration,
    /// Clients that are to look at a time whether they have waited long enough, by their keys.
    due: BTreeMap<u64, (Duration, ClientTag)>,
}

/// What is greater is later.
type Election = ([u8; 12], i64);

fn election(facts: &Facts) -> Election {
    (facts.election.1, facts.election.0)
}

#[derive(Default, Clone)]
struct Host {
    /// What it was when it last told; kept when it is lost, because drivers are told the wire version.
    last: Option<Facts>,
    up: bool,
    monitor: Option<(ServerTag, u64)>,
    told: Duration,
    /// How long its answers take on average, as far as that is known.
    takes: Option<Duration>,
    /// When it was last asked because of what it had said.
    doubted: Option<Duration>,
}

/// When a host has told what it is, and how long it took to answer, if that was measured.
#[derive(Clone, Copy, Default, Debug)]
pub struct Heard {
    pub at: Duration,
    pub took: Option<Duration>,
}

/// What clients are told of the upstream: never more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pose {
    /// It is a deployment of several hosts, so Poolhouse shows itself as the mongos in front of it.
    pub mongos: bool,
    pub wire: i32,
    pub session_minutes: Option<i32>,
}

impl Topology {
    pub fn new() -> Self {
        // What is posted may reach a session of another protocol in the same place, whose keys are smaller.
        Self { last_key: 1 << 62, window: WINDOW, ..Self::default() }
    }

    pub fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    fn up(&self) -> impl Iterator<Item = (usize, &Facts)> {
        let known = |(number, host): (usize, &'_ Host)| host.up.then_some(number);
        let numbers = self.hosts.iter().enumerate().filter_map(known);
        numbers.filter_map(|number| Some((number, self.hosts[number].last.as_ref()?)))
    }

    /// A host that takes writes, if one is known: the primary of the latest election, or any mongos.
    pub fn writable(&mut self) -> Option<usize> {
        let primaries = self.up().filter(|(_, facts)| facts.role == Role::Primary && !self.is_replaced(facts));
        if let Some((host, _)) = primaries.max_by_key(|(_, facts)| election(facts)) {
            return Some(host);
        }
        let all = || self.up().filter(|(_, facts)| matches!(facts.role, Role::Standalone | Role::Mongos));
        let soonest = all().filter_map(|(host, _)| self.hosts[host].takes).min();
        let is_near = |host: usize| match (self.hosts[host].takes, soonest) {
            (Some(takes), Some(soonest)) => takes <= soonest.saturating_add(self.window),
            _ => true,
        };
        let others = || all().map(|(host, _)| host).filter(|host| is_near(*host));
        let chosen = others().nth(self.turn % others().count().max(1));
        if chosen.is_some() {
            self.turn = self.turn.wrapping_add(1);
        }
        chosen
    }

    /// Whether a primary was elected later than this one.
    fn is_replaced(&self, facts: &Facts) -> bool {
        self.latest.is_some_and(|(latest, told)| election(facts) < latest && self.now < told + STALE)
    }

    /// A host for this; `None` if none is known.
    pub fn choose(&mut self, goal: Goal, wanted: Option<&Wanted>) -> Option<usize> {
        let preference = match goal {
            Goal::Host(host) => return Some(host),
            Goal::HostIfThere(host) if self.is_up(host) => return Some(host),
            Goal::HostIfThere(_) | Goal::Writable => return self.writable(),
            Goal::Read(preference) => preference,
        };
        let primary = self.writable();
        if primary.is_some_and(|host| self.hosts[host].last.as_ref().is_some_and(|facts| facts.set.is_none())) {
            // A server that stands alone and a mongos know themselves what to do.
            return primary;
        }
        let mut secondaries: Vec<usize> =
            self.up().filter(|(_, facts)| facts.role == Role::Secondary).map(|(host, _)| host).collect();
        if let Some(most) = wanted.and_then(|wanted| wanted.staleness) {
            let of_primary = primary.and_then(|host| self.written(host));
            secondaries = fresh(secondaries, of_primary, (most, BEAT), |host| self.written(host));
        }
        let empty = TagSet::new();
        let tags_of = |host: usize| self.hosts[host].last.as_ref().map_or(&empty, |facts| &facts.tags);
        let sets = wanted.map_or(&[][..], |wanted| &wanted.tags);
        let any = |hosts: Vec<usize>| {
            let hosts = tags::allowed(sets, hosts, tags_of);
            let hosts = near(hosts, self.window, |host| self.hosts[host].takes);
            hosts.get(self.turn % hosts.len().max(1)).copied()
        };
        let chosen = match preference {
            Preference::PrimaryPreferred => primary.or_else(|| any(secondaries)),
            Preference::Secondary => any(secondaries),
            Preference::SecondaryPreferred => any(secondaries).or(primary),
            Preference::Nearest => any([secondaries, primary.into_iter().collect()].concat()),
        };
        self.turn = self.turn.wrapping_add(1);
        chosen
    }

    /// What a host has told of its last write.
    fn written(&self, host: usize) -> Option<Written> {
        let host = self.hosts.get(host)?;
        Some(Written { last: host.last.as_ref()?.last_write?, told: host.told })
    }

    /// The members that the primary names; none without one.
    pub fn members(&self) -> &[Arc<str>] {
        let primaries = self.up().filter(|(_, facts)| facts.role == Role::Primary && !self.is_replaced(facts));
        primaries.max_by_key(|(_, facts)| election(facts)).map_or(&[], |(_, facts)| &facts.members)
    }

    /// What a host calls itself, if it has told.
    pub fn own_name(&self, host: usize) -> Option<Arc<str>> {
        self.hosts.get(host)?.last.as_ref()?.me.clone()
    }

    /// Whether a host has told what it is, and nothing has happened to it since.
    pub fn is_up(&self, host: usize) -> bool {
        self.hosts.get(host).is_some_and(|host| host.up)
    }

    /// All hosts that are known, one that takes writes first.
    pub fn all(&mut self) -> Vec<usize> {
        let first = self.writable();
        let others = self.up().map(|(host, _)| host).filter(|host| Some(*host) != first);
        first.into_iter().chain(others).collect()
    }

    /// Those of all hosts that may have a cursor, in the same order: nobody reads from an arbiter, or from a member
    /// that starts.
    pub fn all_read_from(&mut self) -> Vec<usize> {
        let mut all = self.all();
        all.retain(|host| self.hosts[*host].last.as_ref().is_some_and(|facts| facts.role != Role::Other));
        all
    }

    /// Whether what began at a host as the primary can no longer end there: another was elected later, or the host is
    /// gone.
    pub fn is_over_at(&self, host: usize) -> bool {
        let Some(known) = self.hosts.get(host) else { return true };
        let primary = known.last.as_ref().filter(|facts| facts.role == Role::Primary);
        let own = primary.map(election);
        let later = |(number, facts): (usize, &Facts)| {
            number != host && facts.role == Role::Primary && own.is_none_or(|own| election(facts) > own)
        };
        (!known.up && known.monitor.is_none())
            || primary.is_some_and(|facts| self.is_replaced(facts))
            || self.up().any(later)
    }

    /// The hosts are mongos, each of which has transactions of its own.
    pub fn is_sharded(&self) -> bool {
        self.up().any(|(_, facts)| facts.role == Role::Mongos)
    }

    /// A host has said that it is no longer what it was: it is asked at once, and so are the others.
    pub fn suspect(&mut self, number: usize, out: &mut Outbox) {
        let before = self.standings();
        let now = self.now;
        let Some(host) = self.hosts.get_mut(number) else { return };
        if host.last.as_ref().is_some_and(|facts| facts.role != Role::Standalone) {
            host.up = false;
        }
        let hurries = host.doubted.is_some_and(|doubted| now < doubted + HURRY);
        if !hurries {
            host.doubted = Some(now);
        }
        if let Some((monitor, key)) = host.monitor {
            let here = out.inserted.len();
            out.inserted.push(if hurries { Ask::Doubt } else { Ask::Urgent } as u8);
            out.push(Effect::Post { to: Peer::Server(monitor), key, bytes: here..here + 1 });
        }
        self.compare(&before, out);
        self.ask_soon(out);
    }

    /// Something may have happened among the hosts: they are asked, as soon as that may be.
    pub fn ask_soon(&mut self, out: &mut Outbox) {
        self.next_beat = self.next_beat.min(self.last_beat + HURRY);
        if self.now >= self.next_beat {
            self.ask_all(out);
        }
    }

    fn ask_all(&mut self, out: &mut Outbox) {
        let seeks = self.lost.is_some_and(|lost| self.now < lost + SEEKS);
        (self.last_beat, self.next_beat) = (self.now, self.now + if seeks { HURRY } else { BEAT });
        let monitors = self.hosts.iter().filter_map(|host| host.monitor);
        monitors.for_each(|(monitor, key)| post(Peer::Server(monitor), key, out));
    }

    /// What each host is that serves anybody.
    fn standings(&self) -> Vec<Option<Role>> {
        (0..self.hosts.len()).map(|host| self.standing(host)).collect()
    }

    /// What a host is, if it serves anybody. One that believes that it is the primary, and has been replaced, is none.
    fn standing(&self, host: usize) -> Option<Role> {
        let facts = self.hosts.get(host).filter(|host| host.up)?.last.as_ref()?;
        (facts.role != Role::Primary || !self.is_replaced(facts)).then_some(facts.role)
    }

    /// Looks whether a host has ceased to be what it was.
    fn compare(&mut self, before: &[Option<Role>], out: &mut Outbox) {
        let now = self.standings();
        let had_primary = before.contains(&Some(Role::Primary));
        if now.contains(&Some(Role::Primary)) {
            self.lost = None;
        } else if had_primary {
            self.lost = Some(self.now);
        }
        self.left |= before.iter().zip(&now).any(|(before, now)| before.is_some() && before != now);
        self.call(out);
    }

    /// Clients hear that a host does not serve any more, as soon as that may be.
    fn call(&mut self, out: &mut Outbox) {
        if self.left && self.now >= self.next_call {
            (self.left, self.next_call) = (false, self.now + HURRY);
            self.roll.iter().for_each(|(key, client)| post(Peer::Client(*client), *key, out));
        }
    }

    /// A client may ask for servers from now on.
    pub fn enter(&mut self, client: ClientTag, key: u64) {
        self.roll.insert(key, client);
    }

    pub fn leave(&mut self, key: u64) {
        self.roll.remove(&key);
        self.due.remove(&key);
    }

    /// A client is to look then whether it has waited long enough.
    pub fn look_at(&mut self, at: Duration, client: ClientTag, key: u64) {
        self.due.insert(key, (at, client));
    }

    /// Whether a host still serves a request that waits for a server of it.
    pub fn serves(&self, host: usize, goal: Goal) -> bool {
        let Some(role) = self.standing(host) else { return matches!(goal, Goal::Host(_)) };
        let has_primary = || self.standings().contains(&Some(Role::Primary));
        match (goal, role) {
            (Goal::Host(_) | Goal::HostIfThere(_), _) => true,
            (_, Role::Standalone | Role::Mongos) => true,
            (_, Role::Other) => false,
            (Goal::Writable, role) => role == Role::Primary,
            (Goal::Read(Preference::Secondary), role) => role == Role::Secondary,
            (Goal::Read(Preference::PrimaryPreferred), role) => role == Role::Primary || !has_primary(),
            (Goal::Read(Preference::SecondaryPreferred | Preference::Nearest), _) => true,
        }
    }

    /// What clients are told; `None` if no host has told anything yet.
    pub fn pose(&self) -> Option<Pose> {
        // An arbiter has no sessions, and nobody asks it for anything.
        let serves = |facts: &&Facts| facts.role != Role::Other;
        let all = || self.hosts.iter().filter_map(|host| host.last.as_ref());
        let any = all().any(|facts| serves(&facts));
        let known = || all().filter(|facts| !any || serves(facts));
        Some(Pose {
            mongos: known().next()?.role != Role::Standalone,
            wire: known().map(|facts| facts.wire).min()?.min(WIRE),
            session_minutes: known().map(|facts| facts.session_minutes).min()?,
        })
    }

    /// The latest time that a host has told of its deployment.
    pub fn cluster_time(&self) -> Option<Arc<ClusterTime>> {
        self.hosts.iter().filter_map(|host| host.last.as_ref()?.time.as_ref()).max().cloned()
    }

    /// A host has told what it is. Whoever waits for that goes on.
    pub fn learn(&mut self, host: usize, facts: Facts, heard: Heard, out: &mut Outbox) {
        if !self.is_present(host) {
            return;
        }
        self.now = self.now.max(heard.at);
        self.make_room(host);
        let before = self.standings();
        if facts.role == Role::Primary && !self.is_replaced(&facts) {
            self.latest = Some((election(&facts), self.now));
        }
        let Some(host) = self.hosts.get_mut(host) else { return };
        (host.last, host.up, host.told) = (Some(facts), true, heard.at);
        if let Some(took) = heard.took {
            host.takes = Some(average(host.takes, took));
        }
        self.wake_parked(out);
        self.compare(&before, out);
    }

    /// A host that was never heard of has its place from now on.
    fn make_room(&mut self, host: usize) {
        if host >= self.hosts.len() && host < MAX_HOSTS {
            self.hosts.resize(host + 1, Host::default());
        }
    }

    /// A host is watched from now on, whether or not it has told what it is: it is asked again.
    pub fn watch(&mut self, host: usize, monitor: ServerTag, key: u64) {
        self.make_room(host);
        if let Some(host) = self.hosts.get_mut(host) {
            host.monitor = Some((monitor, key));
        }
    }

    /// What the host is now nobody knows. The others are asked at once.
    pub fn end_watch(&mut self, host: usize, key: u64, out: &mut Outbox) {
        let before = self.standings();
        let Some(host) = self.hosts.get_mut(host) else { return };
        if host.monitor.take_if(|monitor| monitor.1 == key).is_some() {
            host.up = false;
            self.compare(&before, out);
            self.ask_soon(out);
        }
    }

    pub fn park(&mut self, client: ClientTag, key: u64) {
        self.parked.insert(key, client);
    }

    pub fn forget(&mut self, key: u64) {
        self.parked.remove(&key);
    }

    fn wake_parked(&mut self, out: &mut Outbox) {
        std::mem::take(&mut self.parked).into_iter().for_each(|(key, client)| post(Peer::Client(client), key, out));
    }

    /// Hosts that are no longer configured are forgotten.
    pub fn keep_only(&mut self, present: Vec<usize>, out: &mut Outbox) {
        let before = self.standings();
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if !present.contains(&number) {
                (host.last, host.up) = (None, false);
            }
        }
        self.present = Some(present);
        self.compare(&before, out);
    }

    /// Whether a host is configured, as far as is known.
    pub fn is_present(&self, host: usize) -> bool {
        self.present.as_ref().is_none_or(|present| present.contains(&host))
    }

    pub fn is_beat_due(&self, now: Duration) -> bool {
        now >= self.next_beat
    }

    /// Those who wait look whether they have waited long enough; hosts are asked what they are.
    pub fn on_tick(&mut self, now: Duration, out: &mut Outbox) {
        self.now = self.now.max(now);
        self.wake_parked(out);
        self.call(out);
        let now = self.now;
        self.due.retain(|key, (at, client)| {
            if *at <= now {
                post(Peer::Client(*client), *key, out);
            }
            *at > now
        });
        if now >= self.next_beat {
            self.ask_all(out);
        }
    }
}

/// Tells a session that something it waits for may have happened.
pub fn post(to: Peer, key: u64, out: &mut Outbox) {
    let here = out.inserted.len();
    out.push(Effect::Post { to, key, bytes: here..here });
}

/// The name of a replica set that is not the one that is configured.
pub fn is_other_set(facts: &Facts, wanted: Option<&Arc<str>>) -> bool {
    wanted.is_some_and(|wanted| facts.set.as_ref() != Some(wanted))
}

#[cfg(test)]
mod tests;
