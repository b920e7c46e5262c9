//! The pool of servers of the Poolhouse in front: the real pool, which says who of the clients gets a server, who waits
//! or fails, and which connections to the database are made. Knows clients and servers as numbers, and makes no
//! connection.

use std::collections::VecDeque;

use load::plan::PoolhouseWishes;
use pool::{Action, CheckIn, CheckOut, Grant, Home, Pool, PoolConfig, ServerId, Ticket, Time, WaiterId};

const HOME: Home = Home(0);
/// The seed of the jitter of life times.
const SEED: u64 = 0xf407;

#[derive(Debug)]
pub struct Servers {
    pool: Pool,
    /// What each client has, by its number.
    clients: Vec<Place>,
    /// Each server that there is, by its slot, and whether it has carried an operation.
    servers: Vec<Option<(ServerId, bool)>>,
    told: VecDeque<Told>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Nowhere,
    Waits(Ticket),
    Has(ServerId),
}

/// What the pool has decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Make a connection; the slot names it.
    Connect(u32),
    Close(u32),
    /// This client has a server for its operation; `first`: one that has carried none.
    Go {
        client: u32,
        first: bool,
    },
    /// This client gets none.
    Fails(u32),
}

impl Servers {
    /// A pool with these settings, without a connection.
    pub fn new(wishes: &PoolhouseWishes, now: Time) -> Self {
        let default = PoolConfig::default();
        let config = PoolConfig {
            max_size: wishes.max_size.unwrap_or(default.max_size),
            max_wait_time: wishes.max_wait_time.unwrap_or(default.max_wait_time),
            ..default
        };
        let mut pool = Pool::new(config, SEED, now);
        pool.ready(now);
        let mut this = Self { pool, clients: Vec::new(), servers: Vec::new(), told: VecDeque::new() };
        this.settle(now);
        this
    }

    /// A client has an operation.
    pub fn ask(&mut self, client: u32, now: Time) {
        let at = client as usize;
        if self.clients.len() <= at {
            self.clients.resize(at + 1, Place::Nowhere);
        }
        match self.pool.check_out(WaiterId(client.into()), HOME, now) {
            CheckOut::Granted(grant) => self.granted(grant),
            CheckOut::Queued(ticket) => self.clients[at] = Place::Waits(ticket),
            CheckOut::Failed(_) => self.told.push_back(Told::Fails(client)),
        }
        self.settle(now);
    }

    pub fn done(&mut self, client: u32, now: Time) {
        self.returns(client, CheckIn::Clean, now);
    }

    /// It is gone, whatever it had or waited for. A server in the middle of something is of no use to anybody.
    pub fn left(&mut self, client: u32, now: Time) {
        self.told.retain(|told| !matches!(told, Told::Go { client: whom, .. } | Told::Fails(whom) if *whom == client));
        if let Some(Place::Waits(ticket)) = self.clients.get(client as usize).copied() {
            self.clients[client as usize] = Place::Nowhere;
            self.pool.cancel(ticket, WaiterId(client.into()), now);
            self.settle(now);
        }
        self.returns(client, CheckIn::Discard, now);
    }

    pub fn connected(&mut self, slot: u32, now: Time) {
        let server = self.server(slot);
        if let Some(grant) = self.pool.handle_connected(server, HOME, now) {
            self.granted(grant);
        }
        self.settle(now);
    }

    pub fn refused(&mut self, slot: u32, now: Time) {
        let server = self.server(slot);
        self.servers[slot as usize] = None;
        self.pool.handle_connect_failed(server, false, now);
        self.settle(now);
    }

    pub fn closed(&mut self, slot: u32, now: Time) {
        let server = self.server(slot);
        self.servers[slot as usize] = None;
        self.pool.handle_closed(server, now);
        self.settle(now);
    }

    /// When something will be decided, if nothing happens before.
    pub fn deadline(&self) -> Time {
        self.pool.poll_deadline().unwrap_or(Time::NEVER)
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.pool.handle_timeout(now);
        self.settle(now);
    }

