//! The pools of the current configuration, and those of earlier ones that clients still use or have used within
//! `pool_idle_time`. The driver and the sessions know a pool by the same id across reloads. Reads no file.
//!
//! A pool whose database (and user) is still there follows the new configuration. One whose database or user is gone
//! keeps its rules: it takes no new clients, and its present clients may go on. If the new configuration connects
//! servers differently (another host, login or mode), the driver raises the pool's generation: present servers end with
//! their transactions, and clients notice nothing.

mod checks;
mod mongodb;
mod postgres;
mod redis;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, Release},
        },
    },
};

use driver::{PoolSpec, TenantLimits, Upstreams};
use postgres_session::{Directory, ServerLogin, StatePolicy, Unknown};
use seam::{PoolId, Tenant};
use upstream::Kind;

use crate::{
    config::Mode,
    login_checks::LoginChecks,
    peers::Peers,
    pools::{ConfigPools, MAX_POOLS},
};

/// The most pools of all configurations together. Pools that are no longer configured are dropped when they are unused.
const MAX_POOLS_OF_ALL: usize = 4 * MAX_POOLS;

pub struct LivePools {
    /// The configuration at start. A client's `listener` is an index into it.
    first: Arc<ConfigPools>,
    table: RwLock<Table>,
    /// Changes with each reload and each forgotten pool.
    epoch: AtomicU64,
    /// For each database: objects that could change a session without a trace in the statement's text.
    suspicious: RwLock<HashMap<Arc<str>, Arc<[String]>>>,
    /// What finds out what no worker may find out itself; none before the process serves.
    checks: Option<LoginChecks>,
    /// The processes that cancel requests are handed on to; none before the process serves.
    peers: Option<Arc<Peers>>,
    /// The hosts of MongoDB in all configurations.
    mongodb_hosts: Mutex<mongodb::Hosts>,
}

struct Table {
    current: Arc<ConfigPools>,
    /// By the driver's id. An id is never reused.
    entries: BTreeMap<PoolId, Entry>,
    /// The next id.
    next: u32,
    /// The driver's id, by the id in `current`.
    ids: HashMap<PoolId, PoolId>,
    /// Whether two entries may be the same pool of the same configuration: a reload has merged two pools into one, or
    /// came while threads asked for the pool in the configuration before.
    merged: bool,
}

/// A pool across configurations.
#[derive(Clone)]
struct Entry {
    /// The latest configuration that has the pool.
    pools: Arc<ConfigPools>,
    id: PoolId,
    /// Counts the reloads after which its servers had to be replaced.
    revision: u64,
    /// Whether the id was handed out since the driver last asked to forget the pool.
    handed_out: Arc<AtomicBool>,
}

/// What a reload did to the pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Succession {
    pub followed: usize,
    /// How many of the pools that followed have their servers replaced.
    pub renewed: usize,
    /// Pools that are no longer configured.
    pub left_behind: usize,
}

impl LivePools {
    pub fn new(first: ConfigPools) -> Self {
        let first = Arc::new(first);
        let table = Table {
            current: Arc::clone(&first),
            entries: BTreeMap::new(),
            next: 0,
            ids: HashMap::new(),
            merged: false,
        };
        let (epoch, suspicious, mongodb_hosts) = (AtomicU64::new(0), RwLock::default(), Mutex::default());
        Self { first, table: RwLock::new(table), epoch, suspicious, checks: None, peers: None, mongodb_hosts }
    }

    /// Checks logins with the help of this runtime.
    pub fn checking_logins_on(self, runtime: tokio::runtime::Handle) -> Self {
        Self { checks: Some(LoginChecks::new(runtime)), ..self }
    }

    /// Hands cancel requests of other processes on to these.
    pub fn with_peers(self, peers: Arc<Peers>) -> Self {
        Self { peers: Some(peers), ..self }
    }

    /// The processes that cancel requests are handed on to.
    pub fn peers(&self) -> Option<&Peers> {
        self.peers.as_deref()
    }

    /// Makes `next` the current configuration.
    pub fn make_current(&self, next: ConfigPools) -> Succession {
        let next = Arc::new(next.inheriting_from(&self.current()));
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let mut told = Succession::default();
        let mut ids = HashMap::new();
        let table = &mut *table;
        for (known, entry) in &mut table.entries {
            let Some(id) = next.pool_continuing(&entry.pools, entry.id) else {
                told.left_behind += 1;
                continue;
            };
            told.followed += 1;
            let are_same = same_servers(&entry.pools, entry.id, &next, id);
            entry.revision += u64::from(!are_same);
            // If the hosts have changed, the driver replaces the servers by itself.
            let are_there = entry.pools.spec(entry.id).hosts == next.spec(id).hosts;
            told.renewed += usize::from(!(are_same && are_there));
            (entry.pools, entry.id) = (Arc::clone(&next), id);
            // Two pools may be the same from now on: then no new client gets the younger one.
            table.merged |= *ids.entry(id).or_insert(*known) != *known;
        }
        (table.current, table.ids) = (next, ids);
        self.epoch.fetch_add(1, Release);
        told
    }

