//! Signals of a program that draws on a terminal. Before a signal ends the process the terminal must be restored, and
//! after SIGCONT it must be drawn again, because a shell has used it meanwhile. Draws nothing.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use signal_hook::{
    consts::{SIGCONT, SIGINT, SIGTERM},
    flag,
};

/// What a shell adds to the number of the signal that ended a program.
const ENDED_BY: i32 = 128;

pub(crate) struct Signals {
    ends: [(i32, Arc<AtomicBool>); 2],
    goes_on: Arc<AtomicBool>,
}

impl Signals {
    /// From now on.
    ///
    /// # Errors
    /// The system does not let us.
    pub(crate) fn watched() -> io::Result<Self> {
        let ends = |signal| {
            let came = Arc::new(AtomicBool::new(false));
            // The second one ends the process at once: the terminal may take nothing any more.
            flag::register_conditional_shutdown(signal, ENDED_BY + signal, Arc::clone(&came))?;
            flag::register(signal, Arc::clone(&came))?;
            Ok::<_, io::Error>((signal, came))
        };
        let goes_on = Arc::new(AtomicBool::new(false));
        flag::register(SIGCONT, Arc::clone(&goes_on))?;
        Ok(Self { ends: [ends(SIGTERM)?, ends(SIGINT)?], goes_on })
    }

    /// The process is to end: with what status.
    pub(crate) fn end(&self) -> Option<u8> {
        let (signal, _) = self.ends.iter().find(|(_, came)| came.load(SeqCst))?;
        u8::try_from(ENDED_BY + signal).ok()
    }

    /// The process has been stopped and goes on; told once.
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on.swap(false, SeqCst)
    }
}
