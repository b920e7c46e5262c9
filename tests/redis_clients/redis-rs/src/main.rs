//! redis-rs: what an application does with Redis, on several connections at once; each value holds what only its connection knows.

use std::{
    collections::{BTreeSet, HashMap},
    env,
    hash::{BuildHasher, Hasher, RandomState},
    thread,
};

use redis::{
    Client, Commands, Connection, Script, TypedCommands, pipe,
    streams::{StreamReadOptions, StreamReadReply},
    transaction,
};

const CONNECTIONS: usize = 8;
const VERSION: &str = "1.8.1";

type Check = fn(&mut Connection, &str);

const CHECKS: [(&str, Check); 12] = [
    ("types", types),
    ("pipelines", pipelines),
    ("transactions", transactions),
    ("watching", watching),
    ("blocking", blocking),
    ("subscriptions", subscriptions),
    ("scanning", scanning),
    ("scripts", scripts),
    ("large", large),
    ("streams", streams),
    ("databases", databases),
    ("errors", errors),
];

fn connect(database: u8) -> Connection {
    let (host, port, version) = (env::var("HOST"), env::var("PORT"), env::var("RESP"));
    let url = format!("redis://{}:{}/{database}?protocol=resp{}", host.unwrap(), port.unwrap(), version.unwrap());
    Client::open(url).unwrap().get_connection().unwrap()
}

fn nonce() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

fn types(r: &mut Connection, own: &str) {
    let value = nonce();
    TypedCommands::set(r, own, &value).unwrap();
    assert_eq!(TypedCommands::get(r, own).unwrap().as_ref(), Some(&value));
    assert_eq!(TypedCommands::incr(r, format!("{own}:n"), 7).unwrap(), 7);
    let hash = format!("{own}:h");
    TypedCommands::hset(r, &hash, "a", &value).unwrap();
    TypedCommands::hset(r, &hash, "b", 2).unwrap();
    let wanted = HashMap::from([("a".to_owned(), value.clone()), ("b".to_owned(), "2".to_owned())]);
    assert_eq!(TypedCommands::hgetall(r, &hash).unwrap(), wanted);
    let list = format!("{own}:l");
    TypedCommands::rpush(r, &list, &[&*value, "x"]).unwrap();
    assert_eq!(TypedCommands::lrange(r, &list, 0, -1).unwrap(), [&*value, "x"]);
    let sorted = format!("{own}:z");
    TypedCommands::zadd(r, &sorted, &value, 1.5).unwrap();
    assert_eq!(TypedCommands::zscore(r, &sorted, &value).unwrap(), Some(1.5));
    assert_eq!(TypedCommands::get(r, format!("{own}:none")).unwrap(), None);
}

fn pipelines(r: &mut Connection, own: &str) {
    let values: Vec<String> = (0..500).map(|_| nonce()).collect();
    let mut pipe = pipe();
    for (i, value) in values.iter().enumerate() {
        pipe.set(format!("{own}{i}"), value).ignore().get(format!("{own}{i}"));
    }
    let read: Vec<String> = pipe.query(r).unwrap();
    assert_eq!(read, values);
}

fn transactions(r: &mut Connection, own: &str) {
    for i in 1..=20 {
        let (count, value): (i64, String) = pipe().atomic().incr(own, 1).get(own).query(r).unwrap();
        assert_eq!((count, value), (i, i.to_string()));
    }
}

fn watching(r: &mut Connection, own: &str) {
    let mut tries = 0;
    let done: (String,) = transaction(r, &[own], |r, pipe| {
        tries += 1;
        if tries == 1 {
            TypedCommands::set(&mut connect(0), own, "other").unwrap();
        }
        pipe.get(own).query(r)
    })
    .unwrap();
    // The first try is undone, because the key was changed meanwhile; the second one sees the change.
    assert_eq!((tries, done.0.as_str()), (2, "other"));
}

