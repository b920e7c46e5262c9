//! Real use of tokio-postgres, each check on many connections at once. What is asked holds a nonce that the answer must echo.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_util::future::{join_all, try_join_all};
use futures_util::{SinkExt, TryStreamExt, stream};
use native_tls::{Certificate, TlsConnector, TlsConnectorBuilder};
use postgres_native_tls::MakeTlsConnector;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::tls::TlsStream;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, SimpleQueryMessage, Socket};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

const TABLE: &str = "c_tokio_postgres";
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    println!("version {}", version());
    let wanted = env::var("CHECKS").unwrap_or_default();
    let wanted: BTreeSet<_> = wanted.split(',').filter(|name| !name.is_empty()).collect();
    let mut failed = false;
    macro_rules! checks {
        ($($name:ident),*) => {$(
            if wanted.is_empty() || wanted.contains(stringify!($name)) {
                match timeout(LIMIT, $name()).await.unwrap_or_else(|_| Err("not done in time".into())) {
                    Ok(()) => println!("ok {}", stringify!($name)),
                    Err(error) => {
                        failed = true;
                        println!("failed {}: {}", stringify!($name), told(&*error).replace('\n', " "));
                    }
                }
            }
        )*};
    }
    checks!(simple, unprepared, cancel, copy, transactions, prepared, pipelines, portals, timeouts, types, settings, listen, tls, tls_verified, channel_binding);
    std::process::exit(i32::from(failed));
}

/// The driver does not tell its version; Cargo.toml does.
fn version() -> &'static str {
    let manifest = include_str!("../Cargo.toml");
    let after = manifest.split("tokio-postgres = \"=").nth(1).expect("Cargo.toml names the version");
    after.split('"').next().expect("a quote ends it")
}

/// An error with what the server said, which its own text leaves out.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn connections() -> usize {
    env::var("CONNECTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

fn nonce() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn config() -> Config {
    config_at("PGHOST")
}

/// `host` names the variable with the host.
fn config_at(host: &str) -> Config {
    let var = |name| env::var(name).unwrap_or_default();
    let mut config = Config::new();
    config.host(var(host)).port(var("PGPORT").parse().expect("PGPORT is a number"));
    config.user(var("PGUSER")).password(var("PGPASSWORD")).dbname(var("PGDATABASE"));
    config
}

/// A client, and the notifications that its connection receives.
async fn connect() -> Result<(Client, mpsc::UnboundedReceiver<(String, String)>), tokio_postgres::Error> {
    let (client, connection) = config().connect(NoTls).await?;
    Ok((client, drive(connection)))
}

fn drive<T>(mut connection: Connection<Socket, T>) -> mpsc::UnboundedReceiver<(String, String)>
where
    T: TlsStream + Unpin + Send + 'static,
{
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(it) = message {
                let _ = sender.send((it.channel().to_owned(), it.payload().to_owned()));
            }
        }
    });
    receiver
}

/// Runs the work on many connections at once.
async fn on_each<F>(work: impl Fn(usize) -> F) -> Outcome
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let running: Vec<_> = (0..connections()).map(|worker| tokio::spawn(work(worker))).collect();
    for outcome in join_all(running).await {
        outcome??;
    }
    Ok(())
}

fn same<T: PartialEq + Debug>(what: &str, expected: T, got: T) -> Outcome {
    if expected == got { Ok(()) } else { Err(format!("{what}: expected {expected:?}, got {got:?}").into()) }
}

fn state<T>(result: Result<T, tokio_postgres::Error>) -> String {
    match result {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()),
    }
}

/// Without a prepared statement of a name: types are given, the statement is unnamed.
async fn echo(client: &Client) -> Outcome {
    let mine = nonce();
    let rows = client.query_typed("SELECT $1::text", &[(&mine, tokio_postgres::types::Type::TEXT)]).await?;
    same("nonce", mine, rows[0].get(0))
}

