//! Everything that is started or created is entered here, so that one call takes it all away again: at the end, on
//! Ctrl-C or SIGTERM, and when we panic.
//!
//! Knows processes, process groups and directories. Refuses to know what the processes do.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

/// How often a child is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);
/// Most processes alive at once; more is a mistake of ours.
const MAX_PROCESSES: usize = 32;
/// How often the removal of a directory is tried while its last users end.
const REMOVE_TRIES: u32 = 40;

/// The signals that end a process, in turn, each with the time that the process has to end.
pub type EndSignals = &'static [(Signal, Duration)];

/// For programs without anything to save.
pub const TERMINATE: EndSignals = &[(Signal::TERM, Duration::from_secs(2)), (Signal::KILL, Duration::from_secs(2))];
/// For `poolhouse serve`: the first SIGTERM drains, the second ends.
pub const DRAIN: EndSignals = &[
    (Signal::TERM, Duration::from_millis(1500)),
    (Signal::TERM, Duration::from_secs(2)),
    (Signal::KILL, Duration::from_secs(2)),
];
/// For a PostgreSQL postmaster: fast shutdown, then immediate shutdown.
pub const POSTMASTER: EndSignals = &[
    (Signal::INT, Duration::from_secs(6)),
    (Signal::QUIT, Duration::from_secs(6)),
    (Signal::KILL, Duration::from_secs(2)),
];

/// Names a started process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessId(u64);

/// The list of what must go. Clones share it.
#[derive(Clone, Default)]
pub struct Cleanup(Arc<Mutex<State>>);

/// Takes everything away when dropped.
pub struct Sweeper(Cleanup);

#[derive(Default)]
struct State {
    processes: Vec<Running>,
    directories: Vec<PathBuf>,
    next_id: u64,
    swept: bool,
}

struct Running {
    id: ProcessId,
    child: Child,
    end_signals: EndSignals,
}

impl Cleanup {
    /// A guard that sweeps when it goes out of scope, a panic included.
    pub fn guard(&self) -> Sweeper {
        Sweeper(self.clone())
    }

    /// Enters a directory that is to be removed in the end.
    pub fn add_directory(&self, path: &Path) {
        self.lock().directories.push(path.to_path_buf());
    }

    /// Starts `command` as the leader of its own process group.
    pub fn spawn(&self, command: &mut Command, end_signals: EndSignals) -> anyhow::Result<ProcessId> {
        let mut state = self.lock();
        ensure!(!state.swept, "interrupted");
        assert!(state.processes.len() < MAX_PROCESSES, "too many processes were started");
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start {program}"))?;
        let id = ProcessId(state.next_id);
        state.next_id += 1;
        state.processes.push(Running { id, child, end_signals });
        Ok(id)
    }

    /// The operating system's number of a process, while it is known here.
    #[cfg(test)]
    pub fn pid(&self, id: ProcessId) -> Option<u32> {
        self.lock().processes.iter().find(|running| running.id == id).map(|running| running.child.id())
    }

    /// Sends a signal to the process and all that it has started, if it is still known here.
    pub fn signal(&self, id: ProcessId, signal: Signal) {
        let state = self.lock();
        if let Some(running) = state.processes.iter().find(|running| running.id == id) {
            // The child has not been waited for, so its process id cannot belong to another process.
            let _ = kill_process_group(Pid::from_child(&running.child), signal);
        }
    }

    /// Whether the process has ended, and how.
    pub fn poll(&self, id: ProcessId) -> anyhow::Result<Option<ExitStatus>> {
        let mut state = self.lock();
        let Some(at) = state.processes.iter().position(|running| running.id == id) else { bail!("interrupted") };
        let status = state.processes[at].child.try_wait()?;
        if status.is_some() {
            state.processes.remove(at);
        }
        Ok(status)
    }

    /// Waits until the process ends by itself; one that takes longer than `limit` is stopped, which is an error.
    pub fn wait(&self, id: ProcessId, limit: Duration) -> anyhow::Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.poll(id)? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.stop(id);
                bail!("still running after {} s, stopped", limit.as_secs());
            }
            thread::sleep(POLL);
        }
    }

    /// Ends a process and waits for it.
    pub fn stop(&self, id: ProcessId) {
        let mut state = self.lock();
        if let Some(at) = state.processes.iter().position(|running| running.id == id) {
            let mut running = state.processes.remove(at);
            running.end();
        }
    }

    /// Ends all processes, the youngest first, and removes the directories. Nothing can be started afterwards.
    pub fn sweep(&self) {
        let mut state = self.lock();
        state.swept = true;
        while let Some(mut running) = state.processes.pop() {
            running.end();
        }
        for directory in std::mem::take(&mut state.directories) {
            remove(&directory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not keep us from cleaning up.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.sweep();
    }
}

impl Running {
    fn end(&mut self) {
        let group = Pid::from_child(&self.child);
        for (signal, patience) in self.end_signals {
            // The child has not been waited for, so its process id cannot belong to another process.
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            let _ = kill_process_group(group, *signal);
            let deadline = Instant::now() + *patience;
            while Instant::now() < deadline {
                if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                    return;
                }
                thread::sleep(POLL);
            }
        }
    }
}

fn remove(directory: &Path) {
    for _ in 0..REMOVE_TRIES {
        if fs::remove_dir_all(directory).is_ok() || !directory.exists() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    eprintln!("could not remove {}", directory.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_ends_processes_and_removes_directories() {
        let directory = tempfile::tempdir().unwrap().keep();
        let cleanup = Cleanup::default();
        cleanup.add_directory(&directory);
        let id = cleanup.spawn(Command::new("sleep").arg("60"), TERMINATE).unwrap();
        let pid = cleanup.pid(id).unwrap();
        drop(cleanup.guard());
        assert!(!directory.exists());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn nothing_starts_after_a_sweep() {
        let cleanup = Cleanup::default();
        cleanup.sweep();
        assert!(cleanup.spawn(&mut Command::new("true"), TERMINATE).is_err());
    }

    #[test]
    fn a_process_that_takes_too_long_is_stopped() {
        let cleanup = Cleanup::default();
        let id = cleanup.spawn(Command::new("sleep").arg("60"), TERMINATE).unwrap();
        assert!(cleanup.wait(id, Duration::from_millis(20)).is_err());
        assert_eq!(cleanup.pid(id), None);
    }
}
