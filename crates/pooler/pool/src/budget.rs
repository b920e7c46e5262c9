//! How many connections each pool may have: nested or overlapping caps (of the process, a database, a user, a pool),
//! shared fairly among members (the pools). It counts permits, and knows neither servers nor what members do with their
//! permits.

mod asking;
mod invariants;

use alloc::{
    collections::{BinaryHeap, VecDeque},
    vec::Vec,
};
use core::cmp::Reverse;

/// The most caps one budget can hold.
pub const MAX_CAPS: usize = 1 << 20;
/// The most members one budget can hold.
pub const MAX_MEMBERS: usize = 1 << 20;
/// The most caps of one member.
pub const MAX_CAPS_OF_A_MEMBER: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CapId(u32);

/// A member, which requests permits: a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(u32);

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Permit {
    Granted,
    /// Not now. The request waits until it is granted ([`BudgetAction::Grant`]) or withdrawn.
    Denied,
}

/// An order from the budget to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BudgetAction {
    /// A request that waited is granted: this member has one more permit.
    Grant(MemberId),
    /// This member is to close such an idle connection and release its permit. If it has none, the answer is
    /// `reclaim_failed`.
    Reclaim(MemberId, Claim),
}

/// Which of its idle connections a member is to give up. Each kind includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Claim {
    /// One that was idle for long.
    LongIdle,
    /// One that it can spare.
    Spare,
    /// One that it keeps to have its `min_size`, because another member has none at all and starves.
    Kept,
}

/// How many kinds of [`Claim`] there are.
const CLAIMS: usize = 3;

impl BudgetAction {
    pub fn member(self) -> MemberId {
        let (Self::Grant(member) | Self::Reclaim(member, _)) = self;
        member
    }
}

/// Permits, shared fairly.
///
/// **A request** is granted while all caps of the member have room. Otherwise it waits. A permit that comes back goes
/// to the waiting member that has the fewest, and of equals to the one that has waited longest. Members that have at
/// least two more than a waiting one, under the cap that is full, are asked to give one up. Repeated, this leads to
/// the max-min fair share: no member can gain, unless a member that has no more loses.
///
/// **A member without permits**: other members are asked even for their last one. If there are fewer permits than
/// members that need one, they take turns. The members decide how long a turn lasts, because they may answer that they
/// have none to spare.
///
/// **A starved member** ([`Budget::report_starvation`]) has permits, but its servers do not come back. It counts as a
/// member without permits until it is granted one more; but it comes behind these, and no other member is asked for its
/// last permit for its sake.
///
/// **A congested member** ([`Budget::report_congestion`]) has servers that come back, and too few of them. Other
/// members are asked for what they have not used for long, however few they have, and even for their last one. Only
/// they know whether they have such a connection. A member that gives one up gets its fair share back when it requests
/// it.
///
/// **A member that has no permits and starves** gets one that another member does not use but keeps for later
/// ([`Claim::Kept`]), if no member can spare one.
///
/// After each call, poll [`Budget::poll_action`] until it has no more. While there are enough permits, no call looks at
/// more than one member. A request that has to wait, or a permit that comes back while requests wait, looks at all.
#[derive(Debug, Default)]
pub struct Budget {
    caps: Vec<Cap>,
    free_caps: Vec<u32>,
    members: Vec<Member>,
    free_members: Vec<u32>,
    /// The number of requests and grants, which gives them an order.
    sequence: u64,
    /// Requests that wait, of all members.
    pending: u32,
    actions: VecDeque<BudgetAction>,
    /// Some free permits are promised to a member that still needs others, which will come back.
    has_promises: bool,
    /// Since the last `rebalance` a request has ended: its member may have long idle connections from now on.
    may_have_long_idle: bool,
    /// Scratch: the members that wait, the one with the fewest permits first.
    queue: WaitingQueue,
}

/// (permits that count, whether it has any, when its request began, member), the smallest first.
type WaitingQueue = BinaryHeap<Reverse<(u32, bool, u64, u32)>>;

