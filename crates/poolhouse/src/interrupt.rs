//! Ctrl-C and SIGTERM while something is measured: the first one ends it with what there is, the second one at once.
//! Nothing that was started is left behind either way.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use anyhow::Context;

use crate::private::cleanup::Cleanup;

/// Exit status of a process that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

/// Who watches for it.
pub struct Interrupt {
    /// Set by the first one.
    pub stop: Arc<AtomicBool>,
    /// What the second one takes away before it ends the process.
    pub cleanup: Cleanup,
}

/// Begins to watch.
///
/// # Errors
/// The system refuses, or a handler exists already.
pub fn watch() -> anyhow::Result<Interrupt> {
    let (stop, cleanup) = (Arc::new(AtomicBool::new(false)), Cleanup::default());
    let (flag, started) = (Arc::clone(&stop), cleanup.clone());
    ctrlc::set_handler(move || {
        if flag.swap(true, Relaxed) {
            started.sweep();
            std::process::exit(INTERRUPTED);
        }
        eprintln!("\ninterrupted: what is under way ends; once more ends at once");
    })
    .context("cannot watch for Ctrl-C")?;
    Ok(Interrupt { stop, cleanup })
}
