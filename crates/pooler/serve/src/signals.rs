//! Signals, as what they ask of the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    Reload,
    /// Clients wait for servers, which close as they become free.
    Pause,
    Resume,
    End(Ending),
}

/// How the process is to end, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    pub why: &'static str,
    pub manner: Manner,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Idle clients are sent away, and transactions may end.
    Drain,
    /// Clients stay until they leave.
    Leave,
    AtOnce,
}

impl Ending {
    pub fn drain(why: &'static str) -> Self {
        Self { why, manner: Manner::Drain }
    }
}

/// Signals that are caught.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    of_pgbouncer: Option<OfPgBouncer>,
}

/// Signals that only PgBouncer gives a meaning.
struct OfPgBouncer {
    quit: Signal,
    user1: Signal,
    user2: Signal,
}

impl Signals {
    /// Must be called within a runtime. In PgBouncer's place its signals are caught, too.
    pub fn new(in_place_of_pgbouncer: bool) -> io::Result<Self> {
        let of_pgbouncer = match in_place_of_pgbouncer {
            true => Some(OfPgBouncer {
                quit: signal(SignalKind::quit())?,
                user1: signal(SignalKind::user_defined1())?,
                user2: signal(SignalKind::user_defined2())?,
            }),
            false => None,
        };
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: signal(SignalKind::hangup())?, of_pgbouncer })
    }

    /// What the next signal asks for.
    pub async fn next(&mut self) -> Wish {
        let at_terminate = if self.of_pgbouncer.is_some() { Manner::Leave } else { Manner::Drain };
        tokio::select! {
            _ = self.terminate.recv() => Wish::End(Ending { why: "SIGTERM", manner: at_terminate }),
            _ = self.interrupt.recv() => Wish::End(Ending::drain("SIGINT")),
            _ = self.hangup.recv() => Wish::Reload,
            wish = OfPgBouncer::next(&mut self.of_pgbouncer) => wish,
        }
    }

    /// The next signal that ends the process.
    pub async fn next_ending(&mut self) -> Ending {
        loop {
            match self.next().await {
                Wish::End(ending) => return ending,
                Wish::Reload => tracing::info!("got SIGHUP while shutting down, ignoring"),
                Wish::Pause => tracing::info!("got SIGUSR1 while shutting down, ignoring"),
                Wish::Resume => tracing::info!("got SIGUSR2 while shutting down, ignoring"),
            }
        }
    }
}

impl OfPgBouncer {
    async fn next(signals: &mut Option<Self>) -> Wish {
        let Some(Self { quit, user1, user2 }) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = quit.recv() => Wish::End(Ending { why: "SIGQUIT", manner: Manner::AtOnce }),
            _ = user1.recv() => Wish::Pause,
            _ = user2.recv() => Wish::Resume,
        }
    }
}
