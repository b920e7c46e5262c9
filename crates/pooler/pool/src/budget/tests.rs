//! The rules of the budget, one by one.

mod congestion;

use alloc::{vec, vec::Vec};

use super::*;

fn actions(budget: &mut Budget) -> Vec<BudgetAction> {
    budget.check_invariants();
    core::iter::from_fn(|| budget.poll_action()).collect()
}

/// A budget with one cap, and members that each have these permits.
fn members<const N: usize>(limit: u32, permits: [u32; N]) -> (Budget, [MemberId; N]) {
    let (mut budget, _, members) = capped(limit);
    for (member, count) in members.iter().zip(permits) {
        grant(&mut budget, &vec![*member; count as usize]);
    }
    (budget, members)
}

/// A budget with one cap, and members that have nothing yet.
fn capped<const N: usize>(limit: u32) -> (Budget, CapId, [MemberId; N]) {
    let mut budget = Budget::new();
    let cap = budget.add_cap(limit);
    let members = [(); N].map(|()| budget.add_member(&[cap]));
    (budget, cap, members)
}

/// One permit for each, in this order.
fn grant(budget: &mut Budget, members: &[MemberId]) {
    for member in members {
        assert_eq!(budget.request(*member), Permit::Granted);
    }
}

/// Requests until one is denied.
fn fill(budget: &mut Budget, member: MemberId) -> u32 {
    let mut granted = 0;
    while budget.request(member) == Permit::Granted {
        granted += 1;
    }
    budget.check_invariants();
    granted
}

/// Answers every action: all members can always release a permit, and request another one, until no action is left.
fn settle(budget: &mut Budget) -> u32 {
    for steps in 0..1000 {
        match budget.poll_action() {
            None => return steps,
            Some(BudgetAction::Grant(_)) => {}
            Some(BudgetAction::Reclaim(member, _)) => {
                budget.release(member);
                let _ = budget.request(member);
            }
        }
        budget.check_invariants();
    }
    panic!("the budget never comes to rest");
}

fn used(budget: &Budget, members: &[MemberId]) -> Vec<u32> {
    members.iter().map(|member| budget.member_usage(*member).0).collect()
}

#[test]
fn a_cap_of_zero_only_counts() {
    let mut budget = Budget::new();
    let cap = budget.add_cap(0);
    let member = budget.add_member(&[cap]);
    grant(&mut budget, &[member; 1000]);
    assert_eq!(budget.usage(cap), (1000, 0));
    let free = budget.add_member(&[]);
    assert_eq!(budget.request(free), Permit::Granted);
}

#[test]
fn a_released_permit_goes_to_the_waiting_member_with_the_fewest() {
    let (mut budget, [a, b, c]) = members(4, [0, 0, 0]);
    grant(&mut budget, &[a, b, b, c]);
    assert_eq!(budget.request(b), Permit::Denied);
    assert_eq!(budget.request(a), Permit::Denied);
    assert_eq!(actions(&mut budget), []);
    budget.release(c);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(a)]);
}

#[test]
fn of_equal_members_the_one_that_waits_longest_is_served() {
    let (mut budget, [a, b, c]) = members(4, [2, 1, 1]);
    assert_eq!(budget.request(c), Permit::Denied);
    assert_eq!(budget.request(b), Permit::Denied);
    budget.release(a);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(c)]);
}

#[test]
fn a_member_with_too_many_is_asked_for_one_per_request() {
    let (mut budget, [a, b]) = members(4, [0, 0]);
    assert_eq!(fill(&mut budget, a), 4);
    assert!(budget.withdraw(a));
    for _ in 0..4 {
        assert_eq!(budget.request(b), Permit::Denied);
    }
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(a, Claim::Spare), BudgetAction::Reclaim(a, Claim::Spare)]);
    budget.release(a);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(b)]);
    budget.release(a);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(b)]);
    assert_eq!(used(&budget, &[a, b]), [2, 2]);
}

