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

pub struct Limits {
    handle: Handle,
    process: u64,
    left: Mutex<Left>,
}

#[derive(Default)]
struct Left {
    /// The last report of each predecessor that has not ended, by its number.
    before: HashMap<usize, Report>,
    after: Held,
}

impl Limits {
    /// Leaves the predecessors what they hold, as the driver does from its start.
    pub(super) fn new(handle: Handle, before: HashMap<usize, Report>) -> Self {
        let left = Left { before, after: Held::new() };
        Self { handle, process: meeting::random_number(), left: Mutex::new(left) }
    }

    fn change(&self, change: impl FnOnce(&mut Left)) {
        let mut left = self.left();
        change(&mut left);
        let mut sum = left.after.clone();
        for (name, held) in held_before(left.before.values()) {
            *sum.entry(name).or_default() += held;
        }
        self.handle.reserve(sum);
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle to the predecessor with this number.
    pub(super) fn before(self: &Arc<Self>, number: usize) -> Before {
        Before { limits: Arc::clone(self), number }
    }

    /// Records a predecessor's report.
    pub(super) fn hold(&self, number: usize, report: Report) {
        self.change(|left| _ = left.before.insert(number, report));
    }

    /// Takes back the successor's share.
    pub fn take_back(&self) {
        self.change(|left| left.after.clear());
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
        self.change(|left| {
            left.after.clear();
            // The driver knows only limits under which a server was once asked for.
            report.held = held_before(left.before.values());
            for CapUsage { name, limit, .. } in limited() {
                let rest = limit.saturating_sub(report.held.get(&name).copied().unwrap_or_default());
                let own = share(rest, clients);
                left.after.insert(name.clone(), rest - own.min(rest));
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
pub(super) struct Before {
    limits: Arc<Limits>,
    number: usize,
}

impl Before {
    /// Records the predecessor's next report.
    pub(super) fn update(&self, report: Report) {
        self.limits.hold(self.number, report);
    }

    /// Removes a predecessor that has ended. Returns how many others have not.
    pub(super) fn end(self) -> usize {
        self.remove()
    }

    fn remove(&self) -> usize {
        let mut others = 0;
        self.limits.change(|left| {
            left.before.remove(&self.number);
            others = left.before.len();
        });
        others
    }
}

impl Drop for Before {
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
