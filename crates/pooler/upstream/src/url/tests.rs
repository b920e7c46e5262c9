use std::path::PathBuf;

use super::*;
use crate::{
    hosts::Address,
    tls::{Root, SslMode},
};
use proptest::prelude::*;

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.to_owned(), port }
}

fn hosts(url: &str) -> Vec<Address> {
    UpstreamUrl::parse(url).unwrap().hosts
}

/// Each URL is refused with an error that has this part.
#[track_caller]
fn refuses(cases: &[(&str, &str)]) {
    for (url, part) in cases {
        let error = UpstreamUrl::parse_any(url).unwrap_err();
        assert!(error.contains(part), "{url}: {error}");
    }
}

#[test]
fn a_full_url_is_taken_apart() {
    let url = UpstreamUrl::parse("postgresql://app:p%40ss%2Fw@db.example:6000/be%20nch?application_name=x").unwrap();
    assert_eq!(url.hosts, [tcp("db.example", 6000)]);
    assert_eq!(url.user.as_deref(), Some("app"));
    assert_eq!(url.password, Some(Secret::new("p@ss/w")));
    assert_eq!(url.database.as_deref(), Some("be nch"));
    assert_eq!(url.parameters, [("application_name".to_owned(), "x".to_owned())]);
}

#[test]
fn hosts_may_be_ipv6_or_missing() {
    assert_eq!(hosts("postgres://[::1]:7/x"), [tcp("::1", 7)]);
    assert_eq!(hosts("postgres://[::1]/x"), [tcp("::1", 5432)]);
    assert_eq!(hosts("postgres:///x"), [tcp("localhost", 5432)]);
    assert!(UpstreamUrl::parse("postgres://[::1/x").is_err());
    assert!(UpstreamUrl::parse("postgres://[::1]5/x").is_err());
}

#[test]
fn a_unix_socket_is_named_by_its_folder() {
    let expected = Address::Unix(PathBuf::from("/run/pg/.s.PGSQL.6000"));
    assert_eq!(hosts("postgres:///x?host=/run/pg&port=6000"), std::slice::from_ref(&expected));
    assert_eq!(hosts("postgres://%2Frun%2Fpg:6000/x"), [expected]);
}

#[test]
fn rediss_means_an_upstream_that_proves_who_it_is() {
    let tls = |url: &str| UpstreamUrl::parse(url).map(|url| (url.tls.mode, url.tls.root));
    assert_eq!(tls("redis://h"), Ok((SslMode::Disable, None)));
    assert_eq!(tls("rediss://h"), Ok((SslMode::VerifyFull, Some(Root::System))));
    assert_eq!(tls("rediss://h?sslrootcert=ca.pem"), Ok((SslMode::VerifyFull, Some(Root::File("ca.pem".into())))));
    assert_eq!(tls("rediss://h?sslmode=require"), Ok((SslMode::Require, None)));
    refuses(&[
        ("rediss://h?sslmode=prefer", "is with TLS"),
        ("redis://h?sslrootcert=x", "needs rediss://"),
        ("rediss://%2Frun%2Fr.sock", "no TLS on a Unix socket"),
        ("rediss://h?sslrootcrt=x", "did you mean `sslrootcert`"),
    ]);
}

#[test]
fn certificates_of_any_host_need_an_authority_in_a_file() {
    refuses(&[
        ("rediss://h?sslmode=verify-ca", "sslmode=verify-ca needs sslrootcert with a file"),
        ("mongodb://h/?tls=true&tlsAllowInvalidHostnames=true", "tlsAllowInvalidHostnames needs tlsCAFile with a file"),
    ]);
}

#[test]
fn the_order_of_mongodbs_tls_options_does_not_matter() {
    for options in [
        "tlsInsecure=true&tlsAllowInvalidHostnames=true",
        "tlsAllowInvalidHostnames=true&tlsInsecure=true",
        "tlsAllowInvalidHostnames=true&tlsAllowInvalidCertificates=true",
    ] {
        let url = UpstreamUrl::parse(&format!("mongodb://h/?tls=true&{options}"));
        assert_eq!(url.map(|url| url.tls.mode), Ok(SslMode::Require), "{options}");
    }
}

