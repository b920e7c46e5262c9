//! What must be true of one pool, kept independently of it: who holds which server, who waits since when and was
//! overtaken how often. It is told of every call and sees every order at the moment it is given.

use std::{collections::BTreeMap, time::Duration};

use pool::{Action, CheckOutFailed, Counts, Grant, Home, Path, Pool, PoolConfig, ServerId, Ticket, Time, UNUSED_TURNS};

/// What a server is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Connecting,
    /// In the pool, since then.
    Idle(Time),
    InUse(u64),
    Checking,
    Closing,
}

#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub id: ServerId,
    pub state: State,
    pub home: Home,
    /// Its cutting was ordered.
    pub cut: bool,
    /// When its start-up was over.
    pub ready_at: Time,
}

/// Somebody who has asked for a server and not heard yet.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub client: u32,
    pub home: Home,
    /// Since when.
    pub since: Time,
    pub arrival: u64,
    /// Its place in the pool's queue.
    pub ticket: Ticket,
    /// How often somebody who came later was served before.
    pub overtaken: u32,
    /// The pool has decided; only the message is under way.
    pub decided: bool,
}

/// The truth about one pool.
#[derive(Debug)]
pub struct Oracle {
    servers: Vec<Option<Server>>,
    /// By number; decided ones too, until they have been told.
    pub waits: BTreeMap<u64, Wait>,
    /// Undecided ones, in the order of arrival.
    queue: BTreeMap<u64, u64>,
    /// The same for those who take only a new connection.
    apart: BTreeMap<u64, u64>,
    arrivals: u64,
    /// The pool's time: the latest that it was ever told.
    pub clock: Time,
    /// Permits that the pool has taken and not given back.
    pub permits: u32,
    /// Permits taken whose connect has not been ordered yet.
    pub unused: u32,
    /// The longest that anybody may have to wait; none if for ever.
    longest: Option<Duration>,
    shortest: Duration,
    overtakes: u32,
    /// What the total may be: more than the maximum after that was lowered.
    ceiling: u32,
    config: PoolConfig,
    /// A pause has just failed all waiters, or fails new ones.
    pub failing: bool,
    /// It grants nothing: it is on hold, or not ready yet.
    pub on_hold: bool,
    /// When somebody last got a server.
    pub served: Time,
    /// When a server that came back last went to somebody who waited.
    pub relayed: Time,
    /// Since when somebody has waited here, if anybody does: always somebody, but not the same one.
    pub queued_since: Time,
    /// It was asked for a server in vain.
    pub refused: bool,
    /// It has had an errand, for which it may want a server where it has none.
    pub errand: bool,
    pub connects: u64,
    /// Grants ever, and failures.
    pub decided: [u64; 2],
}

fn longest(config: &PoolConfig) -> Option<Duration> {
    Some(config.max_wait_time?.max(config.unavailable_wait_time?))
}

fn shortest(config: &PoolConfig) -> Duration {
    let never = Duration::MAX;
    config.max_wait_time.unwrap_or(never).min(config.unavailable_wait_time.unwrap_or(never))
}

impl Oracle {
    /// The truth about a new pool. `strict`: nobody may be overtaken, whatever the options say.
    pub fn new(config: PoolConfig, strict: bool, now: Time) -> Self {
        Self {
            servers: Vec::new(),
            waits: BTreeMap::new(),
            queue: BTreeMap::new(),
            apart: BTreeMap::new(),
            arrivals: 0,
            clock: now,
            permits: 0,
            unused: 0,
            longest: longest(&config),
            shortest: shortest(&config),
            overtakes: if strict { 0 } else { config.max_overtakes },
            ceiling: config.effective_max_size(),
            config,
            failing: false,
            on_hold: true,
            served: now,
            relayed: now,
            queued_since: now,
            refused: false,
            errand: false,
            connects: 0,
            decided: [0; 2],
        }
    }

    /// The pool is called at this time.
    pub fn tick(&mut self, now: Time) -> Time {
        self.clock = self.clock.max(now);
        now
    }

    /// Other options from now on. Who waits already may have to wait as long as before.
    pub fn reconfigured(&mut self, config: PoolConfig) {
        self.longest = match (self.longest, longest(&config)) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
        self.shortest = self.shortest.min(shortest(&config));
        self.overtakes = self.overtakes.max(config.max_overtakes);
        self.ceiling = self.total().max(config.effective_max_size());
        self.config = config;
    }

