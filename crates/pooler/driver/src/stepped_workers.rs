//! All workers of a process on one thread. Each takes its next step when its caller tells it to, so that the caller
//! (the simulator) decides in which order things happen. Knows no reactor, no clock and no protocol in particular.

use std::{io, sync::Arc, time::Duration};

use seam::Protocol;

use crate::{
    clock::Clock,
    config::{DriverConfig, ListenerSpec, Upstreams},
    handle::Handle,
    reactor::Reactor,
    shared::Shared,
    worker::{Sleep, TICK, Worker},
};

/// Workers without threads. The first one listens, as it does where each has a thread.
pub struct SteppedWorkers<P: Protocol, R: Reactor> {
    shared: Arc<Shared<P, R>>,
    members: Vec<Member<P, R>>,
}

/// One worker, and what it does next.
struct Member<P: Protocol, R: Reactor> {
    /// None: it has ended, and its connections with it.
    worker: Option<Worker<P, R>>,
    next: Next,
}

#[derive(Clone, Copy)]
enum Next {
    GetReady,
    Wait(Sleep),
    Handle,
    Nothing,
}

/// What a worker does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextStep {
    /// It has something to do.
    Work,
    /// It waits until its reactor has something to tell, or is woken; for so long at most.
    Wait(Duration),
    Nothing,
}

impl<P: Protocol, R: Reactor> SteppedWorkers<P, R> {
    /// Makes the workers, one for each reactor.
    ///
    /// # Errors
    /// When a reactor refuses a listening socket.
    pub fn new(
        config: DriverConfig,
        protocol: Arc<P>,
        upstreams: Arc<dyn Upstreams>,
        listeners: Vec<ListenerSpec<R::Socket>>,
        reactors: Vec<(R, R::Waker)>,
        clock: Clock,
    ) -> io::Result<Self> {
        let (reactors, wakers): (Vec<_>, Vec<_>) = reactors.into_iter().unzip();
        let (shared, sockets) = Shared::new(config, protocol, upstreams, listeners, wakers, clock);
        let shared = Arc::new(shared);
        let mut sockets = Some(sockets);
        let member = |(number, reactor)| {
            let sockets = sockets.take().unwrap_or_default();
            let worker = Worker::listening(number as u8, Arc::clone(&shared), reactor, sockets)?;
            Ok(Member { worker: Some(worker), next: Next::GetReady })
        };
        let members = reactors.into_iter().enumerate().map(member).collect::<io::Result<_>>()?;
        Ok(Self { shared, members })
    }

    /// Watches and steers the workers. A call that waits for an answer of a worker gets none, because the worker takes
    /// no step meanwhile.
    pub fn handle(&self) -> Handle {
        let shared = Arc::clone(&self.shared);
        Handle::new(Arc::clone(&shared.process), shared)
    }

    /// What a worker does next. One that waits is to be stepped when its wait is over.
    pub fn next_step(&self, worker: usize) -> NextStep {
        match self.members[worker].next {
            Next::GetReady | Next::Handle => NextStep::Work,
            Next::Wait(sleep) if !sleep.permitted => NextStep::Work,
            Next::Wait(sleep) => NextStep::Wait(sleep.at_most.unwrap_or(TICK).min(TICK)),
            Next::Nothing => NextStep::Nothing,
        }
    }

    /// Has a worker do the next part of its turn: what time has made due, the wait, one completion, or its mail.
    ///
    /// # Errors
    /// When its reactor fails.
    pub fn step(&mut self, worker: usize) -> io::Result<()> {
        let Member { worker: place, next } = &mut self.members[worker];
        let Some(member) = place else { return Ok(()) };
        *next = match *next {
            Next::GetReady => match member.get_ready() {
                Some(sleep) => Next::Wait(sleep),
                None => {
                    *place = None;
                    self.shared.on_ended(worker, false);
                    Next::Nothing
                }
            },
            Next::Wait(sleep) => {
                member.wait(sleep)?;
                Next::Handle
            }
            Next::Handle if member.handle_next() => Next::Handle,
            Next::Handle => {
                member.handle_mail();
                Next::GetReady
            }
            Next::Nothing => Next::Nothing,
        };
        Ok(())
    }
}
