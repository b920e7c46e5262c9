//! What is done to the world from outside, now and then, by chance.

use pool::{Clear, GateConfig, PauseMode, ServerId};

use super::{World, oracle::State, plan};

impl World {
    pub(super) fn chaos(&mut self) {
        let pool = self.rng.index(self.posts.len());
        match self.rng.below(if self.plan.changes { 16 } else { 12 }) {
            0..=2 => {
                let client = self.rng.below(u64::from(self.plan.clients)) as u32;
                self.leave(client);
            }
            3..=5 => self.lose_any(pool),
            6 => {
                let hold = self.rng.pick(&[PauseMode::HoldWaiters, PauseMode::FailWaiters]);
                self.tell(|| format!("pool {pool} is paused: {hold:?}"));
                self.pause(pool, hold);
            }
            7 | 8 => self.ready(pool),
            9 => {
                let how = Clear { fail_waiters: self.rng.percent(50), interrupt: self.rng.percent(50) };
                self.tell(|| format!("pool {pool} is cleared: {how:?}"));
                let now = self.clock(pool);
                self.posts[pool].pool.clear(how, now);
                self.pump(pool, None);
            }
            10 => self.move_any(pool),
            11 => {
                // The database goes down, or comes up again.
                self.plan.unreachable = self.rng.pick(&[0, 0, 20, 100]);
            }
            12 | 13 => self.reconfigure(pool),
            14 => self.change_limits(),
            _ if self.rng.percent(10) => {
                self.tell(|| format!("pool {pool} is closed"));
                self.close(pool);
            }
            _ => {}
        }
    }

    fn any_server(&mut self, pool: usize, which: impl Fn(State) -> bool) -> Option<ServerId> {
        let servers: Vec<_> = self.posts[pool].oracle.servers().filter(|s| which(s.state)).map(|s| s.id).collect();
        if servers.is_empty() { None } else { Some(self.rng.pick(&servers)) }
    }

    fn lose_any(&mut self, pool: usize) {
        if let Some(server) = self.any_server(pool, |_| true) {
            self.lose(pool, server);
        }
    }

    fn move_any(&mut self, pool: usize) {
        if let Some(id) = self.any_server(pool, |state| matches!(state, State::Idle(_))) {
            let home = pool::Home(self.rng.below(u64::from(self.plan.homes)) as u8);
            self.posts[pool].oracle.server(id).expect("just picked").home = home;
            self.posts[pool].pool.handle_moved(id, home);
        }
    }

    fn reconfigure(&mut self, pool: usize) {
        let config = plan::config(&mut self.rng, 6, self.plan.endless);
        self.put_in_force(pool, config);
    }

    fn change_limits(&mut self) {
        let scope = self.rng.index(self.scopes.len());
        let limit = if self.rng.percent(30) { 0 } else { self.rng.within(1..=10) as u32 };
        self.tell(|| format!("cap {scope} becomes {limit}"));
        let (id, present, ceiling) = &mut self.scopes[scope];
        let used = self.budget.usage(*id).0;
        (*present, *ceiling) = (limit, limit.max(used));
        self.budget.set_limit(*id, limit);
        let hard_limit = self.rng.within(1..=u64::from(self.plan.clients)) as u32;
        let soft_limit = self.rng.within(0..=u64::from(hard_limit)) as u32;
        self.door.reconfigure(GateConfig { soft_limit, hard_limit, ..self.plan.gate });
    }
}
