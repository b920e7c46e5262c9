//! What `check` says of settings that cannot work together.

use std::{os::unix::fs::PermissionsExt, path::Path};

use serve::{Endpoint, Flags, Machine};
use settings::Severity;

const MACHINE: Machine = Machine { descriptors: 1 << 20 };

fn found_with(text: &str, machine: Machine) -> Vec<String> {
    let config = serve::from_text(Path::new("p.toml"), text, &|_| None).unwrap_or_else(|problems| panic!("{problems}"));
    let problems = serve::check(&config, machine);
    problems.iter().map(|problem| problem.to_string().lines().next().unwrap().to_owned()).collect()
}

/// With one plain database before it (lines 1 to 3), which gives no cause for complaint.
fn found(text: &str) -> Vec<String> {
    found_with(&format!("[[database]]\nname = \"d\"\nurl = \"postgres://app@h/d\"\n{text}"), MACHINE)
}

#[track_caller]
fn expect(text: &str, expected: &str) {
    let found = found(text);
    assert!(found.iter().any(|line| line.starts_with(expected)), "expected {expected}\nfound {found:#?}");
}

#[test]
fn a_plain_configuration_has_no_problems() {
    assert_eq!(found(""), Vec::<String>::new());
}

#[test]
fn a_pool_that_fills_too_slowly_is_found() {
    expect(
        "max_size = 100\n",
        "p.toml:4:12: warning: filling `d` takes about 5s, longer than max_wait_time 2s: 100 servers, 2 at a time",
    );
}

#[test]
fn limits_below_the_sizes_under_them_are_found() {
    expect("max_connections = 5\n", "p.toml:4:19: warning: max_size 20 of `d` is above its max_connections 5");
    expect(
        "[limits]\nmax_server_connections = 10\n",
        "p.toml:1:1: warning: max_size 20 of `d` is above max_server_connections 10",
    );
    expect(
        "min_size = 3\n[limits]\nmax_server_connections = 2\n",
        "p.toml:6:26: warning: max_server_connections 2 is below the sum of all min_size, 3",
    );
}

#[test]
fn a_limit_of_pinned_clients_above_the_pool_is_found() {
    expect(
        "max_size = 4\nmax_pinned = 5\n",
        "p.toml:5:14: warning: max_pinned 5 of `d` is above its 4 servers and limits nothing",
    );
    assert!(found("max_size = 4\nmax_pinned = 4\n").is_empty());
    assert!(
        found("max_size = \"auto\"\nauto_max_size = 9\nmax_pinned = 9\n").iter().all(|line| !line.contains("pinned"))
    );
}

#[test]
fn options_of_a_url_that_are_for_drivers_are_listed_once() {
    let url = "mongodb://a/?retryWrites=true&w=majority&maxPoolSize=50";
    let listed = "p.toml:2:7: warning: options of the url of `*` are for drivers and ignored: retryWrites, w, \
                  maxPoolSize (here the setting is `max_size`)";
    assert_eq!(found_with(&format!("[[database]]\nurl = \"{url}\"\n"), MACHINE), [listed]);
}

#[test]
fn each_host_of_mongodb_has_as_many_servers_as_a_pool_may_have_and_one_that_watches_it() {
    let of = |url: &str, more: &str, descriptors: u64| {
        let listener = "[[listener]]\nlisten = \"127.0.0.1:1\"\nprotocol = \"mongodb\"\nhard_limit = 1000\n";
        let text = format!("{listener}[[database]]\nurl = \"{url}\"\n{more}");
        found_with(&text, Machine { descriptors })
    };
    let set = "mongodb://a,b,c/?replicaSet=rs";
    // 1000 clients, three times 20 and 1, and 64 others.
    let descriptors = "p.toml:4:14: warning: hard_limit 1000 is above what the descriptor limit of 1126 leaves: \
                       all clients and servers need 1127";
    assert_eq!((of(set, "", 1126), of(set, "", 1127)), (vec![descriptors.to_owned()], vec![]));
    assert_eq!(of(set, "max_connections = 30\n", 1157), of(set, "", 1127), "at each host");
    let limited = |url: &str, more: &str, most: u32| {
        of(url, &format!("{more}[limits]\nmax_server_connections = {most}\n"), MACHINE.descriptors)
    };
    let sum = "p.toml:5:1: warning: max_size 20 of `*` at each of its 3 hosts and a connection that watches \
               each host make 63, above max_server_connections 62";
    assert_eq!((limited(set, "", 62), limited(set, "", 63)), (vec![sum.to_owned()], vec![]));
    assert_eq!(limited("mongodb://a", "", 21), Vec::<String>::new());
    assert!(limited("mongodb://a", "", 20)[0].contains("max_size 20 of `*` at its host and a connection"));
    let least = limited(set, "max_size = 5\nmin_size = 5\n", 17);
    assert!(
        least.iter().any(|line| line.contains("below the sum of all min_size with what watches MongoDB's hosts, 18")),
        "{least:#?}"
    );
}

