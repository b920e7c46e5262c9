//! Looks at a PgBouncer: from what its console shows to the look that a Poolhouse would give, as far as they mean the
//! same. What PgBouncer does not tell stays empty: connections made and closed, logins, why it cannot connect, and what
//! a server does while a client has it. The last of these the database itself tells, if it is asked, too.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Backend, Client, Listener, ListenerClients, Look, Pool, PoolServers, PoolSettings, Pooler, Row, ServerProcess,
    Times, outage::Outage, sum, unix_time::parse_seconds,
};

/// Rows of one answer of the console that are taken; further ones are left out.
pub const MAX_CONSOLE_ROWS: usize = 20_000;

/// A larger figure counts as this one, so that sums do not overflow.
const MAX_FIGURE: u64 = 1_000_000_000_000_000_000;
/// Pools and databases that are remembered. Beyond that, those that are no longer shown are forgotten.
const MAX_REMEMBERED: usize = 2_000;
/// The database of the console itself.
const CONSOLE_DATABASE: &str = "pgbouncer";

/// What the console shows at one look.
#[derive(Clone, Debug, Default)]
pub struct ConsoleAnswers {
    pub version: String,
    pub pools: Vec<Row>,
    pub stats: Vec<Row>,
    pub databases: Vec<Row>,
    pub clients: Vec<Row>,
    /// Rows of `clients` beyond [`MAX_CONSOLE_ROWS`].
    pub clients_left_out: u64,
    pub servers: Vec<Row>,
    /// SHOW STATE, which older versions do not have.
    pub state: Option<Vec<Row>>,
    pub config: Vec<Row>,
}

/// Makes looks of the console's answers, and remembers what the next one needs.
#[derive(Debug, Default)]
pub struct Console {
    looks: u64,
    /// How often its counters have begun anew.
    restarts: u64,
    pools: BTreeMap<(String, String), KnownPool>,
    next_pool: u64,
    /// By database: what SHOW STATS said last.
    stats: BTreeMap<String, DatabaseStats>,
    /// Clients of the last look.
    clients: BTreeMap<String, KnownClient>,
    next_client: u64,
    /// The last look left out clients.
    was_incomplete: bool,
    /// Clients that came after the first look.
    came: u64,
    /// Clients that were gone at the look after the one that first showed them.
    brief: u64,
}

/// A pool that was seen before.
#[derive(Debug, Default)]
struct KnownPool {
    id: u64,
    /// Figures since the first look.
    sum: DatabaseStats,
    outage: Outage,
}

#[derive(Clone, Copy, Debug, Default)]
struct DatabaseStats {
    transactions: u64,
    /// PgBouncer's time of a transaction, and of its first statement, begins before the client waits
    /// for a server; that wait is subtracted. PgBouncer counts each time when it ends, so that the difference may be
    /// negative for a moment.
    held_us: i64,
    worked_us: i64,
}

#[derive(Clone, Copy, Debug)]
struct KnownClient {
    id: u64,
    is_new: bool,
}

fn text<'r>(row: &'r Row, name: &str) -> &'r str {
    row.get(name).map_or("", String::as_str)
}

fn number(row: &Row, name: &str) -> u64 {
    text(row, name).parse().unwrap_or(0).min(MAX_FIGURE)
}

