//! The Rust driver: what an application does with MongoDB, many tasks at once. What a task reads must hold the nonce that it alone wrote, so
//! an answer that reached another client is noticed.

use std::{
    collections::HashMap,
    error::Error,
    fmt::Debug,
    future::Future,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use mongodb::{
    Client, Collection, Cursor, Database, ServerType,
    bson::{Bson, Document, Uuid, doc},
    error::{ErrorKind, WriteFailure},
    event::{EventHandler, cmap::CmapEvent, command::CommandEvent, sdam::SdamEvent},
    options::{ClientOptions, CollectionOptions, ReadPreference, ReturnDocument, SelectionCriteria},
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Barrier, task::JoinSet};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const TASKS: usize = 8;
const CHECKS: [&str; 9] =
    ["crud", "bulk", "cursors", "aggregations", "sessions", "large", "errors", "hundreds", "monitoring"];

// What the driver tells of all clients of this program.
static POOLS_CLEARED: AtomicUsize = AtomicUsize::new(0);
static SERVERS_UNKNOWN: AtomicUsize = AtomicUsize::new(0);
static HEARTBEATS: AtomicUsize = AtomicUsize::new(0);
static SESSIONS_HEARD: LazyLock<Mutex<HashMap<String, Vec<String>>>> = LazyLock::new(Mutex::default);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Thing {
    #[serde(rename = "_id")]
    id: String,
    value: String,
    own: String,
    n: i32,
    seen: bool,
}

struct App {
    client: Client,
    database: Database,
    own: String,
    /// It is being closed by its user.
    leaving: Arc<AtomicBool>,
}

impl App {
    async fn connect(pool: u32, own: &str) -> Outcome<Self> {
        let uri = format!("mongodb://{}:{}/?{}", variable("HOST"), variable("PORT"), variable("OPTIONS"));
        let mut options = ClientOptions::parse(uri).await?;
        options.max_pool_size = Some(pool);
        options.heartbeat_freq = Some(Duration::from_millis(500));
        options.server_selection_timeout = Some(Duration::from_secs(20));
        let leaving = Arc::new(AtomicBool::new(false));
        let leaves = leaving.clone();
        options.cmap_event_handler = Some(EventHandler::callback(move |told| {
            if matches!(told, CmapEvent::PoolCleared(_)) && !leaves.load(SeqCst) {
                POOLS_CLEARED.fetch_add(1, SeqCst);
            }
        }));
        let leaves = leaving.clone();
        options.sdam_event_handler = Some(EventHandler::callback(move |told| match told {
            SdamEvent::ServerDescriptionChanged(change) => {
                let is_lost = change.new_description.server_type() == ServerType::Unknown
                    && change.previous_description.server_type() != ServerType::Unknown;
                SERVERS_UNKNOWN.fetch_add(usize::from(is_lost && !leaves.load(SeqCst)), SeqCst);
            }
            SdamEvent::ServerHeartbeatSucceeded(_) => {
                HEARTBEATS.fetch_add(1, SeqCst);
            }
            _ => {}
        }));
        if own.starts_with("sessions") {
            options.command_event_handler = Some(EventHandler::callback(|told| {
                let CommandEvent::Started(started) = told else { return };
                if let Ok(lsid) = started.command.get_document("lsid") {
                    SESSIONS_HEARD.lock().unwrap().entry(lsid.to_string()).or_default().push(started.command_name);
                }
            }));
        }
        let client = Client::with_options(options)?;
        let database = client.database("app");
        Ok(Self { client, database, own: own.to_owned(), leaving })
    }

    fn things(&self, name: &str) -> Collection<Thing> {
        self.database.collection(name)
    }

    async fn close(self) {
        self.leaving.store(true, SeqCst);
        self.client.shutdown().await;
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn is_balanced() -> bool {
    variable("OPTIONS").contains("loadBalanced=true")
}

fn nonce() -> String {
    Uuid::new().to_string()
}

fn same<T: PartialEq + Debug>(got: T, wanted: T) -> Outcome {
    if got == wanted {
        Ok(())
    } else {
        Err(format!("{:.200} instead of {:.200}", format!("{got:?}"), format!("{wanted:?}")).into())
    }
}

fn expected(is_it: bool, got: &impl Debug) -> Outcome {
    if is_it { Ok(()) } else { Err(format!("{got:?} was not expected").into()) }
}

fn thing(id: &str, value: &str, n: i32) -> Thing {
    Thing { id: id.to_owned(), value: value.to_owned(), n, ..Thing::default() }
}

/// So many things, numbered, each with an _id of its own.
fn numbered(count: i32, value: &str, own: &str) -> Vec<Thing> {
    (0..count).map(|n| Thing { own: own.to_owned(), ..thing(&nonce(), value, n) }).collect()
}

fn ids<'a>(things: impl IntoIterator<Item = &'a Thing>) -> Vec<String> {
    let mut found: Vec<String> = things.into_iter().map(|each| each.id.clone()).collect();
    found.sort();
    found
}

async fn all<T: for<'a> Deserialize<'a>>(mut cursor: Cursor<T>) -> Outcome<Vec<T>> {
    let mut found = Vec::new();
    while cursor.advance().await? {
        found.push(cursor.deserialize_current()?);
    }
    Ok(found)
}

/// Does this that many times at once, and tells the first failure.
async fn at_once<Work>(count: usize, work: impl Fn(usize) -> Work) -> Outcome
where
    Work: Future<Output = Outcome> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..count {
        tasks.spawn(work(number));
    }
    let mut first = Ok(());
    while let Some(done) = tasks.join_next().await {
        let outcome = done.unwrap_or_else(|problem| Err(problem.into()));
        first = first.and(outcome);
    }
    first
}

async fn crud(app: &App) -> Outcome {
    let (things, own) = (app.things("crud"), app.own.as_str());
    let (value, other) = (nonce(), nonce());
    same(things.insert_one(thing(own, &value, 1)).await?.inserted_id, Bson::String(own.to_owned()))?;
    same(things.find_one(doc! { "_id": own }).await?, Some(thing(own, &value, 1)))?;
    same(things.update_one(doc! { "value": &value }, doc! { "$inc": { "n": 6 } }).await?.modified_count, 1)?;
    let seen = doc! { "$set": { "seen": true } };
    let changed =
        things.find_one_and_update(doc! { "value": &value }, seen).return_document(ReturnDocument::After).await?;
    same(changed, Some(Thing { seen: true, ..thing(own, &value, 7) }))?;
    let replaced = things.replace_one(doc! { "_id": &other }, thing(&other, &value, 0)).upsert(true).await?;
    same(replaced.upserted_id, Some(Bson::String(other)))?;
    same(things.count_documents(doc! { "value": &value }).await?, 2)?;
    same(things.distinct("value", doc! { "_id": own }).await?, vec![Bson::String(value.clone())])?;
    same(things.delete_many(doc! { "value": &value }).await?.deleted_count, 2)?;
    same(things.find_one(doc! { "value": &value }).await?, None)
}

async fn bulk(app: &App) -> Outcome {
    let (things, own) = (app.things("bulk"), app.own.as_str());
    let given = numbered(100, "", own);
    for ordered in [true, false] {
        same(things.insert_many(&given).ordered(ordered).await?.inserted_ids.len(), 100)?;
        let few = doc! { "own": own, "n": { "$lt": 20 } };
        same(things.update_many(few, doc! { "$set": { "n": -1 } }).await?.modified_count, 20)?;
        let other = Thing { own: own.to_owned(), ..thing(&nonce(), "", 1_000) };
        let replaced = things.replace_one(doc! { "_id": &other.id }, &other).upsert(true).await?;
        same(replaced.upserted_id, Some(Bson::String(other.id.clone())))?;
        let some = doc! { "own": own, "n": { "$gte": 20, "$lt": 50 } };
        same(things.delete_many(some).await?.deleted_count, 30)?;
        let fresh = numbered(3, "", own);
        let mixed = [&fresh[0], &given[0], &fresh[1], &given[1], &fresh[2]];
        let failed = things.insert_many(mixed).ordered(ordered).await.err().map(|error| *error.kind);
        let Some(ErrorKind::InsertMany(failed)) = failed else { return Err("no InsertMany error".into()) };
        let errors: Vec<_> = failed.write_errors.iter().flatten().map(|each| (each.index, each.code)).collect();
        let (kept, wanted) = if ordered { (1, vec![(1, 11000)]) } else { (3, vec![(1, 11000), (3, 11000)]) };
        same(errors, wanted)?;
        let left = given[..20].iter().chain(&given[50..]).chain(&fresh[..kept]).chain([&other]);
        same(ids(&all(things.find(doc! { "own": own }).await?).await?), ids(left))?;
        things.delete_many(doc! { "own": own }).await?;
    }
    Ok(())
}

async fn cursors() -> Outcome {
    for pool in [1, 10, 100] {
        // A driver in front of a balancer keeps a connection for each open cursor.
        let count = if is_balanced() { pool as usize } else { 200 };
        let app = Arc::new(App::connect(pool, "cursors").await?);
        let opened = Arc::new(Barrier::new(count));
        at_once(count, |number| {
            let (app, opened) = (app.clone(), opened.clone());
            async move {
                let (things, given) = (app.things(&format!("cursors{number}")), numbered(12, &nonce(), ""));
                let open = async {
                    things.insert_many(&given).await?;
                    let ours = doc! { "value": &given[0].value };
                    let mut cursor = things.find(ours).batch_size(3).sort(doc! { "n": 1 }).await?;
                    same(cursor.advance().await?, true)?;
                    Outcome::Ok(cursor)
                };
                let cursor = open.await;
                opened.wait().await;
                let cursor = cursor?;
                let first = cursor.deserialize_current()?;
                let mut found = vec![first];
                found.extend(all(cursor).await?);
                same(found, given)
            }
        })
        .await?;
        Arc::into_inner(app).ok_or("a task has not ended")?.close().await;
    }
    Ok(())
}

async fn aggregations(app: &App) -> Outcome {
    let (things, own, value) = (app.things("aggregations"), app.own.as_str(), nonce());
    let mut given = numbered(120, &value, own);
    things.insert_many(&given).await?;
    given.reverse();
    let ours = doc! { "$match": { "own": own } };
    for _ in 0..3 {
        let ordered = [ours.clone(), doc! { "$sort": { "n": -1 } }, doc! { "$skip": 20 }];
        let found = all(things.aggregate(ordered).batch_size(6).with_type::<Thing>().await?).await?;
        same(&found[..], &given[20..])?;
        let grouped = [ours.clone(), doc! { "$group": { "_id": "$value", "n": { "$sum": "$n" } } }];
        let found = all(things.aggregate(grouped).with_type::<Thing>().await?).await?;
        same(found, vec![thing(&value, "", 119 * 60)])?;
    }
    Ok(())
}

async fn sessions(app: &App) -> Outcome {
    let (things, own, value) = (app.things("sessions"), app.own.as_str(), nonce());
    let mut session = app.client.start_session().causal_consistency(true).await?;
    let mut other = app.client.start_session().await?;
    things.insert_one(thing(own, &value, 0)).session(&mut session).await?;
    for n in 0..10 {
        things.update_one(doc! { "_id": own }, doc! { "$set": { "n": n } }).session(&mut session).await?;
        same(things.find_one(doc! { "_id": own }).session(&mut session).await?, Some(thing(own, &value, n)))?;
        same(things.find_one(doc! { "value": &value }).session(&mut other).await?, Some(thing(own, &value, n)))?;
    }
    let given = numbered(40, &value, own);
    things.insert_many(&given).session(&mut session).await?;
    let ours = things.find(doc! { "own": own }).batch_size(3).sort(doc! { "n": 1 });
    let mut cursor = ours.session(&mut session).await?;
    let mut found = Vec::new();
    while let Some(next) = cursor.next(&mut session).await {
        found.push(next?);
    }
    same(found, given)?;
    let heard = SESSIONS_HEARD.lock().unwrap();
    let of = |id: &Document| heard.get(&id.to_string()).cloned().unwrap_or_default();
    let finds = |id: &Document| of(id).iter().filter(|kind| *kind == "find").count();
    same(of(session.id()).contains(&"getMore".to_owned()), true)?;
    same((finds(session.id()), finds(other.id())), (11, 10))
}

async fn large(app: &App) -> Outcome {
    let (things, own) = (app.things("large"), app.own.as_str());
    let number = own.bytes().last().unwrap_or(b'0') - b'0';
    let text = nonce().repeat(500_000);
    let text = &text[..[4, 6, 8, 10, 12, 15][usize::from(number)] * 1_000_000];
    things.insert_one(thing(own, text, 0)).await?;
    same(things.find_one(doc! { "_id": own }).await?.is_some_and(|found| found.value == text), true)?;
    let text = &text[..4_000_000];
    things.insert_many(numbered(2, text, own)).await?;
    let found = all(things.find(doc! { "own": own }).await?).await?;
    same(found.len() == 2 && found.iter().all(|each| each.value == text), true)
}

async fn failing(app: &App) -> Outcome {
    let things = app.things("errors");
    for _ in 0..5 {
        let value = nonce();
        let ours = Thing { own: app.own.clone(), ..thing(&value, "", 0) };
        things.insert_one(&ours).await?;
        let failed = things.insert_one(thing(&value, "", 0)).await.err().map(|error| *error.kind);
        let is_known =
            matches!(failed, Some(ErrorKind::Write(WriteFailure::WriteError(ref error))) if error.code == 11000);
        expected(is_known, &failed)?;
        let failed = app.database.run_command(doc! { format!("no{value}"): 1 }).await.err().map(|error| *error.kind);
        let is_known =
            matches!(failed, Some(ErrorKind::Command(ref error)) if error.code == 59 && error.message.contains(&value));
        expected(is_known, &failed)?;
        let failed = things.find_one(doc! { format!("$no{value}"): 1 }).await.err().map(|error| *error.kind);
        let is_known = matches!(failed, Some(ErrorKind::Command(ref error)) if error.message.contains(&value));
        expected(is_known, &failed)?;
        same(things.find_one(doc! { "_id": &value }).await?, Some(ours))?;
    }
    Ok(())
}

async fn hundreds() -> Outcome {
    let mut apps = Vec::new();
    for _ in 0..3 {
        apps.push(Arc::new(App::connect(100, "hundreds").await?));
    }
    at_once(300, |number| {
        let app = apps[number % 3].clone();
        async move {
            let things = app.things("hundreds");
            for n in 0..3 {
                let given = thing(&nonce(), &nonce(), -1);
                things.insert_one(&given).await?;
                same(things.find_one(doc! { "_id": &given.id }).await?, Some(given.clone()))?;
                let change = doc! { "$set": { "n": n } };
                let ours = things.find_one_and_update(doc! { "_id": &given.id }, change);
                let changed = ours.return_document(ReturnDocument::After).await?;
                same(changed, Some(Thing { n, ..given }))?;
            }
            Ok(())
        }
    })
    .await?;
    same(apps[0].things("hundreds").count_documents(doc! {}).await?, 900)?;
    for app in apps {
        Arc::into_inner(app).ok_or("a task has not ended")?.close().await;
    }
    Ok(())
}

async fn monitoring(app: &App) -> Outcome {
    let before = HEARTBEATS.load(SeqCst);
    let preferred = SelectionCriteria::ReadPreference(ReadPreference::SecondaryPreferred { options: None });
    let options = CollectionOptions::builder().selection_criteria(preferred).build();
    let things: Collection<Thing> = app.database.collection_with_options("monitoring", options);
    for _ in 0..2 {
        let given = Thing { own: app.own.clone(), ..thing(&nonce(), "", 0) };
        things.insert_one(&given).await?;
        same(things.find_one(doc! { "_id": &given.id }).await?, Some(given))?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    // Nobody watches a balancer.
    same(HEARTBEATS.load(SeqCst) > before + 2, !is_balanced())
}

async fn with_client(check: &'static str, number: usize) -> Outcome {
    let app = App::connect(4, &format!("{check}:{number}")).await?;
    let outcome = match check {
        "crud" => crud(&app).await,
        "bulk" => bulk(&app).await,
        "aggregations" => aggregations(&app).await,
        "sessions" => sessions(&app).await,
        "large" => large(&app).await,
        "errors" => failing(&app).await,
        "monitoring" => monitoring(&app).await,
        _ => Err(format!("there is no check {check}").into()),
    };
    app.close().await;
    outcome
}

async fn done(check: &'static str) -> Outcome {
    match check {
        "cursors" => cursors().await?,
        "hundreds" => hundreds().await?,
        _ => at_once(if check == "large" { 6 } else { TASKS }, |number| with_client(check, number)).await?,
    }
    same((POOLS_CLEARED.load(SeqCst), SERVERS_UNKNOWN.load(SeqCst)), (0, 0))
}

/// The driver's version, as it was built.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    lock.split("name = \"mongodb\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("?")
}

#[tokio::main]
async fn main() {
    println!("version {}", version());
    for check in CHECKS {
        match done(check).await {
            Ok(()) => println!("ok {check}"),
            Err(why) => {
                let why = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                println!("failed {check}: {why:.300}");
            }
        }
    }
}
