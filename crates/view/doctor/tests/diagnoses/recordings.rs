//! Recordings: what is read is what was seen, and any other content of a file is an error in words.

use admin_api::{Activity, Backend, Client, Look, Mongo, Pool, PoolServers, Redis, RedisClient, SessionRow, Times};
use doctor::{Line, RecordingReader, Subject};

fn pooler(n: u64) -> Line {
    let servers = PoolServers { in_use: 4, total: 4, ..PoolServers::default() };
    let hold = Times { buckets: vec![n * 7, n, 0], sum_ms: n as f64 * 13.7 };
    let pool = Pool { database: "shop".into(), waiters: 3, max_size: 10, servers, hold, ..Pool::default() };
    let look = Look { bucket_bounds_ms: vec![1.0, 10.0], pools: vec![pool], instance: "one".into(), ..Look::default() };
    let holder = Client { id: u64::MAX, state: "transaction".into(), pool: Some(0), ..Client::default() };
    Line::Pooler { at_us: n * 500_000, look: Box::new(look), holders: vec![holder] }
}

fn database(n: u64) -> Line {
    let backend = Backend { pid: 7, state: "idle in transaction".into(), state_ms: 90_000.0, ..Backend::default() };
    let backends = vec![backend.clone(), Backend { pid: 8, ..backend }];
    let look = Activity { started_us: 1_795_670_007_000_000, backends, max_connections: 100, ..Activity::default() };
    Line::Postgres { at_us: n * 500_000, look: Box::new(look) }
}

/// Connections that serve an operation each.
fn mongodb(n: u64) -> Line {
    let session =
        SessionRow { id: Some(n), application: "lambda".into(), paused_ms: Some(0.3), ..SessionRow::default() };
    let sessions = Some(vec![session.clone(), SessionRow { id: None, ..session }]);
    let (created, operations) = (Some(n * 20), n * 62);
    let look = Mongo { created, operations, sessions, host: "db1".into(), processors: Some(4), ..Mongo::default() };
    Line::MongoDb { at_us: n * 500_000, look: Box::new(look) }
}

/// Connections that are kept for nothing.
fn redis(n: u64) -> Line {
    let client = |id| RedisClient { id, idle_s: 9_000, host: "10.0.0.5".into(), ..RedisClient::default() };
    let clients = Some((0..95).map(client).collect());
    let look = Redis { connected: 95, max_clients: Some(100), commands: n * 7, clients, ..Redis::default() };
    Line::Redis { at_us: n * 500_000, look: Box::new(look) }
}

fn recording(look: fn(u64) -> Line, looks: usize) -> Vec<String> {
    let first = Line::first("0.1.0");
    let end = Line::End { looks, clients: Vec::new() };
    [first].into_iter().chain((0..looks as u64).map(look)).chain([end]).map(|line| line.text()).collect()
}

fn read(lines: &[String]) -> Result<Subject, String> {
    let mut reader = RecordingReader::default();
    lines.iter().try_for_each(|line| reader.read(line)).map_err(|damage| damage.to_string())?;
    reader.finish().map_err(|damage| damage.to_string())
}

#[test]
fn what_is_read_is_examined_as_what_was_seen() {
    for look in [pooler, database, mongodb, redis] {
        let mut seen = Subject::of(&look(0)).unwrap();
        for n in 0..20 {
            seen.add(look(n)).unwrap();
        }
        let seen = serde_json::to_string(&seen.examine().unwrap()).unwrap();
        let told = read(&recording(look, 20)).unwrap().examine().unwrap();
        assert!(!told.findings.is_empty(), "{told:?}");
        assert_eq!(serde_json::to_string(&told).unwrap(), seen);
    }
}