impl Console {
    /// A look, the clients that hold servers, and all clients. `at_ms`: the time, on any clock. `backends`: the
    /// sessions of the database, if it is looked at.
    pub fn make_look(
        &mut self,
        at_ms: f64,
        shown: &ConsoleAnswers,
        backends: Option<&[Backend]>,
    ) -> (Look, Vec<Client>, Vec<Client>) {
        let is_first = self.looks == 0;
        self.looks += 1;
        let times = shown.clients.iter().chain(&shown.servers);
        let now = times
            .flat_map(|row| [parse_seconds(text(row, "connect_time")), parse_seconds(text(row, "request_time"))])
            .flatten();
        let now = now.max().unwrap_or(0);
        let grown = self.count(shown);
        let pools = self.make_pools(at_ms, shown, &grown);
        let clients = self.count_clients(shown, is_first, now);
        let holders = self.holders(shown, now, &clients, backends.unwrap_or(&[]));
        let states = |state: &str| clients.iter().filter(|(_, client)| client.state == state).count() as u64;
        let listener = Listener {
            name: "PgBouncer".to_owned(),
            protocol: "postgres".to_owned(),
            clients: ListenerClients {
                idle: states("idle"),
                active: states("held"),
                waiting: states("waiting"),
                ..ListenerClients::default()
            },
            accepted: self.came,
            logins: self.came,
            brief: Some(self.brief),
            ..Listener::default()
        };
        let look = Look {
            pooler: Pooler::PgBouncer,
            version: shown.version.clone(),
            instance: self.restarts.to_string(),
            clients_left_out: shown.clients_left_out,
            hides_pause: shown.state.is_none(),
            listeners: vec![listener],
            pools,
            ..Look::default()
        };
        (look, holders, clients.into_values().collect())
    }

    /// The figures of each database since the last look.
    fn count(&mut self, shown: &ConsoleAnswers) -> BTreeMap<String, DatabaseStats> {
        let mut grown = BTreeMap::new();
        if self.stats.len() > MAX_REMEMBERED {
            let shown: BTreeSet<&str> = shown.stats.iter().map(|row| text(row, "database")).collect();
            self.stats.retain(|database, _| shown.contains(database.as_str()));
        }
        for row in shown.stats.iter().filter(|row| text(row, "database") != CONSOLE_DATABASE) {
            let time = |name| i64::try_from(number(row, name)).unwrap_or(0);
            let waited = time("total_wait_time");
            let now = DatabaseStats {
                transactions: number(row, "total_xact_count"),
                held_us: time("total_xact_time").saturating_sub(waited),
                worked_us: time("total_query_time").saturating_sub(waited),
            };
            let database = text(row, "database").to_owned();
            if let Some(before) = self.stats.insert(database.clone(), now) {
                if now.transactions < before.transactions {
                    self.restarts += 1;
                    continue;
                }
                let since = DatabaseStats {
                    transactions: now.transactions - before.transactions,
                    held_us: now.held_us.saturating_sub(before.held_us),
                    worked_us: now.worked_us.saturating_sub(before.worked_us),
                };
                grown.insert(database, since);
            }
        }
        grown
    }

    fn make_pools(&mut self, at_ms: f64, shown: &ConsoleAnswers, grown: &BTreeMap<String, DatabaseStats>) -> Vec<Pool> {
        let settings: BTreeMap<&str, &Row> = shown.databases.iter().map(|row| (text(row, "name"), row)).collect();
        let rows = || shown.pools.iter().filter(|row| text(row, "database") != CONSOLE_DATABASE);
        if self.pools.len() > MAX_REMEMBERED {
            let shown: BTreeSet<(&str, &str)> = rows().map(|row| (text(row, "database"), text(row, "user"))).collect();
            self.pools.retain(|(database, user), _| shown.contains(&(database.as_str(), user.as_str())));
        }
        // PgBouncer counts by database: a pool's transactions are known only where one user alone has a pool of it.
        let mut users = BTreeMap::<&str, usize>::new();
        rows().for_each(|row| *users.entry(text(row, "database")).or_default() += 1);
        let none = Row::new();
        let timeouts = read_timeouts(&shown.config);
        let is_paused =
            shown.state.iter().flatten().any(|row| text(row, "key") == "paused" && text(row, "value") == "yes");
        rows()
            .map(|row| {
                let (database, user) = (text(row, "database"), text(row, "user"));
                let known = self.pools.entry((database.to_owned(), user.to_owned())).or_insert_with(|| {
                    self.next_pool += 1;
                    KnownPool { id: self.next_pool, ..KnownPool::default() }
                });
                let is_alone = users.get(database) == Some(&1);
                if let Some(grown) = grown.get(database).filter(|_| is_alone) {
                    known.sum.transactions = known.sum.transactions.saturating_add(grown.transactions);
                    known.sum.held_us = known.sum.held_us.saturating_add(grown.held_us);
                    known.sum.worked_us = known.sum.worked_us.saturating_add(grown.worked_us);
                }
                let pool = known.make_pool(at_ms, row, settings.get(database).copied().unwrap_or(&none), is_alone);
                Pool { paused: pool.paused || is_paused, settings: timeouts, ..pool }
            })
            .collect()
    }

