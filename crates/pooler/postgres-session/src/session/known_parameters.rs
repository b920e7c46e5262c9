//! Parameters that are known without asking a server: the defaults of each pool, and the outcome of logins that ask for
//! more. Each set of parameters exists once in the process.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use seam::PoolId;

use crate::sql::{Pairs, Settings, parameters::APPLICATION_NAME};

/// Sets remembered before those without a user are dropped; doubled when all are in use.
const MIN_SWEEP_COUNT: usize = 1024;

/// Most remembered outcomes, by pool and start-up settings; beyond it the memory starts anew.
const MAX_OUTCOMES: usize = 4096;

/// Milliseconds for which clients are told from memory that a server takes no writes. Another server may have been
/// promoted, or the block lifted, and an idle server does not say so.
const READ_ONLY_FROM_MEMORY_MS: u64 = 1000;

/// Parameters that are on where a server takes no writes.
const READ_ONLY: [&[u8]; 2] = [b"in_hot_standby", b"default_transaction_read_only"];

type Names = Vec<Box<[u8]>>;

/// What a login has brought: the settings and facts that the client was told.
#[derive(Clone)]
pub(crate) struct LoginOutcome {
    /// The client's settings, in the server's spelling.
    pub(crate) settings: Arc<Settings>,
    /// The settings of a client that asks for nothing.
    pub(crate) base: Arc<Settings>,
    /// Facts about the server.
    pub(crate) facts: Arc<Pairs>,
}

/// Parameters of all pools that are known without asking a server.
#[derive(Default)]
pub(crate) struct KnownParameters {
    interned: Mutex<InternedSettings>,
    memory: Mutex<PoolMemory>,
    /// Counts changes of the known defaults of any pool.
    defaults_version: AtomicU64,
    now_ms: AtomicU64,
}

#[derive(Default)]
struct InternedSettings {
    sets: HashSet<Arc<Settings>>,
    sweep_at: usize,
}

#[derive(Default)]
struct PoolMemory {
    defaults: HashMap<PoolId, Defaults>,
    /// By pool and the settings that a client asks for.
    outcomes: HashMap<(PoolId, Pairs), LoginOutcome>,
}

struct Defaults {
    settings: Arc<Settings>,
    facts: Arc<Pairs>,
    /// Parameters whose value comes from the role or the database: an old session never gets them.
    of_role: Names,
    /// When a server has last answered, and so reported what it had to.
    last_answer_ms: Arc<AtomicU64>,
}

impl KnownParameters {
    pub(crate) fn intern(&self, mut settings: Settings) -> Arc<Settings> {
        settings.compute_context();
        let mut known = lock(&self.interned);
        if let Some(set) = known.sets.get(&settings) {
            return set.clone();
        }
        if known.sets.len() >= known.sweep_at.max(MIN_SWEEP_COUNT) {
            known.sets.retain(|set| Arc::strong_count(set) > 1);
            known.sweep_at = known.sets.len() * 2;
        }
        let set = Arc::new(settings);
        known.sets.insert(set.clone());
        set
    }

