//! What logins wait for and no worker may find out itself: passwords that a directory server checks, keys that take
//! long to derive, and names that the system may ask a server of the network for. Workers only hand checks over and
//! take outcomes. Knows no rule for logins.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use postgres_session::{CheckOutcome, CheckVerdict, LoginCheck};
use seam::ClientTag;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
    time::timeout,
};

use crate::{
    config::LdapOptions,
    ldap::{self, VerifiedPasswords},
    outcomes::Outcomes,
    system_users,
};

/// Passwords that directory servers check at a time. Each takes a connection.
const MAX_AT_DIRECTORY_SERVERS: usize = 1000;
/// Checks of each other kind that may be under way at a time. A client that comes beyond it is told to come again.
const MAX_ON_THREADS: usize = 10_000;
/// Checks of one kind that may be under way for clients of one address, so that none of them fills a lane alone.
const MAX_OF_AN_ADDRESS: usize = 1000;

/// Threads that derive keys at a time. Clients that are connected need the processors, too.
const DERIVATION_THREADS: usize = 2;
/// Threads that look names up at a time. One that waits for a server of the network cannot be called back.
const NAME_THREADS: usize = 4;

/// How long a client waits for the name of a user of the system.
const NAME_TIMEOUT: Duration = Duration::from_secs(5);

/// The checks of a process.
pub struct LoginChecks {
    runtime: Handle,
    finished: Arc<Outcomes<CheckOutcome>>,
    directory_servers: Lane,
    derivations: Lane,
    names: Lane,
}

/// Checks of one kind.
struct Lane {
    under_way: Arc<Mutex<UnderWay>>,
    most: usize,
    threads: Arc<Semaphore>,
}

/// The checks that have begun and not ended.
#[derive(Default)]
struct UnderWay {
    total: usize,
    of_addresses: HashMap<IpAddr, usize>,
}

/// A place among the checks of a lane, which comes back when the check ends, however it does.
struct LanePlace {
    under_way: Arc<Mutex<UnderWay>>,
    address: Option<IpAddr>,
}

impl LoginChecks {
    pub fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            finished: Arc::default(),
            directory_servers: Lane::new(MAX_AT_DIRECTORY_SERVERS, 0),
            derivations: Lane::new(MAX_ON_THREADS, DERIVATION_THREADS),
            names: Lane::new(MAX_ON_THREADS, NAME_THREADS),
        }
    }

    /// Has a directory server check a password. Does not block; so for the following ones.
    pub fn ask_directory_server(
        &self,
        check: LoginCheck,
        password: String,
        options: &Arc<LdapOptions>,
        verified: &Arc<VerifiedPasswords>,
    ) {
        let (options, verified) = (Arc::clone(options), Arc::clone(verified));
        let whose = Asker::of(&check);
        self.begin(&self.directory_servers, whose, async move {
            ldap::check(&options, &check.attempt.user, &password, &verified).await
        });
    }

    /// Makes a computation that takes long.
    pub fn compute(&self, check: &LoginCheck, work: impl FnOnce() -> CheckVerdict + Send + 'static) {
        let outcome = on_thread(Arc::clone(&self.derivations.threads), work);
        self.begin(&self.derivations, Asker::of(check), async move {
            outcome.await.unwrap_or_else(CheckVerdict::Unavailable)
        });
    }

    /// Has the system tell the name of one of its users, which it [knows](system_users::known_name) then for a while.
    pub fn look_up_name(&self, check: &LoginCheck, uid: u32) {
        let outcome = on_thread(Arc::clone(&self.names.threads), move || system_users::look_up_name(uid));
        self.begin(&self.names, Asker::of(check), async move {
            match timeout(NAME_TIMEOUT, outcome).await {
                Ok(Ok(Ok(()))) => CheckVerdict::Known,
                Ok(Ok(Err(why)) | Err(why)) => CheckVerdict::Unavailable(why),
                Err(_) => CheckVerdict::Unavailable("the system takes too long to tell a user's name".to_owned()),
            }
        });
    }

    /// Ends a check for which nothing is to be done.
    pub fn end(&self, check: &LoginCheck, verdict: CheckVerdict) {
        self.finished.note(Asker::of(check).outcome(verdict));
    }

    /// Takes the outcomes that there are.
    pub fn finished(&self) -> Vec<CheckOutcome> {
        self.finished.take()
    }

    fn begin(&self, lane: &Lane, whose: Asker, verdict: impl Future<Output = CheckVerdict> + Send + 'static) {
        let Some(place) = lane.try_enter(whose.address) else {
            let why = "too many logins are being checked already".to_owned();
            return self.finished.note(whose.outcome(CheckVerdict::Unavailable(why)));
        };
        let finished = Arc::clone(&self.finished);
        self.runtime.spawn(async move {
            let verdict = verdict.await;
            drop(place);
            finished.note(whose.outcome(verdict));
        });
    }
}

