//! The doctor beside a run of the load generator: looks at what is loaded, on a thread of its own, until the run is over. Knows nothing of the
//! run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use doctor::Diagnosis;
use settings::Secret;

use super::{
    MOST_LOOKS, looks,
    sources::{Admin, Source, Sql},
};
use crate::remote::RemoteArgs;

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(500);
/// How soon it hears that the run is over.
const NAP: Duration = Duration::from_millis(20);

/// Whom it looks at.
#[derive(Clone)]
pub enum Whom {
    /// A Poolhouse, by its admin address.
    Poolhouse(String),
    /// A PostgreSQL.
    Postgres(Secret),
}

/// See the module.
pub struct Beside {
    over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Diagnosis>>,
}

impl Beside {
    /// Begins to look.
    pub fn begin(whom: Whom) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut source: Box<dyn Source> = match whom {
                Whom::Poolhouse(url) => Box::new(Admin::new(RemoteArgs { url, token_file: None }.remote()?)),
                Whom::Postgres(url) => Box::new(Sql::new(url, None, None)),
            };
            let mut left = MOST_LOOKS;
            let mut pause = |_: Duration| {
                let until = Instant::now() + EVERY;
                while !is_over.load(Relaxed) && Instant::now() < until {
                    thread::sleep(NAP);
                }
                left -= 1;
                // A long run is looked at for as long as looks can be kept.
                left > 0 && !is_over.load(Relaxed)
            };
            looks(source.as_mut(), None, &mut pause)
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
