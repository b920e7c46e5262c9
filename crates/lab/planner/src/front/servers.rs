//! The server pool of the Poolhouse in front. The real pool decides which client gets a server, waits or fails, and
//! which connections to the database are made. Clients and servers are numbers here; the simulation connects them.

use std::collections::VecDeque;

use load::plan::PoolhouseWishes;
use pool::{Action, CheckIn, CheckOut, Grant, Home, Pool, PoolConfig, ServerId, Ticket, Time, WaiterId};

const HOME: Home = Home(0);
/// The seed of the jitter of life times.
const LIFE_TIME_JITTER_SEED: u64 = 0xf407;

#[derive(Debug)]
pub struct ServerPool {
    pool: Pool,
    /// The state of each client, by its number.
    clients: Vec<ClientState>,
    /// The server in each slot, and whether it has carried an operation.
    servers: Vec<Option<(ServerId, bool)>>,
    decisions: VecDeque<PoolDecision>,
}

#[derive(Clone, Copy, Debug, Default)]
enum ClientState {
    #[default]
    Idle,
    Waiting(Ticket),
    Holding(ServerId),
}

/// A decision of the pool, to be executed by the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolDecision {
    /// Make a connection; the slot names it.
    Connect(u32),
    Close(u32),
    /// The client has a server for its operation. `first`: the server has carried no operation yet.
    Grant {
        client: u32,
        first: bool,
    },
    /// The client's operation fails for want of a server.
    Reject(u32),
}

impl ServerPool {
    pub fn new(wishes: &PoolhouseWishes, now: Time) -> Self {
        let default = PoolConfig::default();
        let config = PoolConfig {
            max_size: wishes.max_size.unwrap_or(default.max_size),
            max_wait_time: wishes.max_wait_time.unwrap_or(default.max_wait_time),
            ..default
        };
        let mut pool = Pool::new(config, LIFE_TIME_JITTER_SEED, now);
        pool.ready(now);
        let mut this = Self { pool, clients: Vec::new(), servers: Vec::new(), decisions: VecDeque::new() };
        this.execute_actions(now);
        this
    }

    /// Asks for a server for the client's operation.
    pub fn request(&mut self, client: u32, now: Time) {
        let at = client as usize;
        if self.clients.len() <= at {
            self.clients.resize(at + 1, ClientState::Idle);
        }
        match self.pool.check_out(WaiterId(client.into()), HOME, now) {
            CheckOut::Granted(grant) => self.grant(grant),
            CheckOut::Queued(ticket) => self.clients[at] = ClientState::Waiting(ticket),
            CheckOut::Failed(_) => self.decisions.push_back(PoolDecision::Reject(client)),
        }
        self.execute_actions(now);
    }

    pub fn release(&mut self, client: u32, now: Time) {
        self.check_in(client, CheckIn::Clean, now);
    }

    /// Removes a client that has disconnected. A server that was running its operation is discarded.
    pub fn remove_client(&mut self, client: u32, now: Time) {
        self.decisions.retain(|decision| match decision {
            PoolDecision::Grant { client: other, .. } | PoolDecision::Reject(other) => *other != client,
            PoolDecision::Connect(_) | PoolDecision::Close(_) => true,
        });
        if let Some(ClientState::Waiting(ticket)) = self.clients.get(client as usize).copied() {
            self.clients[client as usize] = ClientState::Idle;
            self.pool.cancel(ticket, WaiterId(client.into()), now);
            self.execute_actions(now);
        }
        self.check_in(client, CheckIn::Discard, now);
    }

    pub fn handle_connected(&mut self, slot: u32, now: Time) {
        let server = self.server(slot);
        if let Some(grant) = self.pool.handle_connected(server, HOME, now) {
            self.grant(grant);
        }
        self.execute_actions(now);
    }

    pub fn handle_refused(&mut self, slot: u32, now: Time) {
        let server = self.server(slot);
        self.servers[slot as usize] = None;
        self.pool.handle_connect_failed(server, false, now);
        self.execute_actions(now);
    }

    pub fn handle_closed(&mut self, slot: u32, now: Time) {
        let server = self.server(slot);
        self.servers[slot as usize] = None;
        self.pool.handle_closed(server, now);
        self.execute_actions(now);
    }

    /// The time of the pool's next time-out.
    pub fn deadline(&self) -> Time {
        self.pool.poll_deadline().unwrap_or(Time::NEVER)
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.pool.handle_timeout(now);
        self.execute_actions(now);
    }

    pub fn poll(&mut self) -> Option<PoolDecision> {
        self.decisions.pop_front()
    }

    fn check_in(&mut self, client: u32, how: CheckIn, now: Time) {
        let Some(state) = self.clients.get_mut(client as usize) else { return };
        let ClientState::Holding(server) = *state else { return };
        *state = ClientState::Idle;
        if let Some(grant) = self.pool.check_in(server, HOME, how, now) {
            self.grant(grant);
        }
        self.execute_actions(now);
    }