    /// The databases of PostgreSQL that have a pool and are no longer configured.
    pub fn removed_databases(&self) -> BTreeSet<Arc<str>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let names = table.entries.values().filter_map(|entry| entry.pools.database_of_clients(entry.id));
        names.filter(|name| !table.current.serves(name)).collect()
    }

    /// Objects in a pool's database that could change a session without a trace in the statement's text, as far as is
    /// known.
    pub fn suspicious(&self, pool: PoolId) -> Arc<[String]> {
        if self.suspicious.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Arc::default();
        }
        let Some(database) = self.look_at(pool, |pools, id| pools.server_login(id).database_id) else {
            return Arc::default();
        };
        let known = self.suspicious.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&database).cloned().unwrap_or_default()
    }

    /// The range of sizes within which a pool is tuned, if it is.
    pub fn tuner_limits(&self, pool: PoolId) -> Option<tuner::Limits> {
        self.look_at(pool, ConfigPools::tuner_limits)?
    }

    /// Whether each server of a pool is made for one client; false if the pool has been forgotten.
    pub fn is_dedicated(&self, pool: PoolId) -> bool {
        self.look_at(pool, ConfigPools::is_dedicated).unwrap_or(false)
    }

    /// How servers of a pool return to it; `None` if the pool has been forgotten.
    pub fn mode(&self, pool: PoolId) -> Option<Mode> {
        self.look_at(pool, ConfigPools::mode)
    }

    /// Whether the current configuration tunes any pool.
    pub fn tunes(&self) -> bool {
        self.current().tunes()
    }

    pub fn kind(&self, pool: PoolId) -> Kind {
        let entry = self.entry(pool);
        entry.pools.kind(entry.id)
    }

    fn current(&self) -> Arc<ConfigPools> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner).current)
    }

    /// The entry of a pool that has a client or a server.
    ///
    /// # Panics
    /// If the id was never handed out, or the pool has been forgotten.
    fn entry(&self, id: PoolId) -> Entry {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.entries.get(&id).expect("the pool's id was handed out here, and it is in use").clone()
    }

    /// Calls `look` with a pool's latest configuration and its id there; `None` if the pool has been forgotten. It is
    /// not forgotten during the call.
    fn look_at<T>(&self, id: PoolId, look: impl FnOnce(&ConfigPools, PoolId) -> T) -> Option<T> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.entries.get(&id).map(|entry| look(&entry.pools, entry.id))
    }

    /// Finds a pool in the current configuration, and its driver's id. Adds it if no client has asked for it yet.
    fn find_or_add<T>(
        &self,
        name: impl Fn(&ConfigPools) -> Result<T, Unknown>,
        id: impl Fn(&T) -> PoolId,
    ) -> Result<(T, PoolId), Unknown> {
        loop {
            let pools = self.current();
            let named = name(&pools)?;
            if let Some(known) = self.find_or_add_id(&pools, id(&named))? {
                return Ok((named, known));
            }
            // The pool was forgotten meanwhile: try again.
        }
    }

    /// The driver's id of a pool, which is added if it has none yet, and counts as handed out from now on; `None` if
    /// the pool has been forgotten.
    fn find_or_add_id(&self, pools: &Arc<ConfigPools>, id: PoolId) -> Result<Option<PoolId>, Unknown> {
        {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = table.ids.get(&id).filter(|_| Arc::ptr_eq(&table.current, pools)) {
                table.entries[known].handed_out.store(true, Relaxed);
                return Ok(Some(*known));
            }
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Table { current, entries, next, ids, merged } = &mut *table;
        if !pools.has(id) {
            return Ok(None);
        }
        // A reload may have come since `pools` was read; the answer then follows the old configuration.
        let is_current = Arc::ptr_eq(current, pools);
        if let Some(known) = ids.get(&id).filter(|_| is_current) {
            entries[known].handed_out.store(true, Relaxed);
            return Ok(Some(*known));
        }
        if entries.len() >= MAX_POOLS_OF_ALL {
            return Err(Unknown::Full(format!(
                "there are {MAX_POOLS_OF_ALL} pools, with those that are configured no longer"
            )));
        }
        let known = PoolId(*next);
        *next = next.checked_add(1).ok_or_else(|| Unknown::Full("there are no numbers left for pools".to_owned()))?;
        entries.insert(
            known,
            Entry { pools: Arc::clone(pools), id, revision: 0, handed_out: Arc::new(AtomicBool::new(true)) },
        );
        if is_current {
            ids.insert(id, known);
        } else {
            *merged = true;
        }
        Ok(Some(known))
    }
}

