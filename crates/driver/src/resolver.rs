//! Turns host names into addresses on a thread of its own, because the system's resolver blocks.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::mpsc::{SyncSender, TrySendError, sync_channel},
    time::{Duration, Instant},
};

/// Questions that may wait; each belongs to a connection in the making, of which there are
/// `max_connecting` per pool.
const MAX_QUESTIONS: usize = 4096;

/// What the system said, and how long it took to.
pub(crate) type Answer = (Result<Vec<SocketAddr>, String>, Duration);

type Question = (String, u16, Instant, Box<dyn FnOnce(Answer) + Send>);

/// A question that waited longer is not asked any more: who asked has given up, and others wait behind it.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Asks the resolver thread; that ends when all of these are gone.
#[derive(Clone)]
pub(crate) struct Resolver(SyncSender<Question>);

impl Resolver {
    pub(crate) fn start() -> std::io::Result<Self> {
        let (questions, inbox) = sync_channel::<Question>(MAX_QUESTIONS);
        std::thread::Builder::new().name("resolver".into()).spawn(move || {
            for (host, port, asked, answer) in inbox {
                if asked.elapsed() > MAX_AGE {
                    answer((Err(format!("cannot resolve \"{host}\": the resolver is too slow")), asked.elapsed()));
                    continue;
                }
                let start = Instant::now();
                let result = match (host.as_str(), port).to_socket_addrs() {
                    Ok(addresses) => Ok(addresses.collect()),
                    Err(error) => Err(format!("cannot resolve \"{host}\": {error}")),
                };
                answer((result, start.elapsed()));
            }
        })?;
        Ok(Self(questions))
    }

    /// Resolves; `answer` is called on the resolver's thread, or at once if its queue is full.
    pub(crate) fn resolve(&self, host: &str, port: u16, answer: impl FnOnce(Answer) + Send + 'static) {
        match self.0.try_send((host.to_owned(), port, Instant::now(), Box::new(answer))) {
            Ok(()) => {}
            Err(TrySendError::Full((.., answer)) | TrySendError::Disconnected((.., answer))) => {
                answer((Err(format!("cannot resolve \"{host}\": too many questions wait")), Duration::ZERO));
            }
        }
    }
}