    /// Counts clients that came and went, and makes a client of each row, by the address of PgBouncer's own object.
    fn count_clients(&mut self, shown: &ConsoleAnswers, is_first: bool, now: u64) -> BTreeMap<String, Client> {
        let mut here = BTreeMap::new();
        let mut clients = BTreeMap::new();
        // Which clients are shown is chance where some are left out: one that appears has not come, and one that is
        // missing has not gone.
        let are_all = shown.clients_left_out == 0 && !self.was_incomplete;
        self.was_incomplete = shown.clients_left_out > 0;
        for row in shown.clients.iter().filter(|row| text(row, "database") != CONSOLE_DATABASE) {
            let (host, port) = (text(row, "addr"), text(row, "port"));
            let key = format!("{} {} {host} {port}", text(row, "ptr"), text(row, "connect_time"));
            let seen = self.clients.get(&key).map(|seen| KnownClient { is_new: false, ..*seen }).unwrap_or_else(|| {
                self.next_client += 1;
                KnownClient { id: self.next_client, is_new: are_all && !is_first }
            });
            here.insert(key, seen);
            let state = match text(row, "state") {
                waiting if waiting.starts_with("waiting") => "waiting",
                _ if text(row, "link").is_empty() => "idle",
                _ => "held",
            };
            let ago = |name| parse_seconds(text(row, name)).map_or(0.0, |then| now.saturating_sub(then) as f64 * 1e3);
            let pool = (text(row, "database").to_owned(), text(row, "user").to_owned());
            let client = Client {
                id: seen.id,
                address: if host == "unix" { host.to_owned() } else { format!("{host}:{port}") },
                protocol: "postgres".to_owned(),
                database: pool.0.clone(),
                user: pool.1.clone(),
                state: state.to_owned(),
                state_ms: ago("request_time"),
                connected_ms: ago("connect_time"),
                pool: self.pools.get(&pool).map(|known| known.id),
                ..Client::default()
            };
            clients.insert(text(row, "ptr").to_owned(), client);
        }
        if are_all {
            self.came += here.values().filter(|seen| seen.is_new).count() as u64;
            self.brief +=
                self.clients.iter().filter(|(key, seen)| seen.is_new && !here.contains_key(*key)).count() as u64;
        }
        self.clients = here;
        clients
    }

    /// Clients that have a server, and what they do with it.
    fn holders(
        &self,
        shown: &ConsoleAnswers,
        now: u64,
        clients: &BTreeMap<String, Client>,
        backends: &[Backend],
    ) -> Vec<Client> {
        let backends: BTreeMap<u32, &Backend> = backends.iter().map(|backend| (backend.pid, backend)).collect();
        let holders = shown.servers.iter().filter_map(|row| {
            let client = clients.get(text(row, "link"))?;
            let pid = text(row, "remote_pid").parse::<u32>().ok()?;
            let (state, ms) = match backends.get(&pid).filter(|backend| backend.user == text(row, "user")) {
                Some(backend) if backend.pauses() => ("transaction", backend.state_ms),
                Some(backend) if backend.works() => ("active", backend.state_ms),
                Some(backend) => ("idle", backend.state_ms),
                None => {
                    let asked = parse_seconds(text(row, "request_time"));
                    ("held", asked.map_or(0.0, |then| now.saturating_sub(then) as f64 * 1e3))
                }
            };
            Some(Client { state: state.to_owned(), state_ms: ms, ..client.clone() })
        });
        holders.collect()
    }

    /// A row of SHOW SERVERS: its pool, and its process at the database.
    pub fn server(row: &Row) -> Option<ServerProcess<'_>> {
        let pid = text(row, "remote_pid").parse().ok()?;
        Some(ServerProcess { database: text(row, "database"), user: text(row, "user"), pid })
    }
}