#[derive(Debug, Default)]
struct Cap {
    members: u32,
    limit: u32,
    used: u32,
    /// The number of used permits is never above this: the limit, or more while permits from before a lower limit have
    /// not come back.
    ceiling: u32,
    /// Reclaims that its members have not answered.
    reclaims: u32,
    /// Scratch: free permits (in `rebalance`, also those that will be free) that are promised to no member.
    spare: i64,
    /// Scratch: permits that will come back and are promised to no member.
    coming: u32,
    /// Scratch, by [`Claim`]: none of its members has enough to give one to a member that waits, or none is known that
    /// may have such a one.
    lacks: [bool; CLAIMS],
}

#[derive(Clone, Debug, Default)]
struct Member {
    caps: [u32; MAX_CAPS_OF_A_MEMBER],
    cap_count: u8,
    present: bool,
    /// By [`Claim`]: it answered that it has no such one, and has not reported one since.
    lacks: [bool; CLAIMS],
    /// See [`Budget::report_starvation`].
    starved: bool,
    used: u32,
    granted: u64,
    pending: u32,
    /// Waiting requests for which other members are asked for long idle ones.
    congested: u32,
    since: u64,
    reclaims: u32,
    /// Scratch: its requests that will be granted.
    promised: u32,
}

impl Budget {
    /// No caps and no members.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new cap. 0: unlimited (it only counts).
    pub fn add_cap(&mut self, limit: u32) -> CapId {
        let cap = Cap { limit, ceiling: Cap::effective_limit(limit), ..Cap::default() };
        if let Some(at) = self.free_caps.pop() {
            self.caps[at as usize] = cap;
            return CapId(at);
        }
        assert!(self.caps.len() < MAX_CAPS, "more than MAX_CAPS caps in a budget");
        self.caps.push(cap);
        CapId(u32::try_from(self.caps.len() - 1).expect("fewer than MAX_CAPS"))
    }

    /// Removes a cap if it has no members. Returns whether it is removed.
    pub fn remove_empty_cap(&mut self, cap: CapId) -> bool {
        let is_empty = self.caps[cap.0 as usize].members == 0;
        if is_empty {
            self.caps[cap.0 as usize].limit = 0;
            self.free_caps.push(cap.0);
        }
        is_empty
    }

    /// Changes a cap. Permits above a lower one are reclaimed.
    pub fn set_limit(&mut self, cap: CapId, limit: u32) {
        let cap = &mut self.caps[cap.0 as usize];
        cap.limit = limit;
        cap.ceiling = Cap::effective_limit(limit).max(cap.used);
        self.distribute();
        self.rebalance();
    }

    /// The used permits under a cap, and the cap (0: unlimited).
    pub fn usage(&self, cap: CapId) -> (u32, u32) {
        let cap = &self.caps[cap.0 as usize];
        (cap.used, cap.limit)
    }

    /// A new member, under all of these caps.
    pub fn add_member(&mut self, caps: &[CapId]) -> MemberId {
        assert!(caps.len() <= MAX_CAPS_OF_A_MEMBER, "a member under more than MAX_CAPS_OF_A_MEMBER caps");
        let mut member = Member { present: true, ..Member::default() };
        for cap in caps {
            assert!((cap.0 as usize) < self.caps.len(), "{cap:?} is of another budget");
            assert!(!member.caps().contains(&cap.0), "a member twice under {cap:?}");
            member.caps[usize::from(member.cap_count)] = cap.0;
            member.cap_count += 1;
            self.caps[cap.0 as usize].members += 1;
        }
        if let Some(at) = self.free_members.pop() {
            self.members[at as usize] = member;
            return MemberId(at);
        }
        assert!(self.members.len() < MAX_MEMBERS, "more than MAX_MEMBERS members in a budget");
        self.members.push(member);
        MemberId(u32::try_from(self.members.len() - 1).expect("fewer than MAX_MEMBERS"))
    }