impl Table {
    /// Whether the current configuration still sends clients to a pool.
    fn leads_to(&self, known: PoolId, entry: &Entry) -> bool {
        Arc::ptr_eq(&entry.pools, &self.current) && self.ids.get(&entry.id) == Some(&known)
    }
}

/// Whether two configurations connect and log in the servers of a pool in the same way.
fn same_servers(a: &ConfigPools, of_a: PoolId, b: &ConfigPools, of_b: PoolId) -> bool {
    // Destructured, so that a new field cannot be forgotten here.
    let ServerLogin {
        database,
        user,
        password,
        md5_hash,
        // Its parts are compared below.
        database_id: _,
        parameters,
        connect_query,
        mode,
        state,
        trusted_functions,
        target,
        encryption,
    } = a.server_login(of_a);
    let other = b.server_login(of_b);
    // These follow max_size, and a larger pool is no reason to replace all servers: new ones will have the new values.
    let StatePolicy { max_pinned, share_listener, .. } = other.state;
    let state = StatePolicy { max_pinned, share_listener, ..state };
    let login = (database, user, password, md5_hash) == (other.database, other.user, other.password, other.md5_hash);
    login
        && (parameters, connect_query, mode, state) == (other.parameters, other.connect_query, other.mode, other.state)
        && (trusted_functions, target, encryption) == (other.trusted_functions, other.target, other.encryption)
        && a.upstream_tls(of_a) == b.upstream_tls(of_b)
        && a.sentinel(of_a) == b.sentinel(of_b)
        && a.mongo_options(of_a) == b.mongo_options(of_b)
}