    /// The server, if it is not gone.
    pub fn server(&mut self, id: ServerId) -> Option<&mut Server> {
        self.servers.get_mut(id.slot())?.as_mut().filter(|s| s.id == id)
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().flatten()
    }

    fn total(&self) -> u32 {
        self.servers().count() as u32
    }

    /// A server is gone: with it goes its permit.
    pub fn gone(&mut self, id: ServerId) {
        let server = self.servers.get_mut(id.slot()).and_then(Option::take);
        assert_eq!(server.map(|s| s.id), Some(id), "a server is gone that was not there");
        self.permits = self.permits.checked_sub(1).expect("a server had no permit");
    }

    /// Somebody joins the queue, or waits apart for a new connection.
    pub fn queued(&mut self, waiter: u64, client: u32, home: Home, ticket: Ticket, unused: bool) {
        if self.queue.is_empty() && self.apart.is_empty() {
            self.queued_since = self.clock;
        }
        let arrival = self.arrivals;
        self.arrivals += 1;
        let wait = Wait { client, home, since: self.clock, arrival, ticket, overtaken: 0, decided: false };
        assert!(self.waits.insert(waiter, wait).is_none(), "a waiter's number is used twice");
        let queue = if unused { &mut self.apart } else { &mut self.queue };
        queue.insert(arrival, waiter);
    }

    /// Somebody leaves the queue. True if the pool must agree that they were in it.
    pub fn cancelled(&mut self, waiter: u64) -> bool {
        let wait = self.waits[&waiter];
        if !wait.decided {
            self.waits.remove(&waiter);
            self.queue.remove(&wait.arrival);
            self.apart.remove(&wait.arrival);
        }
        !wait.decided
    }

    fn decide(&mut self, waiter: u64, waited: Duration) -> Wait {
        let now = self.clock;
        let wait = self.waits.get_mut(&waiter).unwrap_or_else(|| panic!("waiter {waiter} does not wait"));
        assert!(!wait.decided, "waiter {waiter} is answered twice");
        assert_eq!(waited, now - wait.since, "waiter {waiter} did not wait for so long");
        wait.decided = true;
        let wait = *wait;
        self.queue.remove(&wait.arrival);
        self.apart.remove(&wait.arrival);
        wait
    }

    /// The pool gives a server at once, without a queue.
    pub fn granted_at_once(&mut self, grant: &Grant, waiter: u64, home: Home) {
        assert!(self.queue.is_empty(), "waiter {waiter} is served before those who wait");
        assert_eq!((grant.waiter.0, grant.waiter_home, grant.path), (waiter, home, Path::Idle));
        assert_eq!(grant.waited, Duration::ZERO);
        self.check_last_used(grant, home);
        self.take(grant);
    }

    /// The pool gives a server to somebody in the queue.
    pub fn granted(&mut self, grant: &Grant) {
        let takes_used = self.queue.values().any(|waiter| *waiter == grant.waiter.0);
        let wait = self.decide(grant.waiter.0, grant.waited);
        assert_eq!(grant.waiter_home, wait.home, "the waiter waits elsewhere");
        let new = grant.path == Path::Created;
        assert!(new || takes_used, "a used server for somebody who takes none");
        assert!(!(new && takes_used) || self.apart.is_empty(), "a new server passes by those who take no other");
        let first = self.apart.range(..wait.arrival).next().is_none();
        assert!(takes_used || first, "waiter {} is served before others who wait for new servers", grant.waiter.0);
        let mut before = 0;
        let ahead = if takes_used { wait.arrival } else { 0 };
        for (_, waiter) in self.queue.range(..ahead) {
            let other = self.waits.get_mut(waiter).expect("who is queued waits");
            other.overtaken += 1;
            before += 1;
            assert!(other.overtaken <= self.overtakes, "waiter {waiter} was overtaken {} times", other.overtaken);
        }
        assert!(before == 0 || grant.home == wait.home, "somebody overtakes with a server of another home");
        if let Some(longest) = self.config.max_wait_time.and(self.longest) {
            assert!(grant.waited <= longest, "an expired waiter gets a server after {:?}", grant.waited);
        }
        self.take(grant);
    }

