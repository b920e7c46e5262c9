//! Who may have how many connections: nested or overlapping caps (of the process, a database, a user, a pool), shared
//! fairly among members (the pools). It counts permits; it knows neither servers nor what members do with them.

mod asking;
mod invariants;

use alloc::{
    collections::{BinaryHeap, VecDeque},
    vec::Vec,
};
use core::cmp::Reverse;

/// The most caps one budget can hold.
pub const MAX_SCOPES: usize = 1 << 20;
/// The most members one budget can hold.
pub const MAX_MEMBERS: usize = 1 << 20;
/// The most caps one member can be under.
pub const MAX_SCOPES_OF_A_MEMBER: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScopeId(u32);

/// One who asks for permits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(u32);

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Permit {
    /// One more connection is permitted.
    Granted,
    /// Not now; the wish is remembered until it is granted ([`BudgetAction::Grant`]) or withdrawn.
    Denied,
}

/// An order from the budget to its driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BudgetAction {
    /// A wish is fulfilled: this member has one more permit.
    Grant(MemberId),
    /// This member should give one permit back, by closing an idle connection and then `release`; if it cannot, the
    /// answer is `reclaim_failed`.
    Reclaim(MemberId),
    /// The same, but only a connection that has been unused for long is worth it; if it has none, the answer is
    /// `reclaim_unused_failed`.
    ReclaimUnused(MemberId),
}

impl BudgetAction {
    pub fn member(self) -> MemberId {
        let (Self::Grant(member) | Self::Reclaim(member) | Self::ReclaimUnused(member)) = self;
        member
    }
}

/// Permits, shared fairly.
///
/// A request is granted while all caps of the member have room. Else it is remembered, and permits that come back go to
/// the wishing member that has the fewest (of equals, to the one wishing longest). Also members that have at least two
/// more than a wishing one, under the cap that holds it up, are asked to give one up: repeated, this leads to the
/// max-min fair share, from which no member can gain but at the cost of one that has no more.
///
/// For the sake of a member that has none, others are asked even for their last one: where there are fewer permits than
/// members that need one, they take turns. How long a turn lasts is for the members to say, since they may answer that
/// they have none to spare. A member that insists, because what it has is of no use to those who wait there, counts as
/// having none until it is granted one more; but it comes behind those that have none, and nobody is asked for the last
/// one for its sake.
///
/// A fair share is worth nothing while nobody uses it. For the sake of a member that presses, because clients there
/// have waited for long although servers come back, others are asked for what they have not used for long, however few
/// they have, and even for the last one. Only they know whether they have such a one. Who gives it up gets its fair
/// share back, by the rules above, when it wishes for it.
///
/// After every call, poll [`Budget::poll_action`] until it has no more. As long as there is enough for all, no call
/// looks at more than one member; requests in vain, and permits that come back while others wish, look at all.
#[derive(Debug, Default)]
pub struct Budget {
    scopes: Vec<Scope>,
    free_scopes: Vec<u32>,
    members: Vec<Member>,
    free_members: Vec<u32>,
    /// Numbers wishes and grants.
    wishes: u64,
    /// Wishes not yet granted, of all members.
    wanting: u32,
    actions: VecDeque<BudgetAction>,
    /// Some permits are kept for one that waits for others to come back.
    kept: bool,
    /// Somebody wishes for nothing any more, who did when others were last asked: what it has it may not use from now
    /// on.
    drowsy: bool,
    /// Scratch: those who wish, the one with the fewest first.
    order: Order,
}

/// (permits it counts as having, whether it has any, when it began to wish, member), least first.
type Order = BinaryHeap<Reverse<(u32, bool, u64, u32)>>;

#[derive(Debug)]
struct Scope {
    members: u32,
    limit: u32,
    used: u32,
    /// What may be used: the limit, or more while what was used before the limit was lowered has not come back.
    ceiling: u32,
    /// Of its members: reclaims ordered and not yet answered.
    reclaims: u32,
    /// Scratch: permits that are there (or, in `rebalance`, will be) and that nobody has been promised.
    spare: i64,
    /// Scratch: permits that will come back and that nobody has been promised.
    coming: u32,
    /// Scratch: none of its members has enough to give to any of those who still wish.
    dry: bool,
    /// Scratch: none of its members has anything unused, as far as is known.
    awake: bool,
}

