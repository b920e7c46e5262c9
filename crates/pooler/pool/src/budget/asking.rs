//! Which members are asked to give a permit up, and for which request. It looks at all members, so it is called only
//! when a request waits. The parent counts requests and permits.

use core::cmp::Reverse;

use super::{Budget, BudgetAction, CLAIMS, Claim, MAX_CAPS_OF_A_MEMBER, Member, MemberId};

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
    /// Other members are asked for permits that they keep, too: it starves and has none.
    destitute: bool,
}

impl Unmet {
    /// What members may be asked for although they can spare none.
    fn claim(self) -> Option<Claim> {
        if self.destitute {
            Some(Claim::Kept)
        } else if self.congested {
            Some(Claim::LongIdle)
        } else {
            None
        }
    }
}

impl Budget {
    /// Finds requests that wait because other members have more, or do not use what they have, and asks one of these
    /// members for each request.
    pub(super) fn rebalance(&mut self) {
        self.may_have_long_idle = false;
        for cap in &mut self.caps {
            cap.spare = cap.free_permits() + i64::from(cap.reclaims);
            cap.lacks = [false; CLAIMS];
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
                let spare = self.richest(&[cap], 0, None).map(|richest| (richest, Claim::Spare));
                let kept = || self.richest_in(Claim::Kept, &[cap]).map(|richest| (richest, Claim::Kept));
                let Some((member, claim)) = spare.or_else(kept) else { break };
                self.order_reclaim(member, claim);
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
            destitute: member.starved && member.unreclaimed() + member.promised == 0,
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
        if let Some((member, claim)) = self.choose(full, unmet) {
            self.order_reclaim(member, claim);
        }
        for cap in full {
            if self.caps[*cap].spare <= 0 {
                let (member, claim) = self.choose(&[*cap], unmet).expect("no member under this cap was asked since");
                self.order_reclaim(member, claim);
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
        let lacks_spare = over || self.caps[cap].lacks[Claim::Spare as usize];
        if !lacks_spare && self.richest(&[cap], unmet.min_held, Some(unmet.member)).is_some() {
            return true;
        }
        // A starved member that has permits may itself be the one that could give.
        self.caps[cap].lacks[Claim::Spare as usize] |= !unmet.starved || unmet.destitute;
        let Some(claim) = unmet.claim().filter(|claim| !over && !self.caps[cap].lacks[*claim as usize]) else {
            return false;
        };
        let found = self.richest_in(claim, &[cap]).is_some();
        self.caps[cap].lacks[claim as usize] = !found;
        found
    }

    /// The member under all these caps that is asked for this request, and for what.
    fn choose(&self, caps: &[usize], unmet: Unmet) -> Option<(MemberId, Claim)> {
        let richest = self.richest(caps, unmet.min_held, Some(unmet.member)).map(|member| (member, Claim::Spare));
        richest.or_else(|| {
            let claim = unmet.claim()?;
            self.richest_in(claim, caps).map(|member| (member, claim))
        })
    }

    /// The first member to ask under all these caps that has at least `min_held` permits (without reclaimed ones)
    /// that may have one to spare. `for_whom`: the member that gets it is not asked.
    fn richest(&self, caps: &[usize], min_held: u32, for_whom: Option<MemberId>) -> Option<MemberId> {
        self.first_to_ask(caps, |id, member| {
            member.unreclaimed() >= min_held.max(1) && Some(id) != for_whom && !member.lacks[Claim::Spare as usize]
        })
    }

    /// The first member to ask under all these caps for a permit that was idle for long, or that it keeps. A member
    /// with a request uses all its permits, unless it requests the permits to keep them.
    fn richest_in(&self, claim: Claim, caps: &[usize]) -> Option<MemberId> {
        self.first_to_ask(caps, |_, member| {
            // Without one to spare it has none that was idle for long.
            let may_be_idle = member.pending == 0 && !member.lacks[Claim::Spare as usize];
            member.unreclaimed() > 0 && (may_be_idle || claim == Claim::Kept) && !member.lacks[claim as usize]
        })
    }

    /// Of the members under all these caps that fit: the one that has most, and of equals the one whose last grant is
    /// the oldest.
    fn first_to_ask(&self, caps: &[usize], fits: impl Fn(MemberId, &Member) -> bool) -> Option<MemberId> {
        let candidates = self.present().filter(|&(id, member)| {
            let under_all = caps.iter().all(|cap| member.caps().iter().any(|s| *s as usize == *cap));
            under_all && fits(id, member)
        });
        candidates.max_by_key(|(_, member)| (member.unreclaimed(), Reverse(member.granted))).map(|(id, _)| id)
    }

    fn order_reclaim(&mut self, member: MemberId, claim: Claim) {
        self.member_mut(member).reclaims += 1;
        for cap in self.caps_of(member) {
            self.caps[cap].reclaims += 1;
            self.caps[cap].spare += 1;
        }
        self.actions.push_back(BudgetAction::Reclaim(member, claim));
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
