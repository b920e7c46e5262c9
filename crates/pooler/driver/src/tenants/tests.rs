use std::sync::Arc;

use super::*;

const NOW: Time = Time(1);

fn database(name: &str) -> Option<Tenant> {
    Some(Tenant::Database { protocol: "postgres", name: Arc::from(name) })
}

fn user(name: &str) -> Option<Tenant> {
    Some(Tenant::User(Arc::from(name)))
}

/// Database `a` may have two clients, the first of which should go when there are more than one; user `u` may have one.
fn limits(tenant: &Tenant) -> Option<TenantLimits> {
    match tenant {
        Tenant::Database { name, .. } => (&**name == "a").then_some(TenantLimits { soft_limit: 1, hard_limit: 2 }),
        Tenant::User(name) => (&**name == "u").then_some(TenantLimits { soft_limit: 1, hard_limit: 1 }),
    }
}

fn comes(tenants: &Tenants, of: [Option<Tenant>; 2]) -> TenantIds {
    match tenants.enter(of, limits, NOW) {
        Entrance::Inside(tenants) => tenants,
        Entrance::Awaits { .. } => panic!("there is no place"),
    }
}

fn waits(tenants: &Tenants, of: [Option<Tenant>; 2]) -> TenantTicket {
    match tenants.enter(of, limits, NOW) {
        Entrance::Inside(_) => panic!("there is a place"),
        Entrance::Awaits { ticket, in_vain } => {
            assert!(!in_vain);
            ticket
        }
    }
}

fn has_place(tenants: &Tenants, ticket: TenantTicket) -> Option<TenantIds> {
    tenants.take_placed([((), ticket)].into_iter()).pop().map(|((), tenants)| tenants)
}

#[test]
fn a_place_goes_to_the_first_client_that_lacks_no_other() {
    let tenants = Tenants::new();
    let first = comes(&tenants, [database("a"), user("u")]);
    let second = comes(&tenants, [database("a"), user("v")]);
    let of_u = waits(&tenants, [database("a"), user("u")]);
    let of_v = waits(&tenants, [database("a"), user("v")]);
    let last = waits(&tenants, [database("a"), None]);
    tenants.left(second, false, NOW);
    assert!(has_place(&tenants, of_u).is_none(), "its user is full");
    let third = has_place(&tenants, of_v).expect("a place has come free");
    assert!(has_place(&tenants, last).is_none());
    tenants.left(first, false, NOW);
    let fourth = has_place(&tenants, of_u).expect("both places have come free");
    tenants.left(third, false, NOW);
    assert!(has_place(&tenants, last).is_some());
    tenants.left(fourth, false, NOW);
}

#[test]
fn another_database_has_places_though_one_is_full() {
    let tenants = Tenants::new();
    (0..2).for_each(|_| _ = comes(&tenants, [database("a"), None]));
    let _ = waits(&tenants, [database("a"), None]);
    (0..9).for_each(|_| _ = comes(&tenants, [database("b"), user("v")]));
}

#[test]
fn a_client_that_waits_in_vain_hears_which_tenant_is_full() {
    let tenants = Tenants::new();
    let inside = comes(&tenants, [database("b"), user("u")]);
    let ticket = waits(&tenants, [database("b"), user("u")]);
    assert_eq!(tenants.give_up(ticket, NOW), Err((user("u").unwrap(), 1)));
    let ticket = waits(&tenants, [database("b"), user("u")]);
    tenants.left(inside, false, NOW);
    assert!(tenants.give_up(ticket, NOW).is_ok(), "it has got its place just now");
    let told = tenants.snapshot();
    assert_eq!(told.iter().map(|told| (told.clients, told.waiting, told.rejections)).collect::<Vec<_>>(), [(1, 0, 1)]);
}

#[test]
fn the_place_of_a_client_that_leaves_the_queue_is_free_again() {
    let tenants = Tenants::new();
    let inside = comes(&tenants, [None, user("u")]);
    let (goes, waits) = (waits(&tenants, [None, user("u")]), waits(&tenants, [None, user("u")]));
    tenants.left(inside, false, NOW);
    tenants.step_back(goes, NOW);
    assert!(has_place(&tenants, waits).is_some());
}

