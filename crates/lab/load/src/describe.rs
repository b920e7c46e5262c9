//! A plan in words, for people: its requests, and the faults between generator and target. The text has no secret: of a
//! URL it has the path only, of headers and bodies nothing, of variables their names.

use std::time::Duration;

use sha2::{Digest, Sha256};

use report::result::STRAIGHT;

use crate::plan::{
    CommandScript, Fault, HttpTarget, MongoOperation, MongoTarget, MongoWork, Plan, PoolhouseWishes, PostgresTarget,
    QueryProtocol, RedisTarget, RedisWork, Script, Target, Window,
};

/// The requests of each operation.
pub fn requests(target: &Target) -> String {
    match target {
        Target::Postgres(postgres) => statements(postgres),
        Target::Redis(redis) => commands(redis),
        Target::MongoDb(mongodb) => documents(mongodb),
        Target::Http(http) => request(http),
    }
}

/// A script's name, and its scale if it is a built-in one.
pub fn script(script: &Script, scale: u32) -> String {
    match script {
        Script::SelectOnly => format!("select-only at scale {scale}"),
        Script::TpcbLike => format!("TPC-B-like at scale {scale}"),
        Script::SimpleUpdate => format!("simple-update at scale {scale}"),
        Script::File(path, _) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
    }
}

/// How statements are sent.
pub fn protocol(protocol: QueryProtocol) -> &'static str {
    match protocol {
        QueryProtocol::Simple => "simple",
        QueryProtocol::Extended => "extended",
        QueryProtocol::Prepared => "prepared",
    }
}

/// The path to the target: a Poolhouse in front, and faults.
pub fn path(plan: &Plan) -> String {
    path_of(plan.poolhouse.as_ref(), plan.freeze.as_ref(), &plan.faults)
}

fn path_of(front: Option<&PoolhouseWishes>, frozen: Option<&Window>, faults: &[Fault]) -> String {
    let front = front.map(poolhouse);
    let frozen = frozen.map(|window| format!("the client's process is frozen {}", when(window)));
    let text: Vec<String> = front.into_iter().chain(frozen).chain(faults.iter().map(fault)).collect();
    if text.is_empty() { STRAIGHT.to_owned() } else { text.join("; ") }
}

fn statements(target: &PostgresTarget) -> String {
    let one = |(what, weight): &(Script, u32)| {
        let name = script(what, target.scale);
        let name = match what {
            // Files of one name may hold different scripts.
            Script::File(_, text) => format!("{name} (text {})", fingerprint(text)),
            _ => name,
        };
        if *weight == 1 { name } else { format!("{weight} x {name}") }
    };
    let scripts: Vec<String> = target.scripts.iter().map(one).collect();
    let variables = given(&target.variables);
    format!("{}, {} protocol{variables}", scripts.join(" and "), protocol(target.protocol))
}

fn commands(target: &RedisTarget) -> String {
    let work = match &target.work {
        RedisWork::Ping => "PING".to_owned(),
        RedisWork::GetSet { writes, keys, value_size } => {
            format!("GET, and SET of {value_size} bytes in {}% of operations, of {keys} keys", writes * 100.0)
        }
        RedisWork::Scripts(scripts) => texts(scripts),
    };
    format!("{work}{}", given(&target.variables))
}

fn documents(target: &MongoTarget) -> String {
    let work = match &target.work {
        MongoWork::Ping => "ping".to_owned(),
        MongoWork::BuiltIn { operation: MongoOperation::Insert, value_size, .. } => {
            format!("insert of {value_size} bytes")
        }
        MongoWork::BuiltIn { operation, documents, value_size } => {
            format!("{}, of {documents} documents with {value_size} bytes", operation.name())
        }
        MongoWork::Scripts(scripts) => texts(scripts),
    };
    format!("{work}{}", given(&target.variables))
}

/// Scripts by their names and weights, text apart by what stands in them.
fn texts(scripts: &[CommandScript]) -> String {
    let one = |script: &CommandScript| {
        let weight = if script.weight == 1 { String::new() } else { format!("{} x ", script.weight) };
        format!("{weight}{} (text {})", script.name, fingerprint(&script.text))
    };
    scripts.iter().map(one).collect::<Vec<_>>().join(" and ")
}

/// The names of variables that were given.
fn given(variables: &[(String, String)]) -> String {
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(", with {} given", names.join(" and ")) }
}

/// Tells one text from another.
fn fingerprint(text: &str) -> String {
    Sha256::digest(text).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn request(target: &HttpTarget) -> String {
    let url: &str = target.url.reveal();
    let place = url.split_once("://").map_or(url, |(_, rest)| rest).split(['?', '#']).next().unwrap_or_default();
    let path = place.find('/').map_or("/", |at| &place[at..]);
    let body = target.body.as_ref().map(|body| format!(" with a body of {} bytes", body.len())).unwrap_or_default();
    let expected = match target.expect.as_slice() {
        [] => "200 to 399".to_owned(),
        statuses => statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" or "),
    };
    format!("{} {path}{body}, {expected} expected", target.method)
}