#[test]
fn too_few_descriptors_are_found() {
    let text = "[[database]]\nname = \"d\"\nurl = \"postgres://app@h/d\"\n\
                [[listener]]\nlisten = \"127.0.0.1:1\"\nhard_limit = 1000\n";
    let found = found_with(text, Machine { descriptors: 1024 });
    let expected = "p.toml:6:14: warning: hard_limit 1000 is above what the descriptor limit of 1024 leaves";
    assert!(found.iter().any(|line| line.starts_with(expected)), "{found:#?}");
}

#[test]
fn listening_beyond_loopback_without_passwords_is_an_error() {
    let open = "[[listener]]\nlisten = \"0.0.0.0:6432\"\n";
    expect(open, "p.toml:5:10: error: 0.0.0.0:6432 can be reached from other machines, but no user has a password");
    let closed = format!("{open}[[user]]\nname = \"a\"\npassword = \"md50123456789abcdef0123456789abcdef\"\n");
    assert_eq!(found(&closed), Vec::<String>::new());
    let flags = Flags { listen: vec![Endpoint::parse("0.0.0.0:1").unwrap()], ..Flags::default() };
    let check = |url: &str, flags: &Flags| {
        let config = serve::from_url(url, flags, &|_| None).unwrap();
        serve::check(&config, MACHINE).iter().filter(|p| p.severity == Severity::Error).count()
    };
    assert_eq!(check("postgres://app@h/d", &flags), 1);
    assert_eq!(check("postgres://app:pw@h/d", &flags), 0);
    assert_eq!(check("postgres://app@h/d", &Flags { insecure_no_auth: true, ..flags }), 0);
}

#[test]
fn a_login_lent_to_every_program_of_the_machine_is_a_warning() {
    let lent = |rest: &str| {
        let text = format!(
            "[[database]]\nurl = \"redis://:pw@h\"\n[[listener]]\nprotocol = \"redis\"\n\
                listen = \"127.0.0.1:1\"\n{rest}"
        );
        let found = found_with(&text, MACHINE);
        found.into_iter().find(|line| line.contains("every program on this machine gets in at 127.0.0.1:1"))
    };
    assert!(lent("").is_some_and(|line| line.starts_with("p.toml:5:10: warning:")));
    assert_eq!(lent("[[user]]\nname = \"default\"\npassword = \"pw\"\n"), None);
}

#[test]
fn the_same_address_twice_is_an_error() {
    let one = "[[listener]]\nlisten = \"127.0.0.1:1\"\n";
    expect(&format!("{one}{one}"), "p.toml:7:10: error: two listeners have the address 127.0.0.1:1");
    expect(
        &format!("{one}[admin]\nlisten = \"127.0.0.1:1\"\n"),
        "p.toml:7:10: error: the admin address 127.0.0.1:1 is a listener's as well",
    );
}

