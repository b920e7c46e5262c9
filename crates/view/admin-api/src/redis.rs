//! One look at a Redis itself: what INFO tells of its connections, and CLIENT LIST of each. No command is
//! asked for with its arguments, which may hold private data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Connections that one look lists. Of further ones only the number is known.
pub const MAX_LISTED_CLIENTS: u64 = 20_000;
/// Bytes of INFO that are read.
pub const MAX_INFO_BYTES: usize = 256 * 1024;
/// Bytes of CLIENT LIST that are read: about 400 a connection.
pub const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;
const MAX_NAME: usize = 100;
/// A larger figure counts as this one, so that sums do not overflow.
const MAX_FIGURE: u64 = 9_000_000_000_000;

/// One look. Counters count from the server's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Redis {
    pub version: String,
    /// Tells this run of the server from others.
    pub run_id: String,
    /// Connected clients, without the doctor's own.
    pub connected: u64,
    /// Clients that the server accepts, if that is known.
    pub max_clients: Option<u64>,
    /// Connected clients that wait in a blocking command.
    pub blocked: u64,
    /// Connections since the start.
    pub received: u64,
    /// Connections that were refused because there were too many.
    pub rejected: u64,
    /// Commands since the start.
    pub commands: u64,
    /// The server reads its data from the disk and serves no client yet.
    pub is_loading: bool,
    /// Seconds for which this replica has had no connection to its primary; 0 also if it has never had one.
    pub link_down_s: Option<f64>,
    /// The clients, if they were asked for and may be seen.
    pub clients: Option<Vec<RedisClient>>,
    /// Clients that the list left out.
    pub left_out: u64,
    /// Why the clients may not be seen.
    pub hides_clients: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RedisClient {
    /// Unique for as long as the server runs.
    pub id: u64,
    /// The client's host, without the port; empty for a Unix socket.
    pub host: String,
    pub name: String,
    pub user: String,
    pub age_s: u64,
    /// How long the client has sent no command.
    pub idle_s: u64,
    /// The client waits in a blocking command, or has subscribed: its idle time says nothing of its use.
    pub waits: bool,
}

impl Redis {
    /// Asks for the server's own figures.
    pub const INFO_COMMAND: [&str; 1] = ["INFO"];
    /// Asks for the clients.
    pub const CLIENTS_COMMAND: [&str; 2] = ["CLIENT", "LIST"];
    /// Asks for the id of this connection.
    pub const OWN_ID_COMMAND: [&str; 2] = ["CLIENT", "ID"];
    /// Asks how many clients the server accepts, where INFO does not tell.
    pub const MAX_CLIENTS_COMMAND: [&str; 3] = ["CONFIG", "GET", "maxclients"];

    /// From the answer to [`INFO_COMMAND`](Self::INFO_COMMAND).
    ///
    /// # Errors
    /// What that lacks.
    pub fn read(info: &str) -> Result<Self, String> {
        let pairs: BTreeMap<&str, &str> = info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let figure = |name: &str| pairs.get(name).and_then(|text| count(text));
        let needed = |name: &str| figure(name).ok_or_else(|| format!("INFO does not tell `{name}`"));
        let text = |name: &str| pairs.get(name).map(|text| (*text).to_owned()).unwrap_or_default();
        // The link counts as down, too, while its primary sends it all data for the first time.
        let is_filled = figure("master_sync_in_progress").unwrap_or(0) > 0;
        let is_cut_off = !is_filled && pairs.get("master_link_status").is_some_and(|status| *status == "down");
        Ok(Self {
            version: text("redis_version"),
            run_id: text("run_id"),
            connected: needed("connected_clients")?.saturating_sub(1),
            max_clients: figure("maxclients").filter(|most| *most > 0),
            blocked: figure("blocked_clients").unwrap_or(0),
            received: needed("total_connections_received")?,
            rejected: figure("rejected_connections").unwrap_or(0),
            commands: needed("total_commands_processed")?,
            is_loading: figure("loading").unwrap_or(0) > 0,
            link_down_s: is_cut_off.then(|| figure("master_link_down_since_seconds").unwrap_or(0) as f64),
            ..Self::default()
        })
    }

