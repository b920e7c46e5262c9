//! A request that waits: for a host that can serve it, or for a server of one. It knows nothing of what the request
//! says; where that goes its goal tells, and the topology whether there is such a host.

use std::time::Duration;

use seam::{ClientTag, Effect, LeaseFailure, LeaseKind, Outbox, PoolId, Standing};

use crate::{
    MongoDb,
    client::{Client, State},
    command::Transaction,
    errors::{Code, Failure},
    request::Kind,
    routes::Goal,
};

impl MongoDb {
    pub(crate) fn park(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        if client.access.is_counted() {
            out.push(Effect::Standing { client: me, standing: Standing::Active });
        }
        let now = self.topology().now;
        let since = client.wait.begin(now);
        // A request that has waited for a server before may wait for a host just as long.
        let before = client.wait.begun_before(now).and_then(|_| self.longest_wait(client));
        let patience = self.directory.patience().max(before.unwrap_or_default());
        client.state = State::Parked { until: since + patience };
        self.topology().park(me, client.key);
    }

    /// Asks for a server of the host that the request is to go to.
    pub(crate) fn seek(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) -> Result<(), Failure> {
        if !client.access.is_counted() {
            self.let_in(me, client, out)?;
        }
        let (host, now) = {
            let mut topology = self.topology();
            client.wait.begin(topology.now);
            (topology.choose(client.destination.goal(), client.destination.wanted()), topology.now)
        };
        let Some(host) = host else {
            self.park(me, client, out);
            return Ok(());
        };
        let pool = self.pool_of(client, host)?;
        let kind = self.kind_of_lease(me, client, (pool, host), out)?;
        let until = self.limit_of_wait(client, pool, now);
        client.state = State::Queued { host: host as u32, until };
        if let Some(until) = until {
            self.topology().look_at(until, me, client.key);
        }
        let standing = if client.request.awaits_data() { Standing::Blocked } else { Standing::Active };
        out.push(Effect::Standing { client: me, standing });
        out.push(Effect::Lease { client: me, pool, kind });
        Ok(())
    }

    /// The pool that serves the client at a host.
    fn pool_of(&self, client: &Client, host: usize) -> Result<PoolId, Failure> {
        self.directory.route(client.access.user(), host).map_err(|why| {
            let continues = client.request.transaction() == Transaction::Continues;
            if continues && !self.directory.hosts().contains(&host) {
                return Failure::of_old_primary();
            }
            // The host of its cursor may be configured no longer.
            let code = if client.destination.cursor().is_none() { Code::Unauthorized } else { Code::CursorNotFound };
            Failure::new(code, format!("Poolhouse: {why}"))
        })
    }

    /// How long the request may keep a server of this pool. One that waits for what other clients write takes one of
    /// the places for that, or is refused.
    fn kind_of_lease(
        &self,
        me: ClientTag,
        client: &mut Client,
        (pool, host): (PoolId, usize),
        out: &mut Outbox,
    ) -> Result<LeaseKind, Failure> {
        let request = &client.request;
        if (request.awaits_data() || request.allows_exhaust()) && client.stream.is_none() {
            let most = self.directory.max_pinned(pool);
            client.stream = self.streams.enter(pool, most);
            if client.stream.is_none() {
                out.push(Effect::PinRefused { client: me, pool, reason: "stream" });
                return Err(Failure::of_streams(most));
            }
            return Ok(LeaseKind::Lasting);
        }
        // The request may wait at the server for what a transaction holds: the last server is left for the request that
        // ends that.
        let ends_others = request.transaction().is_within() || client.destination.is_broadcast();
        let may_wait = !ends_others && self.transactions.may_hold_up(host);
        Ok(if may_wait { LeaseKind::Lasting } else { LeaseKind::Exclusive })
    }

    /// Some host does not serve any more whom it served, or time has passed: a request that waits for a server of it is
    /// routed anew, since nothing of it was sent.
    fn look_where_it_waits(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let State::Queued { host, until } = client.state else { return };
        let (host, goal) = (host as usize, client.destination.goal());
        let (serves, is_over, is_up, now) = {
            let topology = self.topology();
            (topology.serves(host, goal), topology.is_over_at(host), topology.is_up(host), topology.now)
        };
        let withdraw = |client: &mut Client, out: &mut Outbox| {
            out.push(Effect::Withdraw { client: me });
            (client.state, client.stream) = (State::Idle, None);
        };
        if until.is_some_and(|until| now >= until) {
            withdraw(client, out);
            let failure = failure_of_wait(client, Failure::of_second_wait(client.wait.elapsed(now)));
            return self.give_up(me, client, &failure, out);
        }
        if client.request.transaction() == Transaction::Continues && goal == Goal::Host(host) && is_over {
            withdraw(client, out);
            return self.give_up(me, client, &Failure::of_old_primary(), out);
        }
        if serves {
            return;
        }
        withdraw(client, out);
        if is_up {
            self.note_waited(client, host, until, now);
        }
        match self.seek(me, client, out) {
            Err(failure) => self.give_up(me, client, &failure, out),
            // Who waits for a host is listened to.
            Ok(()) if matches!(client.state, State::Parked { .. }) => out.push(Effect::Wake { client: me }),
            Ok(()) => {}
        }
    }