#[test]
fn addresses_of_which_only_one_can_be_open_are_an_error() {
    let two = |one: &str, other: &str| {
        found(&format!(
            "[[listener]]\nlisten = \"{one}\"\n[[listener]]\nlisten = \"{other}\"\n[[user]]\nname = \"app\"\n\
                password = \"x\"\n"
        ))
    };
    for (one, other) in [("127.0.0.1:1", "0.0.0.0:1"), ("[::]:1", "[::1]:1")] {
        let expected = format!("p.toml:7:10: error: {one} and {other} cannot be open at once");
        assert!(two(one, other).contains(&expected), "{:?}", two(one, other));
    }
    for (one, other) in [
        ("0.0.0.0:1", "[::]:1"),
        ("0.0.0.0:1", "0.0.0.0:2"),
        ("127.0.0.1:0", "0.0.0.0:0"),
        ("127.0.0.1:1", "127.0.0.2:1"),
    ] {
        assert!(two(one, other).is_empty(), "{:?}", two(one, other));
    }
    expect(
        "[[listener]]\nlisten = \"0.0.0.0:1\"\n[admin]\nlisten = \"127.0.0.1:1\"\n",
        "p.toml:7:10: error: the admin address 127.0.0.1:1 and the listener 0.0.0.0:1 cannot be open at once",
    );
}

#[test]
fn a_socket_in_a_folder_that_does_not_exist_is_found() {
    expect(
        "[[listener]]\nlisten = \"/nowhere/at/all/.s.PGSQL.1\"\n",
        "p.toml:5:10: warning: the socket's folder /nowhere/at/all does not exist",
    );
    assert!(found("[[listener]]\nlisten = \"/tmp/.s.PGSQL.1\"\n").is_empty());
    assert!(found("[[listener]]\nlisten = \"unix:.s.PGSQL.1\"\n").is_empty());
}

#[test]
fn newcomers_that_give_up_before_any_client_may_be_evicted_are_found() {
    let listener = "[[listener]]\nlisten = \"127.0.0.1:1\"\n";
    expect(
        &format!("{listener}evict_min_idle = \"10s\"\n"),
        "p.toml:6:18: warning: evict_min_idle 10s is above newcomer_wait_time 6s",
    );
    expect(
        &format!("{listener}newcomer_wait_time = \"4s\"\n"),
        "p.toml:6:22: warning: evict_min_idle 5s is above newcomer_wait_time 4s",
    );
    for calm in ["evict_min_idle = \"6s\"\n", "evict_min_idle = \"1h\"\nnewcomer_wait_time = \"off\"\n"] {
        assert!(found(&format!("{listener}{calm}")).is_empty(), "{calm}");
    }
}

#[test]
fn limits_of_clients_that_the_listener_does_not_leave_room_for_are_found() {
    let listener = "[[listener]]\nlisten = \"127.0.0.1:1\"\nhard_limit = 100\n";
    expect(
        &format!("hard_limit = 101\n{listener}"),
        "p.toml:4:14: warning: hard_limit 101 of the database `d` is above the 100 of its listener and never reached",
    );
    expect(
        &format!("{listener}[[user]]\nname = \"app\"\npassword = \"x\"\nhard_limit = 200\n"),
        "p.toml:10:14: warning: hard_limit 200 of the user `app` is above the 100 of its listener and never reached",
    );
    let second = |limit| {
        format!(
            "hard_limit = 50\n[[database]]\nname = \"e\"\nurl = \"postgres://app@h/e\"\nhard_limit = {limit}\n\
                {listener}"
        )
    };
    expect(
        &second(31),
        "p.toml:8:14: warning: the hard_limit of each database makes 81 in all, above the soft_limit 80 of its \
            listener",
    );
    assert!(found(&second(30)).is_empty(), "{:?}", found(&second(30)));
    assert!(found(&format!("soft_limit = 1000\n{listener}")).is_empty(), "a soft limit alone refuses no client");
    let more = "[[listener]]\nlisten = \"127.0.0.1:2\"\nhard_limit = 100\n";
    assert!(found(&format!("hard_limit = 101\n{listener}{more}")).is_empty(), "clients come by both");
}