    /// Puts a member with all its permits under other caps. If that exceeds one of them, it is as if the cap was
    /// lowered.
    pub fn set_caps(&mut self, member: MemberId, caps: &[CapId]) {
        assert!(caps.len() <= MAX_CAPS_OF_A_MEMBER, "a member under more than MAX_CAPS_OF_A_MEMBER caps");
        let Member { used, reclaims, .. } = *self.member(member);
        for cap in self.caps_of(member) {
            self.caps[cap].give_back(used);
            self.caps[cap].reclaims -= reclaims;
            self.caps[cap].members -= 1;
        }
        let moved = self.member_mut(member);
        (moved.caps, moved.cap_count) = ([0; MAX_CAPS_OF_A_MEMBER], 0);
        for id in caps {
            let moved = self.member_mut(member);
            assert!(!moved.caps().contains(&id.0), "a member twice under {id:?}");
            moved.caps[usize::from(moved.cap_count)] = id.0;
            moved.cap_count += 1;
            let cap = &mut self.caps[id.0 as usize];
            cap.used += used;
            cap.reclaims += reclaims;
            cap.members += 1;
            cap.ceiling = cap.ceiling.max(cap.used);
        }
        self.distribute();
        self.rebalance();
    }

    /// Removes a member. Its permits come back.
    pub fn remove_member(&mut self, member: MemberId) {
        let Member { used, pending, reclaims, .. } = *self.member(member);
        for cap in self.caps_of(member) {
            self.caps[cap].give_back(used);
            self.caps[cap].reclaims -= reclaims;
            self.caps[cap].members -= 1;
        }
        self.pending -= pending;
        self.members[member.0 as usize].present = false;
        self.free_members.push(member.0);
        self.actions.retain(|action| action.member() != member);
        if used + pending > 0 {
            self.distribute();
            self.rebalance();
        }
    }

    /// A member wants one more permit.
    pub fn request(&mut self, member: MemberId) -> Permit {
        let fits = self.fits(self.member(member));
        if fits && self.pending == 0 {
            self.take(member);
            return Permit::Granted;
        }
        self.enqueue(member);
        if fits {
            // A free permit may be for a member that has fewer.
            let before = self.actions.len();
            self.distribute();
            let granted = BudgetAction::Grant(member);
            if let Some(at) = (before..self.actions.len()).find(|at| self.actions[*at] == granted) {
                self.actions.remove(at);
                return Permit::Granted;
            }
        }
        if self.may_be_helped(member) {
            self.rebalance();
        }
        Permit::Denied
    }

    /// A member withdraws one request that waits. Returns false if none waits: a grant is on its way, and the member
    /// will release it.
    pub fn withdraw(&mut self, member: MemberId) -> bool {
        let waiting = self.member_mut(member);
        if waiting.pending == 0 {
            return false;
        }
        waiting.pending -= 1;
        waiting.starved &= waiting.pending > 0;
        waiting.congested = waiting.congested.min(waiting.pending);
        self.may_have_long_idle |= waiting.pending == 0;
        self.pending -= 1;
        if self.has_promises {
            self.distribute();
        }
        true
    }

    /// A member releases one permit: a connection is gone, or was not made.
    pub fn release(&mut self, member: MemberId) {
        let now = self.sequence + 1;
        let giving = self.member_mut(member);
        assert!(giving.used > 0, "{member:?} gave back more permits than it had");
        giving.used -= 1;
        // A release for any reason answers a reclaim.
        let answered = u32::from(giving.reclaims > 0);
        giving.reclaims -= answered;
        if answered > 0 {
            // If its own request stayed older than that of the member it gives it up for, it would get it back.
            giving.since = now;
            self.sequence = now;
        }
        for cap in self.caps_of(member) {
            self.caps[cap].give_back(1);
            self.caps[cap].reclaims -= answered;
        }
        if self.pending > 0 {
            self.distribute();
            self.rebalance();
        }
    }

    /// Clients of this member have waited for long, and no server comes back. If it has a request that waits, the
    /// member counts as one without permits until it is granted one more, and its request as a new one.
    pub fn report_starvation(&mut self, member: MemberId) {
        let now = self.sequence + 1;
        let waiting = self.member_mut(member);
        if waiting.pending == 0 {
            return;
        }
        // Servers that other members give up might not come back either.
        waiting.congested = 0;
        if !core::mem::replace(&mut waiting.starved, true) {
            waiting.since = now;
            self.sequence = now;
        }
        self.distribute();
        self.rebalance();
    }

