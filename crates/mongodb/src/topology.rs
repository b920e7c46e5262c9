//! What is known of the upstream's hosts, shared by all workers: what each of them is, who watches it, and which clients wait until one is
//! known. It tells sessions by posts, and knows nothing of their states.

use std::{sync::Arc, time::Duration};

use protocol::{ClientTag, Effect, Outbox, Peer, ServerTag};

use crate::{
    facts::{Facts, Role},
    routes::{Goal, Preference},
    tags::{self, TagSet},
};

/// How often hosts are asked what they are.
const BEAT: Duration = Duration::from_secs(1);

/// Hosts that there may ever have been, over all configurations.
const MAX_HOSTS: usize = 1024;

/// A primary that another one has replaced finds out sooner than this (`electionTimeoutMillis` is 10 seconds). What is forgotten then is of
/// use only while it does not: a replica set that was made anew counts its elections from the beginning.
const STALE: Duration = Duration::from_secs(60);

/// Tells a monitor that what its host is about to say may no longer be true.
const URGENT: u8 = 1;

/// The latest version of the wire protocol that Poolhouse passes on: that of MongoDB 8.0.
const WIRE: i32 = 25;

/// See the file's head.
#[derive(Default)]
pub struct Topology {
    /// The time, as the driver tells it.
    pub now: Duration,
    next_beat: Duration,
    last_key: u64,
    turn: usize,
    hosts: Vec<Host>,
    /// The latest election that any host has told of, and when one did last: a primary of an earlier one has been replaced, even if
    /// nothing is known of its successor just now.
    latest: Option<(Election, Duration)>,
    /// Those that are configured now; `None` until that is known.
    present: Option<Vec<usize>>,
    /// Who waits until a host is known, with their keys.
    parked: Vec<(ClientTag, u64)>,
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
    /// That still holds.
    up: bool,
    monitor: Option<(ServerTag, u64)>,
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
        Self { last_key: 1 << 62, ..Self::default() }
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
        self.turn = self.turn.wrapping_add(1);
        let others = || self.up().filter(|(_, facts)| matches!(facts.role, Role::Standalone | Role::Mongos));
        let count = others().count();
        others().nth(self.turn % count.max(1)).map(|(host, _)| host)
    }

    /// Whether a primary was elected later than this one.
    fn is_replaced(&self, facts: &Facts) -> bool {
        self.latest.is_some_and(|(latest, told)| election(facts) < latest && self.now < told + STALE)
    }

    /// A host for this; `None` if none is known.
    pub fn choose(&mut self, goal: Goal, sets: Option<&[TagSet]>) -> Option<usize> {
        let preference = match goal {
            Goal::Host(host) => return Some(host),
            Goal::Writable => return self.writable(),
            Goal::Read(preference) => preference,
        };
        let primary = self.writable();
        let secondaries: Vec<usize> =
            self.up().filter(|(_, facts)| facts.role == Role::Secondary).map(|(host, _)| host).collect();
        let empty = TagSet::new();
        let tags_of = |host: usize| self.hosts[host].last.as_ref().map_or(&empty, |facts| &facts.tags);
        let tagged = |hosts: Vec<usize>| tags::allowed(sets.unwrap_or_default(), hosts, tags_of);
        let any = |hosts: Vec<usize>| {
            let hosts = tagged(hosts);
            hosts.get(self.turn % hosts.len().max(1)).copied()
        };
        let is_set = primary.is_none_or(|host| self.hosts[host].last.as_ref().is_some_and(|facts| facts.set.is_some()));
        let chosen = match preference {
            // A server that stands alone and a mongos know themselves what to do.
            _ if !is_set => primary,
            Preference::PrimaryPreferred => primary.or_else(|| any(secondaries)),
            Preference::Secondary => any(secondaries),
            Preference::SecondaryPreferred => any(secondaries).or(primary),
            Preference::Nearest => any([secondaries, primary.into_iter().collect()].concat()),
        };
        self.turn = self.turn.wrapping_add(1);
        chosen
    }

    /// All hosts that are known, one that takes writes first.
    pub fn all(&mut self) -> Vec<usize> {
        let first = self.writable();
        let others = self.up().map(|(host, _)| host).filter(|host| Some(*host) != first);
        first.into_iter().chain(others).collect()
    }

    /// Whether what began at a host as the primary can no longer end there: another was elected later, or the host is gone.
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

    /// A host has said that it is no longer what it was: it is asked at once.
    pub fn suspect(&mut self, host: usize, out: &mut Outbox) {
        let Some(host) = self.hosts.get_mut(host) else { return };
        if host.last.as_ref().is_some_and(|facts| facts.role != Role::Standalone) {
            host.up = false;
        }
        if let Some((monitor, key)) = host.monitor {
            let here = out.inserted.len();
            out.inserted.push(URGENT);
            out.push(Effect::Post { to: Peer::Server(monitor), key, bytes: here..here + 1 });
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

    /// A host has told what it is. Whoever waits for that goes on.
    pub fn learn(&mut self, host: usize, facts: Facts, out: &mut Outbox) {
        if !self.is_present(host) {
            return;
        }
        if host >= self.hosts.len() && host < MAX_HOSTS {
            self.hosts.resize(host + 1, Host::default());
        }
        if facts.role == Role::Primary && !self.is_replaced(&facts) {
            self.latest = Some((election(&facts), self.now));
        }
        let Some(host) = self.hosts.get_mut(host) else { return };
        (host.last, host.up) = (Some(facts), true);
        self.wake_parked(out);
    }

    pub fn watch(&mut self, host: usize, monitor: ServerTag, key: u64) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.monitor = Some((monitor, key));
        }
    }

    /// What the host is now nobody knows.
    pub fn end_watch(&mut self, host: usize, key: u64) {
        let Some(host) = self.hosts.get_mut(host) else { return };
        if host.monitor.take_if(|monitor| monitor.1 == key).is_some() {
            host.up = false;
        }
    }

    pub fn park(&mut self, client: ClientTag, key: u64) {
        self.parked.push((client, key));
    }

    pub fn forget(&mut self, key: u64) {
        self.parked.retain(|parked| parked.1 != key);
    }

    fn wake_parked(&mut self, out: &mut Outbox) {
        self.parked.drain(..).for_each(|(client, key)| post(Peer::Client(client), key, out));
    }

    /// Hosts that are no longer configured are forgotten.
    pub fn keep_only(&mut self, present: Vec<usize>) {
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if !present.contains(&number) {
                (host.last, host.up) = (None, false);
            }
        }
        self.present = Some(present);
    }

    /// Whether a host is configured, as far as is known.
    pub fn is_present(&self, host: usize) -> bool {
        self.present.as_ref().is_none_or(|present| present.contains(&host))
    }

    pub fn is_beat_due(&self, now: Duration) -> bool {
        now >= self.next_beat
    }

    /// Those who wait look whether they have waited long enough; hosts are asked what they are.
    pub fn tell_time(&mut self, now: Duration, out: &mut Outbox) {
        self.now = self.now.max(now);
        self.wake_parked(out);
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            let monitors = self.hosts.iter().filter_map(|host| host.monitor);
            monitors.for_each(|(monitor, key)| post(Peer::Server(monitor), key, out));
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
mod tests {
    use super::*;

    fn primary_of(term: u8) -> Facts {
        let mut election = [0x7f; 12];
        election[11] = term;
        Facts {
            role: Role::Primary,
            set: Some("rs".into()),
            wire: 21,
            session_minutes: Some(30),
            tags: TagSet::new(),
            election: (1, election),
        }
    }

    #[test]
    fn a_primary_that_was_replaced_takes_no_writes_though_its_successor_is_away() {
        let (mut topology, mut out) = (Topology::new(), Outbox::default());
        topology.learn(0, primary_of(1), &mut out);
        topology.learn(1, primary_of(2), &mut out);
        assert_eq!(topology.writable(), Some(1));
        topology.suspect(1, &mut out);
        assert_eq!(topology.writable(), None);
        topology.learn(0, primary_of(1), &mut out);
        assert_eq!(topology.writable(), None);
        assert!(topology.is_over_at(0));
        topology.learn(0, primary_of(3), &mut out);
        assert_eq!(topology.writable(), Some(0));
    }

    #[test]
    fn a_replica_set_that_was_made_anew_has_a_primary_after_a_while() {
        let (mut topology, mut out) = (Topology::new(), Outbox::default());
        topology.learn(0, primary_of(9), &mut out);
        topology.suspect(0, &mut out);
        topology.learn(0, primary_of(1), &mut out);
        assert_eq!(topology.writable(), None);
        topology.tell_time(STALE, &mut out);
        assert_eq!(topology.writable(), Some(0));
    }
}