impl Lane {
    fn new(most: usize, threads: usize) -> Self {
        Self { under_way: Arc::default(), most, threads: Arc::new(Semaphore::new(threads)) }
    }

    /// A place for a check that a client of this address needs, if there is one.
    fn try_enter(&self, address: Option<IpAddr>) -> Option<LanePlace> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = address.and_then(|address| under_way.of_addresses.get(&address)).copied().unwrap_or(0);
        if under_way.total >= self.most || of_address >= MAX_OF_AN_ADDRESS {
            return None;
        }
        under_way.total += 1;
        if let Some(address) = address {
            under_way.of_addresses.insert(address, of_address + 1);
        }
        Some(LanePlace { under_way: Arc::clone(&self.under_way), address })
    }
}

impl Drop for LanePlace {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.total -= 1;
        if let Some(address) = self.address
            && let Some(count) = under_way.of_addresses.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                under_way.of_addresses.remove(&address);
            }
        }
    }
}

/// The client that waits for a check.
struct Asker {
    client: ClientTag,
    serial: u64,
    address: Option<IpAddr>,
}

impl Asker {
    fn of(check: &LoginCheck) -> Self {
        Self { client: check.client, serial: check.serial, address: check.attempt.origin.address }
    }

    fn outcome(self, verdict: CheckVerdict) -> CheckOutcome {
        CheckOutcome { client: self.client, serial: self.serial, verdict }
    }
}

/// Does work that blocks on a thread of its own, when there are fewer of these than there may be. It counts until the
/// work is done, also if the outcome is awaited no more.
async fn on_thread<T: Send + 'static>(
    threads: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let place = threads.acquire_owned().await.map_err(|error| error.to_string())?;
    let (done, outcome) = oneshot::channel();
    let work = move || {
        // The client may have gone.
        let _ = done.send(work());
        drop(place);
    };
    let thread = thread::Builder::new().name("login-check".to_owned()).spawn(work);
    thread.map_err(|error| format!("there is no thread for it: {error}"))?;
    outcome.await.map_err(|_| "it ended by a defect of Poolhouse".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_all_places_of_a_lane() {
        let lane = Lane::new(MAX_OF_AN_ADDRESS + 1, 1);
        let address = |last| Some(IpAddr::from([10, 0, 0, last]));
        let mut places: Vec<LanePlace> = (0..MAX_OF_AN_ADDRESS).map_while(|_| lane.try_enter(address(1))).collect();
        assert_eq!(places.len(), MAX_OF_AN_ADDRESS);
        assert!(lane.try_enter(address(1)).is_none());
        places.push(lane.try_enter(address(2)).unwrap());
        assert!(lane.try_enter(None).is_none(), "the lane is full");
        drop(places);
        assert!(lane.under_way.lock().unwrap().of_addresses.is_empty());
        assert!(lane.try_enter(address(1)).is_some());
    }

    #[test]
    fn work_that_hangs_holds_up_what_waits_for_its_place_and_nothing_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let threads = Arc::new(Semaphore::new(1));
            let (free, hangs) = std::sync::mpsc::channel::<()>();
            let first = on_thread(Arc::clone(&threads), move || hangs.recv().is_ok());
            assert!(timeout(Duration::from_millis(20), first).await.is_err());
            let second = || on_thread(Arc::clone(&threads), || 7);
            assert!(timeout(Duration::from_millis(20), second()).await.is_err(), "the thread is not free yet");
            drop(free);
            assert_eq!(second().await, Ok(7));
        });
    }
}
