//! A congested member gets permits that other members have not used for long, although they have no more than it has.

use super::*;

use BudgetAction::{Grant, Reclaim};

/// A full cap, and members that each have these permits.
fn full<const N: usize>(permits: [u32; N]) -> (Budget, [MemberId; N]) {
    members(permits.iter().sum(), permits)
}

/// The member requests this many more, and reports congestion.
fn report_congestion(budget: &mut Budget, member: MemberId, requests: u32) -> Vec<BudgetAction> {
    for _ in 0..requests {
        assert_eq!(budget.request(member), Permit::Denied);
    }
    assert_eq!(actions(budget), [], "no member has too many");
    budget.report_congestion(member);
    actions(budget)
}

#[test]
fn a_congested_member_gets_an_long_idle_permit_of_one_that_has_no_more() {
    let (mut budget, [idle_member, busy]) = full([2, 2]);
    assert_eq!(report_congestion(&mut budget, busy, 1), [Reclaim(idle_member, Claim::LongIdle)]);
    budget.release(idle_member);
    assert_eq!(actions(&mut budget), [Grant(busy)]);
    assert_eq!(used(&budget, &[idle_member, busy]), [1, 3]);
}

#[test]
fn even_the_last_one_and_all_of_them_in_the_end() {
    let (mut budget, [idle_member, other, busy]) = full([2, 1, 1]);
    for rest in [[1, 1, 2], [0, 1, 3], [0, 0, 4]] {
        let asked = report_congestion(&mut budget, busy, 1);
        let [Reclaim(member, Claim::LongIdle)] = asked[..] else { panic!("{asked:?}") };
        budget.release(member);
        assert_eq!(actions(&mut budget), [Grant(busy)]);
        assert_eq!(used(&budget, &[idle_member, other, busy]), rest);
    }
    assert_eq!(report_congestion(&mut budget, busy, 1), []);
}

#[test]
fn a_member_that_gave_up_long_idle_permits_gets_its_fair_share_back() {
    let (mut budget, [idle_member, busy]) = full([2, 2]);
    let asked = report_congestion(&mut budget, busy, 2);
    assert_eq!(asked, [Reclaim(idle_member, Claim::LongIdle), Reclaim(idle_member, Claim::LongIdle)]);
    for _ in 0..2 {
        budget.release(idle_member);
        assert_eq!(actions(&mut budget), [Grant(busy)]);
    }
    assert_eq!(budget.request(busy), Permit::Denied);
    budget.report_congestion(busy);
    assert_eq!(actions(&mut budget), []);
    for (share, first) in [([1, 3], true), ([2, 2], false)] {
        assert_eq!(budget.request(idle_member), Permit::Denied);
        assert_eq!(actions(&mut budget), [Reclaim(busy, Claim::Spare)]);
        budget.release(busy);
        let ordered = actions(&mut budget);
        assert_eq!(ordered[0], Grant(idle_member));
        // The budget does not know that the member uses this one.
        assert_eq!(ordered[1..] == [Reclaim(idle_member, Claim::LongIdle)], first, "{ordered:?}");
        budget.reclaim_failed(idle_member, Claim::LongIdle);
        assert_eq!(used(&budget, &[idle_member, busy]), share);
    }
    assert_eq!(actions(&mut budget), []);
}

#[test]
fn a_request_without_congestion_moves_no_long_idle_permits() {
    let (mut budget, [idle_member, busy]) = full([2, 2]);
    assert_eq!(budget.request(busy), Permit::Denied);
    budget.report_spare(idle_member);
    assert_eq!(actions(&mut budget), []);
    budget.report_congestion(idle_member);
    assert_eq!(actions(&mut budget), [], "it requests for nothing");
}

#[test]
fn two_congested_members_get_nothing_from_each_other() {
    let (mut budget, [a, b]) = full([2, 2]);
    for member in [a, b] {
        assert_eq!(budget.request(member), Permit::Denied);
    }
    for member in [a, b, a, b] {
        budget.report_congestion(member);
        assert_eq!(actions(&mut budget), []);
    }
}

#[test]
fn a_member_without_long_idle_permits_is_asked_again_only_after_it_reports_one() {
    let (mut budget, [other, busy]) = full([2, 2]);
    assert_eq!(report_congestion(&mut budget, busy, 1), [Reclaim(other, Claim::LongIdle)]);
    budget.reclaim_failed(other, Claim::LongIdle);
    budget.report_congestion(busy);
    assert_eq!(actions(&mut budget), []);
    assert!(!budget.lacks_spare(other), "it has nothing that it could release on return");
    budget.report_spare(other);
    assert_eq!(actions(&mut budget), [Reclaim(other, Claim::LongIdle)]);
}

#[test]
fn a_member_without_long_idle_permits_may_still_have_too_many() {
    let (mut budget, [none, other, busy]) = full([0, 2, 2]);
    assert_eq!(report_congestion(&mut budget, busy, 1), [Reclaim(other, Claim::LongIdle)]);
    budget.reclaim_failed(other, Claim::LongIdle);
    assert_eq!(budget.request(none), Permit::Denied);
    assert_eq!(actions(&mut budget), [Reclaim(other, Claim::Spare)]);
}

