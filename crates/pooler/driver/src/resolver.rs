//! Turns host names into addresses on threads of its own, because the system's resolver blocks. There are few of them,
//! made when they are first needed, and only two of them work on one name: a name for which no answer comes delays only
//! itself.

use std::{
    collections::{HashMap, VecDeque},
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Lookups that may wait. Each belongs to a connection in the making, and a pool makes at most `max_connecting` at a
/// time.
const MAX_LOOKUPS: usize = 4096;
const MAX_THREADS: usize = 8;
/// Threads that look up the same name at a time.
const MAX_THREADS_OF_A_NAME: usize = 2;
/// A lookup that waited longer fails: the connection that asked was given up, and other lookups wait behind it.
const MAX_LOOKUP_AGE: Duration = Duration::from_secs(5);

/// Names whose failure is remembered. Beyond it, those are forgotten that no longer count, and then all.
const MAX_FAILURES: usize = 4096;

/// Addresses of one name that are tried; a name server may give thousands.
const MAX_ADDRESSES: usize = 64;

/// The addresses or the error, and how long the lookup took.
pub type Answer = (Result<Vec<SocketAddr>, String>, Duration);

type Ask = dyn Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync;

struct Lookup {
    host: String,
    port: u16,
    asked: Instant,
    answer: Box<dyn FnOnce(Answer) + Send>,
}

/// Dropping it ends its threads.
pub struct Resolver(Arc<LookupQueue>);

/// What the threads share.
struct LookupQueue {
    state: Mutex<State>,
    news: Condvar,
    ask: Box<Ask>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Lookup>,
    threads: usize,
    idle: usize,
    /// The number of threads that look up each name.
    names: HashMap<String, usize>,
    /// When names could not be looked up, and why.
    failures: HashMap<String, (Instant, String)>,
    /// How long a failure counts; zero: another lookup tries again.
    failure_ttl: Duration,
    closed: bool,
}

impl Resolver {
    /// Asks the system's resolver.
    pub fn start() -> Self {
        Self::asking(|host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }

    fn asking(ask: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(LookupQueue { state: Mutex::default(), news: Condvar::new(), ask: Box::new(ask) }))
    }

    /// How long a name that could not be looked up counts as such; zero: the next lookup tries again.
    pub fn set_failure_ttl(&self, ttl: Duration) {
        self.0.lock().failure_ttl = ttl;
    }

    /// Resolves; `answer` is called on one of the resolver's threads, or at once if too many lookups wait, or the name
    /// has failed lately.
    pub fn resolve(&self, host: &str, port: u16, answer: impl FnOnce(Answer) + Send + 'static) {
        let lookup = Lookup { host: host.to_owned(), port, asked: Instant::now(), answer: Box::new(answer) };
        let mut state = self.0.lock();
        if state.waiting.len() >= MAX_LOOKUPS {
            drop(state);
            return lookup.fail("too many lookups wait");
        }
        if let Some(why) = state.recent_failure(host) {
            drop(state);
            return lookup.fail(&why);
        }
        state.waiting.push_back(lookup);
        // An idle thread that was notified of an earlier lookup counts as idle until it has woken.
        if state.waiting.len() > state.idle && state.threads < MAX_THREADS {
            let queue = Arc::clone(&self.0);
            match std::thread::Builder::new().name("resolver".into()).spawn(move || queue.work()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    let refused: Vec<_> = state.waiting.drain(..).collect();
                    drop(state);
                    return refused.into_iter().for_each(|q| q.fail(&format!("no thread for it: {error}")));
                }
                // The other threads take it.
                Err(_) => {}
            }
        }
        self.0.news.notify_one();
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.news.notify_all();
    }
}

impl LookupQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of one thread.
    fn work(&self) {
        let mut state = self.lock();
        while !state.closed {
            let Some(lookup) = state.next() else {
                state.idle += 1;
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            let host = lookup.host.clone();
            let outcome = self.settle(lookup);
            state = self.lock();
            state.done(&host);
            state.note(host, outcome);
            // A lookup of the same name may go on.
            self.news.notify_one();
        }
    }

    /// Answers a lookup. The outcome is that of the name, if it was looked up.
    fn settle(&self, lookup: Lookup) -> Option<Result<(), String>> {
        if lookup.asked.elapsed() > MAX_LOOKUP_AGE {
            lookup.fail("the resolver is too slow");
            return None;
        }
        let start = Instant::now();
        match (self.ask)(&lookup.host, lookup.port) {
            Ok(mut addresses) => {
                addresses.truncate(MAX_ADDRESSES);
                (lookup.answer)((Ok(addresses), start.elapsed()));
                Some(Ok(()))
            }
            Err(error) => {
                let why = error.to_string();
                lookup.fail(&why);
                Some(Err(why))
            }
        }
    }
}

impl State {
    /// The oldest lookup whose name is not looked up by [`MAX_THREADS_OF_A_NAME`] threads already.
    fn next(&mut self) -> Option<Lookup> {
        let free = |q: &Lookup| self.names.get(&q.host).is_none_or(|n| *n < MAX_THREADS_OF_A_NAME);
        let at = self.waiting.iter().position(free)?;
        let lookup = self.waiting.remove(at)?;
        *self.names.entry(lookup.host.clone()).or_default() += 1;
        Some(lookup)
    }