    /// Clients of this member have waited for long, although servers come back: there are too few. For its requests
    /// that wait now, other members are asked for connections that they have not used for long.
    pub fn report_congestion(&mut self, member: MemberId) {
        let may_have_long_idle = self.may_have_long_idle;
        let reporting = self.member_mut(member);
        // It is reported again and again. A change that could help is looked at when it happens.
        let is_news = reporting.congested < reporting.pending || (may_have_long_idle && reporting.pending > 0);
        reporting.congested = reporting.pending;
        if is_news {
            self.rebalance();
        }
    }

    /// A member that was asked for such a connection has none. It is not asked for one again before `report_spare`, or
    /// for one that it can spare before `offer_returning`.
    pub fn reclaim_failed(&mut self, member: MemberId, claim: Claim) {
        let asked = self.member_mut(member);
        asked.lacks[claim as usize] = true;
        if asked.reclaims == 0 {
            return;
        }
        asked.reclaims -= 1;
        for cap in self.caps_of(member) {
            self.caps[cap].reclaims -= 1;
        }
        self.distribute();
        self.rebalance();
    }

    /// A member that had no such connection as it was asked for may have one now.
    pub fn report_spare(&mut self, member: MemberId) {
        if core::mem::take(&mut self.member_mut(member).lacks).contains(&true) {
            self.rebalance();
        }
    }

    /// A member that had none to spare gets one of its servers back, and can give it up. Returns whether it is to do
    /// so, and then to `release`. It gets no other order for that.
    pub fn offer_returning(&mut self, member: MemberId) -> bool {
        self.member_mut(member).lacks[Claim::Spare as usize] = false;
        let before = self.actions.len();
        self.rebalance();
        let asked = BudgetAction::Reclaim(member, Claim::Spare);
        let at = (before..self.actions.len()).find(|at| self.actions[*at] == asked);
        at.and_then(|at| self.actions.remove(at)).is_some()
    }

    /// Whether this member has answered that it has none to spare, so that `offer_returning` may lead to something.
    pub fn lacks_spare(&self, member: MemberId) -> bool {
        self.member(member).lacks[Claim::Spare as usize]
    }

    pub fn poll_action(&mut self) -> Option<BudgetAction> {
        self.actions.pop_front()
    }

    /// The first full cap of this member.
    pub fn full_cap(&self, member: MemberId) -> Option<CapId> {
        let caps = self.member(member).caps();
        caps.iter().find(|cap| self.caps[**cap as usize].free_permits() <= 0).map(|cap| CapId(*cap))
    }

    /// The permits that a member has, and its requests that wait.
    pub fn member_usage(&self, member: MemberId) -> (u32, u32) {
        let member = self.member(member);
        (member.used, member.pending)
    }

    fn enqueue(&mut self, member: MemberId) {
        self.sequence += 1;
        let now = self.sequence;
        let waiting = self.member_mut(member);
        if waiting.pending == 0 {
            waiting.since = now;
        }
        waiting.pending += 1;
        self.pending += 1;
    }

    /// Grants free permits to members that wait, first to the one with the fewest. A member that can be served as soon
    /// as reclaimed permits come back has the others reserved for it: under several caps permits come back one by one,
    /// and the members that gave them up would take them again.
    fn distribute(&mut self) {
        self.has_promises = false;
        if self.pending == 0 {
            return;
        }
        for cap in &mut self.caps {
            cap.spare = cap.free_permits();
            cap.coming = cap.reclaims;
        }
        let mut queue = self.start_queue();
        while let Some(Reverse((.., at))) = queue.pop() {
            let id = MemberId(at);
            let caps = || self.caps_of(id).map(|cap| &self.caps[cap]);
            if caps().all(|cap| cap.spare > 0) {
                self.caps_of(id).for_each(|cap| self.caps[cap].spare -= 1);
                self.grant(id);
            } else if caps().all(|cap| cap.spare > 0 || cap.coming > 0) {
                for cap in self.caps_of(id) {
                    let cap = &mut self.caps[cap];
                    if cap.spare > 0 { cap.spare -= 1 } else { cap.coming -= 1 }
                }
                self.member_mut(id).promised += 1;
                self.has_promises = true;
            } else {
                continue;
            }
            self.push_again(&mut queue, id);
        }
        self.queue = queue;
    }