    pub(crate) fn on_tick(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Changes when the known defaults of any pool change.
    #[inline]
    pub(crate) fn defaults_version(&self) -> u64 {
        self.defaults_version.load(Ordering::Acquire)
    }

    /// Whether these are the defaults of the pool, as far as is known.
    pub(crate) fn are_defaults(&self, pool: PoolId, settings: &Arc<Settings>) -> bool {
        lock(&self.memory).defaults.get(&pool).is_none_or(|known| Arc::ptr_eq(&known.settings, settings))
    }

    /// The defaults of the pool, and the names of parameters whose value comes from the role or the database.
    pub(crate) fn defaults(&self, pool: PoolId) -> Option<(Arc<Settings>, Names)> {
        lock(&self.memory).defaults.get(&pool).map(|known| (known.settings.clone(), known.of_role.clone()))
    }

    /// Sets the defaults of the pool; if they are new, remembered outcomes are void. `of_role`: see
    /// [`KnownParameters::defaults`]; `None` if that has not changed.
    pub(crate) fn set_defaults(
        &self,
        pool: PoolId,
        settings: &Arc<Settings>,
        facts: &Arc<Pairs>,
        of_role: Option<Names>,
    ) {
        let mut known = lock(&self.memory);
        let old = known.defaults.remove(&pool);
        let same = old.as_ref().is_some_and(|old| Arc::ptr_eq(&old.settings, settings));
        if !same || old.as_ref().is_some_and(|old| old.facts != *facts) {
            known.outcomes.retain(|(of, _), _| *of != pool);
        }
        let (old_of_role, last_answer_ms) = old.map(|old| (old.of_role, old.last_answer_ms)).unwrap_or_default();
        let of_role = of_role.unwrap_or(old_of_role);
        self.note_answer_time(&last_answer_ms);
        known
            .defaults
            .insert(pool, Defaults { settings: settings.clone(), facts: facts.clone(), of_role, last_answer_ms });
        if !same {
            self.defaults_version.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn forget(&self, pool: PoolId) {
        let mut known = lock(&self.memory);
        if known.defaults.remove(&pool).is_some() {
            known.outcomes.retain(|(of, _), _| *of != pool);
        }
    }

    /// A server of the pool has reported another value of a fact.
    pub(crate) fn fact_changed(&self, pool: PoolId, name: &[u8], value: &[u8]) {
        let mut known = lock(&self.memory);
        if let Some(defaults) = known.defaults.get_mut(&pool) {
            defaults.facts = Arc::new(defaults.facts.with(name, value));
            known.outcomes.retain(|(of, _), _| *of != pool);
        }
    }

    /// The clock that servers of the pool set when they answer.
    pub(crate) fn clock(&self, pool: PoolId) -> Arc<AtomicU64> {
        lock(&self.memory).defaults.get(&pool).map(|known| known.last_answer_ms.clone()).unwrap_or_default()
    }

    /// A server with this clock has just answered: sets the clock to now.
    #[inline]
    pub(crate) fn note_answer_time(&self, clock: &AtomicU64) {
        let now = self.now_ms.load(Ordering::Relaxed);
        // Many do so in the same millisecond.
        if clock.load(Ordering::Relaxed) != now {
            clock.store(now, Ordering::Relaxed);
        }
    }

    /// No server has answered for long enough that something may be new.
    pub(crate) fn is_stale(&self, clock: &AtomicU64) -> bool {
        self.now_ms.load(Ordering::Relaxed) >= clock.load(Ordering::Relaxed) + READ_ONLY_FROM_MEMORY_MS
    }

    /// The outcome of a login that asks for `wanted`, if it is known without asking a server. That a server takes no
    /// writes is remembered only for a short time, unless `even_if_old`.
    pub(crate) fn outcome(&self, pool: PoolId, wanted: &[(String, String)], even_if_old: bool) -> Option<LoginOutcome> {
        let (key, name) = split_off_application_name(wanted);
        let known = lock(&self.memory);
        let defaults = known.defaults.get(&pool)?;
        let (settings, facts) = (defaults.settings.clone(), defaults.facts.clone());
        let own = LoginOutcome { base: settings.clone(), settings, facts };
        let base = if key == Pairs::default() { own } else { known.outcomes.get(&(pool, key))?.clone() };
        let old = !even_if_old && self.is_stale(&defaults.last_answer_ms);
        let is_on = |name: &[u8]| base.facts.get(name).or(base.settings.reported.get(name)) == Some(&b"on"[..]);
        if old && READ_ONLY.iter().any(|name| is_on(name)) {
            return None;
        }
        drop(known);
        let Some(name) = name else { return Some(base) };
        base.settings.reported.get(APPLICATION_NAME)?;
        let settings = base.settings.overlaid(&[("application_name".to_owned(), name.to_owned())]);
        Some(LoginOutcome { settings: self.intern(settings), ..base })
    }

    /// A client of the pool asked for `wanted` and got this.
    pub(crate) fn learn(&self, pool: PoolId, wanted: &[(String, String)], learned: LoginOutcome) {
        let (key, name) = split_off_application_name(wanted);
        let mut base = learned;
        if name.is_some() {
            // Remembered with the application's name of the pool, which is replaced for each client.
            let Some(default) = base.base.reported.get(APPLICATION_NAME) else { return };
            let reported = base.settings.reported.with(APPLICATION_NAME, default);
            let extras = base.settings.extras.without(APPLICATION_NAME);
            base.settings = self.intern(Settings::new(reported, extras));
        }
        let mut known = lock(&self.memory);
        let current = known.defaults.get(&pool).is_some_and(|known| Arc::ptr_eq(&known.settings, &base.base));
        if key == Pairs::default() || !current {
            return;
        }
        if known.outcomes.len() >= MAX_OUTCOMES {
            known.outcomes.clear();
        }
        known.outcomes.insert((pool, key), base);
    }
}

/// Longest application name that PostgreSQL keeps.
const MAX_APPLICATION_NAME: usize = 63;

/// Splits off an application name that the server will take as it is, which need not be learned. The rest is
/// normalized.
fn split_off_application_name(wanted: &[(String, String)]) -> (Pairs, Option<&str>) {
    let verbatim =
        |value: &str| value.len() <= MAX_APPLICATION_NAME && value.bytes().all(|b| (b' '..=b'~').contains(&b));
    let mut name = None;
    let mut rest = Vec::new();
    for (key, value) in wanted {
        if key.as_bytes().eq_ignore_ascii_case(APPLICATION_NAME) && verbatim(value) {
            name = Some(value.as_str());
        } else {
            rest.push((key.to_ascii_lowercase(), value));
        }
    }
    rest.sort();
    (rest.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect(), name)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parameters::tests::{pairs, wanted};

    #[test]
    fn equal_sets_are_one_set() {
        let parameters = KnownParameters::default();
        let set = |value| Settings::new(pairs(&[("TimeZone", value)]), Pairs::default());
        assert!(Arc::ptr_eq(&parameters.intern(set("UTC")), &parameters.intern(set("UTC"))));
        assert!(!Arc::ptr_eq(&parameters.intern(set("UTC")), &parameters.intern(set("CET"))));
    }

    #[test]
    fn sets_without_a_user_are_dropped() {
        let parameters = KnownParameters::default();
        for i in 0..3 * MIN_SWEEP_COUNT {
            parameters.intern(Settings::new(pairs(&[("a", &i.to_string())]), Pairs::default()));
        }
        assert!(lock(&parameters.interned).sets.len() <= MIN_SWEEP_COUNT);
    }

    #[test]
    fn the_application_name_does_not_change_what_a_text_means() {
        let parameters = KnownParameters::default();
        let context = |name, zone| {
            parameters
                .intern(Settings::new(pairs(&[("application_name", name), ("TimeZone", zone)]), Pairs::default()))
                .context()
        };
        assert_eq!(context("a", "UTC"), context("b", "UTC"));
        assert_ne!(context("a", "UTC"), context("a", "CET"));
    }

    #[test]
    fn what_was_learned_is_known_for_every_application_name() {
        let parameters = KnownParameters::default();
        let pool = PoolId(1);
        let reported = pairs(&[("application_name", "ph"), ("TimeZone", "UTC")]);
        let defaults = parameters.intern(Settings::new(reported, Pairs::default()));
        let facts = Arc::new(pairs(&[("server_version", "17")]));
        assert!(parameters.outcome(pool, &[], false).is_none());
        parameters.set_defaults(pool, &defaults, &facts, None);
        assert!(Arc::ptr_eq(&parameters.outcome(pool, &[], false).unwrap().settings, &defaults));
        let psql = parameters.outcome(pool, &wanted(&[("application_name", "psql")]), false).unwrap();
        assert_eq!(psql.settings.reported, pairs(&[("application_name", "psql"), ("TimeZone", "UTC")]));
        assert!(parameters.outcome(pool, &wanted(&[("application_name", "\u{e4}")]), false).is_none());

        let asked = wanted(&[("timezone", "utc"), ("application_name", "one")]);
        assert!(parameters.outcome(pool, &asked, false).is_none());
        let settings = parameters.intern(defaults.overlaid(&wanted(&[("application_name", "one")])));
        parameters.learn(pool, &asked, LoginOutcome { settings, base: defaults, facts });
        let two =
            parameters.outcome(pool, &wanted(&[("application_name", "two"), ("TimeZone", "utc")]), false).unwrap();
        assert_eq!(two.settings.reported, pairs(&[("application_name", "two"), ("TimeZone", "UTC")]));
        let plain = parameters.outcome(pool, &wanted(&[("timezone", "utc")]), false).unwrap();
        assert_eq!(plain.settings.reported.get(b"application_name"), Some(&b"ph"[..]));
    }

    #[test]
    fn a_server_that_starts_otherwise_voids_what_was_learned() {
        let parameters = KnownParameters::default();
        let set = |value| parameters.intern(Settings::new(pairs(&[("TimeZone", value)]), Pairs::default()));
        let start = |value| parameters.set_defaults(PoolId(1), &set(value), &Arc::default(), None);
        start("UTC");
        let learned = LoginOutcome { settings: set("UTC"), base: set("UTC"), facts: Arc::default() };
        parameters.learn(PoolId(1), &wanted(&[("a", "b")]), learned.clone());
        start("UTC");
        assert!(parameters.outcome(PoolId(1), &wanted(&[("a", "b")]), false).is_some());
        start("CET");
        assert!(parameters.outcome(PoolId(1), &wanted(&[("a", "b")]), false).is_none());
        parameters.learn(PoolId(1), &wanted(&[("a", "b")]), learned);
        assert!(parameters.outcome(PoolId(1), &wanted(&[("a", "b")]), false).is_none(), "it is of before");
    }

    #[test]
    fn that_no_writes_are_taken_is_not_told_from_memory_for_long() {
        let parameters = KnownParameters::default();
        let settings = parameters.intern(Settings::new(pairs(&[("TimeZone", "UTC")]), Pairs::default()));
        let facts = |value| Arc::new(pairs(&[("in_hot_standby", value)]));
        parameters.set_defaults(PoolId(1), &settings, &facts("on"), None);
        assert!(parameters.outcome(PoolId(1), &[], false).is_some());
        parameters.on_tick(READ_ONLY_FROM_MEMORY_MS);
        assert!(parameters.outcome(PoolId(1), &[], false).is_none());
        assert!(parameters.outcome(PoolId(1), &[], true).is_some());
        parameters.note_answer_time(&parameters.clock(PoolId(1)));
        assert!(parameters.outcome(PoolId(1), &[], false).is_some());
        parameters.on_tick(3 * READ_ONLY_FROM_MEMORY_MS);
        parameters.fact_changed(PoolId(1), b"in_hot_standby", b"off");
        assert_eq!(parameters.outcome(PoolId(1), &[], false).unwrap().facts, facts("off"));
    }

    #[test]
    fn other_defaults_begin_another_epoch() {
        let parameters = KnownParameters::default();
        let set = |zone| parameters.intern(Settings::new(pairs(&[("TimeZone", zone)]), Pairs::default()));
        parameters.set_defaults(PoolId(1), &set("UTC"), &Arc::default(), Some(vec![Box::from(*b"TimeZone")]));
        let before = parameters.defaults_version();
        parameters.set_defaults(PoolId(1), &set("UTC"), &Arc::default(), None);
        assert_eq!((parameters.defaults_version(), parameters.defaults(PoolId(1)).unwrap().1.len()), (before, 1));
        parameters.set_defaults(PoolId(1), &set("CET"), &Arc::default(), Some(Vec::new()));
        assert!(parameters.defaults_version() != before && parameters.are_defaults(PoolId(1), &set("CET")));
        assert!(!parameters.are_defaults(PoolId(1), &set("UTC")));
    }
}