    fn done(&mut self, host: &str) {
        let asking = self.names.get_mut(host).expect("the name was being asked for");
        *asking -= 1;
        if *asking == 0 {
            self.names.remove(host);
        }
    }

    /// Why a name could not be looked up, if that counts still.
    fn recent_failure(&self, host: &str) -> Option<String> {
        let (at, why) = self.failures.get(host)?;
        (at.elapsed() < self.failure_ttl).then(|| why.clone())
    }

    fn note(&mut self, host: String, outcome: Option<Result<(), String>>) {
        match outcome {
            Some(Err(why)) if !self.failure_ttl.is_zero() => {
                if self.failures.len() >= MAX_FAILURES {
                    let ttl = self.failure_ttl;
                    self.failures.retain(|_, (at, _)| at.elapsed() < ttl);
                }
                if self.failures.len() >= MAX_FAILURES {
                    self.failures.clear();
                }
                self.failures.insert(host, (Instant::now(), why));
            }
            Some(_) => drop(self.failures.remove(&host)),
            None => {}
        }
    }
}

impl Lookup {
    fn fail(self, why: &str) {
        let error = format!("cannot resolve \"{}\": {why}", self.host);
        (self.answer)((Err(error), self.asked.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_name_without_an_answer_delays_only_itself() {
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let resolver = Resolver::asking(move |host, port| {
            if host == "dead" {
                let _ = held.lock().unwrap().recv();
            }
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        });
        let (answers, inbox) = channel();
        for _ in 0..20 {
            let answers = answers.clone();
            resolver.resolve("dead", 1, move |_| answers.send("dead").unwrap());
        }
        resolver.resolve("alive", 2, move |(result, _)| {
            assert_eq!(result.unwrap(), [SocketAddr::from(([127, 0, 0, 1], 2))]);
            answers.send("alive").unwrap();
        });
        assert_eq!(inbox.recv_timeout(Duration::from_secs(5)), Ok("alive"));
        drop(release);
        let dead = (0..20).filter(|_| inbox.recv_timeout(Duration::from_secs(5)) == Ok("dead")).count();
        assert_eq!(dead, 20, "every lookup is answered");
    }

    #[test]
    fn a_lookup_does_not_wait_behind_one_for_which_an_idle_thread_has_yet_to_wake() {
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let resolver = Resolver::asking(move |host, _| {
            if host == "dead" {
                let _ = held.lock().unwrap().recv();
            }
            Ok(Vec::new())
        });
        let (answers, inbox) = channel();
        let resolve = |host: &'static str| {
            let answers = answers.clone();
            resolver.resolve(host, 1, move |_| answers.send(host).unwrap());
        };
        resolve("first");
        assert_eq!(inbox.recv_timeout(Duration::from_secs(5)), Ok("first"));
        while resolver.0.lock().idle == 0 {
            std::thread::yield_now();
        }
        resolve("dead");
        resolve("alive");
        assert_eq!(inbox.recv_timeout(Duration::from_secs(5)), Ok("alive"));
        drop(release);
        assert_eq!(inbox.recv_timeout(Duration::from_secs(5)), Ok("dead"));
    }

    #[test]
    fn of_a_name_with_thousands_of_addresses_a_few_are_tried() {
        let many = |_: &str, port| Ok((0..5000).map(|n: u32| SocketAddr::from((n.to_be_bytes(), port))).collect());
        let (answers, inbox) = channel();
        let resolver = Resolver::asking(many);
        resolver.resolve("many", 1, move |(result, _)| answers.send(result).unwrap());
        assert_eq!(inbox.recv_timeout(Duration::from_secs(5)).unwrap().unwrap().len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_failure_counts_for_its_time() {
        let (asked, counted) = channel();
        let resolver = Resolver::asking(move |_, _| {
            asked.send(()).unwrap();
            Err(std::io::Error::other("no such name"))
        });
        let (answers, inbox) = channel();
        let resolve = |host: &'static str| {
            let answers = answers.clone();
            resolver.resolve(host, 1, move |(result, _)| answers.send(result.unwrap_err()).unwrap());
            // The thread notes a failure after it has answered.
            let error = inbox.recv_timeout(Duration::from_secs(5)).unwrap();
            while !resolver.0.lock().names.is_empty() {
                std::thread::yield_now();
            }
            error
        };
        resolver.set_failure_ttl(Duration::from_secs(60));
        assert_eq!(resolve("a"), resolve("a"));
        resolve("b");
        assert_eq!(counted.try_iter().count(), 2, "each name is looked up once");
        resolver.set_failure_ttl(Duration::ZERO);
        resolve("a");
        resolve("a");
        assert_eq!(counted.try_iter().count(), 2, "each lookup tries again");
    }

    #[test]
    fn an_error_names_the_host() {
        let resolver = Resolver::asking(|_, _| Err(std::io::Error::other("no such name")));
        let (answers, inbox) = channel();
        resolver.resolve("nowhere", 5432, move |(result, _)| answers.send(result).unwrap());
        let error = inbox.recv_timeout(Duration::from_secs(5)).unwrap().unwrap_err();
        assert_eq!(error, "cannot resolve \"nowhere\": no such name");
    }
}
