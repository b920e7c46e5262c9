//! The driver's part of the world: carries orders from the pools to those who execute them, permits between pools and
//! budget, and reports what became of servers. Orders may be late and cross each other; which do is chance.

use std::time::Duration;

use pool::{Action, BudgetAction, CheckIn, Grant, Home, Path, Permit, ServerId, Time};

use super::{
    Event, Fault, Letter, MAX_LETTERS, World,
    oracle::{Oracle, State},
    plan::CLOSING,
};

fn server_ready(oracle: &mut Oracle, id: ServerId) {
    let clock = oracle.clock;
    if let Some(server) = oracle.server(id) {
        server.ready_at = clock;
    }
}

impl World {
    /// To be called after every call of a pool, with the grant that it returned: sees what was ordered and sends it on.
    pub(super) fn pump(&mut self, pool: usize, returned: Option<Grant>) {
        let post = &mut self.posts[pool];
        let mut orders: Vec<Action> = std::iter::from_fn(|| post.pool.poll_action()).collect();
        if let Some(grant) = returned {
            // Those who had waited too long were failed before the next of them got the server.
            let failed = orders.iter().take_while(|o| matches!(o, Action::Fail { .. })).count();
            if grant.path == Path::Queued {
                post.oracle.relayed = post.oracle.clock;
            }
            orders.insert(failed, Action::Grant(grant));
        }
        for order in orders {
            self.tell(|| format!("  pool {pool}: {order:?}"));
            self.posts[pool].oracle.ordered(&order);
            if matches!(order, Action::Fail { .. }) && self.fault == Fault::ForgetFailure {
                continue;
            }
            self.send(pool, Letter::Order(order));
        }
    }

    fn send(&mut self, pool: usize, letter: Letter) {
        let delay = Duration::from_nanos(self.rng.below(self.plan.delay.as_nanos() as u64 + 1));
        let last = self.posts[pool].mail.back().map_or(Time(0), |m| m.0);
        let at = last.max(self.now() + delay);
        self.posts[pool].mail.push_back((at, letter));
        if at > self.now() {
            self.agenda.at(at, Event::Mail);
        }
    }

    /// Delivers all that has arrived, and what that brings about.
    pub(super) fn deliver(&mut self) {
        for _ in 0..MAX_LETTERS {
            let now = self.now();
            while let Some(action) = self.budget.poll_action() {
                self.tell(|| format!("  budget: {action:?}"));
                let pool = self.posts.iter().position(|p| p.member == action.member()).expect("a member is a pool");
                match action {
                    BudgetAction::Grant(_) => self.send_permit(pool),
                    BudgetAction::Reclaim(_) => self.send(pool, Letter::Reclaim),
                    BudgetAction::ReclaimUnused(_) => self.send(pool, Letter::ReclaimUnused),
                }
            }
            let due = |p: &super::Post| p.mail.front().is_some_and(|m| m.0 <= now);
            let Some(pool) = self.posts.iter().position(due) else { return };
            let (_, letter) = self.posts[pool].mail.pop_front().expect("just seen");
            self.open(pool, letter);
        }
        panic!("pools and budget keep each other busy for ever");
    }

    fn send_permit(&mut self, pool: usize) {
        self.posts[pool].permits_sent += 1;
        self.posts[pool].wishes_since = self.now();
        self.send(pool, Letter::Permit);
    }

    fn open(&mut self, pool: usize, letter: Letter) {
        match letter {
            Letter::Order(order) => self.execute(pool, order),
            Letter::Permit => {
                let now = self.clock(pool);
                self.posts[pool].permits_sent -= 1;
                if self.posts[pool].pool.handle_permit(now) {
                    self.posts[pool].oracle.permitted();
                } else {
                    self.posts[pool].unasked -= 1;
                    self.budget.release(self.posts[pool].member);
                }
                self.pump(pool, None);
            }
            Letter::Reclaim => {
                let now = self.clock(pool);
                if !self.posts[pool].pool.reclaim(now) {
                    self.tell(|| format!("  pool {pool} has none to give"));
                    self.posts[pool].oracle.refused = true;
                    self.budget.reclaim_failed(self.posts[pool].member);
                }
                self.pump(pool, None);
            }
            Letter::ReclaimUnused => {
                let now = self.clock(pool);
                let unused = self.posts[pool].oracle.has_unused(self.posts[pool].oracle.clock, 0);
                let given = self.posts[pool].pool.reclaim_unused(now);
                assert_eq!(given, unused, "pool {pool} gives up as unused something else than what nobody uses");
                if !given {
                    self.tell(|| format!("  pool {pool} has none that nobody uses"));
                    self.posts[pool].oracle.refused = true;
                    self.budget.reclaim_unused_failed(self.posts[pool].member);
                }
                self.pump(pool, None);
            }
        }
    }

