//! Random schedules against the budget: never above a cap, and fair in the end.

use std::collections::{BTreeMap, VecDeque};

use pool::{Budget, BudgetAction, CapId, Claim, MemberId, Permit};
use proptest::prelude::*;

/// The members as the model sees them.
#[derive(Default, Debug)]
struct Member {
    caps: Vec<usize>,
    used: u32,
    pending: u32,
    /// What it has been asked for and has not answered.
    reclaims: VecDeque<Claim>,
}

struct World {
    budget: Budget,
    caps: Vec<(CapId, u32)>,
    members: BTreeMap<MemberId, Member>,
}

impl World {
    fn new(limits: &[u32], members: &[u8]) -> Self {
        let mut budget = Budget::new();
        let caps: Vec<_> = limits.iter().map(|limit| (budget.add_cap(*limit), *limit)).collect();
        let mut world = Self { budget, caps, members: BTreeMap::new() };
        for mask in members {
            world.add(*mask);
        }
        world
    }

    /// A member under the first cap and those in the mask.
    fn add(&mut self, mask: u8) {
        let caps: Vec<_> = (0..self.caps.len()).filter(|at| *at == 0 || mask & (1 << at) != 0).collect();
        let ids: Vec<_> = caps.iter().map(|at| self.caps[*at].0).collect();
        let id = self.budget.add_member(&ids);
        assert!(self.members.insert(id, Member { caps, ..Member::default() }).is_none());
    }

    fn pick(&self, n: u8) -> Option<MemberId> {
        self.members.keys().nth(usize::from(n) % self.members.len().max(1)).copied()
    }

    fn used(&self, cap: usize) -> u32 {
        self.members.values().filter(|m| m.caps.contains(&cap)).map(|m| m.used).sum()
    }

    fn full(&self, cap: usize) -> bool {
        let limit = self.caps[cap].1;
        limit != 0 && self.used(cap) >= limit
    }

    fn granted(&mut self, id: MemberId) {
        let caps = self.members[&id].caps.clone();
        assert!(!caps.iter().any(|cap| self.full(*cap)), "{id:?} was permitted one above a cap");
        self.members.get_mut(&id).expect("present").used += 1;
    }

    fn obey(&mut self) -> bool {
        let mut some = false;
        while let Some(action) = self.budget.poll_action() {
            some = true;
            match action {
                BudgetAction::Grant(id) => {
                    self.granted(id);
                    let member = self.members.get_mut(&id).expect("present");
                    member.pending = member.pending.checked_sub(1).expect("a request");
                }
                BudgetAction::Reclaim(id, claim) => {
                    let member = self.members.get_mut(&id).expect("present");
                    member.reclaims.push_back(claim);
                    assert!(member.reclaims.len() <= member.used as usize, "asked for more than it has");
                }
            }
        }
        self.budget.check_invariants();
        for (at, (cap, limit)) in self.caps.iter().enumerate() {
            assert_eq!(self.budget.usage(*cap), (self.used(at), *limit));
        }
        for (id, member) in &self.members {
            assert_eq!(self.budget.member_usage(*id), (member.used, member.pending));
        }
        some
    }

    fn request(&mut self, id: MemberId) {
        match self.budget.request(id) {
            Permit::Granted => self.granted(id),
            Permit::Denied => self.members.get_mut(&id).expect("present").pending += 1,
        }
        self.obey();
    }

    fn release(&mut self, id: MemberId) {
        let member = self.members.get_mut(&id).expect("present");
        if member.used > 0 {
            member.used -= 1;
            member.reclaims.pop_front();
            self.budget.release(id);
            self.obey();
        }
    }

    fn step(&mut self, (op, n, m): (u8, u8, u8)) {
        let Some(id) = self.pick(n) else { return self.add(m) };
        match op % 16 {
            0..=6 => self.request(id),
            7..=9 => self.release(id),
            10 => {
                let member = self.members.get_mut(&id).expect("present");
                assert_eq!(self.budget.withdraw(id), member.pending > 0);
                member.pending = member.pending.saturating_sub(1);
                self.obey();
            }
            11 => {
                let member = self.members.get_mut(&id).expect("present");
                if let Some(claim) = member.reclaims.pop_front() {
                    self.budget.reclaim_failed(id, claim);
                    self.obey();
                }
            }
            12..=13 => {
                self.budget.report_spare(id);
                self.obey();
            }
            14 if m % 4 == 0 => {
                let at = usize::from(n) % self.caps.len();
                self.caps[at].1 = u32::from(m / 4 % 10);
                self.budget.set_limit(self.caps[at].0, self.caps[at].1);
                self.obey();
            }
            15 if m % 4 == 0 => {
                self.members.remove(&id);
                self.budget.remove_member(id);
                self.obey();
            }
            15 => self.add(m),
            _ => {
                self.budget.report_congestion(id);
                self.obey();
            }
        }
    }