    fn take(&mut self, grant: &Grant) {
        assert!(!self.on_hold, "{:?} is granted although the pool is on hold", grant.server);
        let (clock, check, life) = (self.clock, self.config.check_after_idle, self.config.max_life_time);
        let server = self.server(grant.server).expect("a grant of a server that is gone");
        let State::Idle(since) = server.state else {
            panic!("{:?} is granted and is {:?}", grant.server, server.state)
        };
        assert!(!server.cut, "{:?} is granted and was to be cut", grant.server);
        assert!(check.is_none_or(|d| clock - since <= d), "a server is granted unchecked, idle since {since:?}");
        assert!(life.is_none_or(|d| clock - server.ready_at < d), "a server is granted after the end of its life");
        assert_eq!(server.home, grant.home, "the server lives elsewhere");
        server.state = State::InUse(grant.waiter.0);
        self.served = clock;
        self.decided[0] += 1;
    }

    /// Whether the right one of the idle servers is given, where the options make that simple to say.
    fn check_last_used(&self, grant: &Grant, home: Home) {
        if self.config.check_after_idle.is_some() {
            return;
        }
        let since = |server: &Server| match server.state {
            State::Idle(since) => Some((server.home == home, since)),
            _ => None,
        };
        let best = self.servers().filter_map(since).max();
        let given = self.servers().find(|s| s.id == grant.server).and_then(since);
        assert_eq!(given, best, "not the server last used here, or of all");
    }

    /// Since when nobody got a server though somebody waits.
    pub fn waits_since(&self) -> Option<Time> {
        let first = |queue: &BTreeMap<u64, u64>| queue.values().next().map(|waiter| self.waits[waiter].since);
        let first = [first(&self.queue), first(&self.apart)].into_iter().flatten().min()?;
        Some(first.max(self.served))
    }

    /// Whether a server came back just now for somebody who waited, others still wait, and there was always somebody
    /// for a turn.
    pub fn lacks(&self) -> bool {
        let waits = !self.queue.is_empty() || !self.apart.is_empty();
        waits && self.relayed == self.clock && self.clock - self.queued_since >= self.config.turn
    }

    /// Whether there is a server that must be given up because nobody uses it: for so many turns longer than it takes.
    pub fn has_unused(&self, now: Time, turns: u32) -> bool {
        let established = |s: &&Server| matches!(s.state, State::Idle(_) | State::InUse(_) | State::Checking);
        let long = self.config.turn * (UNUSED_TURNS + turns);
        let unused = |s: &Server| matches!(s.state, State::Idle(since) if now - since >= long);
        self.servers().filter(established).count() > self.config.min_size as usize && self.servers().any(unused)
    }

    /// How many connections can be of use beyond those being made: for who waits, or up to the least number.
    fn wanted(&self) -> u32 {
        let count = |wanted: fn(State) -> bool| self.servers().filter(|s| wanted(s.state)).count() as u32;
        let coming = count(|s| matches!(s, State::Connecting | State::Checking));
        let live = count(|s| s != State::Closing);
        let waiting = (self.queue.len() + self.apart.len()) as u32;
        let for_apart = (self.apart.len() as u32).saturating_sub(count(|s| s == State::Connecting));
        let least = self.config.min_size.max(u32::from(self.errand));
        waiting.saturating_sub(coming).max(for_apart).max(least.saturating_sub(live))
    }

    /// The pool has taken a permit.
    pub fn permitted(&mut self) {
        assert!(self.wanted() > 0, "a permit is taken for a connection that nobody needs");
        self.permits += 1;
        self.unused += 1;
    }

    /// The pool has asked the budget for this many, and has neither got them nor withdrawn; besides, permits are on
    /// their way, some of them unasked.
    pub fn check_wishes(&self, wishes: u32, on_their_way: u32, unasked: u32) {
        let asked = (wishes + on_their_way).checked_sub(unasked).expect("unasked permits are on their way");
        assert!(unasked == 0 || wishes == 0, "a wish is remembered though a permit is on its way unasked");
        assert!(asked <= self.wanted(), "{asked} connections are asked for, {} are needed", self.wanted());
    }