#[derive(Clone, Debug)]
struct Member {
    scopes: [u32; MAX_SCOPES_OF_A_MEMBER],
    scope_count: u8,
    present: bool,
    /// It was asked for one when it had none to give, and has not had any since.
    barren: bool,
    /// It was asked for one that it does not use when it used all, and has not said since that there is one.
    awake: bool,
    /// What it has is of no use to those who wait.
    insists: bool,
    used: u32,
    granted: u64,
    wanting: u32,
    /// Of these, those for whose sake others are asked for what they do not use.
    pressing: u32,
    wish: u64,
    reclaims: u32,
    /// Scratch: wishes dealt with.
    promised: u32,
}

impl Budget {
    /// No caps and no members.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new cap. 0: unlimited (it only counts).
    pub fn add_scope(&mut self, limit: u32) -> ScopeId {
        let ceiling = Scope::ceiling(limit);
        let scope =
            Scope { members: 0, limit, used: 0, ceiling, reclaims: 0, spare: 0, coming: 0, dry: false, awake: false };
        if let Some(at) = self.free_scopes.pop() {
            self.scopes[at as usize] = scope;
            return ScopeId(at);
        }
        assert!(self.scopes.len() < MAX_SCOPES, "more than MAX_SCOPES caps in a budget");
        self.scopes.push(scope);
        ScopeId(u32::try_from(self.scopes.len() - 1).expect("fewer than MAX_SCOPES"))
    }

    /// A cap is gone if no member is under it any more; says whether it is.
    pub fn remove_unused_scope(&mut self, scope: ScopeId) -> bool {
        let unused = self.scopes[scope.0 as usize].members == 0;
        if unused {
            // It limits nothing until another one takes its place.
            self.scopes[scope.0 as usize].limit = 0;
            self.free_scopes.push(scope.0);
        }
        unused
    }

    /// Changes a cap. What is above a lower one is reclaimed.
    pub fn set_limit(&mut self, scope: ScopeId, limit: u32) {
        let scope = &mut self.scopes[scope.0 as usize];
        scope.limit = limit;
        scope.ceiling = Scope::ceiling(limit).max(scope.used);
        self.distribute();
        self.rebalance();
    }

    /// What is used under a cap, and the cap (0: unlimited).
    pub fn usage(&self, scope: ScopeId) -> (u32, u32) {
        let scope = &self.scopes[scope.0 as usize];
        (scope.used, scope.limit)
    }

    /// A new member, under all of these caps.
    pub fn add_member(&mut self, scopes: &[ScopeId]) -> MemberId {
        assert!(scopes.len() <= MAX_SCOPES_OF_A_MEMBER, "a member under more than MAX_SCOPES_OF_A_MEMBER caps");
        let mut member = Member {
            scopes: [0; MAX_SCOPES_OF_A_MEMBER],
            scope_count: 0,
            present: true,
            barren: false,
            awake: false,
            insists: false,
            used: 0,
            granted: 0,
            wanting: 0,
            pressing: 0,
            wish: 0,
            reclaims: 0,
            promised: 0,
        };
        for scope in scopes {
            assert!((scope.0 as usize) < self.scopes.len(), "{scope:?} is of another budget");
            assert!(!member.scopes().contains(&scope.0), "a member twice under {scope:?}");
            member.scopes[usize::from(member.scope_count)] = scope.0;
            member.scope_count += 1;
            self.scopes[scope.0 as usize].members += 1;
        }
        if let Some(at) = self.free_members.pop() {
            self.members[at as usize] = member;
            return MemberId(at);
        }
        assert!(self.members.len() < MAX_MEMBERS, "more than MAX_MEMBERS members in a budget");
        self.members.push(member);
        MemberId(u32::try_from(self.members.len() - 1).expect("fewer than MAX_MEMBERS"))
    }

