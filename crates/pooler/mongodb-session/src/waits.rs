//! A request that waits: for a host that can serve it, or for a server of one. It knows nothing of what the request
//! says; where that goes its goal tells, and the topology whether there is such a host.

use std::time::Duration;

use seam::{ClientTag, Effect, LeaseFailure, LeaseKind, Outbox, PoolId, Standing};

use crate::{
    MongoDb,
    client::{Client, Request, State},
    command::Transaction,
    errors::{Code, Failure},
    routes::Goal,
};

impl MongoDb {
    pub(crate) fn park(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        if client.counted {
            out.push(Effect::Standing { client: me, standing: Standing::Active });
        }
        let now = self.topology().now;
        let since = *client.since.get_or_insert(now);
        // One that has waited for a server before does so no less for want of a host.
        let before = (since < now).then(|| self.longest_wait(client)).flatten();
        let patience = self.directory.patience().max(before.unwrap_or_default());
        client.state = State::Parked { until: since + patience };
        self.topology().park(me, client.key);
    }

    /// Asks for a server of the host that the request is to go to, or tells the client why there is none.
    pub(crate) fn route(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        if let Err(failure) = self.seek(me, client, out) {
            client.tell_failure(me, &failure, out);
        }
    }

    /// Asks for a server of the host that the request is to go to.
    pub(crate) fn seek(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) -> Result<(), Failure> {
        if !client.counted {
            self.let_in(me, client, out)?;
        }
        let (host, now) = {
            let mut topology = self.topology();
            client.since.get_or_insert(topology.now);
            (topology.choose(client.request.goal, client.wanted.as_deref()), topology.now)
        };
        let Some(host) = host else {
            self.park(me, client, out);
            return Ok(());
        };
        let pool = self.directory.route(&client.user, host).map_err(|why| {
            let within = client.request.transaction == Transaction::Within;
            if within && !self.directory.hosts().contains(&host) {
                return Failure::of_old_primary();
            }
            // The host of its cursor may be configured no longer.
            let code = if client.cursors.is_empty() { Code::Unauthorized } else { Code::CursorNotFound };
            Failure::new(code, format!("Poolhouse: {why}"))
        })?;
        let mut kind = LeaseKind::Exclusive;
        if (client.request.waits || client.request.exhausts) && client.waiting.is_none() {
            let most = self.directory.max_pinned(pool);
            client.waiting = self.streams.enter(pool, most);
            if client.waiting.is_none() {
                out.push(Effect::PinRefused { client: me, pool, reason: "stream" });
                return Err(Failure::of_streams(most));
            }
            kind = LeaseKind::Lasting;
        }
        let ends_others = client.request.transaction != Transaction::None || client.gathered.is_some();
        if !ends_others && self.transactions.may_hold_up(host) {
            // It may wait at the server for what a transaction holds: the last one is left for whoever ends that.
            kind = LeaseKind::Lasting;
        }
        let until = self.limit_of_wait(client, pool, now);
        client.state = State::Queued { host: host as u32, until };
        if let Some(until) = until {
            self.topology().look_at(until, me, client.key);
        }
        let standing = if client.request.waits { Standing::Blocked } else { Standing::Active };
        out.push(Effect::Standing { client: me, standing });
        out.push(Effect::Lease { client: me, pool, kind });
        Ok(())
    }