#[test]
fn several_hosts_have_a_port_each_or_share_one() {
    assert_eq!(hosts("postgres://u@a:1,b,[::1]:3/x"), [tcp("a", 1), tcp("b", 5432), tcp("::1", 3)]);
    assert_eq!(hosts("postgres:///x?host=a,b&port=7"), [tcp("a", 7), tcp("b", 7)]);
    assert_eq!(hosts("postgres:///x?host=a,b&port=7,8"), [tcp("a", 7), tcp("b", 8)]);
    let url = UpstreamUrl::parse("postgres://a,b/x?target_session_attrs=prefer-standby&load_balance_hosts=random");
    let url = url.unwrap();
    assert!(url.session_attrs == SessionAttrs::PreferStandby && url.host_order == HostOrder::Random);
    refuses(&[
        ("postgres:///x?host=a,b,c&port=7,8", "3 hosts but 2 ports"),
        ("postgres://a,b/x?target_session_attrs=read-writ", "read-write"),
        ("postgres://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q/x", "more than 16 hosts"),
    ]);
}

#[test]
fn unavailable_kinds_are_named() {
    assert!(UpstreamUrl::parse("mongodb+srv://c.example.net").unwrap_err().contains("not available"));
    assert!(UpstreamUrl::parse("mysql://h/x").unwrap_err().contains("must begin with"));
    assert!(UpstreamUrl::parse("postgres://h/x?sslmode=require&sslrootcert=y").is_ok());
    assert!(UpstreamUrl::parse_postgres("postgres://h/x").is_ok());
    assert!(UpstreamUrl::parse_postgres("redis://h").unwrap_err().contains("not available here"));
}

#[test]
fn a_url_of_mongodb_has_the_options_of_its_drivers() {
    let url = UpstreamUrl::parse("mongodb://app:p%40w@a,b:27018/shop?replicaset=rs0&connectTimeoutMS=500").unwrap();
    assert_eq!((url.kind, url.hosts), (Kind::MongoDb, vec![tcp("a", 27_017), tcp("b", 27_018)]));
    assert_eq!((url.user.as_deref(), url.password), (Some("app"), Some(Secret::new("p@w"))));
    assert_eq!((url.database.as_deref(), url.mongo.replica_set.as_deref()), (Some("shop"), Some("rs0")));
    assert_eq!((url.connect_time, url.tls.mode), (Some(Duration::from_millis(500)), SslMode::Disable));
    let tls = |url: &str| UpstreamUrl::parse(url).map(|url| (url.tls.mode, url.tls.root));
    assert_eq!(tls("mongodb://h/?tls=true"), Ok((SslMode::VerifyFull, Some(Root::System))));
    let near = |url: &str| UpstreamUrl::parse(url).map(|url| url.mongo.local_threshold);
    assert_eq!(near("mongodb://h/?localThresholdMS=7"), Ok(Some(Duration::from_millis(7))));
    assert_eq!(near("mongodb://h/"), Ok(None));
    let own = "mongodb://h/?ssl=true&tlsCAFile=ca.pem&tlsAllowInvalidHostnames=true";
    assert_eq!(tls(own), Ok((SslMode::VerifyCa, Some(Root::File("ca.pem".into())))));
    refuses(&[
        ("mongodb://h/?loadBalanced=true", "not available"),
        ("mongodb://h/?replicSet=x", "did you mean `replicaSet`"),
        ("mongodb://h/?authMechanism=MONGODB-X509", "SCRAM-SHA-1 are"),
        ("mongodb://h/?tls=yes", "true or false"),
        ("mongodb://h/?localThresholdMS=-1", "a whole number of milliseconds"),
    ]);
}

#[test]
fn options_of_drivers_are_ignored_and_listed() {
    let url = "mongodb://h/?retryWrites=true&w=majority&maxpoolsize=5&W=1&appName=Cluster0&loadBalanced=false";
    let ignored = UpstreamUrl::parse(url).unwrap().ignored;
    let shown: Vec<_> = ignored.iter().map(|ignored| (ignored.name, ignored.setting)).collect();
    assert_eq!(shown, [("retryWrites", None), ("w", None), ("maxPoolSize", Some("max_size"))]);
    assert_eq!(UpstreamUrl::parse("mongodb://h/?replicaSet=rs").unwrap().ignored, []);
}

#[test]
fn a_name_stands_for_all_hosts_and_means_tls() {
    let url = "mongodb+srv://app:pw@c.example.net/shop?retryWrites=true&w=majority&srvMaxHosts=3";
    let url = UpstreamUrl::parse_any(url).unwrap();
    let name = SrvName { host: "c.example.net".to_owned(), service: "mongodb".to_owned(), max_hosts: Some(3) };
    assert_eq!((url.srv, url.tls.mode, url.database.as_deref()), (Some(name), SslMode::VerifyFull, Some("shop")));
    let plain = UpstreamUrl::parse_any("mongodb+srv://c.example.net/?tls=false").unwrap();
    assert_eq!(plain.tls.mode, SslMode::Disable);
    refuses(&[
        ("mongodb+srv://h", "3 parts"),
        ("mongodb+srv://a.example.net:27017", "without a port"),
        ("mongodb+srv://a.example.net,b.example.net", "one name"),
        ("mongodb+srv://a.example.net/?directConnection=true", "directConnection"),
        ("mongodb://a.example.net/?srvMaxHosts=3", "need mongodb+srv://"),
    ]);
}