fn poolhouse(wishes: &PoolhouseWishes) -> String {
    let number = |name, value: Option<u32>| value.map(|value| format!("{name} {value}"));
    let time = |name, value: Option<Option<Duration>>| {
        value.map(|value| format!("{name} {}", value.map_or("off".to_owned(), |time| format!("{time:?}"))))
    };
    let text = [
        number("max_size", wishes.max_size),
        time("max_wait_time", wishes.max_wait_time),
        number("soft_limit", wishes.soft_limit),
        number("hard_limit", wishes.hard_limit),
        time("evict_min_idle", wishes.evict_min_idle.map(Some)),
        time("client_idle_time", wishes.client_idle_time),
    ];
    let text: Vec<String> = text.into_iter().flatten().collect();
    if text.is_empty() { "through Poolhouse".to_owned() } else { format!("through Poolhouse with {}", text.join(", ")) }
}

fn fault(fault: &Fault) -> String {
    match fault {
        Fault::Delay { delay, jitter } if jitter.is_zero() => format!("{delay:?} more in each direction"),
        Fault::Delay { delay, jitter } => format!("{delay:?} to {:?} more in each direction", *delay + *jitter),
        Fault::Stall { delay, window } => format!("answers {delay:?} late {}", when(window)),
        Fault::BlackHole { window } => format!("nothing arrives {}", when(window)),
        Fault::Forget { idle } => format!("connections that are silent for longer than {idle:?} are forgotten"),
        Fault::Cut { window } => format!("all connections are cut{}", times(window)),
    }
}

fn when(window: &Window) -> String {
    format!("for {:?}{}", window.length, times(window))
}

fn times(window: &Window) -> String {
    match window.every {
        Some(every) => format!(" every {every:?}, first after {:?}", window.first),
        None => format!(" after {:?}", window.first),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use settings::Secret;

    use super::*;

    fn postgres(scripts: Vec<(Script, u32)>) -> Target {
        Target::Postgres(PostgresTarget {
            url: Secret::new("postgres://a:hunter2@h/d"),
            scripts,
            protocol: QueryProtocol::Prepared,
            scale: 10,
            schema: "s".to_owned(),
            variables: vec![("key".to_owned(), "hunter2".to_owned())],
        })
    }

    #[test]
    fn scripts_are_named_with_their_weights_and_told_apart() {
        let file = |text: &str| Script::File("/somewhere/order.sql".into(), text.to_owned());
        let text = requests(&postgres(vec![(Script::SelectOnly, 1), (file("select 1;"), 3)]));
        assert_eq!(
            text,
            "select-only at scale 10 and 3 x order.sql (text 354b7196), prepared protocol, with key given"
        );
        assert_ne!(text, requests(&postgres(vec![(Script::SelectOnly, 1), (file("select 2;"), 3)])));
    }

    #[test]
    fn commands_of_redis_are_told_without_their_values() {
        let text = |work| {
            let variables = vec![("key".to_owned(), "hunter2".to_owned())];
            requests(&Target::Redis(RedisTarget { url: Secret::new("redis://:hunter2@h"), work, variables }))
        };
        assert_eq!(text(RedisWork::Ping), "PING, with key given");
        let mix = RedisWork::GetSet { writes: 0.1, keys: 1000, value_size: 100 };
        assert_eq!(text(mix), "GET, and SET of 100 bytes in 10% of operations, of 1000 keys, with key given");
        let script = CommandScript { name: "x.redis".to_owned(), text: "SET a hunter2".to_owned(), weight: 3 };
        let text = text(RedisWork::Scripts(vec![script]));
        assert!(text.starts_with("3 x x.redis (text ") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_request_is_told_without_anything_secret() {
        let target = |url: &str, body: Option<&str>, expect: &[u16]| {
            requests(&Target::Http(HttpTarget {
                url: Secret::new(url),
                method: "POST".to_owned(),
                headers: vec![("Authorization".to_owned(), "hunter2".to_owned())],
                body: body.map(str::to_owned),
                expect: expect.to_vec(),
            }))
        };
        assert_eq!(target("http://hunter2@h:1/a/b?token=hunter2", None, &[]), "POST /a/b, 200 to 399 expected");
        let created = target("http://h", Some("hunter2"), &[201, 204]);
        assert_eq!(created, "POST / with a body of 7 bytes, 201 or 204 expected");
        assert!(target("http://h?x=/y", None, &[]).starts_with("POST /, "));
    }

    #[test]
    fn the_way_says_what_goes_wrong_and_when() {
        let (seconds, millis) = (Duration::from_secs, Duration::from_millis);
        let window = |every: Option<u64>| Window { first: seconds(7), length: seconds(2), every: every.map(seconds) };
        let path = |faults| path_of(None, None, faults);
        assert_eq!(path(&[]), STRAIGHT);
        let wishes =
            PoolhouseWishes { hard_limit: Some(5), client_idle_time: Some(None), ..PoolhouseWishes::default() };
        assert_eq!(
            path_of(Some(&wishes), Some(&window(None)), &[]),
            "through Poolhouse with hard_limit 5, client_idle_time off; the client's process is frozen for 2s after 7s"
        );
        let faults = [
            Fault::Delay { delay: millis(4), jitter: millis(1) },
            Fault::Delay { delay: millis(4), jitter: Duration::ZERO },
            Fault::Stall { delay: millis(200), window: window(Some(10)) },
            Fault::BlackHole { window: window(None) },
            Fault::Forget { idle: millis(60) },
            Fault::Cut { window: window(Some(9)) },
        ];
        assert_eq!(
            path(&faults),
            "4ms to 5ms more in each direction; 4ms more in each direction; answers 200ms late for 2s every 10s, first \
             after 7s; nothing arrives for 2s after 7s; connections that are silent for longer than 60ms are \
             forgotten; all \
             connections are cut every 9s, first after 7s"
        );
    }
}
