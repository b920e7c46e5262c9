//! Which rule is for which client, and what is refused.

use seam::Origin;

use super::*;

fn hba(text: &str) -> Hba {
    let maps = IdentMaps::parse("m root app\n").unwrap();
    let mut included = |path: &str| match path {
        "names" => Ok("a, b\n# no one\n\"c d\"\n".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    parse(text, Some(&maps), &mut included).unwrap_or_else(|wrongs| panic!("{text}: {wrongs:?}"))
}

fn wrong(text: &str) -> String {
    let mut included = |_: &str| Err("no such file".to_owned());
    parse(text, None, &mut included).expect_err(text).remove(0).message
}

/// A client: an address or "unix", encrypted if "+tls" follows; database and user.
fn client(from: &str, database: &str, user: &str) -> LoginAttempt {
    let (address, encrypted) = from.strip_suffix("+tls").map_or((from, false), |address| (address, true));
    let address = (address != "unix").then(|| address.parse().unwrap());
    LoginAttempt {
        origin: Origin { listener: 0, address, port: 0, uid: None },
        encrypted,
        certificate: None,
        database: database.to_owned(),
        user: user.to_owned(),
        replication: false,
    }
}

#[test]
fn the_first_rule_that_is_for_a_client_holds() {
    let rules = hba("local all all peer\nhost all bad all reject\nhostssl all all 10.0.0.0/8 scram-sha-256\n\
                     host shop app 10.1.0.0 255.255.0.0 md5\nhost all all ::1/128 trust\n");
    let method = |from, database, user| rules.method(&client(from, database, user)).cloned();
    assert_eq!(method("unix", "shop", "app"), Ok(Method::Peer(None)));
    assert_eq!(method("10.2.3.4+tls", "shop", "bad"), Err(Rejection::Rule));
    assert_eq!(method("10.2.3.4+tls", "shop", "app"), Ok(Method::Scram));
    assert_eq!(method("10.1.3.4", "shop", "app"), Ok(Method::Md5));
    assert_eq!(method("10.1.3.4", "other", "app"), Err(Rejection::NoRule));
    assert_eq!(method("10.2.3.4", "shop", "app"), Err(Rejection::NoRule));
    assert_eq!(method("::1", "shop", "app"), Ok(Method::Trust));
    assert_eq!(method("::2", "shop", "app"), Err(Rejection::NoRule));
}

#[test]
fn names_are_keywords_only_without_quotes() {
    let rules = hba("hostnossl \"all\",sameuser @names,\"all\",x all trust");
    let is_let_in = |from, database, user| rules.method(&client(from, database, user)).is_ok();
    assert!(
        is_let_in("10.0.0.1", "all", "x") && is_let_in("10.0.0.1", "x", "x") && is_let_in("10.0.0.1", "all", "all")
    );
    assert!(is_let_in("10.0.0.1", "all", "c d") && is_let_in("::5", "b", "b"));
    assert!(
        !is_let_in("10.0.0.1", "shop", "x")
            && !is_let_in("10.0.0.1", "all", "y")
            && !is_let_in("10.0.0.1+tls", "x", "x")
    );
}

#[test]
fn replication_is_of_no_database() {
    let rules = hba("host replication app all md5\nhost all app all trust");
    let mut attempt = client("10.0.0.1", "replication", "app");
    assert_eq!(rules.method(&attempt), Ok(&Method::Trust));
    attempt.replication = true;
    assert_eq!(rules.method(&attempt), Ok(&Method::Md5));
    assert_eq!(hba("host all all all trust").method(&attempt), Err(Rejection::NoRule));
}

#[test]
fn masks_cover_all_lengths() {
    let within = |network: &str, address: &str| {
        hba(&format!("host all all {network} trust")).method(&client(address, "d", "u")).is_ok()
    };
    assert!(within("0.0.0.0/0", "203.0.113.9") && !within("0.0.0.0/0", "::1") && within("::/0", "2001:db8::1"));
    assert!(within("203.0.113.9/32", "203.0.113.9") && !within("203.0.113.9/32", "203.0.113.8"));
    assert!(within("203.0.113.9/24", "203.0.113.200") && !within("203.0.113.9/25", "203.0.113.200"));
    assert!(within("2001:db8::/32", "2001:db8:ffff::1") && !within("2001:db8::/32", "2001:db9::1"));
}

#[test]
fn a_map_is_looked_up_in_the_ident_file() {
    let rules = hba("hostssl all all all cert map=m\nlocal all all peer map=\"m\"");
    let Ok(Method::Certificate(Some(map))) = rules.method(&client("10.0.0.1+tls", "d", "app")) else {
        panic!("no map")
    };
    assert!(map.allows("root", "app"));
    assert!(wrong("local all all peer map=m").contains("ident_file"));
}

#[test]
fn what_is_not_supported_is_refused_with_its_reason() {
    for (line, word) in [
        ("hosts all all all trust", "local, host"),
        ("hostgssenc all all all trust", "GSSAPI"),
        ("include more", "include"),
        ("host", "database is missing"),
        ("host all all", "address is missing"),
        ("host all all 10.0.0.1/32", "method is missing"),
        ("host samerole all all trust", "samerole"),
        ("host all +staff all trust", "groups"),
        ("host all /^a all trust", "regular expressions"),
        ("host all @names all trust", "cannot read names"),
        ("host all all db.example trust", "host names"),
        ("host all all samenet trust", "samenet"),
        ("host all all 10.0.0.0/33 trust", "0 to 32"),
        ("host all all 10.0.0.1 trust", "10.0.0.1/32"),
        ("host all all all,10.0.0.1/32 trust", "list"),
        ("host all all all pam", "pam is not supported"),
        ("host all all all gss", "not supported"),
        ("host all all all scram", "no method `scram`"),
        ("host all all all peer", "local"),
        ("local all all cert", "Unix socket"),
        ("host all all all trust map=m", "no option `map`"),
        ("host all all all cert foo=m", "no option `foo`"),
        ("host all all all cert map", "name=value"),
        ("host all all all ldap", "ldapserver"),
    ] {
        let message = wrong(line);
        assert!(message.contains(word), "{line}: {message}");
    }
}

#[test]
fn no_error_shows_a_password() {
    for line in ["host all all ldapbindpasswd=hunter2", "host all all 10.0.0.0/8 ldapbindpasswd=hunter2"] {
        let told = wrong(line);
        assert!(!told.contains("hunter2"), "{told}");
    }
}