    /// Until when a request may wait for a server of a pool that has waited before: for `max_wait_time`, as if it had
    /// come to one pool all the time; and, with what it has waited while there was no host for it, no longer than
    /// `unavailable_wait_time` if that is longer.
    fn limit_of_wait(&self, client: &Client, pool: PoolId, now: Duration) -> Option<Duration> {
        // The pool itself looks after who has only just come.
        let since = client.wait.begun_before(now)?;
        let limit = self.directory.max_wait(pool)?;
        Some((now + client.wait.left(limit)).min(since + limit.max(self.directory.patience())))
    }

    /// `max_wait_time` of the client's pools.
    fn longest_wait(&self, client: &Client) -> Option<Duration> {
        let hosts = self.directory.hosts();
        hosts
            .iter()
            .filter_map(|host| self.directory.max_wait(self.directory.route(client.access.user(), *host).ok()?))
            .max()
    }

    /// A request is sent elsewhere that waited for a server of a host that is there, and might have done so `until`
    /// then.
    fn note_waited(&self, client: &mut Client, host: usize, until: Option<Duration>, now: Duration) {
        let pool = self.directory.route(client.access.user(), host).ok();
        if let Some(limit) = pool.and_then(|pool| self.directory.max_wait(pool)) {
            client.wait.note_queue_left(limit, until, now);
        }
    }

    /// A host is known, or time has passed.
    pub(crate) fn hear_post(&self, me: ClientTag, client: &mut Client, key: u64, out: &mut Outbox) {
        if client.key != key || client.closing {
            return;
        }
        let until = match client.state {
            State::Parked { until } => until,
            State::Queued { .. } => return self.look_where_it_waits(me, client, out),
            _ => return self.close_if_stalled(me, client, out),
        };
        let (known, now) = {
            let mut topology = self.topology();
            let is_hello = client.request.kind() == Kind::Hello;
            let (goal, wanted) = (client.destination.goal(), client.destination.wanted());
            let served = is_hello || topology.choose(goal, wanted).is_some();
            (topology.pose().is_some() && served, topology.now)
        };
        if known {
            client.state = State::Idle;
            if client.access.is_counted() {
                out.push(Effect::Standing { client: me, standing: Standing::Idle });
            }
            if client.held.is_empty() {
                out.push(Effect::Wake { client: me });
            } else {
                self.look_at_held(me, client, out);
                if matches!(client.state, State::Idle | State::Dropping { .. }) {
                    out.push(Effect::Wake { client: me });
                }
            }
        } else if now >= until {
            let failure = no_host(client);
            self.give_up(me, client, &failure, out);
        } else {
            self.topology().park(me, client.key);
        }
    }

    pub(crate) fn on_lease_failed(&self, me: ClientTag, client: &mut Client, why: &LeaseFailure, out: &mut Outbox) {
        if *why == LeaseFailure::Forgotten {
            // There is another pool for it by now, and nothing of it was sent.
            (client.state, client.stream) = (State::Idle, None);
            match self.seek(me, client, out) {
                Err(failure) => self.give_up(me, client, &failure, out),
                // Who waits for a host is listened to.
                Ok(()) if matches!(client.state, State::Parked { .. }) => out.push(Effect::Wake { client: me }),
                Ok(()) => {}
            }
            return;
        }
        let failure = failure_of_wait(client, Failure::of_lease(why));
        if self.note_broadcast_failure(me, client, &failure, out) {
            return;
        }
        self.give_up(me, client, &failure, out);
    }

    /// The request that waits ends with this.
    pub(crate) fn give_up(&self, me: ClientTag, client: &mut Client, failure: &Failure, out: &mut Outbox) {
        let first = client.destination.take_error();
        client.tell_first(me, first, failure, out);
        let held = client.held.len();
        self.forget_request(client);
        client.drop_rest(client.request.length() - held);
        if client.access.is_counted() {
            out.push(Effect::Standing { client: me, standing: Standing::Idle });
        }
        out.push(Effect::Wake { client: me });
    }
}

/// No host that may serve the request has been found for as long as it may wait.
pub(crate) fn no_host(client: &Client) -> Failure {
    let text = match client.destination.goal() {
        // A client that only sends `hello` has not logged in, and is not told where the hosts are.
        _ if client.request.kind() == Kind::Hello => {
            "Poolhouse: no host of MongoDB has answered yet. The log of Poolhouse says why"
        }
        Goal::Read(..) => "Poolhouse: no host of MongoDB is known that the read preference allows",
        _ => "Poolhouse: no host of MongoDB that takes writes is known",
    };
    Failure::new(Code::FailedToSatisfyReadPreference, text).transient()
}

/// Why a request has waited in vain, as its client is told.
fn failure_of_wait(client: &Client, mut failure: Failure) -> Failure {
    if client.request.transaction().ends() && failure.code == Code::MaxTimeMsExpired {
        // Nothing of it was sent, and what it is to end holds up others: a driver that repeats it does them a favour.
        (failure.code, failure.transient) = (Code::TemporarilyUnavailable, true);
    }
    failure
}