    /// An order, at the moment it is given.
    pub fn ordered(&mut self, action: &Action) {
        match *action {
            Action::AskPermit | Action::WithdrawPermit => {}
            Action::ReportStarvation => {
                let waited = self.waits_since().map(|since| self.clock - since);
                let long = waited.is_some_and(|waited| waited >= self.config.turn);
                assert!(long, "a pool insists whose waiters have waited for {waited:?}");
            }
            Action::ReportCongestion => assert!(self.lacks(), "a pool presses whose clients need not wait"),
            Action::ReportSpare => {
                assert!(std::mem::take(&mut self.refused), "a spare server was reported that the budget did not seek")
            }
            Action::Connect { server, home } => {
                self.unused = self.unused.checked_sub(1).expect("a connection without a permit");
                self.connects += 1;
                let place = server.slot();
                if self.servers.len() <= place {
                    self.servers.resize(place + 1, None);
                }
                assert!(self.servers[place].is_none(), "two servers in one slot");
                let home = home.unwrap_or_default();
                self.servers[place] =
                    Some(Server { id: server, state: State::Connecting, home, cut: false, ready_at: Time::NEVER });
                let connecting = self.servers().filter(|s| s.state == State::Connecting).count() as u32;
                assert!(connecting <= self.config.max_connecting, "{connecting} connecting at a time");
            }
            Action::Grant(ref grant) => self.granted(grant),
            Action::Fail { waiter, home, reason, waited } => {
                let wait = self.decide(waiter.0, waited);
                assert_eq!(home, wait.home, "the waiter waits elsewhere");
                self.decided[1] += 1;
                let in_time = match reason {
                    CheckOutFailed::Timeout | CheckOutFailed::Unavailable => waited >= self.shortest,
                    CheckOutFailed::Paused => self.failing || waited >= self.shortest,
                    CheckOutFailed::PoolClosed
                    | CheckOutFailed::PoolCleared
                    | CheckOutFailed::Refused
                    | CheckOutFailed::Unknown => true,
                    CheckOutFailed::QueueFull => false,
                };
                assert!(in_time, "waiter {} fails after {waited:?}: {reason:?}", waiter.0);
            }
            Action::Close { server, .. } => {
                let server = self.server(server).expect("a server is closed that is gone");
                let closable = !matches!(server.state, State::InUse(_) | State::Closing);
                assert!(closable, "a server is closed while {:?}", server.state);
                (server.state, server.cut) = (State::Closing, false);
            }
            Action::Check { server, .. } | Action::Reset { server, .. } => {
                let server = self.server(server).expect("a server is checked that is gone");
                assert!(matches!(server.state, State::Idle(_)), "a server is checked while {:?}", server.state);
                server.state = State::Checking;
            }
            Action::GiveWay { .. } => panic!("no client here keeps a server for long"),
            Action::Interrupt { server, .. } => {
                let server = self.server(server).expect("a server is cut that is gone");
                assert!(matches!(server.state, State::InUse(_)) && !server.cut, "a server is cut that is not in use");
                server.cut = true;
            }
        }
    }

    /// After every step. `late`: by how much time-outs may be late.
    pub fn check(&mut self, pool: &Pool, now: Time, late: Duration) {
        let mut counts = Counts { waiters: (self.queue.len() + self.apart.len()) as u32, ..Counts::default() };
        for server in self.servers() {
            *match server.state {
                State::Connecting => &mut counts.connecting,
                State::Idle(_) => &mut counts.idle,
                State::InUse(_) => &mut counts.in_use,
                State::Checking => &mut counts.checking,
                State::Closing => &mut counts.closing,
            } += 1;
            counts.total += 1;
        }
        assert_eq!(pool.counts(), counts, "the pool counts otherwise");
        assert_eq!(self.unused, 0, "a permit was taken and nothing connected");
        assert_eq!(self.permits, counts.total, "each server stands for one permit");
        self.ceiling = self.ceiling.min(self.config.effective_max_size().max(counts.total));
        assert!(counts.total <= self.ceiling, "{} servers of at most {}", counts.total, self.ceiling);
        let most = self.config.effective_max_size();
        let spare = counts.idle + counts.connecting;
        assert!(spare == 0 || counts.total - counts.closing <= most, "of {counts:?} servers more are kept than {most}");
        if let (Some(longest), Some((_, waiter))) = (self.longest, self.queue.first_key_value()) {
            let waited = now - self.waits[waiter].since;
            assert!(waited <= longest + late, "waiter {waiter} is forgotten: it has waited {waited:?}");
        }
        pool.check_invariants();
    }
}