#[test]
fn passwords_that_are_probably_not_what_was_meant_are_found_and_not_shown() {
    let user = |password: &str| found(&format!("[[user]]\nname = \"app\"\npassword = \"{password}\"\n"));
    let odd = ["p.toml:6:12: warning: the password is a name behind a `$`, and is taken as it stands"];
    assert_eq!(user("$APP_PASSWORD"), odd);
    let odd = ["p.toml:6:12: warning: the password of `app` begins with md5 and is no md5 hash"];
    assert_eq!(user("md5abcdef"), odd);
    for fine in ["md50123456789abcdef0123456789abcdef", "$ecret", "pa$WORD", "$", "xmd5"] {
        assert_eq!(user(fine), Vec::<String>::new(), "{fine}");
    }
    let url = "[[database]]\nname = \"e\"\nurl = \"postgres://app:$APP_PASSWORD@h/e\"\n";
    expect(url, "p.toml:6:7: warning: the password in the url is a name behind a `$`, and is taken as it stands");
    expect(
        "password = \"$PW\"\n",
        "p.toml:4:12: warning: the password is a name behind a `$`, and is taken as it stands",
    );
}

#[test]
fn a_url_that_leads_back_is_an_error() {
    expect(
        "[[database]]\nname = \"e\"\nurl = \"postgres://localhost:6432\"\n",
        "p.toml:6:7: error: the url of `e` is Poolhouse's own address 127.0.0.1:6432",
    );
}

#[test]
fn clients_own_logins_need_more_than_an_md5_hash() {
    expect(
        "[[database]]\nname = \"e\"\nurl = \"postgres://h\"\n\
         [[user]]\nname = \"a\"\npassword = \"md50123456789abcdef0123456789abcdef\"\n",
        "p.toml:6:7: warning: the url of `e` has no user, so clients' own are used there; but of `a` only an md5",
    );
}

#[test]
fn times_in_the_wrong_order_are_found() {
    expect("max_idle_time = \"1h\"\n", "p.toml:4:17: warning: max_idle_time 1h of `d` is above max_life_time 30m");
    expect("unavailable_wait_time = \"1s\"\n", "p.toml:4:25: warning: unavailable_wait_time 1s of `d` is below");
    expect(
        "[[listener]]\nlisten = \"127.0.0.1:1\"\nquery_time = \"2s\"\n",
        "p.toml:6:14: warning: query_time 2s is not above max_wait_time 2s",
    );
    expect("mode = \"session\"\n", "p.toml:4:8: warning: in session mode each client of `d` keeps a server");
}

#[test]
fn readable_files_with_passwords_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let found = |text: &str, mode: u32| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        serve::check(&serve::from_file(&path, false).unwrap(), MACHINE).len()
    };
    let plain = "[[database]]\nname = \"d\"\nurl = \"postgres://app:pw@h/d\"\n[[user]]\nname = \"a\"\n\
        password = \"md50123456789abcdef0123456789abcdef\"\n";
    assert_eq!(found(plain, 0o644), 1);
    assert_eq!(found(plain, 0o640), 0);
    assert_eq!(found("[[database]]\nname = \"d\"\nurl = \"postgres://app@h/d\"\n", 0o644), 0);
}

#[test]
fn rules_of_users_that_cannot_work_are_found() {
    let own = |rules: &str| {
        format!(
            "[[database]]\nname = \"own\"\nurl = \"postgres://h/own\"\n[[user]]\nname = \"u\"\npassword = \"x\"\n\
                {rules}"
        )
    };
    expect(
        "[[user]]\nname = \"u\"\npassword = \"x\"\nquery_time = \"5s\"\n",
        "p.toml:7:14: warning: query_time of user `u` never applies",
    );
    expect(
        &own("min_size = 21\n"),
        "p.toml:10:12: error: min_size 21 of user `u` is above the max_size 20 that holds for `own`",
    );
    expect(
        &own("min_size = 61\n").replace("[[user]]", "max_size = \"auto\"\n[[user]]"),
        "p.toml:11:12: error: min_size 61 of user `u` is above the auto_max_size 60 that holds for `own`",
    );
    expect(
        &own("max_size = 9\nmax_user_connections = 4\n"),
        "p.toml:10:12: warning: max_size 9 of user `u` is above max_user_connections 4",
    );
    expect(
        &own("query_time = \"1s\"\n"),
        "p.toml:10:14: warning: query_time 1s of user `u` is not above max_wait_time 2s",
    );
    expect("query_time = \"2s\"\n", "p.toml:4:14: warning: query_time 2s of `d` is not above max_wait_time 2s");
}