#[test]
fn a_login_as_another_user_returns_the_place_of_the_first() {
    let tenants = Tenants::new();
    let counts = || tenants.snapshot().iter().map(|told| (told.clients, told.rejections)).collect::<Vec<_>>();
    let to = |of, from| tenants.move_to(of, from, limits, NOW);
    let first = comes(&tenants, [database("a"), user("u")]);
    let second = comes(&tenants, [database("a"), user("v")]);
    // Database `a` is full, and with a client that has its place there already.
    assert_eq!(to([database("a"), user("u")], second), Err((user("u").unwrap(), 1)));
    assert_eq!(counts(), [(2, 0), (1, 1)], "it has the places that it had");
    let first = to([database("a"), user("w")], first).expect("nothing limits `w`");
    assert_eq!(counts(), [(2, 0), (0, 1)]);
    let second = to([database("a"), user("u")], second).expect("there is a place");
    assert_eq!(to([database("a"), user("u")], second), Ok(second), "it is the same");
    let of_u = waits(&tenants, [database("b"), user("u")]);
    let second = to([database("b"), None], second).expect("nothing limits these");
    assert!(has_place(&tenants, of_u).is_some(), "the place that came free goes to the one that waits for it");
    tenants.left(first, false, NOW);
    tenants.left(second, false, NOW);
    assert_eq!(counts(), [(0, 0), (1, 1)]);
}

#[test]
fn only_the_crowded_have_clients_that_should_go() {
    let tenants = Tenants::new();
    let all = [comes(&tenants, [database("a"), None]), comes(&tenants, [database("a"), user("u")])];
    comes(&tenants, [database("b"), None]);
    let [(crowded, _)] = tenants.crowded()[..] else { panic!("one is crowded") };
    assert_eq!(Some(crowded), all[0][0]);
    assert!(tenants.any_crowded() && tenants.reserve_eviction(crowded, NOW) && !tenants.reserve_eviction(crowded, NOW));
    assert!(!tenants.any_crowded(), "the one that should go does");
    tenants.left(all[0], true, NOW);
    assert_eq!((tenants.crowded().len(), tenants.snapshot()[0].evictions), (0, 1));
}

#[test]
fn limits_that_come_later_find_the_clients_counted() {
    let tenants = Tenants::new();
    let inside: Vec<TenantIds> = (0..3).map(|_| comes(&tenants, [database("b"), None])).collect();
    let few = |_: &Tenant| Some(TenantLimits { soft_limit: 1, hard_limit: 2 });
    tenants.reconfigure(few, NOW);
    assert_eq!((tenants.version(), tenants.crowded().len()), (1, 1));
    let Entrance::Awaits { ticket, .. } = tenants.enter([database("b"), None], few, NOW) else {
        panic!("there are more than may be")
    };
    tenants.left(inside[0], false, NOW);
    assert!(has_place(&tenants, ticket).is_none(), "there are as many as may be");
    tenants.reconfigure(|_| None, NOW);
    assert!(has_place(&tenants, ticket).is_some() && !tenants.any_crowded());
}

#[test]
fn no_more_wait_than_may() {
    let tenants = Tenants::new();
    comes(&tenants, [None, user("u")]);
    (0..MAX_TENANT_WAITERS).for_each(|_| _ = waits(&tenants, [None, user("u")]));
    let one_more = tenants.enter([None, user("u")], limits, NOW);
    assert!(matches!(one_more, Entrance::Awaits { in_vain: true, .. }));
}

#[test]
fn tenants_without_clients_and_limits_are_forgotten() {
    let tenants = Tenants::new();
    for number in 0..9 {
        let ids = comes(&tenants, [database(&format!("made up {number}")), user("u")]);
        tenants.left(ids, false, NOW);
    }
    assert_eq!(tenants.table().accounts.len(), 1, "the user has limits, and counts");
}
