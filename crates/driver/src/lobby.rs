//! Those of a listener's clients who have not logged in, by the address that they come from. Somebody has to have a place while he logs in,
//! and a stranger may keep one by saying nothing: he is not to lock others out by keeping all. Knows no worker, no gate and no clock.
//!
//! Behind a load balancer many clients have one address, so that no address has a limit of its own. Only when there is no room does
//! somebody go: of the address that has most of these clients, the one who came first. That address has at least two more than the
//! newcomer's, so that places are never taken to and fro; or the one who goes takes longer than a login does, and then gives way to anybody,
//! and above the soft limit, too, where otherwise somebody who has logged in would go.
//!
//! Some may look on, as monitors of drivers do, which never log in. They have a share of the places, which is shared in the same way, and
//! they go after those of their address who are to log in.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    time::Duration,
};

use pool::Time;

/// Logins take less than this.
const SLOW: Duration = Duration::from_secs(2);

/// Where a client comes from: what [counts as one address](crate::throttle::net), or `None` for a Unix socket.
pub(crate) type Net = Option<IpAddr>;

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Guest {
    /// Where it lives.
    pub(crate) worker: u8,
    pub(crate) slot: u32,
    /// Tells it from others that had the same slot.
    pub(crate) serial: u32,
}

/// Who goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Displaced {
    pub(crate) guest: Guest,
    /// How many like it its address had.
    pub(crate) of: usize,
}

/// Whether somebody may look on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LooksOn {
    /// It may; the other one may no longer, and has its login before it.
    Yes { instead_of: Option<Displaced> },
    /// It has its login before it.
    No,
}

/// See the file's head.
#[derive(Default, Debug)]
pub(crate) struct Lobby {
    guests: HashMap<Guest, Seat>,
    /// By address, those who are to log in before those who look on, each in the order in which they came.
    order: BTreeSet<(Net, bool, u64, Guest)>,
    all: Tally,
    onlookers: Tally,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    net: Net,
    looks_on: bool,
    number: u64,
    since: Time,
}

/// How many each address has.
#[derive(Default, Debug)]
struct Tally {
    counts: BTreeMap<Net, usize>,
    by_count: BTreeSet<(usize, Net)>,
    total: usize,
}

impl Tally {
    fn of(&self, net: Net) -> usize {
        self.counts.get(&net).copied().unwrap_or(0)
    }

    /// The address that has most, and how many.
    fn most(&self) -> Option<(usize, Net)> {
        self.by_count.last().copied()
    }

    fn add(&mut self, net: Net) {
        self.total += 1;
        self.set(net, self.of(net) + 1);
    }

    fn subtract(&mut self, net: Net) {
        self.total -= 1;
        self.set(net, self.of(net) - 1);
    }

    fn set(&mut self, net: Net, count: usize) {
        self.by_count.remove(&(self.of(net), net));
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
    pub(crate) fn enter(&mut self, guest: Guest, net: Net, now: Time) {
        self.put(guest, Seat { net, looks_on: false, number: 0, since: now });
    }

    /// It has logged in, or goes. False if somebody else has its place by now.
    pub(crate) fn leave(&mut self, guest: Guest) -> bool {
        self.take(guest).is_some()
    }

    /// Somebody from there comes and there is no room; if not even `full`, there is none below the soft limit. Who goes for it, if anybody
    /// does: it has left.
    pub(crate) fn make_room(&mut self, net: Net, full: bool, now: Time) -> Option<Displaced> {
        let (of, most) = self.all.most()?;
        let (_, looks_on, _, guest) = *self.order.range((most, false, 0, FIRST)..).next()?;
        let slow = !looks_on && now - self.guests[&guest].since >= SLOW;
        let has_more = full && of >= self.all.of(net) + 2;
        if !(slow || has_more) {
            return None;
        }
        self.take(guest);
        Some(Displaced { guest, of })
    }

    /// Somebody wants to look on only, as `most` may.
    pub(crate) fn look_on(&mut self, guest: Guest, most: usize, now: Time) -> LooksOn {
        let Some(seat) = self.guests.get(&guest).copied() else { return LooksOn::No };
        if seat.looks_on {
            return LooksOn::Yes { instead_of: None };
        }
        let mut instead_of = None;
        if self.onlookers.total >= most {
            let Some((of, crowd)) = self.onlookers.most().filter(|(of, _)| *of >= self.onlookers.of(seat.net) + 2)
            else {
                return LooksOn::No;
            };
            let first = self.order.range((crowd, true, 0, FIRST)..).next();
            let (.., other) = *first.expect("the address has some who look on");
            self.stand(other, false, now);
            instead_of = Some(Displaced { guest: other, of });
        }
        self.stand(guest, true, now);
        LooksOn::Yes { instead_of }
    }

    /// Somebody looks on no longer, and has its login before it.
    pub(crate) fn log_in(&mut self, guest: Guest, now: Time) {
        if self.guests.get(&guest).is_some_and(|seat| seat.looks_on) {
            self.stand(guest, false, now);
        }
    }

    /// From now on a guest looks on, or does not.
    fn stand(&mut self, guest: Guest, looks_on: bool, now: Time) {
        if let Some(seat) = self.take(guest) {
            self.put(guest, Seat { looks_on, since: now, ..seat });
        }
    }

    fn put(&mut self, guest: Guest, seat: Seat) {
        self.next += 1;
        let seat = Seat { number: self.next, ..seat };
        self.order.insert((seat.net, seat.looks_on, seat.number, guest));
        self.all.add(seat.net);
        if seat.looks_on {
            self.onlookers.add(seat.net);
        }
        let before = self.guests.insert(guest, seat);
        assert!(before.is_none(), "a client comes in once");
    }

    fn take(&mut self, guest: Guest) -> Option<Seat> {
        let seat = self.guests.remove(&guest)?;
        self.order.remove(&(seat.net, seat.looks_on, seat.number, guest));
        self.all.subtract(seat.net);
        if seat.looks_on {
            self.onlookers.subtract(seat.net);
        }
        Some(seat)
    }
}

/// Nobody comes before it.
const FIRST: Guest = Guest { worker: 0, slot: 0, serial: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);
    const LATER: Time = Time(3_000_000_000);

