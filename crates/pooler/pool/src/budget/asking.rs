//! Which members are asked to give a permit up, and for which request. It looks at all members, so it is called only
//! when a request waits. The parent counts requests and permits.

use core::cmp::Reverse;

use super::{Budget, BudgetAction, MAX_CAPS_OF_A_MEMBER, Member, MemberId};

/// A request that free permits do not satisfy.
#[derive(Clone, Copy)]
struct Unmet {
    member: MemberId,
    /// Permits that another member must hold to be asked for one that it can spare.
    min_held: u32,
    /// Its member counts as one without permits.
    starved: bool,
    /// Other members are asked for permits that were idle for long, too, however few they have.
    congested: bool,
}

impl Budget {
    /// Finds requests that wait because other members have more, or do not use what they have, and asks one of these
    /// members for each request.
    pub(super) fn rebalance(&mut self) {
        self.may_have_long_idle = false;
        for cap in &mut self.caps {
            cap.spare = cap.free_permits() + i64::from(cap.reclaims);
            (cap.lacks_spare, cap.lacks_long_idle) = (false, false);
        }
        self.reclaim_excess();
        if self.pending == 0 {
            return;
        }
        let mut queue = self.start_queue();
        while let Some(Reverse((.., at))) = queue.pop() {
            let id = MemberId(at);
            if self.order_reclaims_for(id) {
                self.caps_of(id).for_each(|cap| self.caps[cap].spare -= 1);
                self.member_mut(id).promised += 1;
                self.push_again(&mut queue, id);
            }
        }
        self.queue = queue;
    }

    /// Whether each full cap of this member has another member that could give one up for it.
    pub(super) fn may_be_helped(&self, id: MemberId) -> bool {
        let min_held = self.member(id).min_to_give(0);
        let mut full = self.caps_of(id).filter(|cap| self.caps[*cap].free_permits() <= 0);
        full.all(|cap| self.richest(&[cap], min_held, Some(id)).is_some())
    }

    /// If a cap was lowered below what is used, asks the members that have most.
    fn reclaim_excess(&mut self) {
        for cap in 0..self.caps.len() {
            while self.caps[cap].spare < 0 {
                let Some(richest) = self.richest(&[cap], 0, None) else { break };
                self.order_reclaim(BudgetAction::Reclaim(richest));
            }
        }
    }

    /// Orders other members to release permits, until this one has a permit under all its caps. Returns false, and
    /// orders nothing, if no member has enough permits, or one that was idle for long.
    fn order_reclaims_for(&mut self, id: MemberId) -> bool {
        let member = self.member(id);
        let unmet = Unmet {
            member: id,
            min_held: member.min_to_give(member.promised),
            starved: member.starved,
            congested: member.promised < member.congested,
        };
        let mut full = [0; MAX_CAPS_OF_A_MEMBER];
        let mut count = 0;
        for cap in self.caps_of(id).filter(|cap| self.caps[*cap].spare <= 0) {
            full[count] = cap;
            count += 1;
        }
        let full = &full[..count];
        if full.is_empty() {
            return true;
        }
        if !full.iter().all(|cap| self.can_be_reclaimed(*cap, unmet)) {
            return false;
        }
        // A member under all of these caps costs one connection instead of several.
        if let Some(order) = self.choose(full, unmet) {
            self.order_reclaim(order);
        }
        for cap in full {
            if self.caps[*cap].spare <= 0 {
                let order = self.choose(&[*cap], unmet).expect("no member under this cap was asked since");
                self.order_reclaim(order);
            }
        }
        true
    }

    /// Whether a member under this full cap can be asked for this request. Notes in the cap what need not be searched
    /// again for later requests.
    fn can_be_reclaimed(&mut self, cap: usize, unmet: Unmet) -> bool {
        let over = self.caps[cap].spare < 0;
        // Requests are taken poorest member first, so `min_held` only grows: a cap without spare permits for one
        // request has none for a later one.
        let lacks_spare = over || self.caps[cap].lacks_spare;
        if !lacks_spare && self.richest(&[cap], unmet.min_held, Some(unmet.member)).is_some() {
            return true;
        }
        // A starved member may itself be the one that could give.
        self.caps[cap].lacks_spare |= !unmet.starved;
        if over || !unmet.congested || self.caps[cap].lacks_long_idle {
            return false;
        }
        let found = self.richest_in_long_idle(&[cap]).is_some();
        self.caps[cap].lacks_long_idle = !found;
        found
    }

    /// The member under all these caps that is asked for this request, and for what.
    fn choose(&self, caps: &[usize], unmet: Unmet) -> Option<BudgetAction> {
        let richest = self.richest(caps, unmet.min_held, Some(unmet.member)).map(BudgetAction::Reclaim);
        let richest_in_long_idle = || self.richest_in_long_idle(caps).map(BudgetAction::ReclaimLongIdle);
        if unmet.congested { richest.or_else(richest_in_long_idle) } else { richest }
    }

    /// The first member to ask under all these caps that has at least `min_held` permits (without reclaimed ones)
    /// that may have one to spare. `for_whom`: the member that gets it is not asked.
    fn richest(&self, caps: &[usize], min_held: u32, for_whom: Option<MemberId>) -> Option<MemberId> {
        self.first_to_ask(caps, |id, member| member.unreclaimed() >= min_held.max(1) && Some(id) != for_whom)
    }

    /// The first member to ask under all these caps that may have a permit that was idle for long. A
    /// member with a request uses all its permits.
    fn richest_in_long_idle(&self, caps: &[usize]) -> Option<MemberId> {
        self.first_to_ask(caps, |_, member| member.unreclaimed() > 0 && member.pending == 0 && !member.lacks_long_idle)
    }

    /// Of the members under all these caps that fit and may have one to spare: the one that has most, and of equals the
    /// one whose last grant is the oldest.
    fn first_to_ask(&self, caps: &[usize], fits: impl Fn(MemberId, &Member) -> bool) -> Option<MemberId> {
        let candidates = self.present().filter(|&(id, member)| {
            let under_all = caps.iter().all(|cap| member.caps().iter().any(|s| *s as usize == *cap));
            under_all && !member.lacks_spare && fits(id, member)
        });
        candidates.max_by_key(|(_, member)| (member.unreclaimed(), Reverse(member.granted))).map(|(id, _)| id)
    }

    fn order_reclaim(&mut self, order: BudgetAction) {
        let member = order.member();
        self.member_mut(member).reclaims += 1;
        for cap in self.caps_of(member) {
            self.caps[cap].reclaims += 1;
            self.caps[cap].spare += 1;
        }
        self.actions.push_back(order);
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
        let min_held = min_to_give_to(self.counted_permits(promised));
        if self.unreclaimed() > 0 { min_held.max(2) } else { min_held }
    }
}