#[test]
fn a_file_that_breaks_off_is_told_so_wherever_it_does() {
    let whole = recording(pooler, 6);
    assert!(read(&whole).is_ok());
    for length in 0..whole.len() {
        let error = read(&whole[..length]).unwrap_err();
        assert!(error.contains("breaks off") || error == "the file is empty", "{length}: {error}");
    }
    // In the middle of a line.
    let mut cut = whole.clone();
    let last = cut.last_mut().unwrap();
    last.truncate(last.len() / 2);
    assert!(read(&cut).unwrap_err().starts_with("line 8: it is no JSON"));
}

#[test]
fn other_content_of_a_file_is_an_error_in_words() {
    let whole = recording(pooler, 6);
    let with = |at: usize, line: &str| {
        let mut lines = whole.clone();
        lines[at] = line.to_owned();
        read(&lines).unwrap_err()
    };
    let numbers = format!(r#"{{"pooler":{{"at_us":0,"holders":[{}0]}}}}"#, "0,".repeat(1_000_001));
    for (at, line, part) in [
        (0, "", "line 1: it does not begin like a recording"),
        (0, "[1]", "line 1: it does not begin like a recording"),
        (0, &whole[1], "line 1: it does not begin like a recording"),
        (
            0,
            r#"{"recording":{"version":2,"by":"9.9"}}"#,
            "it is of version 2, by Poolhouse 9.9; this one reads version 1",
        ),
        (2, &whole[0], "another recording begins"),
        (2, "", "line 3: it is no JSON"),
        (2, r#"{"sounds":{}}"#, "it is no look"),
        (2, r#"{"pooler":{"at_us":-1,"look":{},"holders":[]}}"#, "it is no look"),
        (2, r#"{"pooler":{"at_us":1e300}}"#, "`at_us` is too large a number"),
        (2, &numbers, "more than 1000000 numbers"),
        (2, &database(2).text(), "it is of something else"),
        (4, &whole[7], "the end speaks of 6 looks, and 3 are there"),
        (7, r#"{"end":{"looks":7,"clients":[]}}"#, "the end speaks of 7 looks, and 6 are there"),
    ] {
        let error = with(at, line);
        assert!(error.contains(part), "{part}: {error}");
    }
    let mut swapped = whole.clone();
    swapped.swap(2, 4);
    assert!(read(&swapped).unwrap_err().contains("it is from before the look in front of it"));
    let more = [whole.clone(), vec![whole[1].clone()]].concat();
    assert!(read(&more).unwrap_err().contains("something stands behind the end"));
    assert!(read(&recording(pooler, 3)).unwrap().examine().unwrap_err().to_string().contains("only 3 looks"));
    let mut brief = Subject::of(&database(0)).unwrap();
    for n in 0..9 {
        let Line::Postgres { look, .. } = database(n) else { unreachable!() };
        brief.add(Line::Postgres { at_us: n * 100_000, look }).unwrap();
    }
    let error = brief.examine().unwrap_err().to_string();
    assert!(error.contains("within 0.8 s"), "a pause of 90 s is none that was looked at for so long: {error}");
    let deep = "[".repeat(100_000);
    assert!(with(2, &deep).contains("it is no JSON"));
    let long = format!("\"{}\"", "x".repeat(9 << 20));
    assert!(with(2, &long).contains("more than 9216000 bytes"));
}

/// A look at many pools, with all that a Poolhouse tells of each.
fn crowded(n: u64, pools: u64, name: &str) -> Line {
    let times = Times { buckets: vec![1_000_000 + n; 20], sum_ms: 123_456.789 };
    let all = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), times.clone())).collect();
    let pool = |id| Pool {
        id,
        database: format!("{name}{id}"),
        checkout: all(&["idle", "created", "queued"]),
        connect: all(&["dns", "tcp", "tls", "auth", "ready"]),
        hold: times.clone(),
        ..Pool::default()
    };
    let look = Look { pools: (0..pools).map(pool).collect(), ..Look::default() };
    let holder = |id| Client { id, database: name.to_owned(), ..Client::default() };
    Line::Pooler { at_us: n * 500_000, look: Box::new(look), holders: (0..2_000).map(holder).collect() }
}

#[test]
fn a_look_at_more_pools_than_a_recording_holds_is_recorded_with_those_that_are_looked_at() {
    assert!(Line::read(&crowded(0, 5_000, "shop").text()).is_err(), "it is too long as it is");
    let (Line::Pooler { look, .. }, _) = crowded(0, 5_000, "shop").fitted() else { unreachable!() };
    assert_eq!((look.pools.len(), look.pools_left_out), (1_000, 4_000));
    let mut subject = Subject::of(&crowded(0, 1, "shop")).unwrap();
    for n in 0..5 {
        let (_, text) = crowded(n, 5_000, "shop").fitted();
        subject.add(Line::read(&text).unwrap()).unwrap();
    }
    let diagnosis = subject.examine().unwrap();
    assert_eq!(diagnosis.pools, 1_000);
    assert!(diagnosis.unseen.contains(&"4000 pools more".to_owned()), "{:?}", diagnosis.unseen);
    // Of names as long as they may be fewer fit.
    let (Line::Pooler { look, .. }, text) = crowded(0, 5_000, &"n".repeat(9_000)).fitted() else { unreachable!() };
    assert!(Line::read(&text).is_ok() && look.pools_left_out + look.pools.len() as u64 == 5_000);
    assert!((100..1_000).contains(&look.pools.len()), "{}", look.pools.len());
}

#[test]
fn lists_of_long_names_do_not_keep_a_look_from_being_recorded() {
    let name = || "\u{1}".repeat(200);
    let client = Client { database: name(), user: name(), ..Client::default() };
    let backend = Backend { application: name(), user: name(), database: name(), ..Backend::default() };
    let session = SessionRow { application: name(), user: name(), host: name(), ..SessionRow::default() };
    let redis_client = RedisClient { name: name(), user: name(), host: name(), ..RedisClient::default() };
    let look = Box::new(Activity { backends: vec![backend; 5_000], ..Activity::default() });
    let sessions = Box::new(Mongo { sessions: Some(vec![session; 5_000]), ..Mongo::default() });
    let clients = Box::new(Redis { clients: Some(vec![redis_client; 5_000]), ..Redis::default() });
    for line in [
        Line::End { looks: 4, clients: vec![client; 10_000] },
        Line::Postgres { at_us: 0, look },
        Line::MongoDb { at_us: 0, look: sessions },
        Line::Redis { at_us: 0, look: clients },
    ] {
        let (line, text) = line.fitted();
        assert!(Line::read(&text).is_ok());
        match line {
            Line::End { clients, .. } => assert!((1_000..10_000).contains(&clients.len()), "{}", clients.len()),
            Line::Postgres { look, .. } => {
                assert!(look.left_out + look.backends.len() as u64 == 5_000 && look.left_out > 0);
            }
            Line::MongoDb { look, .. } => assert!(look.sessions.is_none() && look.hides_sessions.is_some()),
            Line::Redis { look, .. } => assert!(look.clients.is_none() && look.hides_clients.is_some()),
            Line::Recording { .. } | Line::Pooler { .. } => unreachable!(),
        }
    }
}

#[test]
fn numbers_as_large_as_a_file_may_have_them_do_no_harm() {
    fn enlarge(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(number) => *number = 10_000_000_000_000_u64.into(),
            serde_json::Value::Array(values) => values.iter_mut().for_each(enlarge),
            serde_json::Value::Object(values) => values.values_mut().for_each(enlarge),
            _ => {}
        }
    }
    let mut subject = Subject::of(&pooler(0)).unwrap();
    for n in 0..6 {
        let mut value = serde_json::from_str(&pooler(n + 1).text()).unwrap();
        enlarge(&mut value);
        let Line::Pooler { look, holders, .. } = Line::read(&value.to_string()).unwrap() else { unreachable!() };
        subject.add(Line::Pooler { at_us: n * 500_000, look, holders }).unwrap();
    }
    subject.add(Line::End { looks: 6, clients: Vec::new() }).unwrap();
    subject.examine().unwrap().text(str::to_owned);
}