impl Upstreams for LivePools {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.entries.get(&pool)?;
        let mut spec = entry.pools.spec(entry.id);
        spec.revision = entry.revision;
        if !table.leads_to(pool, entry) {
            // No new client comes: idle servers may be closed.
            (spec.config.min_size, spec.config.min_size_once_connected, spec.sizes) = (0, true, None);
            spec.forget_after = entry.pools.pool_idle_time(entry.id);
        }
        Some(spec)
    }

    fn try_forget(&self, pool: PoolId) -> bool {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = table.entries.get(&pool) else { return true };
        if entry.handed_out.swap(false, Relaxed) {
            return false;
        }
        if table.leads_to(pool, entry) {
            let id = entry.id;
            table.ids.remove(&id);
        }
        let entry = table.entries.remove(&pool).expect("just seen");
        let same = |other: &Entry| Arc::ptr_eq(&other.pools, &entry.pools) && other.id == entry.id;
        if !table.merged || !table.entries.values().any(same) {
            entry.pools.forget(entry.id);
        }
        // Sessions of Redis cache the pools they were given.
        self.epoch.fetch_add(1, Release);
        true
    }

    fn at_start(&self) -> Vec<PoolId> {
        let pools = self.current();
        pools.at_start().into_iter().filter_map(|id| self.find_or_add_id(&pools, id).ok().flatten()).collect()
    }

    fn tenant(&self, pool: PoolId) -> Option<Tenant> {
        let entry = self.entry(pool);
        entry.pools.tenant(entry.id)
    }

    fn limits(&self, tenant: &Tenant) -> Option<TenantLimits> {
        self.current().limits(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tls, read::from_text};
    use postgres_session::{LoginAttempt, Proof};
    use seam::Origin;
    use std::path::Path;

    fn config(text: &str) -> ConfigPools {
        let config = from_text(Path::new("p.toml"), text, &|_| None).unwrap();
        let tls = Tls::load(&config).unwrap();
        ConfigPools::new(Arc::new(config), Arc::new(tls))
    }

    const USERS: &str = "[[user]]\nname = \"u\"\npassword = \"x\"\n[[user]]\nname = \"v\"\npassword = \"y\"\n";

    fn with(databases: &str) -> ConfigPools {
        config(&format!("{USERS}{databases}"))
    }

    const SHOP: &str = "[[database]]\nname = \"shop\"\nurl = \"postgres://app:pw@h/d\"\n";

    #[test]
    fn a_pool_keeps_its_id_and_follows_the_new_rules() {
        let pools = LivePools::new(with(SHOP));
        let id = pools.route("shop", "u").unwrap().pool;
        assert_eq!(pools.spec(id).unwrap().config.max_size, 20);
        let told = pools.make_current(with(&format!("{SHOP}max_size = 7\n")));
        assert_eq!(told, Succession { followed: 1, renewed: 0, left_behind: 0 });
        assert_eq!((pools.spec(id).unwrap().config.max_size, pools.spec(id).unwrap().revision), (7, 0));
        assert_eq!(pools.route("shop", "v").unwrap().pool, id);
    }

    #[test]
    fn a_forgotten_pool_leaves_no_trace_and_its_id_is_not_reused() {
        let pools = LivePools::new(with("[[database]]\nname = \"*\"\nurl = \"postgres://app:pw@h\"\n"));
        let id = pools.route("made_up", "u").unwrap().pool;
        let spec = pools.spec(id).unwrap();
        assert_eq!(
            (spec.forget_after, spec.config.min_size_once_connected),
            (Some(std::time::Duration::from_secs(600)), true)
        );
        assert!(!pools.try_forget(id), "a client that was just told of it is about to come");
        assert!(pools.try_forget(id));
        assert!(pools.spec(id).is_none() && pools.suspicious(id).is_empty() && pools.tuner_limits(id).is_none());
        let again = pools.route("made_up", "u").unwrap().pool;
        assert_ne!(again, id, "an id is never another pool's");
        assert_eq!(pools.spec(again).unwrap().database, "made_up");
    }

    #[test]
    fn databases_of_the_fallback_have_separate_catalogues() {
        let pools = LivePools::new(with("[[database]]\nname = \"*\"\nurl = \"postgres://app:pw@h\"\n"));
        let [a, b] = ["a", "b"].map(|name| pools.route(name, "u").unwrap().pool);
        assert_ne!(pools.server_login(a).database_id, pools.server_login(b).database_id);
        pools.note_catalogue(a, &["public.f".to_owned()]);
        assert_eq!((pools.suspicious(a).len(), pools.suspicious(b).len()), (1, 0));
    }

    #[test]
    fn configured_pools_stay_and_removed_ones_may_be_forgotten() {
        let pools = LivePools::new(with(SHOP));
        let id = pools.route("shop", "u").unwrap().pool;
        assert_eq!(pools.spec(id).unwrap().forget_after, None);
        pools.make_current(with(&SHOP.replace("\"shop\"", "\"other\"")));
        let spec = pools.spec(id).unwrap();
        assert!(spec.forget_after.is_some() && spec.config.min_size_once_connected);
        assert!(!pools.try_forget(id) && pools.try_forget(id));
        pools.make_current(with(SHOP));
        assert_ne!(pools.route("shop", "u").unwrap().pool, id);
    }

    #[test]
    fn pools_of_users_that_no_server_logs_in_as_may_be_forgotten() {
        let own = "[[database]]\nname = \"shop\"\nurl = \"postgres://h/d\"\n";
        let pools = LivePools::new(with(own));
        let [u, v] = ["u", "v"].map(|user| pools.route("shop", user).unwrap().pool);
        assert!([u, v].iter().all(|id| pools.spec(*id).unwrap().forget_after.is_none()), "they are configured");
        pools.make_current(with(SHOP));
        assert!([u, v].iter().all(|id| pools.spec(*id).unwrap().forget_after.is_some()));
        let shared = pools.route("shop", "u").unwrap().pool;
        assert_eq!(pools.route("shop", "v").unwrap().pool, shared);
        assert!(pools.spec(shared).unwrap().forget_after.is_none());
        assert!(!pools.try_forget(u) && pools.try_forget(u));
        assert!(pools.spec(v).is_some() && pools.spec(shared).is_some());
    }

    #[test]
    fn another_login_replaces_the_servers_and_keeps_the_clients() {
        let pools = LivePools::new(with(SHOP));
        let id = pools.route("shop", "u").unwrap().pool;
        let told = pools.make_current(with(&SHOP.replace("app:pw", "app2:other")));
        assert_eq!(told.renewed, 1);
        let stricter = SHOP.replace("app:pw", "app2:other").replace("h/d", "h/d?sslmode=require");
        assert_eq!(pools.make_current(with(&stricter)).renewed, 1);
        let told = pools.make_current(with(&SHOP.replace("app:pw", "app2:other")));
        assert_eq!(told.renewed, 1);
        let moved = SHOP.replace("app:pw@h/", "app2:other@elsewhere:5433/");
        assert_eq!(pools.make_current(with(&moved)).renewed, 1, "the servers of another host are others");
        let (spec, login) = (pools.spec(id).unwrap(), pools.server_login(id));
        assert_eq!((spec.revision, spec.user.as_str()), (3, "app2"));
        assert_eq!((login.user.as_str(), login.password.as_deref()), ("app2", Some("other")));
        assert_eq!(pools.route("shop", "u").unwrap().pool, id);
    }

    #[test]
    fn passwords_that_were_looked_up_outlive_a_reload_with_the_same_query() {
        let own = "[[database]]\nname = \"shop\"\nurl = \"postgres://h/d\"\nauth_user = \"lookup\"\n";
        let local = Origin { listener: 0, address: None, port: 0, uid: None };
        let pools = LivePools::new(with(own));
        let Ok(Proof::Ask(ask)) = pools.proof(&LoginAttempt::new(local, "shop", "w")) else {
            panic!("it must be asked")
        };
        assert_eq!(pools.server_login(ask.pool).user, "lookup");
        pools.note_lookup(&LoginAttempt::new(local, "shop", "w"), Some("md50123456789abcdef0123456789abcdef")).ok();
        let id = pools.route("shop", "w").unwrap().pool;
        assert_ne!(id, ask.pool);
        let told = pools.make_current(with(&format!("{own}max_size = 7\n")));
        assert_eq!(told, Succession { followed: 2, renewed: 0, left_behind: 0 });
        let asked_again = pools.proof(&LoginAttempt::new(local, "shop", "w"));
        assert!(matches!(asked_again, Ok(Proof::Ask(_))), "a reload has everyone looked up again");
        assert!(pools.server_login(id).md5_hash.is_some());
        pools.make_current(with(&own.replace("lookup", "other")));
        let Ok(Proof::Ask(again)) = pools.proof(&LoginAttempt::new(local, "shop", "w")) else {
            panic!("it must be asked anew")
        };
        assert_eq!((again.pool, pools.server_login(again.pool).user.as_str()), (ask.pool, "other"));
        assert_eq!(
            pools.make_current(with(&own.replace("lookup", "off").replace("auth_user", "auth_query"))).left_behind,
            2
        );
    }

    #[test]
    fn a_removed_database_takes_no_clients_and_keeps_the_present_ones() {
        let other = SHOP.replace("shop", "other");
        let pools = LivePools::new(with(&format!("{SHOP}min_size = 3\n")));
        let id = pools.route("shop", "u").unwrap().pool;
        assert_eq!(pools.make_current(with(&other)).left_behind, 1);
        assert!(matches!(pools.route("shop", "u"), Err(Unknown::Database)));
        assert_eq!(Vec::from_iter(pools.removed_databases()), ["shop".into()]);
        assert_eq!((pools.server_login(id).user.as_str(), pools.spec(id).unwrap().config.min_size), ("app", 0));
        // It may come back.
        assert_eq!(pools.make_current(with(SHOP)).followed, 1);
        assert!(pools.removed_databases().is_empty());
        assert_eq!(pools.route("shop", "u").unwrap().pool, id);
    }

    #[test]
    fn a_removed_user_leaves_a_pool_behind() {
        let own = "[[database]]\nname = \"shop\"\nurl = \"postgres://h/d\"\n";
        let pools = LivePools::new(with(own));
        let (u, v) = (pools.route("shop", "u").unwrap().pool, pools.route("shop", "v").unwrap().pool);
        assert_ne!(u, v);
        let told = pools.make_current(config(&format!("[[user]]\nname = \"u\"\npassword = \"changed\"\n{own}")));
        assert_eq!(told, Succession { followed: 1, renewed: 1, left_behind: 1 });
        assert_eq!(pools.server_login(v).password.as_deref(), Some("y"));
        assert_eq!(pools.server_login(u).password.as_deref(), Some("changed"));
    }

    #[test]
    fn a_database_of_its_own_takes_over_from_the_fallback() {
        let fallback = "[[database]]\nname = \"*\"\nurl = \"postgres://app:pw@h\"\n";
        let pools = LivePools::new(with(fallback));
        let id = pools.route("shop", "u").unwrap().pool;
        assert_eq!(pools.make_current(with(&format!("{fallback}{SHOP}"))).renewed, 1, "it is called `d` there now");
        assert_eq!(pools.server_login(id).database, "d");
        assert_eq!(pools.route("shop", "u").unwrap().pool, id);
    }
}