    /// All have endless demand, and give back what they are asked for and only that (but never their last one, which is
    /// always busy), until nothing happens any more.
    fn settle(&mut self) {
        let ids: Vec<_> = self.members.keys().copied().collect();
        for _ in 0..2000 {
            let mut some = false;
            for id in &ids {
                while self.members[id].pending < 3 {
                    self.request(*id);
                    some = true;
                }
                if self.members[id].used > 1 {
                    self.budget.report_spare(*id);
                    some |= self.obey();
                }
            }
            for id in &ids {
                some |= !self.members[id].reclaims.is_empty();
                self.answer(*id, 2);
            }
            if !some {
                return;
            }
        }
        panic!("the budget never comes to rest: {:?}", self.members);
    }

    /// Answers one reclaim, with a release if the member has at least this number.
    fn answer(&mut self, id: MemberId, least: u32) {
        let member = self.members.get_mut(&id).expect("present");
        if !member.reclaims.is_empty() && member.used >= least {
            self.release(id);
        } else if let Some(claim) = member.reclaims.pop_front() {
            self.budget.reclaim_failed(id, claim);
            self.obey();
        }
    }

    /// No member waits under full caps, each of which has a member with two more.
    fn check_fair(&self) {
        for (id, member) in &self.members {
            let full: Vec<_> = member.caps.iter().filter(|cap| self.full(**cap)).collect();
            assert!(!full.is_empty(), "{id:?} waits for a permit that is free");
            let helped = full.iter().all(|cap| {
                let mut others = self.members.values().filter(|other| other.caps.contains(cap));
                others.any(|other| other.used >= member.used + 2)
            });
            assert!(!helped, "{id:?} {member:?} has too little: {:?}", self.members);
        }
    }
}

/// This number of cases, unless PROPTEST_CASES gives another one.
fn many() -> ProptestConfig {
    ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn no_schedule_goes_above_a_cap_and_endless_demand_ends_fairly(
        limits in prop::collection::vec(1..12u32, 1..4),
        members in prop::collection::vec(any::<u8>(), 1..6),
        steps in prop::collection::vec(any::<(u8, u8, u8)>(), 0..150),
    ) {
        let mut world = World::new(&limits, &members);
        for step in steps {
            world.step(step);
        }
        for cap in &mut world.caps {
            cap.1 = cap.1.max(1);
            world.budget.set_limit(cap.0, cap.1);
        }
        world.obey();
        world.settle();
        world.check_fair();
    }

    #[test]
    fn under_one_cap_endless_demand_ends_in_equal_shares(
        limit in 1..40u32,
        steps in prop::collection::vec(any::<(u8, u8, u8)>(), 0..100),
    ) {
        let mut world = World::new(&[limit], &[0, 0, 0]);
        for step in steps {
            world.step(step);
        }
        world.caps[0].1 = limit;
        world.budget.set_limit(world.caps[0].0, limit);
        world.obey();
        world.settle();
        let shares: Vec<_> = world.members.values().map(|m| m.used).collect();
        if let (Some(most), Some(fewest)) = (shares.iter().max(), shares.iter().min()) {
            assert!(most - fewest <= 1, "{shares:?}");
            // After a cap was lowered, what is above it may be the last one of each member.
            assert!(shares.iter().sum::<u32>() == limit || *most == 1, "{shares:?}");
        }
    }
}

#[test]
fn with_fewer_permits_than_members_all_get_their_turn() {
    for (limit, members) in (1..5).flat_map(|limit| (limit + 1..limit + 5).map(move |members| (limit, members))) {
        let mut world = World::new(&[limit], &vec![0; members as usize]);
        let ids: Vec<_> = world.members.keys().copied().collect();
        let mut turns = vec![0; ids.len()];
        for _ in 0..200 {
            for (id, turns) in ids.iter().zip(&mut turns) {
                if world.members[id].pending == 0 {
                    world.request(*id);
                }
                *turns += u32::from(world.members[id].used > 0);
                world.answer(*id, 1);
            }
        }
        assert!(turns.iter().all(|turns| *turns >= 10), "{limit} permits: {turns:?}");
    }
}