    /// The value in the answer to [`MAX_CLIENTS_COMMAND`](Self::MAX_CLIENTS_COMMAND), which is an array of a name and a
    /// value.
    pub fn read_max_clients(reply: &str) -> Option<u64> {
        reply.lines().next_back().and_then(count).filter(|most| *most > 0)
    }

    /// The number in the answer to [`OWN_ID_COMMAND`](Self::OWN_ID_COMMAND).
    pub fn read_own_id(reply: &str) -> Option<u64> {
        reply.strip_prefix(':').and_then(count)
    }

    /// Whether the answer to [`CLIENTS_COMMAND`](Self::CLIENTS_COMMAND) is a Poolhouse's, of its own clients: Redis's
    /// have a descriptor each.
    pub fn is_of_pooler(list: &str) -> bool {
        list.lines().next().is_some_and(|line| line.contains(" fd=-1 "))
    }

    /// Clients from the answer to [`CLIENTS_COMMAND`](Self::CLIENTS_COMMAND), without `own` and replicas, and how many
    /// lines beyond [`MAX_LISTED_CLIENTS`] there are. `is_whole`: nothing of the answer is lacking; otherwise its last
    /// line is not read.
    pub fn read_clients(list: &str, is_whole: bool, own: Option<u64>) -> (Vec<RedisClient>, u64) {
        let mut lines: Vec<&str> = list.lines().filter(|line| !line.is_empty()).collect();
        if !is_whole {
            lines.pop();
        }
        let left_out = (lines.len() as u64).saturating_sub(MAX_LISTED_CLIENTS);
        let read = lines.into_iter().take(MAX_LISTED_CLIENTS as usize).filter_map(RedisClient::read);
        (read.filter(|client| Some(client.id) != own).collect(), left_out)
    }

    /// True if both looks are at the same run of the same server, and its counters were not reset in between.
    pub fn is_same_run_as(&self, before: &Self) -> bool {
        self.run_id == before.run_id && self.received >= before.received && self.commands >= before.commands
    }
}

fn count(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that does not fit is large.
    is_number.then(|| text.parse().unwrap_or(u64::MAX).min(MAX_FIGURE))
}

fn shortened(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}