fn blocking(r: &mut Connection, own: &str) {
    let value = nonce();
    let popped = thread::scope(|scope| {
        let waiting = scope.spawn(|| TypedCommands::blpop(&mut connect(0), own, 10.0).unwrap());
        TypedCommands::rpush(r, own, &value).unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(popped, Some([own.to_owned(), value]));
}

fn subscriptions(r: &mut Connection, own: &str) {
    let (value, mut listener) = (nonce(), connect(0));
    let mut subscription = listener.as_pubsub();
    subscription.subscribe(own).unwrap();
    assert_eq!(TypedCommands::publish(r, own, &value).unwrap(), 1);
    let message = subscription.get_message().unwrap();
    assert_eq!((message.get_channel_name(), message.get_payload::<String>().unwrap()), (own, value.clone()));
    subscription.unsubscribe(own).unwrap();
    drop(subscription);
    // The connection is an ordinary one again.
    TypedCommands::set(&mut listener, own, &value).unwrap();
    assert_eq!(TypedCommands::get(&mut listener, own).unwrap(), Some(value));
}

fn scanning(r: &mut Connection, own: &str) {
    let wanted: BTreeSet<String> = (0..200).map(|i| format!("{own}:{i}")).collect();
    for key in &wanted {
        TypedCommands::set(r, key, "x").unwrap();
    }
    let found: BTreeSet<String> =
        Commands::scan_match(r, format!("{own}:*")).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(found, wanted);
}

fn scripts(r: &mut Connection, own: &str) {
    let (twice, value) = (Script::new("return {KEYS[1], ARGV[1] .. ARGV[1]}"), nonce());
    for _ in 0..2 {
        let got: (String, String) = twice.key(own).arg(&value).invoke(r).unwrap();
        assert_eq!(got, (own.to_owned(), value.repeat(2)));
    }
}

fn large(r: &mut Connection, own: &str) {
    let value = nonce().repeat(190_000);
    TypedCommands::set(r, own, &value).unwrap();
    assert!(TypedCommands::get(r, own).unwrap() == Some(value));
}

fn streams(r: &mut Connection, own: &str) {
    let value = nonce();
    let (id, read) = thread::scope(|scope| {
        let waiting = scope.spawn(|| -> StreamReadReply {
            let options = StreamReadOptions::default().block(10_000);
            Commands::xread_options(&mut connect(0), &[own], &["0"], &options).unwrap()
        });
        let id: String = Commands::xadd(r, own, "*", &[("field", &value)]).unwrap();
        (id, waiting.join().unwrap())
    });
    let entry = &read.keys[0].ids[0];
    assert_eq!((&entry.id, entry.get::<String>("field")), (&id, Some(value)));
}

fn databases(r: &mut Connection, own: &str) {
    let (mut elsewhere, value) = (connect(3), nonce());
    TypedCommands::set(&mut elsewhere, own, &value).unwrap();
    TypedCommands::set(r, own, "here").unwrap();
    assert_eq!(TypedCommands::get(&mut elsewhere, own).unwrap(), Some(value));
    TypedCommands::client_setname(&mut elsewhere, "elsewhere").unwrap();
    assert_eq!(TypedCommands::client_getname(&mut elsewhere).unwrap().as_deref(), Some("elsewhere"));
}

fn errors(r: &mut Connection, own: &str) {
    TypedCommands::set(r, own, "x").unwrap();
    assert_eq!(TypedCommands::lpush(r, own, "y").unwrap_err().code(), Some("WRONGTYPE"));
    let unknown = redis::cmd("NOSUCHCOMMAND").exec(r).unwrap_err();
    assert!(unknown.to_string().contains("unknown command"), "{unknown}");
    assert_eq!(TypedCommands::get(r, own).unwrap().as_deref(), Some("x"));
}

fn main() {
    println!("version {VERSION}");
    for (name, check) in CHECKS {
        let one = |i: usize| thread::spawn(move || check(&mut connect(0), &format!("{name}:{i}")));
        let running: Vec<_> = (0..CONNECTIONS).map(one).collect();
        let failed = running.into_iter().filter_map(|thread| thread.join().err()).last();
        match failed {
            None => println!("ok {name}"),
            Some(why) => {
                let text = why.downcast_ref::<String>().map_or("it panicked", String::as_str);
                println!("failed {name}: {}", text.replace('\n', " "));
            }
        }
    }
}