    /// Puts a member under other caps, with all it has. A cap that this leads above its limit gets its excess back as
    /// if the limit had been lowered.
    pub fn set_scopes(&mut self, member: MemberId, scopes: &[ScopeId]) {
        assert!(scopes.len() <= MAX_SCOPES_OF_A_MEMBER, "a member under more than MAX_SCOPES_OF_A_MEMBER caps");
        let Member { used, reclaims, .. } = *self.member(member);
        for scope in self.scopes_of(member) {
            self.scopes[scope].give_back(used);
            self.scopes[scope].reclaims -= reclaims;
            self.scopes[scope].members -= 1;
        }
        let moved = self.member_mut(member);
        (moved.scopes, moved.scope_count) = ([0; MAX_SCOPES_OF_A_MEMBER], 0);
        for id in scopes {
            let moved = self.member_mut(member);
            assert!(!moved.scopes().contains(&id.0), "a member twice under {id:?}");
            moved.scopes[usize::from(moved.scope_count)] = id.0;
            moved.scope_count += 1;
            let scope = &mut self.scopes[id.0 as usize];
            scope.used += used;
            scope.reclaims += reclaims;
            scope.members += 1;
            scope.ceiling = scope.ceiling.max(scope.used);
        }
        self.distribute();
        self.rebalance();
    }

    /// A member is gone; what it had comes back.
    pub fn remove_member(&mut self, member: MemberId) {
        let Member { used, wanting, reclaims, .. } = *self.member(member);
        for scope in self.scopes_of(member) {
            self.scopes[scope].give_back(used);
            self.scopes[scope].reclaims -= reclaims;
            self.scopes[scope].members -= 1;
        }
        self.wanting -= wanting;
        self.members[member.0 as usize].present = false;
        self.free_members.push(member.0);
        self.actions.retain(|action| action.member() != member);
        if used + wanting > 0 {
            self.distribute();
            self.rebalance();
        }
    }

    /// A member wants one more permit.
    pub fn request(&mut self, member: MemberId) -> Permit {
        let fits = self.fits(self.member(member));
        if fits && self.wanting == 0 {
            self.take(member);
            return Permit::Granted;
        }
        self.wish(member);
        if fits {
            // What there is may be kept for one who has less, so let it be shared out.
            let before = self.actions.len();
            self.distribute();
            let granted = BudgetAction::Grant(member);
            if let Some(at) = (before..self.actions.len()).find(|at| self.actions[*at] == granted) {
                self.actions.remove(at);
                return Permit::Granted;
            }
        }
        if self.might_be_helped(member) {
            self.rebalance();
        }
        Permit::Denied
    }

    /// A member wants one fewer of those it was denied. False if it was denied none: a grant is on its way, and the
    /// member will give that back with `release`.
    pub fn withdraw(&mut self, member: MemberId) -> bool {
        let wishing = self.member_mut(member);
        if wishing.wanting == 0 {
            return false;
        }
        wishing.wanting -= 1;
        wishing.insists &= wishing.wanting > 0;
        wishing.pressing = wishing.pressing.min(wishing.wanting);
        self.drowsy |= wishing.wanting == 0;
        self.wanting -= 1;
        if self.kept {
            self.distribute();
        }
        true
    }

    /// A member gives one permit back: a connection is gone, or was never made.
    pub fn release(&mut self, member: MemberId) {
        let wish = self.wishes + 1;
        let giving = self.member_mut(member);
        assert!(giving.used > 0, "{member:?} gave back more permits than it had");
        giving.used -= 1;
        // Whatever the reason, it answers a reclaim.
        let answered = u32::from(giving.reclaims > 0);
        giving.reclaims -= answered;
        if answered > 0 {
            // It would get it back if its own wish were older than that of the one it gives it up for.
            giving.wish = wish;
            self.wishes = wish;
        }
        for scope in self.scopes_of(member) {
            self.scopes[scope].give_back(1);
            self.scopes[scope].reclaims -= answered;
        }
        if self.wanting > 0 {
            self.distribute();
            self.rebalance();
        }
    }