async fn set_up() -> Outcome {
    let (client, _) = connect().await?;
    let sql = format!("DROP TABLE IF EXISTS {TABLE}; CREATE TABLE {TABLE} (worker int, n int, note text, UNIQUE (worker, n))");
    Ok(client.batch_execute(&sql).await?)
}

async fn simple() -> Outcome {
    on_each(|_| async {
        let (client, _) = connect().await?;
        for _ in 0..30 {
            let mine = nonce();
            let answer = client.simple_query(&format!("SELECT '{mine}'; SELECT 2")).await?;
            let row = answer.iter().find_map(|m| if let SimpleQueryMessage::Row(row) = m { row.get(0) } else { None });
            same("nonce", Some(mine.as_str()), row)?;
        }
        Ok(())
    })
    .await
}

async fn unprepared() -> Outcome {
    on_each(|_| async {
        let (client, _) = connect().await?;
        for _ in 0..40 {
            echo(&client).await?;
        }
        Ok(())
    })
    .await
}

async fn copy() -> Outcome {
    set_up().await?;
    on_each(|worker| async move {
        let (client, _) = connect().await?;
        let lines: Vec<_> = (0..3000).map(|n| format!("{worker}\t{n}\tnote {n}\n")).collect();
        let mut sink = pin!(client.copy_in(&format!("COPY {TABLE} FROM STDIN")).await?);
        let mut chunks = stream::iter(lines.clone().into_iter().map(|line| Ok(Bytes::from(line))));
        sink.send_all(&mut chunks).await?;
        same("copied in", 3000, sink.finish().await?)?;
        let out = format!("COPY (SELECT * FROM {TABLE} WHERE worker = {worker} ORDER BY n) TO STDOUT");
        let got = client.copy_out(&out).await?;
        let got: BytesMut = got.try_fold(BytesMut::new(), |mut all, part| async move { all.extend_from_slice(&part); Ok(all) }).await?;
        same("lines", lines.concat().as_bytes(), &got[..])?;
        let mut bad = pin!(client.copy_in(&format!("COPY {TABLE} FROM STDIN")).await?);
        bad.send(Bytes::from_static(b"rubbish\n")).await?;
        same("bad copy", "22P02".to_owned(), state(bad.finish().await))?;
        echo(&client).await
    })
    .await
}

async fn cancel() -> Outcome {
    on_each(|_| async {
        let (client, _) = connect().await?;
        let token = client.cancel_token();
        let canceller = tokio::spawn(async move {
            // The first may come before the query does; then it is meant for nothing.
            for _ in 0..100 {
                sleep(Duration::from_millis(300)).await;
                let _ = token.cancel_query(NoTls).await;
            }
        });
        let ended = state(client.batch_execute("SELECT pg_sleep(30)").await);
        canceller.abort();
        let _ = canceller.await;
        same("cancelled", "57014".to_owned(), ended)?;
        // A request that was on its way when the canceller was stopped may still hit this one.
        let _ = client.batch_execute("SELECT pg_sleep(0.1)").await;
        echo(&client).await
    })
    .await
}

async fn transactions() -> Outcome {
    set_up().await?;
    on_each(|worker| async move {
        let (mut client, _) = connect().await?;
        let worker = i32::try_from(worker)?;
        for n in 0..20 {
            let mut transaction = client.transaction().await?;
            transaction.execute(&format!("INSERT INTO {TABLE} VALUES ($1, $2, $3)"), &[&worker, &n, &nonce()]).await?;
            let savepoint = transaction.savepoint("within").await?;
            same("inside", "22012".to_owned(), state(savepoint.batch_execute("SELECT 1/0").await))?;
            savepoint.rollback().await?;
            if n % 2 == 0 { transaction.rollback().await? } else { transaction.commit().await? }
        }
        let row = client.query_one(&format!("SELECT count(*) FROM {TABLE} WHERE worker = $1"), &[&worker]).await?;
        same("rows", 10_i64, row.get(0))
    })
    .await
}

