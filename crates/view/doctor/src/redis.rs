//! Looks at a Redis itself over some time, and what they tell of its connections: of all together, and of each place
//! that they come from as far as it lists them. Sums are kept, and two looks. Judges nothing.

use std::{collections::BTreeMap, time::Duration};

use admin_api::{Redis, RedisClient};

use crate::{course::Course, database::Level};

/// Origins that are told apart; the connections of all further origins count as one origin.
const MAX_ORIGINS: usize = 1_000;
/// A connection is idle if it has sent no command for this many seconds.
const MIN_IDLE_S: u64 = 1;
/// A connection is unneeded if it has sent no command for this many seconds.
pub(crate) const LONG_IDLE_S: u64 = 3_600;

/// All looks at one run of one server, in order.
#[derive(Clone, Debug, Default)]
pub struct RedisWindow {
    course: Course<Redis>,
    /// Looks at which the server was loading its data, and at which it had lost its primary.
    loading: usize,
    cut_off: usize,
    connected: Level,
    /// Looks before which connections were refused.
    refusing: usize,
    lists: Lists,
}

/// What the lists of connections told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    pub(crate) count: usize,
    pub(crate) listed: u64,
    pub(crate) left_out: u64,
    /// Connections that had asked something a moment before, or waited in a command or for what others publish: the
    /// most of a list.
    pub(crate) most_used: u64,
    /// Of the last list: idle for over [`LONG_IDLE_S`], the longest, and younger than the window.
    pub(crate) long_idle: u64,
    pub(crate) longest_idle_s: u64,
    pub(crate) young: u64,
    /// Connections of the last list, by origin.
    pub(crate) origins: BTreeMap<String, u64>,
}

impl RedisWindow {
    /// False if this look is at another run of the server than those before, or its counters were set back: then the
    /// window begins anew with it.
    pub fn add(&mut self, at: Duration, mut look: Redis) -> bool {
        let is_another = self.course.last().is_some_and(|(_, last)| !look.is_after(last));
        if is_another {
            *self = Self::default();
        }
        let mut have_come = false;
        if let Some((_, last)) = self.course.last() {
            have_come = look.received > last.received;
            self.refusing += usize::from(look.rejected > last.rejected);
            look.max_clients = look.max_clients.or(last.max_clients);
            look.hides_clients = look.hides_clients.or(last.hides_clients.clone());
        }
        self.loading += usize::from(look.is_loading);
        self.cut_off += usize::from(look.link_down_s.is_some());
        self.connected.add(look.connected);
        if let Some(clients) = look.clients.take() {
            self.lists.add(&clients, look.left_out, self.course.until(at));
        }
        self.course.add(at, look, have_come);
        !is_another
    }

    pub fn looks(&self) -> usize {
        self.course.looks()
    }

    /// From the first look to the last.
    pub fn lasts(&self) -> Duration {
        self.course.lasts()
    }

    /// The first look and the last, without their lists; `None` before there is one.
    pub(crate) fn ends(&self) -> Option<(&Redis, &Redis)> {
        self.course.ends()
    }

    /// Connections at all looks.
    pub(crate) fn connected(&self) -> &Level {
        &self.connected
    }

    pub(crate) fn lists(&self) -> &Lists {
        &self.lists
    }

    /// The share of looks before which connections had come.
    pub(crate) fn arrivals(&self) -> f64 {
        self.course.arrivals()
    }

    /// The share of looks before which connections were refused.
    pub(crate) fn refusing(&self) -> f64 {
        self.course.share_of_steps(self.refusing)
    }

    /// The share of looks at which the server was loading its data.
    pub(crate) fn loading(&self) -> f64 {
        self.loading as f64 / self.looks().max(1) as f64
    }

    /// The share of looks at which it had lost its primary.
    pub(crate) fn cut_off(&self) -> f64 {
        self.cut_off as f64 / self.looks().max(1) as f64
    }
}

impl Lists {
    fn add(&mut self, clients: &[RedisClient], left_out: u64, lasts: Duration) {
        let count = |is: &dyn Fn(&RedisClient) -> bool| clients.iter().filter(|client| is(client)).count() as u64;
        self.count += 1;
        (self.listed, self.left_out) = (clients.len() as u64, left_out);
        self.most_used = self.most_used.max(count(&|client| client.waits || client.idle_s < MIN_IDLE_S));
        self.long_idle = count(&|client| !client.waits && client.idle_s >= LONG_IDLE_S);
        self.young = count(&|client| client.age_s < lasts.as_secs());
        let idle = clients.iter().filter(|client| !client.waits).map(|client| client.idle_s);
        self.longest_idle_s = idle.max().unwrap_or(0);
        self.origins.clear();
        for client in clients {
            let mut name = name_of(client);
            if self.origins.len() >= MAX_ORIGINS && !self.origins.contains_key(&name) {
                name = "all other clients".to_owned();
            }
            *self.origins.entry(name).or_default() += 1;
        }
    }

    /// The origins with the most connections, at most `most` of them.
    pub(crate) fn largest(&self, most: usize) -> Vec<String> {
        let mut origins: Vec<_> = self.origins.iter().collect();
        origins.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        origins.into_iter().take(most).map(|(name, count)| format!("{count} of {name}")).collect()
    }
}

/// As people call whose it is.
fn name_of(client: &RedisClient) -> String {
    let name = if client.name.is_empty() { "clients without a name" } else { &client.name };
    let user =
        if matches!(client.user.as_str(), "" | "default") { String::new() } else { format!(" as {}", client.user) };
    let host = if client.host.is_empty() { "a Unix socket" } else { &client.host };
    format!("{name}{user} from {host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(connected: u64, received: u64) -> Redis {
        Redis { connected, received, ..Redis::default() }
    }

    #[test]
    fn another_run_of_the_server_begins_the_window_anew() {
        let mut window = RedisWindow::default();
        assert!(window.add(Duration::ZERO, look(1, 5)) && window.add(Duration::from_secs(1), look(1, 5)));
        assert!(!window.add(Duration::from_secs(2), look(1, 4)));
        assert_eq!((window.looks(), window.lasts()), (1, Duration::ZERO));
    }

    #[test]
    fn who_waits_is_no_idle_connection() {
        let mut window = RedisWindow::default();
        let client = |id, idle_s, waits| RedisClient { id, idle_s, waits, ..RedisClient::default() };
        let clients = vec![client(1, 0, false), client(2, 9_000, true), client(3, 4_000, false), client(4, 30, false)];
        window.add(Duration::ZERO, Redis { clients: Some(clients), ..look(4, 4) });
        let lists = window.lists();
        assert_eq!((lists.most_used, lists.long_idle, lists.longest_idle_s, lists.listed), (2, 1, 4_000, 4));
        assert_eq!(lists.largest(3), ["4 of clients without a name from a Unix socket"]);
    }

    #[test]
    fn many_origins_are_bounded_and_figures_do_not_overflow() {
        let mut window = RedisWindow::default();
        let client = |id: u64| RedisClient {
            id,
            host: id.to_string(),
            age_s: u64::MAX,
            idle_s: u64::MAX,
            ..RedisClient::default()
        };
        for at in 0..3 {
            let clients = Some((0..3_000).map(client).collect());
            window.add(Duration::from_secs(at), Redis { clients, left_out: u64::MAX, ..look(u64::MAX, u64::MAX) });
        }
        assert!(window.lists().origins.len() <= MAX_ORIGINS + 1);
        assert_eq!(window.connected().most, u64::MAX);
    }
}
