//! The predecessors: processes of the configuration that no longer listen, but still have clients. This process leaves
//! them what they hold of each limit until they have ended. It need not have taken over from them.

use std::sync::Arc;

use driver::Handle;

use super::{
    limits::{FollowedPredecessor, Held, LimitShares, held_before},
    *,
};

/// How long a predecessor may take for its first report.
const FIRST_REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of the predecessor that this process takes over from. Others have higher numbers.
pub(super) const TAKEN_OVER_FROM: usize = 0;

pub struct Predecessor {
    pub(super) number: usize,
    pub(super) stream: UnixStream,
    pub(super) lines: Lines,
    pub(super) report: Report,
}

pub struct Predecessors {
    /// All but the one that this process takes over from.
    others: Vec<Predecessor>,
    /// The last report of each, by its number.
    reports: HashMap<usize, Report>,
}

impl Predecessors {
    /// Finds all predecessors and reads their first reports. To be called once this process has the listening sockets:
    /// a process that had them before reports by then.
    pub fn find(config: &Config, taken_over_from: Option<&Predecessor>) -> Self {
        let streams = Meeting::of(config).map(|meeting| meeting.find_reporters()).unwrap_or_default();
        let numbered = streams.into_iter().zip(TAKEN_OVER_FROM + 1..);
        let mut others: Vec<_> =
            numbered.filter_map(|(stream, number)| first_report(stream, number).ok().flatten()).collect();
        // A process that began to end after it gave its sockets reports at both of its sockets.
        let giver = taken_over_from.map_or(0, |giver| giver.report.process);
        others.retain(|other| giver == 0 || other.report.process != giver);
        let reports = others.iter().chain(taken_over_from).map(|one| (one.number, one.report.clone())).collect();
        Self { others, reports }
    }

    pub fn held(&self) -> Held {
        held_before(self.reports.values())
    }

    /// The shares in each limit: what the predecessors hold is left to them.
    pub fn limit_shares(&self, handle: Handle) -> LimitShares {
        LimitShares::new(handle, self.reports.clone())
    }

    /// Follows the reports of each predecessor until it has ended, on a thread each.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn follow(self, limits: &Arc<LimitShares>) -> io::Result<()> {
        let followed = self.others.into_iter().map(|predecessor| {
            let pid = pid(&predecessor.stream);
            tracing::info!(pid, "a process of this configuration still has clients: limits hold for both together");
            predecessor.follow(limits)
        });
        followed.fold(Ok(()), Result::and)
    }
}

/// `None` if the process serves clients, or has just ended.
fn first_report(stream: UnixStream, number: usize) -> io::Result<Option<Predecessor>> {
    stream.set_read_timeout(Some(FIRST_REPORT_TIMEOUT))?;
    let mut lines = Lines::of(&stream)?;
    let report = match lines.next() {
        Ok(report) => report,
        Err(error) if is_end(&error) => return Ok(None),
        // A process that reports nothing may hold any number of servers.
        Err(error) => {
            let pid = pid(&stream);
            let reason = "a process of this configuration does not say what it holds: limits may be exceeded until it \
                          does or ends";
            tracing::warn!(%error, pid, "{reason}");
            Report::default()
        }
    };
    Ok(Some(Predecessor { number, stream, lines, report }))
}

impl Predecessor {
    /// Follows the predecessor's reports until it has ended.
    pub(super) fn follow(self, limits: &Arc<LimitShares>) -> io::Result<()> {
        let predecessor = limits.followed_predecessor(self.number);
        self.stream.set_read_timeout(None)?;
        let watch = move || follow(self.lines, predecessor);
        std::thread::Builder::new().name("handover".into()).spawn(watch)?;
        Ok(())
    }
}

/// A predecessor that is stopped, or sends what is not understood, keeps what it held.
fn follow(mut lines: Lines, predecessor: FollowedPredecessor) {
    loop {
        match lines.next() {
            Ok(report) => predecessor.update(report),
            Err(error) if is_end(&error) => break,
            Err(error) => tracing::debug!(%error, "a process before this one"),
        }
    }
    match predecessor.end() {
        0 => tracing::info!("the process before has ended: all limits are this one's own"),
        others => tracing::info!(others, "a process before this one has ended; others have not"),
    }
}

/// Whether an error means that the other process has ended, rather than that it is silent or not understood.
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, Other, TimedOut, WouldBlock};
    !matches!(error.kind(), InvalidData | Other | TimedOut | WouldBlock)
}

pub(super) fn pid(stream: &UnixStream) -> i32 {
    rustix::net::sockopt::socket_peercred(stream).map_or(0, |peer| peer.pid.as_raw_nonzero().get())
}