impl RedisClient {
    /// Reads a line; `None` if it is of no client, or of a replica or a primary.
    fn read(line: &str) -> Option<Self> {
        let pairs: BTreeMap<&str, &str> = line.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let text = |name: &str| pairs.get(name).copied().unwrap_or_default();
        let figure = |name: &str| count(text(name)).unwrap_or(0);
        let flags = text("flags");
        if flags.contains(['S', 'M']) {
            return None;
        }
        let address = text("addr");
        let is_local = flags.contains('U') || address.starts_with('/');
        let host = if is_local { "" } else { address.rsplit_once(':').map_or(address, |(host, _)| host) };
        let subscriptions = figure("sub").saturating_add(figure("psub")).saturating_add(figure("ssub"));
        Some(Self {
            id: count(text("id"))?,
            host: shortened(host),
            name: shortened(text("name")),
            user: shortened(text("user")),
            age_s: figure("age"),
            idle_s: figure("idle"),
            waits: flags.contains(['b', 'P', 'O']) || subscriptions > 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n# Clients\r\nconnected_clients:12\r\n\
        maxclients:100\r\nblocked_clients:2\r\n# Stats\r\ntotal_connections_received:70\r\n\
        total_commands_processed:900\r\nrejected_connections:3\r\nloading:0\r\n";

    #[test]
    fn what_info_tells_is_read() {
        let look = Redis::read(INFO).unwrap();
        assert_eq!((look.connected, look.max_clients, look.blocked), (11, Some(100), 2));
        assert_eq!((look.received, look.commands, look.rejected), (70, 900, 3));
        assert_eq!((look.version.as_str(), look.is_loading, look.link_down_s), ("7.0.15", false, None));
        let replica = format!("{INFO}master_link_status:down\r\nmaster_link_down_since_seconds:9\r\nloading:1\r\n");
        let look = Redis::read(&replica).unwrap();
        assert_eq!((look.is_loading, look.link_down_s), (true, Some(9.0)));
        let look = Redis::read(&format!("{replica}master_sync_in_progress:1\r\n")).unwrap();
        assert_eq!(look.link_down_s, None, "it is being filled");
        assert!(Redis::read("# Server\r\n").unwrap_err().contains("connected_clients"));
    }

    #[test]
    fn hostile_figures_are_cut() {
        let hostile = INFO.replace(":12", ":99999999999999999999999").replace(":70", ":18446744073709551615");
        let look = Redis::read(&hostile).unwrap();
        assert_eq!((look.connected, look.received), (MAX_FIGURE - 1, MAX_FIGURE));
        assert!(Redis::read(&INFO.replace(":70", ":-70")).is_err());
    }

    #[test]
    fn clients_are_read_without_the_own_one_and_without_replicas() {
        let list = "id=3 addr=10.0.0.5:4711 name=web age=9 idle=7 flags=N sub=0 psub=0 argv-mem=10 cmd=get user=app\n\
            id=4 addr=[::1]:7 name= age=9 idle=8 flags=P sub=1 psub=0 cmd=subscribe user=default\n\
            id=5 addr=/run/redis.sock:0 flags=bU age=1 idle=1 cmd=blpop\n\
            id=6 addr=10.0.0.9:1 flags=S age=1 idle=0 cmd=replconf\n\
            id=7 addr=127.0.0.1:1 flags=N cmd=client\nnonsense\n";
        let (clients, left_out) = Redis::read_clients(list, true, Some(7));
        let web = RedisClient {
            id: 3,
            host: "10.0.0.5".into(),
            name: "web".into(),
            user: "app".into(),
            age_s: 9,
            idle_s: 7,
            waits: false,
        };
        assert_eq!((&clients[0], clients.len(), left_out), (&web, 3, 0));
        assert!(clients[1].waits && clients[1].host == "[::1]" && clients[2].waits && clients[2].host.is_empty());
        // A line that may be cut is not read.
        let (clients, _) = Redis::read_clients("id=1 flags=N\nid=23 fla", false, None);
        assert_eq!(clients.iter().map(|client| client.id).collect::<Vec<_>>(), [1]);
        let many: String = (0..MAX_LISTED_CLIENTS + 5).map(|id| format!("id={id} flags=N\n")).collect();
        let (clients, left_out) = Redis::read_clients(&many, true, None);
        assert_eq!((clients.len() as u64, left_out), (MAX_LISTED_CLIENTS, 5));
    }

    #[test]
    fn single_numbers_are_read_from_replies_as_they_came() {
        assert_eq!(Redis::read_max_clients("*2\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n"), Some(10_000));
        assert_eq!((Redis::read_own_id(":17\r\n"), Redis::read_own_id("+OK\r\n")), (Some(17), None));
        assert_eq!(Redis::read_max_clients("*0\r\n"), None);
    }

    #[test]
    fn another_run_is_told_by_its_name_or_by_counters_that_begin_anew() {
        let look =
            |run_id: &str, received, commands| Redis { run_id: run_id.into(), received, commands, ..Redis::default() };
        assert!(look("a", 5, 5).is_same_run_as(&look("a", 5, 4)));
        for other in [look("b", 9, 9), look("a", 4, 9), look("a", 9, 3)] {
            assert!(!other.is_same_run_as(&look("a", 5, 4)), "{other:?}");
        }
    }
}