#[test]
fn two_members_that_need_the_only_permit_take_turns() {
    let (mut budget, [mut has, mut wants]) = members(1, [0, 0]);
    assert_eq!(budget.request(has), Permit::Granted);
    assert_eq!(budget.request(wants), Permit::Denied);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(has, Claim::Spare)]);
    for _ in 0..5 {
        budget.reclaim_failed(has, Claim::Spare);
        assert_eq!(budget.request(has), Permit::Denied);
        assert_eq!(actions(&mut budget), [], "its turn is not over");
        assert!(budget.offer_returning(has), "its turn is over, though it wants more itself");
        assert_eq!(actions(&mut budget), []);
        budget.release(has);
        assert_eq!(actions(&mut budget), [BudgetAction::Grant(wants), BudgetAction::Reclaim(wants, Claim::Spare)]);
        (has, wants) = (wants, has);
    }
}

#[test]
fn a_returning_permit_stays_if_no_other_member_needs_it() {
    let (mut budget, [a, b]) = members(2, [0, 0]);
    assert_eq!(fill(&mut budget, a), 2);
    assert_eq!(budget.request(b), Permit::Denied);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(a, Claim::Spare)]);
    budget.reclaim_failed(a, Claim::Spare);
    assert!(budget.withdraw(b));
    assert!(budget.lacks_spare(a));
    assert!(!budget.offer_returning(a));
    assert!(!budget.lacks_spare(a));
}

#[test]
fn of_equals_the_one_that_has_had_its_turn_for_longest_is_asked_first() {
    let (mut budget, [a, b, c, d]) = members(3, [0, 0, 0, 0]);
    grant(&mut budget, &[b, a, c]);
    assert_eq!(budget.request(d), Permit::Denied);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(b, Claim::Spare)]);
}

#[test]
fn a_starved_member_counts_as_one_without_permits_but_gets_no_last_one() {
    let (mut budget, [a, b]) = members(3, [1, 2]);
    budget.report_starvation(a);
    assert_eq!(actions(&mut budget), [], "it has no request");
    assert_eq!(budget.request(a), Permit::Denied);
    assert_eq!(actions(&mut budget), [], "one more than it has is no more than a fair share");
    budget.report_starvation(a);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(b, Claim::Spare)]);
    budget.release(b);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(a)]);
    assert_eq!(budget.request(a), Permit::Denied);
    budget.report_starvation(a);
    assert_eq!(actions(&mut budget), [], "all that it got may be kept, too, and the other would have none for ever");
}

#[test]
fn a_starved_member_that_holds_all_permits_does_not_shut_others_out() {
    let (mut budget, [a, b]) = members(2, [0, 0]);
    assert_eq!(fill(&mut budget, a), 2);
    budget.report_starvation(a);
    assert_eq!(actions(&mut budget), []);
    assert_eq!(budget.request(b), Permit::Denied);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(a, Claim::Spare)]);
    budget.release(a);
    // Although its request is newer.
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(b)]);
}

#[test]
fn a_member_without_permits_comes_before_a_starved_one() {
    let (mut budget, [a, b]) = members(2, [1, 1]);
    assert_eq!(budget.request(a), Permit::Denied);
    budget.report_starvation(a);
    // The server of the other has reached its life time, say, and is to be made anew.
    assert_eq!(budget.request(b), Permit::Denied);
    budget.release(b);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(b)]);
}

#[test]
fn the_cap_that_is_in_the_way_is_the_first_that_is_full() {
    let mut budget = Budget::new();
    let (process, user) = (budget.add_cap(2), budget.add_cap(1));
    let [a, b] = [budget.add_member(&[process, user]), budget.add_member(&[process])];
    assert_eq!(budget.request(a), Permit::Granted);
    assert_eq!((budget.full_cap(a), budget.full_cap(b)), (Some(user), None));
    assert_eq!(budget.request(b), Permit::Granted);
    assert_eq!((budget.full_cap(a), budget.full_cap(b)), (Some(process), Some(process)));
}

#[test]
fn a_member_without_a_spare_permit_is_asked_again_only_when_it_may_have_one() {
    let (mut budget, [a, b, c]) = members(5, [0, 0, 0]);
    grant(&mut budget, &[a; 3]);
    assert_eq!(fill(&mut budget, b), 2);
    assert!(budget.withdraw(b));
    assert_eq!(budget.request(c), Permit::Denied);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(a, Claim::Spare)]);
    budget.reclaim_failed(a, Claim::Spare);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(b, Claim::Spare)], "the next one is asked");
    budget.reclaim_failed(b, Claim::Spare);
    assert_eq!(actions(&mut budget), []);
    assert!(budget.lacks_spare(a));
    budget.report_spare(a);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(a, Claim::Spare)]);
    budget.release(a);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(c)]);
}

