//! The clients of a listener that have not logged in, by the address that they come from. A client has to have a place
//! while it logs in, and may keep the place by saying nothing, but it is not to lock other clients out by keeping all
//! places. Knows no worker, no gate and no clock.
//!
//! Behind a load balancer many clients have one address, so no address has a limit of its own. A client goes only when
//! there is no room. The first to go is the client that came first, if it has been here for longer than a login takes:
//! it makes room for any other client, and also goes above the soft limit, where otherwise a client that has logged in
//! would go. Otherwise, at the hard limit, the first client of the address that has most goes, if that address has at
//! least two more clients than the newcomer's, so that places are never taken to and fro.
//!
//! Some clients are monitors, as drivers' monitors are, which never log in. They have a share of the places, which
//! addresses share in the same way, and make room only for each other: a driver that loses its monitor gives up all its
//! connections.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    time::Duration,
};

use pool::Time;

/// A login takes less than this.
const MAX_LOGIN_TIME: Duration = Duration::from_secs(2);

/// Where a client comes from: what [counts as one address](crate::throttle::net), or `None` for a Unix socket.
pub(crate) type Net = Option<IpAddr>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LobbyClient {
    pub(crate) worker: u8,
    pub(crate) slot: u32,
    /// Tells the client from others that had the same slot.
    pub(crate) serial: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Displaced {
    pub(crate) client: LobbyClient,
    /// How many clients of its address had not logged in; of a monitor, how many were monitors. The client is counted.
    pub(crate) of_its_address: usize,
}

/// Whether a client may be a monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Monitoring {
    /// It may. The other client may no longer, and is to log in.
    Allowed {
        instead_of: Option<Displaced>,
    },
    Denied,
}

#[derive(Default, Debug)]
pub(crate) struct Lobby {
    clients: HashMap<LobbyClient, Entry>,
    /// Clients that are to log in, in the order in which they came.
    queue: BTreeSet<(u64, LobbyClient)>,
    logins: ByAddress,
    monitors: ByAddress,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    net: Net,
    is_monitor: bool,
    number: u64,
    since: Time,
}

/// Clients by the address that they come from.
#[derive(Default, Debug)]
struct ByAddress {
    /// The clients of each address, in the order in which they came.
    order: BTreeSet<(Net, u64, LobbyClient)>,
    counts: BTreeMap<Net, usize>,
    by_count: BTreeSet<(usize, Net)>,
}

impl ByAddress {
    fn count_of(&self, net: Net) -> usize {
        self.counts.get(&net).copied().unwrap_or(0)
    }

    /// The first client of the address that has most, if a newcomer from `newcomer` may take its place.
    fn first_of_most(&self, newcomer: Net) -> Option<Displaced> {
        let (of_its_address, most) = *self.by_count.last()?;
        let (.., client) = *self.order.range((most, 0, FIRST_CLIENT)..).next()?;
        (of_its_address >= self.count_of(newcomer) + 2).then_some(Displaced { client, of_its_address })
    }

    fn add(&mut self, entry: Entry, client: LobbyClient) {
        self.order.insert((entry.net, entry.number, client));
        self.set(entry.net, self.count_of(entry.net) + 1);
    }

    fn remove(&mut self, entry: Entry, client: LobbyClient) {
        self.order.remove(&(entry.net, entry.number, client));
        self.set(entry.net, self.count_of(entry.net) - 1);
    }

    fn set(&mut self, net: Net, count: usize) {
        self.by_count.remove(&(self.count_of(net), net));
        if count == 0 {
            self.counts.remove(&net);
        } else {
            self.counts.insert(net, count);
            self.by_count.insert((count, net));
        }
    }
}

impl Lobby {
    /// A client has come in, and has not logged in.
    pub(crate) fn enter(&mut self, client: LobbyClient, net: Net, now: Time) {
        self.put(client, Entry { net, is_monitor: false, number: 0, since: now });
    }

    /// A client has logged in, or goes. False if another client has got its place.
    pub(crate) fn leave(&mut self, client: LobbyClient) -> bool {
        self.take(client).is_some()
    }

    /// A client comes from this address, and there is no room: at the hard limit if `full`, otherwise at the soft
    /// limit. Returns the client that goes for it, if any; that client has left.
    pub(crate) fn make_room(&mut self, net: Net, full: bool, now: Time) -> Option<Displaced> {
        let slow = || {
            self.queue
                .first()
                .map(|(_, client)| *client)
                .filter(|client| now - self.clients[client].since >= MAX_LOGIN_TIME)
        };
        let slow =
            slow().map(|client| Displaced { client, of_its_address: self.logins.count_of(self.clients[&client].net) });
        let displaced = slow.or_else(|| full.then(|| self.logins.first_of_most(net)).flatten())?;
        self.take(displaced.client);
        Some(displaced)
    }