    fn grant(&mut self, id: MemberId) {
        self.sequence += 1;
        let now = self.sequence;
        let member = self.member_mut(id);
        member.pending -= 1;
        // Its next request counts as newer than those of other members.
        member.since = now;
        member.starved = false;
        member.congested = member.congested.saturating_sub(1);
        self.may_have_long_idle |= member.pending == 0;
        self.pending -= 1;
        self.take(id);
        self.actions.push_back(BudgetAction::Grant(id));
    }

    /// All members that wait, in the order in which they are served.
    fn start_queue(&mut self) -> WaitingQueue {
        let mut queue = core::mem::take(&mut self.queue);
        queue.clear();
        for (at, member) in (0..).zip(&mut self.members) {
            member.promised = 0;
            if member.present && member.pending > 0 {
                queue.push(Reverse((member.counted_permits(0), member.unreclaimed() > 0, member.since, at)));
            }
        }
        queue
    }

    fn push_again(&self, queue: &mut WaitingQueue, id: MemberId) {
        let member = self.member(id);
        if member.pending > member.promised {
            queue.push(Reverse((
                member.counted_permits(member.promised),
                member.unreclaimed() > 0,
                member.since,
                id.0,
            )));
        }
    }

    fn take(&mut self, member: MemberId) {
        self.sequence += 1;
        let granted = self.sequence;
        let taking = self.member_mut(member);
        taking.used += 1;
        taking.granted = granted;
        for cap in self.caps_of(member) {
            self.caps[cap].used += 1;
        }
    }

    fn fits(&self, member: &Member) -> bool {
        member.caps().iter().all(|cap| self.caps[*cap as usize].free_permits() > 0)
    }

    fn present(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        (0..).map(MemberId).zip(&self.members).filter(|(_, member)| member.present)
    }

    fn member(&self, member: MemberId) -> &Member {
        let found = &self.members[member.0 as usize];
        assert!(found.present, "{member:?} is gone");
        found
    }

    fn member_mut(&mut self, member: MemberId) -> &mut Member {
        let found = &mut self.members[member.0 as usize];
        assert!(found.present, "{member:?} is gone");
        found
    }

    /// The caps of a member, by value, so that they can be changed in a loop.
    fn caps_of(&self, member: MemberId) -> impl Iterator<Item = usize> + use<> {
        let Member { caps, cap_count, .. } = *self.member(member);
        caps.into_iter().take(usize::from(cap_count)).map(|cap| cap as usize)
    }
}

impl Cap {
    /// A limit as a number to compare with: 0 is unlimited.
    fn effective_limit(limit: u32) -> u32 {
        if limit == 0 { u32::MAX } else { limit }
    }

    /// Free permits; negative after the limit was lowered.
    fn free_permits(&self) -> i64 {
        i64::from(Self::effective_limit(self.limit)) - i64::from(self.used)
    }

    fn give_back(&mut self, permits: u32) {
        self.used -= permits;
        self.ceiling = self.ceiling.min(Self::effective_limit(self.limit).max(self.used));
    }
}

impl Member {
    /// Its permits without those that are reclaimed.
    fn unreclaimed(&self) -> u32 {
        self.used - self.reclaims
    }

    /// The permits that count when members that wait are compared.
    fn counted_permits(&self, promised: u32) -> u32 {
        if self.starved && promised == 0 { 0 } else { self.unreclaimed() + promised }
    }

    fn caps(&self) -> &[u32] {
        &self.caps[..usize::from(self.cap_count)]
    }
}

#[cfg(test)]
mod tests;
