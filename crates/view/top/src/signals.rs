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

/// A shell adds this to the number of the signal that ended a program.
const SIGNAL_STATUS_BASE: i32 = 128;

pub(crate) struct Signals {
    ends: [(i32, Arc<AtomicBool>); 2],
    has_continued: Arc<AtomicBool>,
}

impl Signals {
    /// Watches signals from now on.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub(crate) fn watch() -> io::Result<Self> {
        let ends = |signal| {
            let came = Arc::new(AtomicBool::new(false));
            // The second signal ends the process at once: a terminal that accepts no output would block it forever.
            flag::register_conditional_shutdown(signal, SIGNAL_STATUS_BASE + signal, Arc::clone(&came))?;
            flag::register(signal, Arc::clone(&came))?;
            Ok::<_, io::Error>((signal, came))
        };
        let has_continued = Arc::new(AtomicBool::new(false));
        flag::register(SIGCONT, Arc::clone(&has_continued))?;
        Ok(Self { ends: [ends(SIGTERM)?, ends(SIGINT)?], has_continued })
    }

    /// The exit status, if the process is to end.
    pub(crate) fn end(&self) -> Option<u8> {
        let (signal, _) = self.ends.iter().find(|(_, came)| came.load(SeqCst))?;
        u8::try_from(SIGNAL_STATUS_BASE + signal).ok()
    }

    /// Whether the process was stopped and has continued since the last call: each continuation is reported once.
    pub(crate) fn take_continuation(&self) -> bool {
        self.has_continued.swap(false, SeqCst)
    }
}