    /// How many clients of this address are to log in.
    pub(crate) fn logins_of(&self, net: Net) -> usize {
        self.logins.count_of(net)
    }

    pub(crate) fn monitor_count(&self) -> u32 {
        self.monitors.order.len() as u32
    }

    pub(crate) fn is_monitor(&self, client: LobbyClient) -> bool {
        self.clients.get(&client).is_some_and(|entry| entry.is_monitor)
    }

    /// A client wants to be a monitor, as `most` may be.
    pub(crate) fn begin_monitoring(&mut self, client: LobbyClient, most: usize, now: Time) -> Monitoring {
        let Some(entry) = self.clients.get(&client).copied() else { return Monitoring::Denied };
        if entry.is_monitor {
            return Monitoring::Allowed { instead_of: None };
        }
        let mut instead_of = None;
        if self.monitors.order.len() >= most {
            let Some(displaced) = self.monitors.first_of_most(entry.net) else { return Monitoring::Denied };
            self.move_to(displaced.client, false, now);
            instead_of = Some(displaced);
        }
        self.move_to(client, true, now);
        Monitoring::Allowed { instead_of }
    }

    /// A client is a monitor no longer, and is to log in.
    pub(crate) fn end_monitoring(&mut self, client: LobbyClient, now: Time) {
        if self.is_monitor(client) {
            self.move_to(client, false, now);
        }
    }

    /// From now on a client is a monitor, or is to log in.
    fn move_to(&mut self, client: LobbyClient, is_monitor: bool, now: Time) {
        if let Some(entry) = self.take(client) {
            self.put(client, Entry { is_monitor, since: now, ..entry });
        }
    }

    fn put(&mut self, client: LobbyClient, entry: Entry) {
        self.next += 1;
        let entry = Entry { number: self.next, ..entry };
        if !entry.is_monitor {
            self.queue.insert((entry.number, client));
        }
        self.group_of(entry).add(entry, client);
        let before = self.clients.insert(client, entry);
        assert!(before.is_none(), "a client comes in once");
    }

    fn take(&mut self, client: LobbyClient) -> Option<Entry> {
        let entry = self.clients.remove(&client)?;
        self.queue.remove(&(entry.number, client));
        self.group_of(entry).remove(entry, client);
        Some(entry)
    }

    fn group_of(&mut self, entry: Entry) -> &mut ByAddress {
        if entry.is_monitor { &mut self.monitors } else { &mut self.logins }
    }
}