#[test]
fn a_withdrawn_request_is_not_granted_and_a_granted_one_cannot_be_withdrawn() {
    let (mut budget, cap, [a, b]) = capped(3);
    grant(&mut budget, &[a, a, b]);
    assert_eq!(budget.request(b), Permit::Denied);
    assert!(budget.withdraw(b));
    budget.release(a);
    assert_eq!(actions(&mut budget), []);
    assert_eq!(budget.request(a), Permit::Granted);
    assert_eq!(budget.request(b), Permit::Denied);
    budget.release(a);
    assert!(!budget.withdraw(b), "the grant is on its way");
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(b)]);
    budget.release(b);
    assert_eq!(budget.usage(cap), (2, 3));
}

#[test]
fn a_lower_cap_reclaims_from_the_members_with_the_most() {
    let (mut budget, cap, [a, b]) = capped(6);
    grant(&mut budget, &[b, b, a, a, a, a]);
    budget.set_limit(cap, 3);
    let mut asked = actions(&mut budget);
    asked.sort_by_key(|action| *action == BudgetAction::Reclaim(a, Claim::Spare));
    assert_eq!(
        asked,
        [
            BudgetAction::Reclaim(b, Claim::Spare),
            BudgetAction::Reclaim(a, Claim::Spare),
            BudgetAction::Reclaim(a, Claim::Spare)
        ]
    );
    assert_eq!(budget.request(b), Permit::Denied);
}

#[test]
fn a_higher_cap_is_shared_out_at_once() {
    let (mut budget, cap, [a, b]) = capped(3);
    grant(&mut budget, &[a, a, b]);
    assert_eq!(budget.request(a), Permit::Denied);
    assert_eq!(budget.request(b), Permit::Denied);
    budget.set_limit(cap, 5);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(b), BudgetAction::Grant(a)]);
}

#[test]
fn what_a_removed_member_had_goes_to_others() {
    let (mut budget, cap, [a, b]) = capped(2);
    assert_eq!(fill(&mut budget, a), 2);
    assert_eq!(budget.request(b), Permit::Denied);
    budget.remove_member(a);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(b)]);
    let c = budget.add_member(&[cap]);
    assert_eq!(budget.request(c), Permit::Granted);
}

#[test]
fn a_request_that_no_member_can_help_costs_no_member_anything() {
    let mut budget = Budget::new();
    let (process, user) = (budget.add_cap(4), budget.add_cap(1));
    let a = budget.add_member(&[process]);
    let b = budget.add_member(&[process, user]);
    assert_eq!(budget.request(b), Permit::Granted);
    assert_eq!(fill(&mut budget, a), 3);
    actions(&mut budget);
    assert_eq!(budget.request(b), Permit::Denied);
    assert_eq!(actions(&mut budget), []);
}

#[test]
fn under_overlapping_caps_permits_that_come_back_one_by_one_are_kept() {
    let mut budget = Budget::new();
    let (database, user) = (budget.add_cap(4), budget.add_cap(4));
    let a = budget.add_member(&[database]);
    let b = budget.add_member(&[user]);
    let c = budget.add_member(&[database, user]);
    fill(&mut budget, a);
    fill(&mut budget, b);
    for _ in 0..4 {
        assert_eq!(budget.request(c), Permit::Denied);
    }
    settle(&mut budget);
    assert_eq!(used(&budget, &[a, b, c]), [2, 2, 2]);
}

#[test]
fn permits_held_back_for_a_withdrawn_request_go_to_others() {
    let mut budget = Budget::new();
    let (database, user) = (budget.add_cap(4), budget.add_cap(4));
    let a = budget.add_member(&[database]);
    let b = budget.add_member(&[user]);
    let c = budget.add_member(&[database, user]);
    fill(&mut budget, a);
    fill(&mut budget, b);
    assert_eq!(budget.request(c), Permit::Denied);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(a, Claim::Spare), BudgetAction::Reclaim(b, Claim::Spare)]);
    budget.release(a);
    assert_eq!(actions(&mut budget), [], "kept for c, who still needs one of b's");
    assert!(budget.withdraw(c));
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(a)]);
}