#[test]
fn the_member_with_the_most_is_asked_first_and_one_with_too_many_for_any_spare_one() {
    let (mut budget, [few, more, busy]) = full([1, 3, 2]);
    assert_eq!(report_congestion(&mut budget, busy, 1), [Reclaim(more, Claim::LongIdle)]);
    budget.reclaim_failed(more, Claim::LongIdle);
    assert_eq!(actions(&mut budget), [Reclaim(few, Claim::LongIdle)]);
    let (mut budget, _, [rich, busy]) = capped(5);
    grant(&mut budget, &[busy, rich, rich, rich, rich]);
    assert_eq!(budget.request(busy), Permit::Denied);
    budget.report_congestion(busy);
    assert_eq!(actions(&mut budget), [Reclaim(rich, Claim::Spare)]);
}

#[test]
fn repeated_reports_of_congestion_ask_for_one_permit_per_request() {
    let (mut budget, [idle_member, busy]) = full([4, 4]);
    assert_eq!(
        report_congestion(&mut budget, busy, 2),
        [Reclaim(idle_member, Claim::LongIdle), Reclaim(idle_member, Claim::LongIdle)]
    );
    budget.report_congestion(busy);
    assert_eq!(actions(&mut budget), []);
    assert!(budget.withdraw(busy));
    budget.release(idle_member);
    assert_eq!(actions(&mut budget), [Grant(busy)]);
    assert_eq!(budget.request(busy), Permit::Denied);
    assert_eq!(actions(&mut budget), [], "one more is on its way already");
    budget.release(idle_member);
    assert_eq!(actions(&mut budget), [Grant(busy)]);
    assert_eq!(budget.request(busy), Permit::Denied);
    assert_eq!(actions(&mut budget), [], "what it requests for later is another matter");
}

#[test]
fn a_member_that_is_no_longer_congested_gets_no_last_permit() {
    let (mut budget, [other, busy]) = full([1, 2]);
    assert_eq!(report_congestion(&mut budget, busy, 1), [Reclaim(other, Claim::LongIdle)]);
    budget.reclaim_failed(other, Claim::LongIdle);
    budget.report_starvation(busy);
    budget.report_spare(other);
    assert_eq!(actions(&mut budget), [], "all that the busy one has is kept now");
    budget.report_congestion(busy);
    assert_eq!(actions(&mut budget), [Reclaim(other, Claim::LongIdle)]);
}

#[test]
fn an_long_idle_permit_goes_to_the_member_with_the_fewest() {
    let (mut budget, [idle_member, poor, busy]) = full([2, 1, 2]);
    assert_eq!(budget.request(poor), Permit::Denied);
    assert_eq!(report_congestion(&mut budget, busy, 1), [Reclaim(idle_member, Claim::LongIdle)]);
    budget.release(idle_member);
    assert_eq!(actions(&mut budget), [Grant(poor), Reclaim(poor, Claim::LongIdle)]);
    budget.reclaim_failed(poor, Claim::LongIdle);
    assert_eq!(actions(&mut budget), [Reclaim(idle_member, Claim::LongIdle)]);
    budget.release(idle_member);
    assert_eq!(actions(&mut budget), [Grant(busy)]);
}

#[test]
fn under_two_full_caps_a_member_of_both_is_asked_or_one_of_each() {
    let mut budget = Budget::new();
    let (database, user) = (budget.add_cap(4), budget.add_cap(4));
    let busy = budget.add_member(&[database, user]);
    let of_database = budget.add_member(&[database]);
    let of_user = budget.add_member(&[user]);
    let of_both = budget.add_member(&[database, user]);
    grant(&mut budget, &[busy, busy, of_database, of_user, of_both]);
    assert_eq!(report_congestion(&mut budget, busy, 1), [Reclaim(of_both, Claim::LongIdle)]);
    budget.reclaim_failed(of_both, Claim::LongIdle);
    let mut asked = actions(&mut budget);
    asked.sort_by_key(|action| action.member());
    assert_eq!(asked, [Reclaim(of_database, Claim::LongIdle), Reclaim(of_user, Claim::LongIdle)]);
    budget.release(of_database);
    assert_eq!(actions(&mut budget), []);
    budget.release(of_user);
    assert_eq!(actions(&mut budget), [Grant(busy)]);
}

#[test]
fn a_member_whose_request_has_ended_is_asked_at_the_next_report_of_congestion() {
    let (mut budget, [other, busy]) = full([2, 2]);
    assert_eq!(budget.request(other), Permit::Denied);
    assert_eq!(report_congestion(&mut budget, busy, 1), [], "both have requests");
    assert!(budget.withdraw(other));
    assert_eq!(actions(&mut budget), []);
    budget.report_congestion(busy);
    assert_eq!(actions(&mut budget), [Reclaim(other, Claim::LongIdle)]);
}
