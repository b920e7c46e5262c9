//! Which members are asked to give a permit up, and for which request. It looks at all members, so it is called only
//! when a request waits. The parent counts requests and permits.

use core::cmp::Reverse;

use super::{Budget, BudgetAction, MAX_SCOPES_OF_A_MEMBER, Member, MemberId};

/// A request that free permits do not satisfy.
#[derive(Clone, Copy)]
struct Unmet {
    member: MemberId,
    /// Permits that another member must hold to be asked for one that it can spare.
    min_held: u32,
    /// Its member counts as one without permits.
    starved: bool,
    /// Other members are asked for unused ones, too, however few they have.
    congested: bool,
}

impl Budget {
    /// Finds requests that wait because other members have more, or do not use what they have, and asks one of these
    /// members for each request.
    pub(super) fn rebalance(&mut self) {
        self.may_have_unused = false;
        for scope in &mut self.scopes {
            scope.spare = scope.room() + i64::from(scope.reclaims);
            (scope.lacks_spare, scope.lacks_unused) = (false, false);
        }
        self.reclaim_excess();
        if self.wanting == 0 {
            return;
        }
        let mut order = self.start_order();
        while let Some(Reverse((.., at))) = order.pop() {
            let id = MemberId(at);
            if self.make_room(id) {
                self.scopes_of(id).for_each(|scope| self.scopes[scope].spare -= 1);
                self.member_mut(id).promised += 1;
                self.order_again(&mut order, id);
            }
        }
        self.order = order;
    }

    /// Whether each full cap of this member has another member that could give one up for it.
    pub(super) fn may_be_helped(&self, id: MemberId) -> bool {
        let min_held = self.member(id).min_to_give(0);
        let mut full = self.scopes_of(id).filter(|scope| self.scopes[*scope].room() <= 0);
        full.all(|scope| self.richest(&[scope], min_held, Some(id)).is_some())
    }

    /// If a cap was lowered below what is used, asks the members that have most.
    fn reclaim_excess(&mut self) {
        for scope in 0..self.scopes.len() {
            while self.scopes[scope].spare < 0 {
                let Some(richest) = self.richest(&[scope], 0, None) else { break };
                self.ask(BudgetAction::Reclaim(richest));
            }
        }
    }

    /// Asks other members, so that there will be a permit for this one under all its caps. Returns false, and asks
    /// none, if they have neither enough nor unused ones.
    fn make_room(&mut self, id: MemberId) -> bool {
        let member = self.member(id);
        let unmet = Unmet {
            member: id,
            min_held: member.min_to_give(member.promised),
            starved: member.starved,
            congested: member.promised < member.congested,
        };
        let mut full = [0; MAX_SCOPES_OF_A_MEMBER];
        let mut count = 0;
        for scope in self.scopes_of(id).filter(|scope| self.scopes[*scope].spare <= 0) {
            full[count] = scope;
            count += 1;
        }
        let full = &full[..count];
        if full.is_empty() {
            return true;
        }
        if !full.iter().all(|scope| self.can_be_reclaimed(*scope, unmet)) {
            return false;
        }
        // A member under all of these caps costs one connection instead of several.
        if let Some(ask) = self.choose(full, unmet) {
            self.ask(ask);
        }
        for scope in full {
            if self.scopes[*scope].spare <= 0 {
                let ask = self.choose(&[*scope], unmet).expect("no member under this cap was asked since");
                self.ask(ask);
            }
        }
        true
    }

    /// Whether a member under this full cap can be asked for this request.
    fn can_be_reclaimed(&mut self, scope: usize, unmet: Unmet) -> bool {
        let over = self.scopes[scope].spare < 0;
        // Requests are taken poorest member first, so `min_held` only grows: a cap without spare permits for one
        // request has none for a later one.
        let lacks_spare = over || self.scopes[scope].lacks_spare;
        if !lacks_spare && self.richest(&[scope], unmet.min_held, Some(unmet.member)).is_some() {
            return true;
        }
        // A starved member may itself be the one that could give.
        self.scopes[scope].lacks_spare |= !unmet.starved;
        if over || !unmet.congested || self.scopes[scope].lacks_unused {
            return false;
        }
        let found = self.richest_in_unused(&[scope]).is_some();
        self.scopes[scope].lacks_unused = !found;
        found
    }

    /// The member under all these caps that is asked for this request, and for what.
    fn choose(&self, scopes: &[usize], unmet: Unmet) -> Option<BudgetAction> {
        let richest = self.richest(scopes, unmet.min_held, Some(unmet.member)).map(BudgetAction::Reclaim);
        let richest_in_unused = || self.richest_in_unused(scopes).map(BudgetAction::ReclaimUnused);
        if unmet.congested { richest.or_else(richest_in_unused) } else { richest }
    }

    /// The first member to ask under all these caps that has at least `min_held` permits (without reclaimed ones)
    /// that may have one to spare. `for_whom`: the member that gets it is not asked.
    fn richest(&self, scopes: &[usize], min_held: u32, for_whom: Option<MemberId>) -> Option<MemberId> {
        self.first_to_ask(scopes, |id, member| member.left() >= min_held.max(1) && Some(id) != for_whom)
    }

    /// The first member to ask under all these caps that may have an unused one. A member with a request uses
    /// what it has.
    fn richest_in_unused(&self, scopes: &[usize]) -> Option<MemberId> {
        self.first_to_ask(scopes, |_, member| member.left() > 0 && member.wanting == 0 && !member.lacks_unused)
    }

    /// Of the members under all these caps that fit and may have one to spare: the one that has most, and of equals the
    /// one whose last grant is the oldest.
    fn first_to_ask(&self, scopes: &[usize], fits: impl Fn(MemberId, &Member) -> bool) -> Option<MemberId> {
        let candidates = self.present().filter(|&(id, member)| {
            let under_all = scopes.iter().all(|scope| member.scopes().iter().any(|s| *s as usize == *scope));
            under_all && !member.lacks_spare && fits(id, member)
        });
        candidates.max_by_key(|(_, member)| (member.left(), Reverse(member.granted))).map(|(id, _)| id)
    }

    fn ask(&mut self, ask: BudgetAction) {
        let member = ask.member();
        self.member_mut(member).reclaims += 1;
        for scope in self.scopes_of(member) {
            self.scopes[scope].reclaims += 1;
            self.scopes[scope].spare += 1;
        }
        self.actions.push_back(ask);
    }
}

/// Permits that a member must hold to be asked for one by a member that has `has`. One more is not enough, or the two
/// would pass it to and fro. But a member without permits must not wait for the last one of a member while that is
/// idle.
fn min_to_give_to(has: u32) -> u32 {
    if has == 0 { 1 } else { has + 2 }
}

impl Member {
    /// Permits that another member must hold to be asked for one for this member. A member that has some never gets the
    /// last one of another member, even if it is starved: it might hold that one as well, which would then never come
    /// back.
    fn min_to_give(&self, promised: u32) -> u32 {
        let min_held = min_to_give_to(self.standing(promised));
        if self.left() > 0 { min_held.max(2) } else { min_held }
    }
}