async fn prepared() -> Outcome {
    on_each(|_| async {
        let (client, _) = connect().await?;
        let first = client.prepare("SELECT $1::text, $2::int * 2").await?;
        let second = client.prepare("SELECT $2::int * 3, $1::text").await?;
        for n in 0..40 {
            let mine = nonce();
            let row = client.query_one(&first, &[&mine, &n]).await?;
            same("first", (mine.clone(), 2 * n), (row.get(0), row.get(1)))?;
            let row = client.query_one(&second, &[&mine, &n]).await?;
            same("second", (3 * n, mine.clone()), (row.get(0), row.get(1)))?;
            // Parsed, executed and closed.
            let row = client.query_one("SELECT $1::text", &[&mine]).await?;
            same("once", mine, row.get(0))?;
        }
        Ok(())
    })
    .await
}

/// Requests that are polled together are sent together; an error must fail its own only.
async fn pipelines() -> Outcome {
    on_each(|_| async {
        let (client, _) = connect().await?;
        let good = client.prepare("SELECT $1::text").await?;
        let bad = client.prepare("SELECT 1/$1::int").await?;
        for _ in 0..10 {
            let asked: Vec<_> = (0..8).map(|_| nonce()).collect();
            let answers = asked.iter().map(|mine| async {
                let row = client.query_one(&good, &[mine]).await?;
                same("nonce", mine.clone(), row.get(0))
            });
            let failing = async { same("error", "22012".to_owned(), state(client.query_one(&bad, &[&0]).await)) };
            let (answers, failing) = futures_util::join!(try_join_all(answers), failing);
            answers?;
            failing?;
        }
        Ok(())
    })
    .await
}

async fn portals() -> Outcome {
    on_each(|worker| async move {
        let (mut client, _) = connect().await?;
        let base = i32::try_from(worker)? * 1000;
        let transaction = client.transaction().await?;
        let portal = transaction.bind("SELECT generate_series(1, 95) + $1::int", &[&base]).await?;
        let mut seen = Vec::new();
        loop {
            let rows = transaction.query_portal(&portal, 10).await?;
            if rows.is_empty() {
                break;
            }
            seen.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        }
        transaction.commit().await?;
        same("rows", (base + 1..=base + 95).collect(), seen)
    })
    .await
}

async fn timeouts() -> Outcome {
    on_each(|_| async {
        let (mut client, _) = connect().await?;
        let transaction = client.transaction().await?;
        transaction.batch_execute("SET LOCAL statement_timeout = '100ms'").await?;
        same("time-out", "57014".to_owned(), state(transaction.batch_execute("SELECT pg_sleep(10)").await))?;
        transaction.rollback().await?;
        echo(&client).await
    })
    .await
}

async fn types() -> Outcome {
    on_each(|_| async {
        let (client, _) = connect().await?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(1_767_323_045_678_000);
        let (bytes, none) = (vec![0_u8, 255], None::<String>);
        let sql = "SELECT $1::int4, $2::int8, $3::float8, $4::timestamptz, $5::bytea, $6::int[], $7::text, $8::bool";
        for _ in 0..5 {
            let row = client.query_one(sql, &[&7_i32, &9_007_199_254_740_993_i64, &0.1_f64, &now, &bytes, &vec![1, 2, 3], &none, &true]).await?;
            same("numbers", (7, 9_007_199_254_740_993_i64, 0.1), (row.get(0), row.get(1), row.get(2)))?;
            same("others", (now, bytes.clone(), vec![1, 2, 3]), (row.get(3), row.get(4), row.get(5)))?;
            same("rest", (none.clone(), true), (row.get(6), row.get(7)))?;
        }
        Ok(())
    })
    .await
}