impl KnownPool {
    fn make_pool(&mut self, at_ms: f64, row: &Row, settings: &Row, is_alone: bool) -> Pool {
        let waiters = number(row, "cl_waiting");
        let servers = PoolServers {
            connecting: number(row, "sv_login"),
            idle: sum(&[number(row, "sv_idle"), number(row, "sv_used")]),
            in_use: sum(&["sv_active", "sv_active_cancel", "sv_being_canceled"].map(|name| number(row, name))),
            checking: number(row, "sv_tested"),
            closing: 0,
            total: 0,
        };
        let ready = sum(&[servers.idle, servers.in_use, servers.checking]);
        let outage_ms = self.outage.observe(waiters > 0 && ready == 0, at_ms);
        let max_wait = number(row, "maxwait") as f64 * 1e3 + number(row, "maxwait_us") as f64 / 1e3;
        let host = Some(text(settings, "host")).filter(|host| !host.is_empty()).unwrap_or("a Unix socket");
        let hold = Times { buckets: vec![self.sum.transactions], sum_ms: self.sum.held_us as f64 / 1e3 };
        Pool {
            id: self.id,
            protocol: "postgres".to_owned(),
            database: text(row, "database").to_owned(),
            user: text(row, "user").to_owned(),
            address: format!("{host}:{}", text(settings, "port")),
            clients: number(row, "cl_active").saturating_add(waiters),
            waiters,
            oldest_wait_ms: (waiters > 0).then_some(max_wait),
            servers: PoolServers { total: ready.saturating_add(servers.connecting), ..servers },
            max_size: number(settings, "pool_size"),
            min_size: number(settings, "min_pool_size"),
            transactions: self.sum.transactions,
            hold: if is_alone { hold } else { Times::default() },
            busy_ms: is_alone.then_some((self.sum.worked_us as f64 / 1e3).max(0.0)),
            keeps_servers: Some(text(row, "pool_mode") == "session"),
            unavailable_ms: outage_ms,
            last_error: outage_ms.map(|_| "PgBouncer's console does not tell, its log does".to_owned()),
            paused: number(settings, "paused") > 0,
            ..Pool::default()
        }
    }
}

