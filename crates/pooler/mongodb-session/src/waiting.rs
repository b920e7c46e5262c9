//! Requests that wait for a suitable host, or for a server connection of one.

use std::time::Duration;

use seam::{Effect, LeaseFailure, LeaseKind, Outbox, PoolId, Standing};

use crate::{
    MongoDb,
    client::{Client, State},
    command::Transaction,
    errors::{Code, Failure},
    request::RequestKind,
    routes::Target,
};

impl MongoDb {
    pub(crate) fn wait_for_host(&self, client: &mut Client, out: &mut Outbox) {
        if client.access.is_counted() {
            out.push(Effect::Standing { client: client.tag, standing: Standing::Active });
        }
        let now = self.topology().now();
        let since = client.wait.begin(now);
        // A request that has waited for a server before may wait for a host just as long.
        let before = client.wait.begun_before(now).and_then(|_| self.longest_wait(client));
        let limit = self.directory.unavailable_wait().max(before.unwrap_or_default());
        client.state = State::WaitingForHost { until: since + limit };
        self.topology().clients.wait_for_host(client.tag, client.key);
    }

    /// Selects a host for the request and asks for a server of its pool.
    pub(crate) fn select_server(&self, client: &mut Client, out: &mut Outbox) -> Result<(), Failure> {
        if !client.access.is_counted() {
            self.admit_client(client, out)?;
        }
        let (host, now) = {
            let mut topology = self.topology();
            client.wait.begin(topology.now());
            (topology.choose(client.destination.target(), client.destination.requirements()), topology.now())
        };
        let Some(host) = host else {
            self.wait_for_host(client, out);
            return Ok(());
        };
        let pool = self.pool_of(client, host)?;
        let kind = self.prepare_lease(client, (pool, host), out)?;
        let until = self.deadline_of_wait(client, pool, now);
        client.state = State::WaitingForServer { host: host as u32, until };
        if let Some(until) = until {
            self.topology().clients.set_deadline(until, client.tag, client.key);
        }
        let standing = if client.request.awaits_data() { Standing::Blocked } else { Standing::Active };
        out.push(Effect::Standing { client: client.tag, standing });
        out.push(Effect::Lease { client: client.tag, pool, kind });
        Ok(())
    }

    fn pool_of(&self, client: &Client, host: usize) -> Result<PoolId, Failure> {
        self.directory.route(client.access.user(), host).map_err(|why| {
            let continues = client.request.transaction() == Transaction::Continues;
            if continues && !self.directory.hosts().contains(&host) {
                return Failure::primary_changed();
            }
            // The host of its cursor may no longer be configured.
            let code = if client.destination.cursor().is_none() { Code::Unauthorized } else { Code::CursorNotFound };
            Failure::new(code, format!("Poolhouse: {why}"))
        })
    }

    /// Which kind of lease the request needs. A request that waits for other clients' writes takes a stream slot, or
    /// fails if there is none.
    fn prepare_lease(
        &self,
        client: &mut Client,
        (pool, host): (PoolId, usize),
        out: &mut Outbox,
    ) -> Result<LeaseKind, Failure> {
        let request = &client.request;
        if (request.awaits_data() || request.allows_exhaust()) && client.stream.is_none() {
            let most = self.directory.max_pinned(pool);
            client.stream = self.stream_slots.acquire(pool, most);
            if client.stream.is_none() {
                out.push(Effect::PinRefused { client: client.tag, pool, reason: "stream" });
                return Err(Failure::stream_slots_full(most));
            }
            return Ok(LeaseKind::LongTerm);
        }
        // The request may block on a transaction: the last server of the pool stays free for the request that ends it.
        let ends_others = request.transaction().is_within() || client.destination.is_broadcast();
        let may_wait = !ends_others && self.transactions.may_block_requests(host);
        Ok(if may_wait { LeaseKind::LongTerm } else { LeaseKind::Exclusive })
    }

    /// Checks a request that waits for a server: it goes to another host if this one no longer serves it, and fails if
    /// its time is over. Nothing of it has been sent.
    fn recheck_queue(&self, client: &mut Client, out: &mut Outbox) {
        let State::WaitingForServer { host, until } = client.state else { return };
        let (host, target) = (host as usize, client.destination.target());
        let (serves, has_lost_transactions, is_up, now) = {
            let topology = self.topology();
            (topology.serves(host, target), topology.has_lost_transactions(host), topology.is_up(host), topology.now())
        };
        let withdraw = |client: &mut Client, out: &mut Outbox| {
            out.push(Effect::Withdraw { client: client.tag });
            (client.state, client.stream) = (State::Idle, None);
        };
        if until.is_some_and(|until| now >= until) {
            withdraw(client, out);
            let failure = failure_of_wait(client, Failure::second_wait_timed_out(client.wait.elapsed(now)));
            return self.fail_waiting(client, &failure, out);
        }
        let continues = client.request.transaction() == Transaction::Continues;
        if continues && target == Target::Host(host) && has_lost_transactions {
            withdraw(client, out);
            return self.fail_waiting(client, &Failure::primary_changed(), out);
        }
        if serves {
            return;
        }
        withdraw(client, out);
        if is_up {
            self.note_waited(client, host, until, now);
        }
        self.select_server_again(client, out);
    }