    fn server(&self, slot: u32) -> ServerId {
        self.servers[slot as usize].expect("an existing connection").0
    }

    fn grant(&mut self, grant: Grant) {
        let client = u32::try_from(grant.waiter.0).expect("a client's number");
        self.clients[client as usize] = ClientState::Holding(grant.server);
        let (_, used) = self.servers[grant.server.slot()].as_mut().expect("an existing connection");
        let first = !std::mem::replace(used, true);
        self.decisions.push_back(PoolDecision::Grant { client, first });
    }

    /// Turns the pool's actions into decisions.
    fn execute_actions(&mut self, now: Time) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                // No limit spans several pools. A return value of false means that the permit is no longer needed.
                Action::AskPermit => _ = self.pool.handle_permit(now),
                Action::WithdrawPermit | Action::ReportStarvation | Action::ReportCongestion | Action::ReportSpare => {}
                Action::Connect { server, .. } => {
                    let slot = server.slot();
                    if self.servers.len() <= slot {
                        self.servers.resize(slot + 1, None);
                    }
                    self.servers[slot] = Some((server, false));
                    self.decisions.push_back(PoolDecision::Connect(slot as u32));
                }
                Action::Close { server, .. } => self.decisions.push_back(PoolDecision::Close(server.slot() as u32)),
                Action::Grant(grant) => self.grant(grant),
                Action::Fail { waiter, .. } => {
                    let client = u32::try_from(waiter.0).expect("a client's number");
                    self.clients[client as usize] = ClientState::Idle;
                    self.decisions.push_back(PoolDecision::Reject(client));
                }
                // Checks and resets always succeed in the simulation.
                Action::Check { server, .. } | Action::Reset { server, .. } => {
                    if let Some(grant) = self.pool.handle_checked(server, true, HOME, now) {
                        self.grant(grant);
                    }
                }
                Action::RequestReturn { .. } => unreachable!("no client here keeps a server for long"),
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

    fn decisions(servers: &mut ServerPool) -> Vec<PoolDecision> {
        std::iter::from_fn(|| servers.poll()).collect()
    }

    #[test]
    fn clients_get_servers_in_turn_and_fail_when_they_have_waited_for_too_long() {
        let wait = Some(Some(Duration::from_millis(100)));
        let wishes = PoolhouseWishes { max_size: Some(1), max_wait_time: wait, ..PoolhouseWishes::default() };
        let mut servers = ServerPool::new(&wishes, Time(0));
        (0..3).for_each(|client| servers.request(client, Time(0)));
        assert_eq!(decisions(&mut servers), [PoolDecision::Connect(0)]);
        servers.handle_connected(0, Time(10 * MS));
        assert_eq!(decisions(&mut servers), [PoolDecision::Grant { client: 0, first: true }]);
        servers.release(0, Time(20 * MS));
        assert_eq!(decisions(&mut servers), [PoolDecision::Grant { client: 1, first: false }]);
        assert_eq!(servers.deadline(), Time(100 * MS));
        servers.handle_timeout(Time(100 * MS));
        assert_eq!(decisions(&mut servers), [PoolDecision::Reject(2)]);
        // The server of a client that leaves during an operation is closed, and the next client gets a new one.
        servers.remove_client(1, Time(110 * MS));
        assert_eq!(decisions(&mut servers), [PoolDecision::Close(0)]);
        servers.request(2, Time(110 * MS));
        servers.handle_closed(0, Time(120 * MS));
        assert!(matches!(decisions(&mut servers)[..], [PoolDecision::Connect(_)]));
    }

    #[test]
    fn a_removed_client_gets_no_decision() {
        let wishes = PoolhouseWishes { max_size: Some(1), ..PoolhouseWishes::default() };
        let mut servers = ServerPool::new(&wishes, Time(0));
        servers.request(0, Time(0));
        servers.handle_connected(0, Time(MS));
        servers.remove_client(0, Time(MS));
        assert_eq!(decisions(&mut servers), [PoolDecision::Connect(0), PoolDecision::Close(0)]);
    }

    #[test]
    fn a_client_that_leaves_the_queue_gets_no_server() {
        let wishes = PoolhouseWishes { max_size: Some(1), ..PoolhouseWishes::default() };
        let mut servers = ServerPool::new(&wishes, Time(0));
        (0..3).for_each(|client| servers.request(client, Time(0)));
        servers.handle_connected(0, Time(MS));
        servers.remove_client(1, Time(2 * MS));
        servers.release(0, Time(3 * MS));
        assert_eq!(decisions(&mut servers)[2..], [PoolDecision::Grant { client: 2, first: false }]);
    }
}