/// Time-outs of all pools, where neither a database nor a user has its own.
fn read_timeouts(config: &[Row]) -> PoolSettings {
    let time = |key: &str| {
        let row = config.iter().find(|row| text(row, "key") == key)?;
        let seconds: f64 = text(row, "value").parse().ok()?;
        (seconds > 0.0 && seconds.is_finite()).then_some(seconds * 1e3)
    };
    PoolSettings {
        max_idle_time: time("server_idle_timeout"),
        transaction_idle_time: time("idle_transaction_timeout"),
        client_idle_time: time("client_idle_timeout"),
        ..PoolSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Row> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let names: Vec<&str> = lines.next().unwrap().split('|').map(str::trim).collect();
        let row = |line: &str| {
            let values = line.split('|').map(|value| value.trim().to_owned());
            names.iter().map(|name| (*name).to_owned()).zip(values).filter(|(_, value)| value != "-").collect()
        };
        lines.map(row).collect()
    }

    fn shown(transactions: u64, held: u64, clients: &[(&str, &str, &str)]) -> ConsoleAnswers {
        let head = "type | user | database | state | addr | port | connect_time | request_time | ptr | link".to_owned();
        let line = |(ptr, state, link): &(&str, &str, &str)| {
            format!(
                "C | app | shop | {state} | 10.0.0.7 | 4000 | 2026-11-26 05:13:20 UTC | 2026-11-26 05:13:27 UTC | \
                 {ptr} | {link}"
            )
        };
        let own = "C | watcher | pgbouncer | active | 10.0.0.9 | 9 | 2026-11-26 05:13:00 UTC | 2026-11-26 05:13:30 UTC \
                   | 0x9 |";
        let text: Vec<String> = [head].into_iter().chain(clients.iter().map(line)).chain([own.to_owned()]).collect();
        ConsoleAnswers {
            version: "1.18.0".to_owned(),
            pools: rows(
                "database | user | cl_active | cl_waiting | sv_active | sv_idle | sv_used | sv_tested | sv_login | \
                 maxwait | maxwait_us | pool_mode
                 pgbouncer | pgbouncer | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | statement
                 shop | app | 2 | 1 | 2 | 0 | 1 | 0 | 0 | 2 | 500000 | transaction",
            ),
            stats: rows(&format!(
                "database | total_xact_count | total_xact_time | total_query_time | total_wait_time
                 pgbouncer | 5 | 0 | 0 | 0
                 shop | {transactions} | {} | {} | {}",
                held * 3,
                held * 2 + held / 4,
                held * 2
            )),
            databases: rows(
                "name | host | port | pool_size | min_pool_size | paused
                 shop | 10.0.0.5 | 5432 | 3 | 0 | 0",
            ),
            clients: rows(&text.join("\n")),
            clients_left_out: 0,
            servers: rows(
                "user | database | state | connect_time | request_time | ptr | link | remote_pid
                 app | shop | active | 2026-11-26 05:00:00 UTC | 2026-11-26 05:13:28 UTC | 0x51 | 0x1 | 71
                 app | shop | idle | 2026-11-26 05:00:00 UTC | 2026-11-26 05:13:28 UTC | 0x52 |  | 72",
            ),
            state: None,
            config: rows(
                "key | value\nidle_transaction_timeout | 30\nclient_idle_timeout | 0.0\nserver_idle_timeout | \
                          600",
            ),
        }
    }

    #[test]
    fn figures_of_the_same_meaning_are_in_the_same_field() {
        let mut console = Console::default();
        let clients = [("0x1", "active", "0x51"), ("0x2", "waiting", ""), ("0x3", "active", "")];
        console.make_look(0.0, &shown(100, 8_000_000, &clients), None);
        // Of three seconds of transactions two were spent waiting for a server.
        let (look, holders, all) = console.make_look(500.0, &shown(150, 9_000_000, &clients), None);
        let [pool] = &look.pools[..] else { panic!("{:?}", look.pools) };
        assert_eq!((look.pooler, look.version.as_str()), (Pooler::PgBouncer, "1.18.0"));
        assert_eq!((pool.database.as_str(), pool.waiters, pool.max_size, pool.servers.in_use), ("shop", 1, 3, 2));
        assert_eq!((pool.servers.idle, pool.oldest_wait_ms, pool.keeps_servers), (1, Some(2_500.0), Some(false)));
        // Only what has come since the first look counts.
        assert_eq!((pool.hold.count(), pool.hold.sum_ms, pool.busy_ms), (50, 1_000.0, Some(250.0)));
        assert_eq!(look.listeners[0].clients.total(), 3, "without the doctor's own");
        let [holder] = &holders[..] else { panic!("{holders:?}") };
        assert_eq!((holder.state.as_str(), holder.state_ms, holder.pool), ("held", 2_000.0, Some(pool.id)));
        let states: Vec<_> = all.iter().map(|client| client.state.as_str()).collect();
        assert_eq!(states, ["held", "waiting", "idle"]);
        assert_eq!((all[0].connected_ms, all[0].address.as_str()), (10_000.0, "10.0.0.7:4000"));
    }

    #[test]
    fn the_database_tells_what_a_server_does_meanwhile() {
        let clients = [("0x1", "active", "0x51")];
        let backend = |user: &str| Backend {
            pid: 71,
            user: user.to_owned(),
            state: "idle in transaction".to_owned(),
            state_ms: 900.0,
            ..Backend::default()
        };
        let (_, holders, _) = Console::default().make_look(0.0, &shown(1, 1, &clients), Some(&[backend("app")]));
        assert_eq!((holders[0].state.as_str(), holders[0].state_ms), ("transaction", 900.0));
        // A process of the same number whose user is another.
        let (_, holders, _) = Console::default().make_look(0.0, &shown(1, 1, &clients), Some(&[backend("other")]));
        assert_eq!(holders[0].state, "held");
    }

    #[test]
    fn clients_that_are_gone_at_the_next_look_are_counted() {
        let mut console = Console::default();
        let one = |ptr| [(ptr, "active", "")];
        console.make_look(0.0, &shown(1, 1, &one("0x1")), None);
        for (ptr, came, brief) in [("0x2", 1, 0), ("0x3", 2, 1), ("0x3", 2, 1), ("0x4", 3, 1)] {
            let (look, ..) = console.make_look(0.0, &shown(1, 1, &one(ptr)), None);
            assert_eq!((look.listeners[0].logins, look.listeners[0].brief), (came, Some(brief)), "{ptr}");
        }
    }

    #[test]
    fn clients_that_are_not_shown_have_not_gone() {
        let mut console = Console::default();
        let one = |ptr, clients_left_out| ConsoleAnswers { clients_left_out, ..shown(1, 1, &[(ptr, "active", "")]) };
        for (ptr, left_out, came, brief) in
            [("0x1", 0, 0, 0), ("0x2", 9, 0, 0), ("0x3", 9, 0, 0), ("0x4", 0, 0, 0), ("0x5", 0, 1, 0), ("0x6", 0, 2, 1)]
        {
            let (look, ..) = console.make_look(0.0, &one(ptr, left_out), None);
            let listener = &look.listeners[0];
            assert_eq!(
                (listener.logins, listener.brief, look.clients_left_out),
                (came, Some(brief), left_out),
                "{ptr}"
            );
        }
    }

    #[test]
    fn counters_that_begin_anew_are_another_process() {
        let mut console = Console::default();
        let (before, ..) = console.make_look(0.0, &shown(100, 100, &[]), None);
        let (after, ..) = console.make_look(1.0, &shown(3, 3, &[]), None);
        assert_ne!(before.instance, after.instance);
    }

    #[test]
    fn a_pool_that_stays_without_a_server_is_out_of_reach() {
        let mut bare = shown(1, 1, &[]);
        for name in ["sv_active", "sv_used"] {
            bare.pools[1].insert(name.to_owned(), "0".to_owned());
        }
        let mut console = Console::default();
        let down = |console: &mut Console, at| console.make_look(at, &bare, None).0.pools[0].unavailable_ms;
        assert_eq!(down(&mut console, 100.0), None, "it is cold");
        assert_eq!(down(&mut console, 1_600.0), Some(1_500.0));
    }

    #[test]
    fn time_outs_are_told_in_milliseconds_and_none_where_they_are_off() {
        let settings = Console::default().make_look(0.0, &shown(1, 1, &[]), None).0.pools[0].settings;
        let told = (settings.transaction_idle_time, settings.client_idle_time, settings.max_idle_time);
        assert_eq!(told, (Some(30_000.0), None, Some(600_000.0)));
    }

    #[test]
    fn a_pause_of_everything_is_seen_where_that_is_shown() {
        let state = |paused: &str| {
            let state = Some(rows(&format!("key | value\nactive | no\npaused | {paused}")));
            let look = Console::default().make_look(0.0, &ConsoleAnswers { state, ..shown(1, 1, &[]) }, None).0;
            (look.pools[0].paused, look.hides_pause)
        };
        assert_eq!((state("yes"), state("no")), ((true, false), (false, false)));
        assert!(Console::default().make_look(0.0, &shown(1, 1, &[]), None).0.hides_pause);
    }

    #[test]
    fn pools_that_are_new_at_each_look_are_forgotten_when_they_are_gone() {
        let mut console = Console::default();
        let (mut ids, mut twice) = (BTreeSet::new(), 0);
        for n in 0..50 {
            let name = |n: usize| {
                BTreeMap::from([("database".to_owned(), format!("d{n}")), ("user".to_owned(), "u".to_owned())])
            };
            let pools: Vec<Row> = (n * 100..n * 100 + 100).map(name).chain([name(usize::MAX)]).collect();
            let shown = ConsoleAnswers { stats: pools.clone(), pools, ..ConsoleAnswers::default() };
            let (look, ..) = console.make_look(0.0, &shown, None);
            twice += look.pools.iter().filter(|pool| !ids.insert(pool.id)).count();
        }
        assert_eq!((ids.len(), twice), (5_001, 49), "the pool that stays keeps its number, and no other has it");
        assert!(console.pools.len() <= MAX_REMEMBERED + 101 && console.stats.len() <= MAX_REMEMBERED + 101);
    }
}