#[test]
fn lookups_that_cannot_work_are_found() {
    expect(
        "auth_query = \"SELECT a, b FROM f($1)\"\nauth_failure_cache_time = \"2m\"\n",
        "p.toml:5:27: warning: auth_failure_cache_time 2m of `d` is not auth_cache_time",
    );
    expect(
        "auth_user = \"x\"\nauth_pool_size = 20\n[limits]\nmax_server_connections = 20\n",
        "p.toml:5:18: warning: auth_pool_size 20 of `d` leaves nothing of max_server_connections 20",
    );
    expect("auth_user = \"x\"\n", "p.toml:3:7: warning: the servers of `d` open only after `app` has logged in");
    let unknown = "p.toml:4:13: warning: users of `d` are looked up as `x`, of whom no password is known";
    expect("auth_user = \"x\"\n", unknown);
    for known in ["auth_password = \"y\"\n", "[[user]]\nname = \"x\"\npassword = \"y\"\n"] {
        let found = found(&format!("auth_user = \"x\"\n{known}"));
        assert!(!found.iter().any(|line| line.contains("no password is known")), "{found:?}");
    }
}

#[test]
fn a_peer_at_an_address_of_this_process_is_told() {
    let own =
        "[serve]\nnode_id = 1\n[[listener]]\nlisten = \"127.0.0.1:6432\"\n[[peer]]\naddress = \"localhost:6432\"\n";
    let told = |node: u16| found(&format!("{own}node_id = {node}\n")).join("\n");
    assert!(told(2).contains("is an address of this Poolhouse, and not of peer 2"), "{}", told(2));
    assert!(!told(1).contains("is an address of this Poolhouse"), "the list may be the same everywhere");
}

#[test]
fn a_tuned_size_needs_transactions_and_one_who_tunes() {
    assert_eq!(found("max_size = \"auto\"\n"), Vec::<String>::new());
    expect(
        "max_size = \"auto\"\nmode = \"session\"\n",
        "p.toml:4:12: error: max_size of `d` is \"auto\", which has nothing to count in session mode",
    );
    expect(
        "max_size = \"auto\"\n[serve]\nnode_id = 3\n",
        "p.toml:4:12: error: max_size of `d` is \"auto\", and this is Poolhouse number 3 of several (node_id)",
    );
    expect(
        "max_size = \"auto\"\n[[user]]\nname = \"app\"\npassword = \"x\"\nmode = \"session\"\n",
        "p.toml:8:8: error: max_size of `d` is \"auto\", and user `app` has session mode there",
    );
    let own = "max_size = \"auto\"\n[[user]]\nname = \"app\"\npassword = \"x\"\nmode = \"session\"\nmax_size = 4\n";
    assert!(found(own).iter().all(|line| !line.contains("error")), "{:#?}", found(own));
}

#[test]
fn of_two_names_of_one_database_only_one_is_tuned() {
    let again =
        |url: &str, size: &str| format!("max_size = \"auto\"\n[[database]]\nname = \"e\"\nurl = \"{url}\"\n{size}");
    let auto = "max_size = \"auto\"\n";
    expect(
        &again("postgres://other@h/d", auto),
        "p.toml:8:12: error: max_size of `d` and of `e` is \"auto\", and both are the same database: only one \
            may be tuned",
    );
    for (url, size) in [
        ("postgres://other@h/d", ""),
        ("postgres://other@h/d", "max_size = 9\n"),
        ("postgres://app@h/e", auto),
        ("postgres://app@h2/d", auto),
        ("postgres://app@h/d?target_session_attrs=read-only", auto),
    ] {
        let found = found(&again(url, size));
        assert!(found.iter().all(|line| !line.contains("error")), "{url} {size}: {found:#?}");
    }
    // In [pool] it is meant for both; then the message stands where it was said.
    let both = "[pool]\nmax_size = \"auto\"\n[[database]]\nname = \"a\"\nurl = \"postgres://x@h/d\"\n\
                [[database]]\nname = \"b\"\nurl = \"postgres://y@h/d\"\n";
    assert!(found_with(both, MACHINE).iter().any(|line| line.contains("`a` and of `b` is \"auto\"")));
}

