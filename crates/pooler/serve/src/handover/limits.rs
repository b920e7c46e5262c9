//! How processes of one configuration divide each limit: what is left to the predecessors, whose clients finish, and to
//! the successor. Sends nothing itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use driver::{CapUsage, Handle};

use super::{Report, meeting};

/// Servers under each limit, by the limit's name.
pub type Held = HashMap<String, u32>;

/// The shares of predecessors, this process and the successor in each limit.
pub struct LimitShares {
    handle: Handle,
    process: u64,
    reserved: Mutex<Reserved>,
}

#[derive(Default)]
struct Reserved {
    /// The last report of each predecessor that has not ended, by its number.
    predecessors: HashMap<usize, Report>,
    successor: Held,
}

impl LimitShares {
    /// Leaves the predecessors what they hold, as the driver does from its start.
    pub(super) fn new(handle: Handle, predecessors: HashMap<usize, Report>) -> Self {
        let reserved = Reserved { predecessors, successor: Held::new() };
        Self { handle, process: meeting::random_number(), reserved: Mutex::new(reserved) }
    }

    fn change(&self, change: impl FnOnce(&mut Reserved)) {
        let mut reserved = self.lock();
        change(&mut reserved);
        let mut sum = reserved.successor.clone();
        for (name, held) in held_before(reserved.predecessors.values()) {
            *sum.entry(name).or_default() += held;
        }
        self.handle.reserve(sum);
    }

    fn lock(&self) -> MutexGuard<'_, Reserved> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle to the predecessor with this number.
    pub(super) fn followed_predecessor(self: &Arc<Self>, number: usize) -> FollowedPredecessor {
        FollowedPredecessor { limits: Arc::clone(self), number }
    }

    /// Records a predecessor's report, and reserves what it holds.
    pub(super) fn record_report(&self, number: usize, report: Report) {
        self.change(|reserved| _ = reserved.predecessors.insert(number, report));
    }

    /// Takes back the successor's share.
    pub fn take_back(&self) {
        self.change(|reserved| reserved.successor.clear());
    }

    /// Leaves the successor its share of each limit, while this process still accepts clients. Returns what the
    /// successor cannot have.
    pub(super) fn begin_to_share(&self) -> Report {
        self.share_with_clients(u64::MAX)
    }

    /// Leaves the successor its share of each limit. Returns what the successor cannot have.
    pub(super) fn share(&self) -> Report {
        self.share_with_clients(self.handle.pools(None).iter().map(|pool| pool.clients).sum())
    }

    fn share_with_clients(&self, clients: u64) -> Report {
        let limited = || self.handle.caps().into_iter().filter(|cap| cap.limit > 0);
        let mut report = Report { process: self.process, ..Report::default() };
        self.change(|reserved| {
            reserved.successor.clear();
            // The driver knows only limits under which a server was once asked for.
            report.held = held_before(reserved.predecessors.values());
            for CapUsage { name, limit, .. } in limited() {
                let rest = limit.saturating_sub(report.held.get(&name).copied().unwrap_or_default());
                let own = share(rest, clients);
                reserved.successor.insert(name.clone(), rest - own.min(rest));
                report.own.insert(name, own);
            }
        });
        // From here on no more than the share can be used, so what is used beyond it can only shrink.
        for CapUsage { name, used, .. } in limited() {
            let own = report.own.entry(name.clone()).or_default();
            *own = used.max(*own);
            *report.held.entry(name).or_default() += *own;
        }
        report
    }
}

/// A predecessor that has not ended. When this is dropped, the predecessor's part of the limits is free.
pub(super) struct FollowedPredecessor {
    limits: Arc<LimitShares>,
    number: usize,
}

impl FollowedPredecessor {
    /// Records the predecessor's next report.
    pub(super) fn update(&self, report: Report) {
        self.limits.record_report(self.number, report);
    }

    /// Removes a predecessor that has ended. Returns how many others have not.
    pub(super) fn end(self) -> usize {
        self.remove()
    }

    fn remove(&self) -> usize {
        let mut others = 0;
        self.limits.change(|reserved| {
            reserved.predecessors.remove(&self.number);
            others = reserved.predecessors.len();
        });
        others
    }
}

impl Drop for FollowedPredecessor {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Servers that all predecessors hold under each limit: the sum of their own. When one predecessor releases a server
/// and another takes the place, their reports come in any order. So the result is at least what any of them reports of
/// itself and its own predecessors.
pub(super) fn held_before<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> Held {
    let mut all = Held::new();
    for (name, own) in reports.clone().flat_map(|report| &report.own) {
        *all.entry(name.clone()).or_default() += own;
    }
    for (name, held) in reports.flat_map(|report| &report.held) {
        let sum = all.entry(name.clone()).or_default();
        *sum = (*sum).max(*held);
    }
    all
}

/// The predecessor's share of a limit: at most half of it, and at most one server per client; at least one while it has
/// clients.
fn share(limit: u32, clients: u64) -> u32 {
    if clients == 0 {
        return 0;
    }
    (limit / 2).min(u32::try_from(clients).unwrap_or(u32::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_predecessor_keeps_at_most_half_and_one_server_per_client() {
        assert_eq!([share(20, 1000), share(20, 3), share(20, 0), share(1, 5), share(3, 5)], [10, 3, 0, 1, 1]);
    }

    fn report(held: u32, own: u32) -> Report {
        let of = |value| Held::from([("all".to_owned(), value)]);
        Report { held: of(held), own: of(own), ..Report::default() }
    }

    fn sum(reports: &[Report]) -> u32 {
        held_before(reports.iter())["all"]
    }

    #[test]
    fn a_released_server_is_not_free_before_the_next_process_has_reported() {
        assert_eq!(sum(&[report(8, 8), report(10, 2)]), 10);
        assert_eq!(sum(&[report(4, 4), report(10, 2)]), 10, "the second may take two of the four");
        assert_eq!(sum(&[report(4, 4), report(8, 4)]), 8);
        assert_eq!(sum(&[report(4, 4)]), 4, "the second has ended");
        assert_eq!(sum(&[report(8, 4)]), 8, "the first has ended, and the second does not know yet");
    }
}
