//! Who is asked to give a permit up, and for whose wish. It looks at all members, so it is called only after a wish was
//! denied. How wishes and permits are counted stands in the parent.

use core::cmp::Reverse;

use super::{Budget, BudgetAction, MAX_SCOPES_OF_A_MEMBER, Member, MemberId};

/// A wish that the permits that are there do not fulfil.
#[derive(Clone, Copy)]
struct Unmet {
    member: MemberId,
    /// How many another member must have to be asked for any that it can spare.
    least: u32,
    /// Its member counts as having none.
    insists: bool,
    /// Others are asked for what they do not use as well, however few they have.
    presses: bool,
}

impl Budget {
    /// Finds out which wishes are held up by members that have more, or that do not use what they have, and asks these
    /// to give up one per wish.
    pub(super) fn rebalance(&mut self) {
        self.drowsy = false;
        for scope in &mut self.scopes {
            scope.spare = scope.room() + i64::from(scope.reclaims);
            (scope.dry, scope.awake) = (false, false);
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

    /// Whether each full cap above this member has somebody under it who could give one up for it.
    pub(super) fn might_be_helped(&self, id: MemberId) -> bool {
        let least = self.member(id).too_much_for(0);
        let mut full = self.scopes_of(id).filter(|scope| self.scopes[*scope].room() <= 0);
        full.all(|scope| self.richest(&[scope], least, Some(id)).is_some())
    }

    /// Where a cap was lowered below what is used, asks those that have most.
    fn reclaim_excess(&mut self) {
        for scope in 0..self.scopes.len() {
            while self.scopes[scope].spare < 0 {
                let Some(richest) = self.richest(&[scope], 0, None) else { break };
                self.ask(BudgetAction::Reclaim(richest));
            }
        }
    }

    /// Sees to it that there will be a permit for this member under all its caps. False, and nothing is done, if that
    /// cannot be had from members that have too much beside it, or have it unused.
    fn make_room(&mut self, id: MemberId) -> bool {
        let member = self.member(id);
        let wish = Unmet {
            member: id,
            least: member.too_much_for(member.promised),
            insists: member.insists,
            presses: member.promised < member.pressing,
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
        if !full.iter().all(|scope| self.can_be_had(*scope, wish)) {
            return false;
        }
        // One who is under all of them at once costs one connection instead of several.
        if let Some(ask) = self.giver(full, wish) {
            self.ask(ask);
        }
        for scope in full {
            if self.scopes[*scope].spare <= 0 {
                let ask = self.giver(&[*scope], wish).expect("nobody under this cap was asked since");
                self.ask(ask);
            }
        }
        true
    }

    /// Whether somebody under this cap, which is full, can be asked for the sake of this wish.
    fn can_be_had(&mut self, scope: usize, wish: Unmet) -> bool {
        let over = self.scopes[scope].spare < 0;
        // The members are asked for in the order of what they have, so that a cap once dry stays dry.
        let dry = over || self.scopes[scope].dry;
        if !dry && self.richest(&[scope], wish.least, Some(wish.member)).is_some() {
            return true;
        }
        // Unless it is one's own that could be had of it.
        self.scopes[scope].dry |= !wish.insists;
        if over || !wish.presses || self.scopes[scope].awake {
            return false;
        }
        let sleeps = self.sleeper(&[scope]).is_some();
        self.scopes[scope].awake = !sleeps;
        sleeps
    }

    /// Who under all these caps is to be asked for the sake of this wish, and for what.
    fn giver(&self, scopes: &[usize], wish: Unmet) -> Option<BudgetAction> {
        let richest = self.richest(scopes, wish.least, Some(wish.member)).map(BudgetAction::Reclaim);
        let sleeper = || self.sleeper(scopes).map(BudgetAction::ReclaimUnused);
        if wish.presses { richest.or_else(sleeper) } else { richest }
    }

    /// Of those under all these caps that have at least `least` (not counting what they were asked to give up) and may
    /// have something to give: the first to be asked. Not the one for whose sake that is.
    fn richest(&self, scopes: &[usize], least: u32, sake: Option<MemberId>) -> Option<MemberId> {
        self.first_to_ask(scopes, |id, member| member.left() >= least.max(1) && Some(id) != sake)
    }

    /// Of those under all these caps that may have something that they have not used for long: the first to be asked.
    /// Who wishes for more uses what it has.
    fn sleeper(&self, scopes: &[usize]) -> Option<MemberId> {
        self.first_to_ask(scopes, |_, member| member.left() > 0 && member.wanting == 0 && !member.awake)
    }

    /// Of those under all these caps that fit, and that were not asked in vain: the one that has most, of equals the
    /// one that got its last one before the others.
    fn first_to_ask(&self, scopes: &[usize], fits: impl Fn(MemberId, &Member) -> bool) -> Option<MemberId> {
        let candidates = self.present().filter(|&(id, member)| {
            let under_all = scopes.iter().all(|scope| member.scopes().iter().any(|s| *s as usize == *scope));
            under_all && !member.barren && fits(id, member)
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

/// How many permits a member must have to be asked for one, by somebody who has so many. One more than another is not
/// too much, or the two would pass it to and fro; but one who has none must not wait for somebody's last one while that
/// is idle.
fn too_much_beside(has: u32) -> u32 {
    if has == 0 { 1 } else { has + 2 }
}

impl Member {
    /// How many another member must have to be asked for one for the sake of this one. A member that has some never
    /// gets the last one of another, although it insists: what it gets may be kept, too, and would then never come
    /// back.
    fn too_much_for(&self, promised: u32) -> u32 {
        let least = too_much_beside(self.standing(promised));
        if self.left() > 0 { least.max(2) } else { least }
    }
}