    fn execute(&mut self, pool: usize, order: Action) {
        match order {
            Action::AskPermit if self.fault == Fault::ConnectWithoutPermit && self.rng.percent(30) => {
                let now = self.clock(pool);
                assert!(self.posts[pool].pool.handle_permit(now), "just asked for");
                self.posts[pool].oracle.permitted();
                self.pump(pool, None);
            }
            Action::AskPermit if self.posts[pool].unasked > 0 && self.fault != Fault::RememberTooMuch => {
                self.posts[pool].unasked -= 1;
            }
            Action::AskPermit => match self.budget.request(self.posts[pool].member) {
                Permit::Granted => self.send_permit(pool),
                Permit::Denied => {}
            },
            Action::WithdrawPermit => {
                // If there is nothing to withdraw, a permit is on its way.
                let withdrawn = self.budget.withdraw(self.posts[pool].member);
                self.posts[pool].unasked += i32::from(!withdrawn);
            }
            Action::ReportStarvation if self.fault == Fault::ForgetInsisting => {}
            Action::ReportStarvation => self.budget.report_starvation(self.posts[pool].member),
            Action::ReportCongestion if self.fault == Fault::ForgetPressing => {}
            Action::ReportCongestion => self.budget.report_congestion(self.posts[pool].member),
            Action::ReportSpare => self.budget.report_spare(self.posts[pool].member),
            Action::Connect { server, .. } if self.lacks_descriptors() => {
                if self.posts[pool].oracle.server(server).is_some() {
                    let now = self.clock(pool);
                    self.posts[pool].pool.handle_connect_failed(server, false, now);
                    self.gone(pool, server);
                    self.pump(pool, None);
                }
            }
            Action::Connect { server, .. } => {
                let after = self.rng.around(self.plan.connect);
                self.agenda.after(after, Event::Dialled(pool, server));
            }
            Action::Grant(grant) => {
                self.granted(pool, grant);
                if self.fault == Fault::GrantTwice
                    && let Some((&waiter, wait)) = self.posts[pool].oracle.waits.iter().find(|w| !w.1.decided)
                {
                    let waited = self.posts[pool].oracle.clock - wait.since;
                    let twice = Grant { waiter: pool::WaiterId(waiter), waiter_home: wait.home, waited, ..grant };
                    self.posts[pool].oracle.ordered(&Action::Grant(twice));
                }
            }
            Action::Fail { waiter, .. } => self.failed(pool, waiter.0),
            Action::Close { server, .. } => {
                let after = self.rng.around(CLOSING);
                self.agenda.after(after, Event::Closed(pool, server));
            }
            Action::Check { server, .. } | Action::Reset { server, .. } => {
                let after = self.rng.around(self.plan.connect);
                self.agenda.after(after, Event::Checked(pool, server));
            }
            Action::GiveWay { .. } => unreachable!("no client here keeps a server for long"),
            Action::Interrupt { server, .. } => self.interrupt(pool, server),
        }
    }

    fn home(&mut self) -> Home {
        Home(self.rng.below(u64::from(self.plan.homes)) as u8)
    }

    /// A connect has ended, one way or the other.
    pub(super) fn dialled(&mut self, pool: usize, id: ServerId) {
        if let Some(until) = self.silent_until(pool) {
            return self.agenda.at(until, Event::Dialled(pool, id));
        }
        let home = self.home();
        let fails = self.rng.percent(self.plan.unreachable) || self.is_down(pool);
        let Some(server) = self.posts[pool].oracle.server(id) else { return };
        // It may have been ordered to close meanwhile: then the answer crosses the order, and counts for nothing.
        let late = server.state == State::Closing;
        assert!(late || server.state == State::Connecting, "a connect ends twice");
        if !late {
            server.home = home;
        }
        let now = self.clock(pool);
        if fails {
            let permanent = self.rng.percent(self.plan.for_good);
            self.posts[pool].pool.handle_connect_failed(id, permanent, now);
            self.gone(pool, id);
            return self.pump(pool, None);
        }
        if !late {
            self.idle_since(pool, id);
        }
        server_ready(&mut self.posts[pool].oracle, id);
        let grant = self.posts[pool].pool.handle_connected(id, home, now);
        assert!(!late || grant.is_none(), "a server that is closing is granted");
        self.pump(pool, grant);
    }

