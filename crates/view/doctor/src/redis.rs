//! What looks at a Redis tell of its connections: of all together, and by origin as far as it lists them. Judges
//! nothing.

use std::{collections::BTreeMap, time::Duration};

use admin_api::{Redis, RedisClient};

use crate::{
    gauge::Gauge,
    origin::{MAX_ORIGINS, OTHER_CLIENTS, name_largest},
    series::{Series, ServerWindow, Tally},
};

/// A connection is idle if it has sent no command for this many seconds.
const MIN_IDLE_S: u64 = 1;
/// A connection is unneeded if it has sent no command for this many seconds.
const LONG_IDLE_S: u64 = 3_600;

pub type RedisWindow = ServerWindow<RedisTally>;

#[derive(Clone, Debug, Default)]
pub struct RedisTally {
    pub(crate) connected: Gauge,
    pub(crate) lists: ClientLists,
    /// 1 at looks at which the server was loading its data.
    loading: Gauge,
    /// 1 at looks at which the server had no connection to its primary.
    cut_off: Gauge,
    /// Looks before which connections were refused.
    refusing_looks: usize,
}

/// What lists of connections tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientLists {
    pub(crate) count: usize,
    /// Connections of the last list.
    pub(crate) listed: u64,
    pub(crate) left_out: u64,
    /// Connections that had just sent a command, wait in one or have subscribed: the maximum over all lists.
    pub(crate) max_used: u64,
    /// Connections of the last list that were idle for [`LONG_IDLE_S`] or more.
    pub(crate) long_idle: u64,
    pub(crate) longest_idle_s: u64,
    /// Connections of the last list that are younger than the window.
    pub(crate) young: u64,
    /// Connections of the last list, by origin.
    origins: BTreeMap<String, u64>,
}

impl Tally for RedisTally {
    type Look = Redis;

    fn is_same_run(before: &Redis, look: &Redis) -> bool {
        look.is_same_run_as(before)
    }

    fn count(&mut self, series: &Series<Redis>, at: Duration, look: &mut Redis) -> bool {
        let mut have_come = false;
        if let Some(last) = series.last() {
            have_come = look.received > last.received;
            self.refusing_looks += usize::from(look.rejected > last.rejected);
            look.max_clients = look.max_clients.or(last.max_clients);
            look.hides_clients = look.hides_clients.take().or_else(|| last.hides_clients.clone());
        }
        self.loading.add(u64::from(look.is_loading));
        self.cut_off.add(u64::from(look.link_down_s.is_some()));
        self.connected.add(look.connected);
        if let Some(clients) = look.clients.take() {
            self.lists.add(&clients, look.left_out, series.duration_until(at));
        }
        have_come
    }
}

impl RedisTally {
    /// The share of looks at which the server was loading its data.
    pub(crate) fn loading_share(&self) -> f64 {
        self.loading.share_above_zero()
    }

    /// The share of looks at which the server had no connection to its primary.
    pub(crate) fn cut_off_share(&self) -> f64 {
        self.cut_off.share_above_zero()
    }
}

impl RedisWindow {
    /// The share of looks before which connections were refused.
    pub(crate) fn refusing_share(&self) -> f64 {
        self.series().share_of_intervals(self.tally().refusing_looks)
    }
}

impl ClientLists {
    fn add(&mut self, clients: &[RedisClient], left_out: u64, window: Duration) {
        let count = |is: &dyn Fn(&RedisClient) -> bool| clients.iter().filter(|client| is(client)).count() as u64;
        self.count += 1;
        (self.listed, self.left_out) = (clients.len() as u64, left_out);
        self.max_used = self.max_used.max(count(&|client| client.waits || client.idle_s < MIN_IDLE_S));
        self.long_idle = count(&|client| !client.waits && client.idle_s >= LONG_IDLE_S);
        self.young = count(&|client| client.age_s < window.as_secs());
        let idle = clients.iter().filter(|client| !client.waits).map(|client| client.idle_s);
        self.longest_idle_s = idle.max().unwrap_or(0);
        self.origins.clear();
        for client in clients {
            let mut name = name_origin(client);
            if self.origins.len() >= MAX_ORIGINS && !self.origins.contains_key(&name) {
                name = OTHER_CLIENTS.to_owned();
            }
            *self.origins.entry(name).or_default() += 1;
        }
    }

    pub(crate) fn name_largest_origins(&self) -> String {
        name_largest(self.origins.iter().map(|(name, connections)| (name.clone(), *connections)))
    }
}

fn name_origin(client: &RedisClient) -> String {
    let name = if client.name.is_empty() { "clients without a name" } else { &client.name };
    let user = match client.user.as_str() {
        "" | "default" => String::new(),
        user => format!(" as {user}"),
    };
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
        assert_eq!((window.looks(), window.duration()), (1, Duration::ZERO));
    }

    #[test]
    fn many_origins_are_bounded_and_large_numbers_do_not_overflow() {
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
        assert!(window.tally().lists.origins.len() <= MAX_ORIGINS + 1);
        assert_eq!(window.tally().connected.max(), u64::MAX);
    }
}