#[test]
fn of_the_users_of_one_database_only_one_is_tuned() {
    let of = |url: &str, more: &str| {
        // What clients of MongoDB ask for has no name of its own.
        let name = if url.starts_with("mongodb") { "*" } else { "d" };
        let text = format!("[[database]]\nname = \"{name}\"\nurl = \"{url}\"\nmax_size = \"auto\"\n{more}");
        found_with(&text, MACHINE)
    };
    let user = |name: &str, more: &str| format!("[[user]]\nname = \"{name}\"\npassword = \"x\"\n{more}");
    let (one, two) = (user("a", ""), user("a", "") + &user("b", ""));
    let says = |url: &str, more: &str, what: &str| {
        let found = of(url, more);
        found.iter().any(|line| line.starts_with("p.toml:4:12: ") && line.contains(what))
    };
    let refused = "is \"auto\", and the users `a` and `b` have a pool each there: only one may be tuned";
    for url in ["postgres://h/d", "mongodb://h"] {
        let url_of_one = url.replace("//", "//app:x@");
        assert!(says(url, &two, refused), "{:#?}", of(url, &two));
        for (url, more) in [(url, &one), (url, &(user("a", "") + &user("b", "max_size = 3\n"))), (&*url_of_one, &two)] {
            let found = of(url, more);
            assert!(found.iter().all(|line| !line.contains("auto")), "{url} {more} {found:#?}");
        }
    }
    // Nobody knows who will come.
    let unknown = "warning: max_size of `d` is \"auto\", and each user who comes has a pool there";
    assert!(says("postgres://h/d", "", unknown));
    assert!(says("postgres://h/d", &format!("auth_user = \"lookup\"\n{one}"), unknown));
    assert!(of("mongodb://h", "").iter().all(|line| !line.contains("auto")), "all have one pool");
}

#[test]
fn the_limit_of_a_tuned_size_is_compared_only_if_it_is_named() {
    assert_eq!(found("max_size = \"auto\"\nmax_connections = 5\n"), Vec::<String>::new());
    expect(
        "max_size = \"auto\"\nauto_max_size = 40\nmax_connections = 30\n",
        "p.toml:6:19: warning: max_size 40 of `d` is above its max_connections 30",
    );
}

#[test]
fn addresses_of_one_listener_are_compared_with_those_of_others() {
    expect(
        "[[listener]]\nlisten = [\"127.0.0.1:1\", \"127.0.0.2:1\"]\n[[listener]]\nlisten = \"127.0.0.2:1\"\n",
        "p.toml:7:10: error: two listeners have the address 127.0.0.2:1",
    );
    expect(
        "[[listener]]\nlisten = \"*:1\"\n[[listener]]\nlisten = \"[::1]:1\"\n",
        "p.toml:7:10: error: [::]:1 and [::1]:1 cannot be open at once",
    );
}

#[test]
fn a_reserve_of_a_user_whose_pool_is_tuned_is_found() {
    let text = "[[database]]\nname = \"d\"\nurl = \"postgres://h/d\"\nmax_size = \"auto\"\n\
                [[user]]\nname = \"u\"\npassword = \"p\"\nreserve_size = 3\n";
    let found = found_with(text, MACHINE);
    assert!(found.iter().any(|line| line.contains("reserve_size of user `u` has no effect for `d`")), "{found:?}");
}

#[test]
fn users_of_the_console_who_cannot_log_in_are_found() {
    let user = "[[user]]\nname = \"ops\"\npassword = \"x\"\n";
    expect(
        &format!("[console]\nadmins = [\"ops\", \"typo\"]\n{user}"),
        "p.toml:5:10: warning: `typo` cannot log in to the console",
    );
    assert_eq!(found(&format!("[console]\nadmins = [\"ops\"]\n{user}")), Vec::<String>::new());
    assert_eq!(found("[console]\nadmins = [\"anyone\"]\n"), Vec::<String>::new(), "no user has a password");
}