    /// Some host does not serve any more whom it served, or time has passed: a request that waits for a server of it is
    /// routed anew, since nothing of it was sent.
    fn look_where_it_waits(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let State::Queued { host, until } = client.state else { return };
        let (host, goal) = (host as usize, client.request.goal);
        let (serves, is_over, is_up, now) = {
            let topology = self.topology();
            (topology.serves(host, goal), topology.is_over_at(host), topology.is_up(host), topology.now)
        };
        let withdraw = |client: &mut Client, out: &mut Outbox| {
            out.push(Effect::Withdraw { client: me });
            (client.state, client.waiting) = (State::Idle, None);
        };
        if until.is_some_and(|until| now >= until) {
            withdraw(client, out);
            let waited = now.saturating_sub(client.since.unwrap_or(now));
            let failure = failure_of_wait(client, Failure::of_second_wait(waited));
            return self.give_up(me, client, &failure, out);
        }
        if client.request.transaction == Transaction::Within && goal == Goal::Host(host) && is_over {
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
        let since = client.since.filter(|since| *since < now)?;
        let limit = self.directory.max_wait(pool)?;
        let left = limit.saturating_sub(Duration::from_millis(client.waited.into()));
        Some((now + left).min(since + limit.max(self.directory.patience())))
    }

    /// `max_wait_time` of the client's pools.
    fn longest_wait(&self, client: &Client) -> Option<Duration> {
        let hosts = self.directory.hosts();
        hosts.iter().filter_map(|host| self.directory.max_wait(self.directory.route(&client.user, *host).ok()?)).max()
    }

    /// A request is sent elsewhere that waited for a server of a host that is there, and might have done so `until`
    /// then.
    fn note_waited(&self, client: &mut Client, host: usize, until: Option<Duration>, now: Duration) {
        let pool = self.directory.route(&client.user, host).ok();
        let Some((limit, since)) = pool.and_then(|pool| self.directory.max_wait(pool)).zip(client.since) else {
            return;
        };
        let left = until.unwrap_or(since + limit).saturating_sub(now);
        client.waited = limit.saturating_sub(left).as_millis().try_into().unwrap_or(u32::MAX);
    }

    /// A host is known, or time has passed.
    pub(crate) fn hear_post(&self, me: ClientTag, client: &mut Client, key: u64, out: &mut Outbox) {
        if client.key != key || client.closing {
            return;
        }
        let until = match client.state {
            State::Parked { until } => until,
            State::Queued { .. } => return self.look_where_it_waits(me, client, out),
            _ => return self.look_whether_it_stalls(me, client, out),
        };
        let (known, now) = {
            let mut topology = self.topology();
            let served =
                client.request.greets || topology.choose(client.request.goal, client.wanted.as_deref()).is_some();
            (topology.pose().is_some() && served, topology.now)
        };
        if known {
            client.state = State::Idle;
            if client.counted {
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
            let failure = no_host(&client.request);
            self.give_up(me, client, &failure, out);
        } else {
            self.topology().park(me, client.key);
        }
    }

    pub(crate) fn on_lease_failed(&self, me: ClientTag, client: &mut Client, why: &LeaseFailure, out: &mut Outbox) {
        if *why == LeaseFailure::Forgotten {
            // There is another pool for it by now, and nothing of it was sent.
            (client.state, client.waiting) = (State::Idle, None);
            match self.seek(me, client, out) {
                Err(failure) => self.give_up(me, client, &failure, out),
                // Who waits for a host is listened to.
                Ok(()) if matches!(client.state, State::Parked { .. }) => out.push(Effect::Wake { client: me }),
                Ok(()) => {}
            }
            return;
        }
        let failure = failure_of_wait(client, Failure::of_lease(why));
        if self.gather_failure(me, client, &failure, out) {
            return;
        }
        self.give_up(me, client, &failure, out);
    }

    /// The request that waits ends with this.
    pub(crate) fn give_up(&self, me: ClientTag, client: &mut Client, failure: &Failure, out: &mut Outbox) {
        let first = Self::gathered(client);
        client.tell_first(me, first, failure, out);
        let held = client.held.len();
        self.forget_request(client);
        client.drop_rest(client.request.header.length - held);
        if client.counted {
            out.push(Effect::Standing { client: me, standing: Standing::Idle });
        }
        out.push(Effect::Wake { client: me });
    }
}

/// No host that may serve the request has been found for as long as it may wait.
pub(crate) fn no_host(request: &Request) -> Failure {
    let text = match request.goal {
        // A client that only greets has not logged in, and is not told where the hosts are.
        _ if request.greets => "Poolhouse: no host of MongoDB has answered yet. The log of Poolhouse says why",
        Goal::Read(..) => "Poolhouse: no host of MongoDB is known that the read preference allows",
        _ => "Poolhouse: no host of MongoDB that takes writes is known",
    };
    Failure::new(Code::FailedToSatisfyReadPreference, text).transient()
}

/// Why a request has waited in vain, as its client is told.
fn failure_of_wait(client: &Client, mut failure: Failure) -> Failure {
    if client.request.transaction == Transaction::Ends && failure.code == Code::MaxTimeMsExpired {
        // Nothing of it was sent, and what it is to end holds up others: a driver that repeats it does them a favour.
        (failure.code, failure.transient) = (Code::TemporarilyUnavailable, true);
    }
    failure
}
