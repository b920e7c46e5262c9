//! redis-rs: what an application does with Redis, on several connections at once; each value holds what only its connection knows.

use std::{
    collections::{BTreeSet, HashMap},
    env,
    fmt::Debug,
    hash::{BuildHasher, RandomState},
    io,
    time::Duration,
};

use futures_util::StreamExt;
use redis::{
    AsyncCommands, AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, RedisError, Script, aio::MultiplexedConnection, pipe,
    streams::{StreamReadOptions, StreamReadReply},
};

const CONNECTIONS: usize = 8;

type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;
type Connection = MultiplexedConnection;

fn client(database: i64) -> Client {
    let variable = |name: &str| env::var(name).expect(name);
    let version = if variable("RESP") == "3" { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    let info = format!("redis://{}:{}", variable("HOST"), variable("PORT")).into_connection_info().expect("a URL");
    let settings = info.redis_settings().clone().set_protocol(version).set_db(database);
    Client::open(info.set_redis_settings(settings)).expect("an address")
}

async fn connect(database: i64) -> Result<Connection, RedisError> {
    // Longer than the half second that it gives a reply by itself: blocking commands are among them.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
    client(database).get_multiplexed_async_connection_with_config(&config).await
}

fn nonce() -> String {
    format!("{:016x}", RandomState::new().hash_one(()))
}

fn same<T: PartialEq<U> + Debug, U: Debug>(got: T, wanted: U) -> Done {
    if got == wanted { Ok(()) } else { Err(io::Error::other(format!("{got:?} instead of {wanted:?}")).into()) }
}

async fn types(mut r: Connection, own: String) -> Done {
    let value = nonce();
    same(r.set::<_, _, String>(&own, &value).await?, "OK")?;
    same(r.get::<_, String>(&own).await?, &*value)?;
    same(r.incr::<_, _, i64>(format!("{own}:n"), 7).await?, 7)?;
    let fields = [("a", value.as_str()), ("b", "2")];
    () = r.hset_multiple(format!("{own}:h"), &fields).await?;
    let read: HashMap<String, String> = r.hgetall(format!("{own}:h")).await?;
    same(read, HashMap::from(fields.map(|(key, value)| (key.to_owned(), value.to_owned()))))?;
    () = r.rpush(format!("{own}:l"), &[value.as_str(), "x"]).await?;
    same(r.lrange::<_, Vec<String>>(format!("{own}:l"), 0, -1).await?, vec![value.as_str(), "x"])?;
    () = r.zadd(format!("{own}:z"), &value, 1.5).await?;
    same(r.zscore::<_, _, f64>(format!("{own}:z"), &value).await?, 1.5)?;
    same(r.get::<_, Option<String>>(format!("{own}:none")).await?, None::<String>)
}

async fn pipelines(mut r: Connection, own: String) -> Done {
    let (mut pipe, mut values) = (pipe(), Vec::new());
    for number in 0..500 {
        values.push(nonce());
        pipe.set(format!("{own}{number}"), &values[number]).ignore().get(format!("{own}{number}"));
    }
    same(pipe.query_async::<Vec<String>>(&mut r).await?, values)
}

async fn transactions(mut r: Connection, own: String) -> Done {
    for number in 1..=20 {
        let both: (i64, String) = pipe().atomic().incr(&own, 1).get(&own).query_async(&mut r).await?;
        same(both, (number, number.to_string()))?;
    }
    Ok(())
}

async fn watching(mut r: Connection, own: String) -> Done {
    () = redis::cmd("WATCH").arg(&own).query_async(&mut r).await?;
    () = connect(0).await?.set(&own, "other").await?;
    let executed: Option<(String,)> = pipe().atomic().set(&own, "mine").query_async(&mut r).await?;
    same(executed, None::<(String,)>)?;
    same(r.get::<_, String>(&own).await?, "other")
}

async fn blocking(mut r: Connection, own: String) -> Done {
    let (value, mut other, key) = (nonce(), connect(0).await?, own.clone());
    let popped = tokio::spawn(async move { other.blpop::<_, (String, String)>(key, 10.0).await });
    () = r.rpush(&own, &value).await?;
    same(popped.await??, (own, value))
}

async fn subscriptions(mut r: Connection, own: String) -> Done {
    let (value, mut listener) = (nonce(), client(0).get_async_pubsub().await?);
    listener.subscribe(&own).await?;
    same(r.publish::<_, _, i64>(&own, &value).await?, 1)?;
    let message = tokio::time::timeout(Duration::from_secs(20), listener.on_message().next()).await?.ok_or("it ended")?;
    same((message.get_channel_name(), message.get_payload::<String>()?), (own.as_str(), value))?;
    Ok(listener.unsubscribe(&own).await?)
}

async fn scanning(mut r: Connection, own: String) -> Done {
    let wanted: BTreeSet<String> = (0..200).map(|number| format!("{own}:{number}")).collect();
    for key in &wanted {
        () = r.set(key, "x").await?;
    }
    let mut found = BTreeSet::new();
    let mut keys = r.scan_match::<_, String>(format!("{own}:*")).await?;
    while let Some(key) = keys.next_item().await {
        found.insert(key?);
    }
    same(found, wanted)
}

async fn scripts(mut r: Connection, own: String) -> Done {
    let (twice, value) = (Script::new("return {KEYS[1], ARGV[1] .. ARGV[1]}"), nonce());
    for _ in 0..2 {
        let told: (String, String) = twice.key(&own).arg(&value).invoke_async(&mut r).await?;
        same(told, (own.clone(), value.repeat(2)))?;
    }
    Ok(())
}

async fn large(mut r: Connection, own: String) -> Done {
    let value = nonce().repeat(187_500);
    () = r.set(&own, &value).await?;
    same(r.get::<_, String>(&own).await? == value, true)
}

async fn streams(mut r: Connection, own: String) -> Done {
    let (value, mut other, key) = (nonce(), connect(0).await?, own.clone());
    let read = tokio::spawn(async move {
        other.xread_options::<_, _, StreamReadReply>(&[key], &["0"], &StreamReadOptions::default().block(10_000)).await
    });
    let id: String = r.xadd(&own, "*", &[("field", &value)]).await?;
    let read = read.await??;
    same((read.keys.len(), read.keys[0].key.as_str(), read.keys[0].ids.len()), (1, own.as_str(), 1))?;
    same((read.keys[0].ids[0].id.clone(), read.keys[0].ids[0].get::<String>("field")), (id, Some(value)))
}

async fn databases(mut r: Connection, own: String) -> Done {
    let (value, mut elsewhere) = (nonce(), connect(3).await?);
    () = redis::cmd("CLIENT").arg("SETNAME").arg("elsewhere").query_async(&mut elsewhere).await?;
    () = elsewhere.set(&own, &value).await?;
    () = r.set(&own, "here").await?;
    same(elsewhere.get::<_, String>(&own).await?, value)?;
    same(redis::cmd("CLIENT").arg("GETNAME").query_async::<String>(&mut elsewhere).await?, "elsewhere")
}

async fn errors(mut r: Connection, own: String) -> Done {
    () = r.set(&own, "x").await?;
    let refused = r.lpush::<_, _, ()>(&own, "y").await.expect_err("no list");
    same(refused.code(), Some("WRONGTYPE"))?;
    let refused = redis::cmd("NOSUCHCOMMAND").query_async::<()>(&mut r).await.expect_err("no command");
    same(refused.to_string().contains("unknown command"), true)?;
    same(r.get::<_, String>(&own).await?, "x")
}

/// Runs a check on all connections at once.
async fn run<F: Future<Output = Done> + Send + 'static>(name: &str, check: fn(Connection, String) -> F) {
    let running: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let own = format!("{name}:{number}");
            tokio::spawn(async move { check(connect(0).await?, own).await })
        })
        .collect();
    let mut failed = None;
    for one in running {
        match one.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed = Some(error.to_string()),
            Err(panic) => failed = Some(panic.to_string()),
        }
    }
    match failed {
        None => println!("ok {name}"),
        Some(why) => println!("failed {name}: {}", why.lines().next().unwrap_or_default()),
    }
}

#[tokio::main]
async fn main() {
    let locked = include_str!("../Cargo.lock");
    let version = locked.split("name = \"redis\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
    println!("version {}", version.expect("it is locked"));
    run("types", types).await;
    run("pipelines", pipelines).await;
    run("transactions", transactions).await;
    run("watching", watching).await;
    run("blocking", blocking).await;
    run("subscriptions", subscriptions).await;
    run("scanning", scanning).await;
    run("scripts", scripts).await;
    run("large", large).await;
    run("streams", streams).await;
    run("databases", databases).await;
    run("errors", errors).await;
}