    /// A check or a reset has ended.
    pub(super) fn checked(&mut self, pool: usize, id: ServerId) {
        if let Some(until) = self.silent_until(pool) {
            return self.agenda.at(until, Event::Checked(pool, id));
        }
        let ok = self.rng.percent(90);
        let Some(server) = self.posts[pool].oracle.server(id) else { return };
        let late = server.state == State::Closing;
        assert!(late || server.state == State::Checking, "a check ends twice");
        let home = server.home;
        let now = self.clock(pool);
        if !late {
            self.idle_since(pool, id);
        }
        let grant = self.posts[pool].pool.handle_checked(id, ok, home, now);
        assert!(grant.is_none() || ok && !late, "a server that failed its check is granted");
        self.pump(pool, grant);
    }

    /// For the oracle a server is idle from the moment it is reported; the pool may change that in the same call.
    fn idle_since(&mut self, pool: usize, id: ServerId) {
        let clock = self.posts[pool].oracle.clock;
        self.posts[pool].oracle.server(id).expect("seen by the caller").state = State::Idle(clock);
    }

    pub(super) fn closed(&mut self, pool: usize, id: ServerId) {
        if self.posts[pool].oracle.server(id).is_some() {
            let now = self.clock(pool);
            self.posts[pool].pool.handle_closed(id, now);
            self.gone(pool, id);
            self.pump(pool, None);
        }
    }

    /// A server in use is to be cut.
    fn interrupt(&mut self, pool: usize, id: ServerId) {
        let Some(server) = self.posts[pool].oracle.server(id).filter(|s| s.cut) else { return };
        let State::InUse(_) = server.state else { return };
        match self.rng.below(3) {
            0 => self.lose(pool, id),
            1 => {
                let now = self.clock(pool);
                self.posts[pool].pool.handle_closed(id, now);
                self.gone(pool, id);
                self.pump(pool, None);
            }
            // Its client is told, and checks it in.
            _ => self.cut_client(pool, id),
        }
    }

    /// A server's connection dies.
    pub(super) fn lose(&mut self, pool: usize, id: ServerId) {
        self.tell(|| format!("pool {pool} loses {id:?}"));
        let now = self.clock(pool);
        self.posts[pool].pool.handle_lost(id, now);
        self.gone(pool, id);
        self.pump(pool, None);
    }

    /// A server is no more: its permit goes back, and who held it holds nothing.
    fn gone(&mut self, pool: usize, id: ServerId) {
        self.posts[pool].oracle.gone(id);
        if self.fault != Fault::KeepPermit {
            self.budget.release(self.posts[pool].member);
        }
        self.server_lost(pool, id);
    }

    /// Whether a server that comes back is to be closed for another pool.
    fn gives_up(&mut self, pool: usize, id: ServerId) -> bool {
        let (now, post) = (self.now(), &self.posts[pool]);
        self.fault != Fault::KeepLast && post.pool.can_spare(id, now) && self.budget.offer_returning(post.member)
    }

    /// A server comes back from its client.
    pub(super) fn check_in(&mut self, pool: usize, id: ServerId, home: Home, how: CheckIn) {
        let now = self.clock(pool);
        let clock = self.posts[pool].oracle.clock;
        let server = self.posts[pool].oracle.server(id).expect("a server is checked in that is gone");
        assert!(matches!(server.state, State::InUse(_)), "a server is checked in while {:?}", server.state);
        let was_cut = server.cut;
        let how = if how != CheckIn::Discard && self.gives_up(pool, id) { CheckIn::Reclaim } else { how };
        let server = self.posts[pool].oracle.server(id).expect("just seen");
        (server.state, server.home) = (State::Idle(clock), home);
        server.cut = false;
        let grant = self.posts[pool].pool.check_in(id, home, how, now);
        let fit = how == CheckIn::Clean && !was_cut;
        assert!(grant.is_none() || fit, "a server is granted that was checked in unfit");
        self.pump(pool, grant);
        let server = self.posts[pool].oracle.server(id).expect("just seen");
        let kept = matches!(server.state, State::Idle(_) | State::InUse(_));
        assert!(fit || !kept, "a server stays in the pool that was checked in unfit: {:?}", server.state);
    }
}