#[test]
fn all_wrong_parameters_are_reported_at_once() {
    let error = UpstreamUrl::parse("mongodb://h/?tls=yes&w=1&replicSet=x&authMechanism=X&flag").unwrap_err();
    for part in ["tls is true or false", "`replicaSet`", "SCRAM-SHA-1 are", "has no `=`"] {
        assert!(error.contains(part), "{error}");
    }
    let error = UpstreamUrl::parse("postgres://h/x?sslmod=require&conect_timeout=1").unwrap_err();
    assert!(error.contains("`sslmode`") && error.contains("`connect_timeout`"), "{error}");
}

#[test]
fn a_url_of_sentinels_names_the_master() {
    let url = "redis+sentinel://app:pw@s1,s2:5000/main?sentinel_user=watcher&sentinel_password=w%3Dd";
    let url = UpstreamUrl::parse(url).unwrap();
    assert_eq!((url.kind, url.hosts), (Kind::Redis, vec![tcp("s1", 26_379), tcp("s2", 5000)]));
    assert_eq!((url.user.as_deref(), url.password, url.database), (Some("app"), Some(Secret::new("pw")), None));
    let (user, password) = (Some("watcher".to_owned()), Some(Secret::new("w=d")));
    assert_eq!(url.sentinel, Some(Sentinel { master: "main".to_owned(), user, password }));
    let secure = UpstreamUrl::parse("rediss+sentinel://s1/main").unwrap();
    assert_eq!((secure.tls.mode, secure.sentinel.unwrap().password), (SslMode::VerifyFull, None));
    assert_eq!(UpstreamUrl::parse("redis://h/1").unwrap().sentinel, None);
    refuses(&[
        ("redis+sentinel://s1", "the name of the master"),
        ("redis+sentinel://s1/main/3", "SELECT"),
        ("redis+sentinel://s1/main?sentinel_user=x", "without a sentinel_password"),
        ("redis+sentinel://s1/main?sentinel_passwd=x", "did you mean `sentinel_password`"),
        ("redis://h?sentinel_password=x", "need redis+sentinel://"),
        ("redis-sentinel://s1?sentinelMasterId=main", "write it as redis+sentinel://"),
    ]);
}

#[test]
fn a_url_of_redis_has_a_number_and_its_own_port() {
    let url = UpstreamUrl::parse("redis://:p%40ss@cache/3?connect_timeout=2").unwrap();
    assert_eq!((url.kind, url.hosts), (Kind::Redis, vec![tcp("cache", 6379)]));
    assert_eq!((url.user, url.password), (None, Some(Secret::new("p@ss"))));
    assert_eq!((url.database.as_deref(), url.connect_time), (Some("3"), Some(Duration::from_secs(2))));
    assert_eq!(hosts("redis://%2Frun%2Fredis.sock"), [Address::Unix("/run/redis.sock".into())]);
    refuses(&[
        ("redis://h/name", "no number"),
        ("redis://a,b", "several hosts"),
        ("redis://h?conect_timeout=1", "connect_timeout"),
        ("redis://h?sslmode=require", "sslmode"),
    ]);
}

#[test]
fn a_mistake_in_a_url_is_named_without_the_url() {
    for (url, part) in [
        ("postgres://a:hunter2/3@h/x", "%2F"),
        ("postgres://a:hunter2@h:99999/x", "port"),
        ("postgres://a:hunter2%@h/x", "%25"),
        ("postgres://a:hunter2@h/x?aplication_name=y", "application_name"),
        ("hunter2", "no URL"),
        ("mysql://a:hunter2@h", "postgres://"),
    ] {
        let error = UpstreamUrl::parse(url).unwrap_err();
        assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn debug_output_hides_the_password() {
    assert!(!format!("{:?}", UpstreamUrl::parse("postgres://a:hunter2@h/x")).contains("hunter2"));
}

proptest! {
    #[test]
    fn no_url_makes_the_parser_panic(rest in ".{0,60}") {
        let _ = UpstreamUrl::parse(&rest);
        let _ = UpstreamUrl::parse(&format!("postgres://{rest}"));
    }
}