    /// Selects another host for a request of which nothing has been sent, and answers it if that fails.
    fn select_server_again(&self, client: &mut Client, out: &mut Outbox) {
        match self.select_server(client, out) {
            Err(failure) => self.fail_waiting(client, &failure, out),
            // The driver must read from a client that waits for a host, to notice that it leaves.
            Ok(()) if matches!(client.state, State::WaitingForHost { .. }) => {
                out.push(Effect::Wake { client: client.tag });
            }
            Ok(()) => {}
        }
    }

    /// The deadline of a request that has waited before: `max_wait_time` over all pools, or `unavailable_wait_time`
    /// since it began to wait, whichever is longer.
    fn deadline_of_wait(&self, client: &Client, pool: PoolId, now: Duration) -> Option<Duration> {
        // The pool itself enforces the limit of a request that has not waited before.
        let since = client.wait.begun_before(now)?;
        let limit = self.directory.max_wait(pool)?;
        Some((now + client.wait.remaining(limit)).min(since + limit.max(self.directory.unavailable_wait())))
    }

    fn longest_wait(&self, client: &Client) -> Option<Duration> {
        let hosts = self.directory.hosts();
        hosts
            .iter()
            .filter_map(|host| self.directory.max_wait(self.directory.route(client.access.user(), *host).ok()?))
            .max()
    }

    /// Adds the time in this host's queue to the request's wait for servers. The host is up, but no longer serves the
    /// request.
    fn note_waited(&self, client: &mut Client, host: usize, until: Option<Duration>, now: Duration) {
        let pool = self.directory.route(client.access.user(), host).ok();
        if let Some(limit) = pool.and_then(|pool| self.directory.max_wait(pool)) {
            client.wait.note_left_queue(limit, until, now);
        }
    }

    /// A post: a host has replied, a host no longer serves its clients, a deadline has passed, or the rest of a request
    /// has not come in time.
    pub(crate) fn on_post(&self, client: &mut Client, key: u64, out: &mut Outbox) {
        if client.key != key || client.closing {
            return;
        }
        let until = match client.state {
            State::WaitingForHost { until } => until,
            State::WaitingForServer { .. } => return self.recheck_queue(client, out),
            _ => return self.close_if_stalled(client, out),
        };
        let (known, now) = {
            let topology = self.topology();
            let is_hello = client.request.kind() == RequestKind::Hello;
            let (target, wanted) = (client.destination.target(), client.destination.requirements());
            let served = is_hello || topology.suitable_host(target, wanted).is_some();
            (topology.advertised().is_some() && served, topology.now())
        };
        if known {
            client.state = State::Idle;
            if client.access.is_counted() {
                out.push(Effect::Standing { client: client.tag, standing: Standing::Idle });
            }
            if client.held.is_empty() {
                out.push(Effect::Wake { client: client.tag });
            } else {
                self.process_held(client, out);
                if matches!(client.state, State::Idle | State::DiscardingRest { .. }) {
                    out.push(Effect::Wake { client: client.tag });
                }
            }
        } else if now >= until {
            let failure = no_host(client);
            self.fail_waiting(client, &failure, out);
        } else {
            self.topology().clients.wait_for_host(client.tag, client.key);
        }
    }

    pub(crate) fn on_lease_failed(&self, client: &mut Client, why: &LeaseFailure, out: &mut Outbox) {
        if *why == LeaseFailure::Forgotten {
            // The pool was replaced by a reload. Nothing of the request has been sent.
            (client.state, client.stream) = (State::Idle, None);
            return self.select_server_again(client, out);
        }
        let failure = failure_of_wait(client, Failure::lease_failed(why));
        if self.advance_broadcast_after_failure(client, &failure, out) {
            return;
        }
        self.fail_waiting(client, &failure, out);
    }

    pub(crate) fn fail_waiting(&self, client: &mut Client, failure: &Failure, out: &mut Outbox) {
        let first = client.destination.take_error();
        client.send_first_error(first, failure, out);
        let held = client.held.len();
        self.forget_request(client);
        client.discard_rest(client.request.length() - held);
        if client.access.is_counted() {
            out.push(Effect::Standing { client: client.tag, standing: Standing::Idle });
        }
        out.push(Effect::Wake { client: client.tag });
    }
}

/// The error of a request for which no host was found in time.
pub(crate) fn no_host(client: &Client) -> Failure {
    let text = match client.destination.target() {
        // A client that has only sent `hello` has not logged in, and must not learn about hosts.
        _ if client.request.kind() == RequestKind::Hello => {
            "Poolhouse: no host of MongoDB has answered yet. The log of Poolhouse says why"
        }
        Target::Read(..) => "Poolhouse: no host of MongoDB is known that the read preference allows",
        _ => "Poolhouse: no host of MongoDB that takes writes is known",
    };
    Failure::new(Code::FailedToSatisfyReadPreference, text).transient()
}

/// The error of a request that has waited in vain.
fn failure_of_wait(client: &Client, mut failure: Failure) -> Failure {
    if client.request.transaction().ends() && failure.code == Code::MaxTimeMsExpired {
        // Nothing was sent, and the transaction to be ended blocks others: the driver should retry.
        (failure.code, failure.transient) = (Code::TemporarilyUnavailable, true);
    }
    failure
}