    pub fn poll(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    fn returns(&mut self, client: u32, how: CheckIn, now: Time) {
        let Some(place) = self.clients.get_mut(client as usize) else { return };
        let Place::Has(server) = *place else { return };
        *place = Place::Nowhere;
        if let Some(grant) = self.pool.check_in(server, HOME, how, now) {
            self.granted(grant);
        }
        self.settle(now);
    }

    fn server(&self, slot: u32) -> ServerId {
        self.servers[slot as usize].expect("a connection that is there").0
    }

    fn granted(&mut self, grant: Grant) {
        let client = u32::try_from(grant.waiter.0).expect("a client's number");
        self.clients[client as usize] = Place::Has(grant.server);
        let (_, used) = self.servers[grant.server.slot()].as_mut().expect("a connection that is there");
        let first = !std::mem::replace(used, true);
        self.told.push_back(Told::Go { client, first });
    }

    /// Takes up what the pool orders.
    fn settle(&mut self, now: Time) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                // There is no limit over several pools. False would mean that it is wanted no more.
                Action::AskPermit => _ = self.pool.handle_permit(now),
                Action::WithdrawPermit | Action::ReportStarvation | Action::ReportCongestion | Action::ReportSpare => {}
                Action::Connect { server, .. } => {
                    let slot = server.slot();
                    if self.servers.len() <= slot {
                        self.servers.resize(slot + 1, None);
                    }
                    self.servers[slot] = Some((server, false));
                    self.told.push_back(Told::Connect(slot as u32));
                }
                Action::Close { server, .. } => self.told.push_back(Told::Close(server.slot() as u32)),
                Action::Grant(grant) => self.granted(grant),
                Action::Fail { waiter, .. } => {
                    let client = u32::try_from(waiter.0).expect("a client's number");
                    self.clients[client as usize] = Place::Nowhere;
                    self.told.push_back(Told::Fails(client));
                }
                // Servers are taken to be well.
                Action::Check { server, .. } | Action::Reset { server, .. } => {
                    if let Some(grant) = self.pool.handle_checked(server, true, HOME, now) {
                        self.granted(grant);
                    }
                }
                Action::GiveWay { .. } => unreachable!("no client here keeps a server for long"),
                Action::Interrupt { .. } => unreachable!("this pool is never cleared"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    fn told(servers: &mut Servers) -> Vec<Told> {
        std::iter::from_fn(|| servers.poll()).collect()
    }

    #[test]
    fn clients_get_servers_in_turn_and_fail_when_they_have_waited_for_too_long() {
        let wait = Some(Some(Duration::from_millis(100)));
        let wishes = PoolhouseWishes { max_size: Some(1), max_wait_time: wait, ..PoolhouseWishes::default() };
        let mut servers = Servers::new(&wishes, Time(0));
        (0..3).for_each(|client| servers.ask(client, Time(0)));
        assert_eq!(told(&mut servers), [Told::Connect(0)]);
        servers.connected(0, Time(10 * MS));
        assert_eq!(told(&mut servers), [Told::Go { client: 0, first: true }]);
        servers.done(0, Time(20 * MS));
        assert_eq!(told(&mut servers), [Told::Go { client: 1, first: false }]);
        assert_eq!(servers.deadline(), Time(100 * MS));
        servers.handle_timeout(Time(100 * MS));
        assert_eq!(told(&mut servers), [Told::Fails(2)]);
        // Who leaves in the middle leaves a server that is closed, and another is made for whoever comes.
        servers.left(1, Time(110 * MS));
        assert_eq!(told(&mut servers), [Told::Close(0)]);
        servers.ask(2, Time(110 * MS));
        servers.closed(0, Time(120 * MS));
        assert!(matches!(told(&mut servers)[..], [Told::Connect(_)]));
    }

    #[test]
    fn who_leaves_is_told_nothing_any_more() {
        let wishes = PoolhouseWishes { max_size: Some(1), ..PoolhouseWishes::default() };
        let mut servers = Servers::new(&wishes, Time(0));
        servers.ask(0, Time(0));
        servers.connected(0, Time(MS));
        servers.left(0, Time(MS));
        assert_eq!(told(&mut servers), [Told::Connect(0), Told::Close(0)]);
    }

    #[test]
    fn who_leaves_the_queue_gets_nothing() {
        let wishes = PoolhouseWishes { max_size: Some(1), ..PoolhouseWishes::default() };
        let mut servers = Servers::new(&wishes, Time(0));
        (0..3).for_each(|client| servers.ask(client, Time(0)));
        servers.connected(0, Time(MS));
        servers.left(1, Time(2 * MS));
        servers.done(0, Time(3 * MS));
        assert_eq!(told(&mut servers)[2..], [Told::Go { client: 2, first: false }]);
    }
}