async fn settings() -> Outcome {
    on_each(|worker| async move {
        let (client, _) = connect().await?;
        client.batch_execute(&format!("SET search_path = schema_{worker}, public; SET app.tenant = 'tenant {worker}'")).await?;
        for _ in 0..20 {
            let answer = client.simple_query("SELECT current_setting('search_path'), current_setting('app.tenant', true)").await?;
            let row = answer.iter().find_map(|m| if let SimpleQueryMessage::Row(row) = m { Some((row.get(0), row.get(1))) } else { None });
            let (path, tenant) = (format!("schema_{worker}, public"), format!("tenant {worker}"));
            same("settings", Some((Some(path.as_str()), Some(tenant.as_str()))), row)?;
        }
        Ok(())
    })
    .await
}

async fn listen() -> Outcome {
    on_each(|worker| async move {
        let (client, mut notifications) = connect().await?;
        client.batch_execute(&format!("LISTEN channel_{worker}")).await?;
        for n in 0..5 {
            client.batch_execute(&format!("NOTIFY channel_{worker}, 'note {n}'")).await?;
        }
        for n in 0..5 {
            let got = timeout(Duration::from_secs(10), notifications.recv()).await?;
            same("notification", Some((format!("channel_{worker}"), format!("note {n}"))), got)?;
        }
        Ok(())
    })
    .await
}

/// Accepts whatever certificate is shown.
fn trusting() -> TlsConnectorBuilder {
    let mut builder = TlsConnector::builder();
    builder.danger_accept_invalid_certs(true).danger_accept_invalid_hostnames(true);
    builder
}

/// Accepts a certificate that the authority in the file of this variable has signed for the host.
fn trusted_by(variable: &str) -> Result<TlsConnectorBuilder, Box<dyn std::error::Error + Send + Sync>> {
    let mut builder = TlsConnector::builder();
    builder.disable_built_in_roots(true).add_root_certificate(Certificate::from_pem(&std::fs::read(env::var(variable)?)?)?);
    Ok(builder)
}

async fn connect_encrypted(host: &str, binding: ChannelBinding, tls: &TlsConnectorBuilder) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let mut config = config_at(host);
    config.ssl_mode(SslMode::Require).channel_binding(binding);
    let (client, connection) = config.connect(MakeTlsConnector::new(tls.build()?)).await?;
    drive(connection);
    Ok(client)
}

/// Both ways of sending statements, at once on many connections that are encrypted or were not made at all.
async fn encrypted(host: &'static str, binding: ChannelBinding, tls: TlsConnectorBuilder) -> Outcome {
    let tls = std::sync::Arc::new(tls);
    on_each(|_| {
        let tls = tls.clone();
        async move {
            let client = connect_encrypted(host, binding, &tls).await?;
            let statement = client.prepare("SELECT $1::text").await?;
            for _ in 0..20 {
                echo(&client).await?;
                let mine = nonce();
                same("nonce", mine.clone(), client.query_one(&statement, &[&mine]).await?.get(0))?;
            }
            Ok(())
        }
    })
    .await
}

async fn refused(words: &str, host: &str, tls: TlsConnectorBuilder) -> Outcome {
    match connect_encrypted(host, ChannelBinding::Prefer, &tls).await {
        Ok(_) => Err("let in".into()),
        Err(error) if told(&*error).contains(words) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn tls() -> Outcome {
    encrypted("PGHOST", ChannelBinding::Disable, trusting()).await
}

async fn tls_verified() -> Outcome {
    encrypted("TLS_HOST", ChannelBinding::Prefer, trusted_by("TLS_CA")?).await?;
    refused("certificate verify failed", "TLS_HOST", trusted_by("TLS_OTHER_CA")?).await?;
    refused("mismatch", "PGHOST", trusted_by("TLS_CA")?).await
}

async fn channel_binding() -> Outcome {
    encrypted("PGHOST", ChannelBinding::Require, trusting()).await?;
    let mut plain = config();
    match plain.channel_binding(ChannelBinding::Require).connect(NoTls).await {
        Ok(_) => Err("let in without".into()),
        Err(error) => same("the reason is channel binding", true, told(&error).contains("channel binding")),
    }
}