    /// Somebody there has waited for long, and none of those that the member has comes free. If it wishes for one more,
    /// it counts as having none until it gets that, and its wish as of now.
    pub fn report_starvation(&mut self, member: MemberId) {
        let wish = self.wishes + 1;
        let wishing = self.member_mut(member);
        if wishing.wanting == 0 {
            return;
        }
        // What others would give up might not come back either.
        wishing.pressing = 0;
        if !core::mem::replace(&mut wishing.insists, true) {
            wishing.wish = wish;
            self.wishes = wish;
        }
        self.distribute();
        self.rebalance();
    }

    /// Somebody there has waited for long, although those that the member has come free: they are too few. What it
    /// wishes for now, others are to give up if they have not used it for long.
    pub fn report_congestion(&mut self, member: MemberId) {
        let drowsy = self.drowsy;
        let pressing = self.member_mut(member);
        // It presses again and again. Whatever else could help it is looked at when it happens.
        let is_news = pressing.pressing < pressing.wanting || (drowsy && pressing.wanting > 0);
        pressing.pressing = pressing.wanting;
        if is_news {
            self.rebalance();
        }
    }

    /// A member that was asked to give one up has none to spare. It will not be asked again before `report_spare` or
    /// `offer_returning`.
    pub fn reclaim_failed(&mut self, member: MemberId) {
        self.member_mut(member).barren = true;
        self.asked_in_vain(member);
    }

    /// A member that was asked for one that it has not used for long has none. It will not be asked for such a one
    /// again before `report_spare`.
    pub fn reclaim_unused_failed(&mut self, member: MemberId) {
        self.member_mut(member).awake = true;
        self.asked_in_vain(member);
    }

    fn asked_in_vain(&mut self, member: MemberId) {
        let asked = self.member_mut(member);
        if asked.reclaims == 0 {
            return;
        }
        asked.reclaims -= 1;
        for scope in self.scopes_of(member) {
            self.scopes[scope].reclaims -= 1;
        }
        self.distribute();
        self.rebalance();
    }

    /// A member that had none to spare, or none unused, may have one now.
    pub fn report_spare(&mut self, member: MemberId) {
        let told = self.member_mut(member);
        let news = told.barren || told.awake;
        (told.barren, told.awake) = (false, false);
        if news {
            self.rebalance();
        }
    }

    /// A member that had none to spare gets one of its own back, and can give it up. True if it is to do so, and then
    /// `release`; it is not asked for it in another way.
    pub fn offer_returning(&mut self, member: MemberId) -> bool {
        self.member_mut(member).barren = false;
        let before = self.actions.len();
        self.rebalance();
        let asked = BudgetAction::Reclaim(member);
        let at = (before..self.actions.len()).find(|at| self.actions[*at] == asked);
        at.and_then(|at| self.actions.remove(at)).is_some()
    }

    /// Whether this member was asked in vain for any that it can spare, so that `offer_returning` would be news.
    pub fn awaits_spare(&self, member: MemberId) -> bool {
        self.member(member).barren
    }

    pub fn poll_action(&mut self) -> Option<BudgetAction> {
        self.actions.pop_front()
    }

    /// The first of this member's caps that is full.
    pub fn full_scope(&self, member: MemberId) -> Option<ScopeId> {
        let scopes = self.member(member).scopes();
        scopes.iter().find(|scope| self.scopes[**scope as usize].room() <= 0).map(|scope| ScopeId(*scope))
    }

    /// How many permits a member has, and how many more it wants.
    pub fn member_usage(&self, member: MemberId) -> (u32, u32) {
        let member = self.member(member);
        (member.used, member.wanting)
    }

    fn wish(&mut self, member: MemberId) {
        self.wishes += 1;
        let wish = self.wishes;
        let wishing = self.member_mut(member);
        if wishing.wanting == 0 {
            wishing.wish = wish;
        }
        wishing.wanting += 1;
        self.wanting += 1;
    }

