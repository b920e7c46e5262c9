//! The doctor beside a run of the load generator: looks at what is loaded, on a thread of its own, until the run is
//! over. Knows nothing of the run.

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
    MAX_WINDOW_LOOKS, looks,
    sources::{Admin, Source, Sql},
};
use crate::remote::RemoteArgs;

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often it checks whether the run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whom it looks at.
#[derive(Clone)]
pub enum Whom {
    /// A Poolhouse, by its admin address.
    Poolhouse(String),
    /// A PostgreSQL.
    Postgres(Secret),
}

/// A source in which a second of quiet stands for so many of the published experiment: what is a long time there is one
/// here.
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

/// See the module.
pub struct Beside {
    over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Diagnosis>>,
}

impl Beside {
    /// Begins to look. A second of quiet stands for so many (`compression`); 1: for itself.
    pub fn begin(whom: Whom, compression: f64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let source: Box<dyn Source> = match whom {
                Whom::Poolhouse(url) => {
                    Box::new(Admin::new(RemoteArgs { url, token_file: None }.remote()?, None, None))
                }
                Whom::Postgres(url) => Box::new(Sql::new(url, None, None)),
            };
            let mut source = Compressed { source, compression };
            let mut left = MAX_WINDOW_LOOKS;
            let mut pause = |_: Duration| {
                let until = Instant::now() + LOOK_INTERVAL;
                while !is_over.load(Relaxed) && Instant::now() < until {
                    thread::sleep(POLL_INTERVAL);
                }
                left -= 1;
                // A long run is looked at for as long as looks can be kept.
                left > 0 && !is_over.load(Relaxed)
            };
            looks(&mut source, None, &mut pause)
        });
        Self { over, thread }
    }

    /// The run is over: what was seen, a line each.
    pub fn end(self) -> Vec<String> {
        self.over.store(true, Relaxed);
        match self.thread.join() {
            Ok(Ok(diagnosis)) => diagnosis.in_short(),
            Ok(Err(error)) => vec![format!("could not look: {error:#}")],
            Err(_) => vec!["could not look, by a defect of its own".to_owned()],
        }
    }
}