    fn guest(slot: u32) -> Guest {
        Guest { worker: (slot % 2) as u8, slot, serial: slot }
    }

    fn net(last: u8) -> Net {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    /// Clients of these addresses have come one after the other, with these numbers.
    fn crowd(addresses: &[u8]) -> Lobby {
        let mut lobby = Lobby::default();
        for (slot, last) in (0..).zip(addresses) {
            lobby.enter(guest(slot), net(*last), NOW);
        }
        lobby
    }

    /// Who makes room for somebody at the hard limit.
    fn goes(lobby: &mut Lobby, last: u8, now: Time) -> Option<u32> {
        lobby.make_room(net(last), true, now).map(|displaced| displaced.guest.slot)
    }

    #[test]
    fn the_address_with_most_loses_the_one_that_came_first() {
        let mut lobby = crowd(&[1, 2, 2, 1, 1, 2, 2]);
        assert_eq!(lobby.make_room(net(3), true, NOW), Some(Displaced { guest: guest(1), of: 4 }));
        assert!(!lobby.leave(guest(1)) && lobby.leave(guest(2)), "its place is another's");
        assert_eq!(goes(&mut lobby, 3, NOW), Some(0));
        // Of those with as many it does not matter which, and with one more than the newcomer nobody goes.
        assert!(goes(&mut lobby, 3, NOW).is_some());
        lobby.enter(guest(10), net(3), NOW);
        assert_eq!(goes(&mut lobby, 3, NOW), None);
    }

    #[test]
    fn places_are_not_taken_to_and_fro() {
        let mut lobby = crowd(&[1; 9]);
        let mut came = 9;
        for last in [2, 2, 2, 2, 2, 1, 2, 1] {
            if goes(&mut lobby, last, NOW).is_some() {
                lobby.enter(guest(came), net(last), NOW);
                came += 1;
            }
        }
        assert_eq!((lobby.all.of(net(1)), lobby.all.of(net(2)), came), (5, 4, 13));
    }

    #[test]
    fn one_address_takes_no_places_from_itself_unless_a_login_takes_too_long() {
        let mut lobby = crowd(&[1, 1, 1]);
        assert_eq!(goes(&mut lobby, 1, NOW), None);
        lobby.enter(guest(3), net(1), LATER);
        assert_eq!(goes(&mut lobby, 1, LATER), Some(0));
        assert!(lobby.leave(guest(1)) && lobby.leave(guest(2)));
        assert_eq!(goes(&mut lobby, 1, LATER), None);
        assert!(lobby.make_room(net(2), true, Time(9_000_000_000)).is_some());
        assert!(lobby.make_room(net(2), true, LATER).is_none(), "nobody is left");
    }

    #[test]
    fn above_the_soft_limit_only_who_takes_too_long_goes() {
        let mut lobby = crowd(&[1, 1, 1]);
        assert!(lobby.make_room(net(2), false, NOW).is_none());
        assert_eq!(lobby.make_room(net(2), false, LATER).map(|displaced| displaced.guest), Some(guest(0)));
    }

    #[test]
    fn who_looks_on_goes_last_and_for_another_address_only() {
        let mut lobby = crowd(&[1, 1, 1, 1]);
        for slot in 0..3 {
            assert_eq!(lobby.look_on(guest(slot), 3, NOW), LooksOn::Yes { instead_of: None });
        }
        assert_eq!(goes(&mut lobby, 2, NOW), Some(3));
        assert_eq!(goes(&mut lobby, 1, LATER), None);
        assert_eq!(goes(&mut lobby, 2, NOW), Some(0));
        lobby.log_in(guest(2), LATER);
        assert_eq!(goes(&mut lobby, 2, LATER), Some(2));
        assert_eq!((lobby.all.total, lobby.onlookers.total, lobby.order.len()), (1, 1, 1));
    }

    #[test]
    fn many_of_one_address_keep_no_other_from_looking_on() {
        let mut lobby = crowd(&[1, 1, 1, 1, 1, 2, 2, 2]);
        let yes = LooksOn::Yes { instead_of: None };
        assert_eq!([0, 1, 2, 3, 4].map(|slot| lobby.look_on(guest(slot), 4, NOW)), [yes, yes, yes, yes, LooksOn::No]);
        assert_eq!(lobby.look_on(guest(1), 4, NOW), yes, "it does already");
        let instead_of = Some(Displaced { guest: guest(0), of: 4 });
        assert_eq!(lobby.look_on(guest(5), 4, NOW), LooksOn::Yes { instead_of });
        let instead_of = Some(Displaced { guest: guest(1), of: 3 });
        assert_eq!(lobby.look_on(guest(6), 4, NOW), LooksOn::Yes { instead_of });
        assert_eq!([7, 0, 9].map(|slot| lobby.look_on(guest(slot), 4, NOW)), [LooksOn::No; 3], "they have as many");
        assert_eq!((lobby.onlookers.total, lobby.all.total), (4, 8));
        (0..8).for_each(|slot| assert!(lobby.leave(guest(slot))));
        assert!(lobby.guests.is_empty() && lobby.order.is_empty());
        for tally in [&lobby.all, &lobby.onlookers] {
            assert!(tally.total == 0 && tally.counts.is_empty() && tally.by_count.is_empty());
        }
    }
}
