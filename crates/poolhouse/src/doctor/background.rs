//! The doctor in the background of a run of the load generator: it looks at the loaded server, on a thread of its own,
//! until the run is over. It knows nothing of the run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use admin_api::Client;
use doctor::{Diagnosis, Line};
use settings::Secret;

use super::{
    MAX_WINDOW_LOOKS, look_repeatedly,
    sources::{PoolhouseSource, Source, SqlSource},
};
use crate::remote::RemoteArgs;

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often it checks whether the run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The server that the doctor looks at.
#[derive(Clone)]
pub enum LookTarget {
    /// A Poolhouse, by its admin address.
    Poolhouse(String),
    /// A PostgreSQL.
    Postgres(Secret),
}

/// A source of a compressed experiment: times of inactivity are stretched by the compression.
struct Compressed {
    source: Box<dyn Source>,
    compression: f64,
}

impl Source for Compressed {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        let mut line = self.source.look(began)?;
        if let Line::Postgres { look, .. } = &mut line {
            let idle = look.backends.iter_mut().filter(|backend| backend.state == "idle");
            idle.for_each(|backend| backend.state_ms *= self.compression);
        }
        Ok(line)
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        self.source.clients()
    }
}

/// A doctor that looks.
pub struct BackgroundDoctor {
    over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Diagnosis>>,
}

impl BackgroundDoctor {
    /// Starts to look. Times of inactivity are multiplied by `compression`.
    pub fn start(subject: LookTarget, compression: f64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let source: Box<dyn Source> = match subject {
                LookTarget::Poolhouse(url) => {
                    Box::new(PoolhouseSource::new(RemoteArgs { url, token_file: None }.remote()?, None, None))
                }
                LookTarget::Postgres(url) => Box::new(SqlSource::new(url, None, None)),
            };
            let mut source = Compressed { source, compression };
            let mut remaining_looks = MAX_WINDOW_LOOKS;
            let mut pause = |_: Duration| {
                let until = Instant::now() + LOOK_INTERVAL;
                while !is_over.load(Relaxed) && Instant::now() < until {
                    thread::sleep(POLL_INTERVAL);
                }
                take_look(&mut remaining_looks) && !is_over.load(Relaxed)
            };
            look_repeatedly(&mut source, None, &mut pause)
        });
        Self { over, thread }
    }

    /// Ends the look when the run is over. Returns the findings, a line each.
    pub fn finish(self) -> Vec<String> {
        self.over.store(true, Relaxed);
        match self.thread.join() {
            Ok(Ok(diagnosis)) => diagnosis.in_short(),
            Ok(Err(error)) => vec![format!("could not look: {error:#}")],
            Err(_) => vec!["could not look, by a defect of its own".to_owned()],
        }
    }
}

/// Counts a look. Returns whether another one can be kept; a last look that failed is repeated even so, and counted.
fn take_look(remaining: &mut u32) -> bool {
    *remaining = remaining.saturating_sub(1);
    *remaining > 0
}

#[cfg(test)]
mod tests {
    use super::take_look;

    #[test]
    fn looks_that_are_repeated_at_the_end_do_not_begin_the_count_anew() {
        let mut remaining = 2;
        assert_eq!([(); 4].map(|()| take_look(&mut remaining)), [true, false, false, false]);
    }
}