    /// Gives free permits to those who wish, the one with the fewest first. One who cannot be served yet, but will be
    /// as soon as reclaimed permits come back, has the rest kept for it: under several caps they come back one by one,
    /// and those who gave them would take them again.
    fn distribute(&mut self) {
        self.kept = false;
        if self.wanting == 0 {
            return;
        }
        for scope in &mut self.scopes {
            scope.spare = scope.room();
            scope.coming = scope.reclaims;
        }
        let mut order = self.start_order();
        while let Some(Reverse((.., at))) = order.pop() {
            let id = MemberId(at);
            let scopes = || self.scopes_of(id).map(|scope| &self.scopes[scope]);
            if scopes().all(|scope| scope.spare > 0) {
                self.scopes_of(id).for_each(|scope| self.scopes[scope].spare -= 1);
                self.grant(id);
            } else if scopes().all(|scope| scope.spare > 0 || scope.coming > 0) {
                for scope in self.scopes_of(id) {
                    let scope = &mut self.scopes[scope];
                    if scope.spare > 0 { scope.spare -= 1 } else { scope.coming -= 1 }
                }
                self.member_mut(id).promised += 1;
                self.kept = true;
            } else {
                continue;
            }
            self.order_again(&mut order, id);
        }
        self.order = order;
    }

    fn grant(&mut self, id: MemberId) {
        self.wishes += 1;
        let wish = self.wishes;
        let member = self.member_mut(id);
        member.wanting -= 1;
        // The next of its wishes is younger than those of others.
        member.wish = wish;
        member.insists = false;
        member.pressing = member.pressing.saturating_sub(1);
        self.drowsy |= member.wanting == 0;
        self.wanting -= 1;
        self.take(id);
        self.actions.push_back(BudgetAction::Grant(id));
    }

    /// All who wish, in the order in which they are to be helped.
    fn start_order(&mut self) -> Order {
        let mut order = core::mem::take(&mut self.order);
        order.clear();
        for (at, member) in (0..).zip(&mut self.members) {
            member.promised = 0;
            if member.present && member.wanting > 0 {
                order.push(Reverse((member.standing(0), member.left() > 0, member.wish, at)));
            }
        }
        order
    }

    fn order_again(&self, order: &mut Order, id: MemberId) {
        let member = self.member(id);
        if member.wanting > member.promised {
            order.push(Reverse((member.standing(member.promised), member.left() > 0, member.wish, id.0)));
        }
    }

    fn take(&mut self, member: MemberId) {
        self.wishes += 1;
        let granted = self.wishes;
        let taking = self.member_mut(member);
        taking.used += 1;
        taking.granted = granted;
        for scope in self.scopes_of(member) {
            self.scopes[scope].used += 1;
        }
    }

    fn fits(&self, member: &Member) -> bool {
        member.scopes().iter().all(|scope| self.scopes[*scope as usize].room() > 0)
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

    /// By value, so that the scopes can be changed on the way.
    fn scopes_of(&self, member: MemberId) -> impl Iterator<Item = usize> + use<> {
        let Member { scopes, scope_count, .. } = *self.member(member);
        scopes.into_iter().take(usize::from(scope_count)).map(|scope| scope as usize)
    }
}

impl Scope {
    fn ceiling(limit: u32) -> u32 {
        if limit == 0 { u32::MAX } else { limit }
    }

    /// How many more are permitted; below zero after the limit was lowered.
    fn room(&self) -> i64 {
        i64::from(Self::ceiling(self.limit)) - i64::from(self.used)
    }

    fn give_back(&mut self, permits: u32) {
        self.used -= permits;
        self.ceiling = self.ceiling.min(Self::ceiling(self.limit).max(self.used));
    }
}

impl Member {
    /// What it will have once it has given up what it was asked for.
    fn left(&self) -> u32 {
        self.used - self.reclaims
    }

    /// The same with what it was promised, as it counts beside others who wish.
    fn standing(&self, promised: u32) -> u32 {
        if self.insists && promised == 0 { 0 } else { self.left() + promised }
    }

    fn scopes(&self) -> &[u32] {
        &self.scopes[..usize::from(self.scope_count)]
    }
}

#[cfg(test)]
mod tests;