/// The first client in the order of an address.
const FIRST_CLIENT: LobbyClient = LobbyClient { worker: 0, slot: 0, serial: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);
    const LATER: Time = Time(3_000_000_000);

    fn client(slot: u32) -> LobbyClient {
        LobbyClient { worker: (slot % 2) as u8, slot, serial: slot }
    }

    fn net(last: u8) -> Net {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    /// Clients of these addresses have come one after the other, with these numbers.
    fn crowd(addresses: &[u8]) -> Lobby {
        let mut lobby = Lobby::default();
        for (slot, last) in (0..).zip(addresses) {
            lobby.enter(client(slot), net(*last), NOW);
        }
        lobby
    }

    /// The client that makes room at the hard limit.
    fn goes(lobby: &mut Lobby, last: u8, now: Time) -> Option<u32> {
        lobby.make_room(net(last), true, now).map(|displaced| displaced.client.slot)
    }

    #[test]
    fn the_address_with_most_loses_the_one_that_came_first() {
        let mut lobby = crowd(&[1, 2, 2, 1, 1, 2, 2]);
        assert_eq!(lobby.make_room(net(3), true, NOW), Some(Displaced { client: client(1), of_its_address: 4 }));
        assert!(!lobby.leave(client(1)) && lobby.leave(client(2)), "its place is another's");
        assert_eq!(goes(&mut lobby, 3, NOW), Some(0));
        // Among addresses with as many clients any may lose one; an address with one more than the newcomer's loses
        // none.
        assert!(goes(&mut lobby, 3, NOW).is_some());
        lobby.enter(client(10), net(3), NOW);
        assert_eq!(goes(&mut lobby, 3, NOW), None);
    }

    #[test]
    fn places_are_not_taken_to_and_fro() {
        let mut lobby = crowd(&[1; 9]);
        let mut came = 9;
        for last in [2, 2, 2, 2, 2, 1, 2, 1] {
            if goes(&mut lobby, last, NOW).is_some() {
                lobby.enter(client(came), net(last), NOW);
                came += 1;
            }
        }
        assert_eq!((lobby.logins.count_of(net(1)), lobby.logins.count_of(net(2)), came), (5, 4, 13));
    }

    #[test]
    fn one_address_takes_no_places_from_itself_unless_a_login_takes_too_long() {
        let mut lobby = crowd(&[1, 1, 1]);
        assert_eq!(goes(&mut lobby, 1, NOW), None);
        lobby.enter(client(3), net(1), LATER);
        assert_eq!(goes(&mut lobby, 1, LATER), Some(0));
        assert!(lobby.leave(client(1)) && lobby.leave(client(2)));
        assert_eq!(goes(&mut lobby, 1, LATER), None);
        assert!(lobby.make_room(net(2), true, Time(9_000_000_000)).is_some());
        assert!(lobby.make_room(net(2), true, LATER).is_none(), "no client is left");
    }

    #[test]
    fn above_the_soft_limit_only_a_slow_login_goes() {
        let mut lobby = crowd(&[1, 1, 1]);
        assert!(lobby.make_room(net(2), false, NOW).is_none());
        assert_eq!(lobby.make_room(net(2), false, LATER).map(|displaced| displaced.client), Some(client(0)));
    }

    #[test]
    fn a_slow_login_goes_before_clients_of_the_address_with_most() {
        let mut lobby = crowd(&[1, 1]);
        (2..50).for_each(|slot| lobby.enter(client(slot), net(2), LATER));
        let oldest = Some(Displaced { client: client(0), of_its_address: 2 });
        assert_eq!(lobby.make_room(net(2), true, LATER), oldest, "for a client of the busiest address, too");
        assert_eq!((goes(&mut lobby, 3, LATER), goes(&mut lobby, 3, LATER)), (Some(1), Some(2)));
        assert_eq!(goes(&mut lobby, 2, LATER), None);
    }

    #[test]
    fn a_monitor_gives_way_to_no_client_that_is_to_log_in() {
        let mut lobby = crowd(&[1, 1, 1, 1, 3, 3]);
        for slot in 0..3 {
            assert_eq!(lobby.begin_monitoring(client(slot), 3, NOW), Monitoring::Allowed { instead_of: None });
        }
        assert_eq!([2, 2].map(|last| goes(&mut lobby, last, NOW)), [Some(4), None], "of address 1 one is to log in");
        assert_eq!([2, 2, 2].map(|last| goes(&mut lobby, last, LATER)), [Some(3), Some(5), None]);
        lobby.end_monitoring(client(2), LATER);
        assert!(lobby.is_monitor(client(1)) && !lobby.is_monitor(client(2)));
        assert_eq!([2, 2].map(|last| goes(&mut lobby, last, Time(9_000_000_000))), [Some(2), None]);
        assert_eq!((lobby.clients.len(), lobby.monitors.count_of(net(1)), lobby.queue.len()), (2, 2, 0));
    }

    #[test]
    fn monitors_of_one_address_keep_no_other_address_out() {
        let mut lobby = crowd(&[1, 1, 1, 1, 1, 2, 2, 2]);
        let yes = Monitoring::Allowed { instead_of: None };
        assert_eq!(
            [0, 1, 2, 3, 4].map(|slot| lobby.begin_monitoring(client(slot), 4, NOW)),
            [yes, yes, yes, yes, Monitoring::Denied]
        );
        assert_eq!(lobby.begin_monitoring(client(1), 4, NOW), yes, "it does already");
        let instead_of = Some(Displaced { client: client(0), of_its_address: 4 });
        assert_eq!(lobby.begin_monitoring(client(5), 4, NOW), Monitoring::Allowed { instead_of });
        let instead_of = Some(Displaced { client: client(1), of_its_address: 3 });
        assert_eq!(lobby.begin_monitoring(client(6), 4, NOW), Monitoring::Allowed { instead_of });
        assert_eq!(
            [7, 0, 9].map(|slot| lobby.begin_monitoring(client(slot), 4, NOW)),
            [Monitoring::Denied; 3],
            "they have as many"
        );
        assert_eq!((lobby.monitors.order.len(), lobby.clients.len()), (4, 8));
        (0..8).for_each(|slot| assert!(lobby.leave(client(slot))));
        assert!(lobby.clients.is_empty() && lobby.queue.is_empty());
        for crowd in [&lobby.logins, &lobby.monitors] {
            assert!(crowd.order.is_empty() && crowd.counts.is_empty() && crowd.by_count.is_empty());
        }
    }
}