#[test]
fn a_member_takes_what_it_has_to_its_other_caps() {
    let mut budget = Budget::new();
    let (old, new) = (budget.add_cap(4), budget.add_cap(3));
    let mover = budget.add_member(&[old]);
    let stayer = budget.add_member(&[old]);
    let other = budget.add_member(&[new]);
    assert_eq!(fill(&mut budget, mover), 4);
    assert_eq!(fill(&mut budget, other), 3);
    assert_eq!(budget.request(stayer), Permit::Denied);
    let _ = actions(&mut budget);
    budget.set_caps(mover, &[new]);
    let ordered = actions(&mut budget);
    assert!(ordered.contains(&BudgetAction::Grant(stayer)), "the cap it left has room: {ordered:?}");
    let asked = ordered.iter().filter(|action| matches!(action, BudgetAction::Reclaim(..))).count();
    assert!(asked >= 3, "seven permits under a cap of three: {ordered:?}");
    assert_eq!(budget.usage(new), (7, 3));
}

#[test]
fn a_cap_goes_with_its_last_member_and_another_takes_its_place() {
    let mut budget = Budget::new();
    let (process, own) = (budget.add_cap(0), budget.add_cap(1));
    let [a, b] = [budget.add_member(&[process, own]), budget.add_member(&[process])];
    assert_eq!(fill(&mut budget, a), 1);
    assert!(!budget.remove_empty_cap(own));
    budget.remove_member(a);
    assert!(actions(&mut budget).is_empty());
    assert!(budget.remove_empty_cap(own) && !budget.remove_empty_cap(process));
    budget.check_invariants();
    assert_eq!(budget.add_cap(2), own);
    budget.set_caps(b, &[process, own]);
    assert_eq!(fill(&mut budget, b), 2);
}

/// A member without permits whose clients starve.
fn starve(budget: &mut Budget, member: MemberId) -> Vec<BudgetAction> {
    budget.report_starvation(member);
    actions(budget)
}

#[test]
fn a_starved_member_without_permits_gets_one_that_is_only_kept() {
    let (mut budget, [few, many, none]) = members(3, [1, 2, 0]);
    assert_eq!(budget.request(none), Permit::Denied);
    for member in [many, few] {
        assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(member, Claim::Spare)]);
        budget.reclaim_failed(member, Claim::Spare);
    }
    assert_eq!(actions(&mut budget), [], "a request alone takes nothing that is kept");
    assert_eq!(starve(&mut budget, none), [BudgetAction::Reclaim(many, Claim::Kept)]);
    budget.reclaim_failed(many, Claim::Kept);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(few, Claim::Kept)], "the next one is asked");
    budget.reclaim_failed(few, Claim::Kept);
    assert_eq!(actions(&mut budget), []);
    budget.report_spare(many);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(many, Claim::Spare)]);
    budget.reclaim_failed(many, Claim::Spare);
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(many, Claim::Kept)]);
    // It requests another one to keep, and gets none that others keep for that.
    assert_eq!(budget.request(many), Permit::Denied);
    budget.release(many);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(none)]);
}

#[test]
fn a_starved_member_with_permits_gets_none_that_are_kept() {
    let (mut budget, [keeps, some]) = members(2, [1, 1]);
    assert_eq!(budget.request(some), Permit::Denied);
    assert_eq!(starve(&mut budget, some), []);
    budget.release(some);
    assert_eq!(actions(&mut budget), [BudgetAction::Grant(some)]);
    assert_eq!(budget.member_usage(keeps), (1, 0));
}

#[test]
fn a_lower_cap_gets_back_what_is_only_kept() {
    let (mut budget, cap, [a, b]) = capped(2);
    grant(&mut budget, &[a, b]);
    budget.set_limit(cap, 1);
    for member in [a, b] {
        assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(member, Claim::Spare)]);
        budget.reclaim_failed(member, Claim::Spare);
    }
    assert_eq!(actions(&mut budget), [BudgetAction::Reclaim(a, Claim::Kept)]);
    budget.release(a);
    assert_eq!((actions(&mut budget), budget.usage(cap)), (vec![], (1, 1)));
}
