//! What SHOW lists, and the columns of each list: their names, types and order are those of PgBouncer 1.26.

use crate::table::{Column, Table, Type, Type::*};

/// What SHOW can list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Show {
    ActiveSockets,
    Clients,
    Config,
    Databases,
    DnsHosts,
    DnsZones,
    Help,
    Lists,
    Mem,
    PeerPools,
    Peers,
    Pools,
    Servers,
    Sockets,
    State,
    Stats,
    StatsAverages,
    StatsTotals,
    Totals,
    Users,
    Version,
}

const NAMES: [(&str, Show); 21] = [
    ("active_sockets", Show::ActiveSockets),
    ("clients", Show::Clients),
    ("config", Show::Config),
    ("databases", Show::Databases),
    ("dns_hosts", Show::DnsHosts),
    ("dns_zones", Show::DnsZones),
    ("help", Show::Help),
    ("lists", Show::Lists),
    ("mem", Show::Mem),
    ("peer_pools", Show::PeerPools),
    ("peers", Show::Peers),
    ("pools", Show::Pools),
    ("servers", Show::Servers),
    ("sockets", Show::Sockets),
    ("state", Show::State),
    ("stats", Show::Stats),
    ("stats_averages", Show::StatsAverages),
    ("stats_totals", Show::StatsTotals),
    ("totals", Show::Totals),
    ("users", Show::Users),
    ("version", Show::Version),
];

impl Show {
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, show)| *show)
    }

    /// The columns of the list; SHOW HELP has none, since it is a notice.
    pub fn columns(self) -> Vec<Column> {
        match self {
            Self::Clients | Self::Servers => CONNECTION.to_vec(),
            Self::Sockets | Self::ActiveSockets => [&CONNECTION[..], &BUFFERS].concat(),
            Self::Config => texts(&["key", "value", "default", "changeable"]),
            Self::Databases => DATABASES.to_vec(),
            Self::DnsHosts => vec![("hostname", Text), ("ttl", Int8), ("addrs", Text)],
            Self::DnsZones => vec![("zonename", Text), ("serial", Int8), ("count", Int4)],
            Self::Help => Vec::new(),
            Self::Lists => vec![("list", Text), ("items", Int4)],
            Self::Mem => [&[("name", Text)][..], &with_type(&["size", "used", "free", "memtotal"], Int4)].concat(),
            Self::PeerPools => with_type(
                &["peer_id", "cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active_cancel", "sv_login"],
                Int4,
            ),
            Self::Peers => vec![("peer_id", Int4), ("host", Text), ("port", Int4), ("pool_size", Int4)],
            Self::Pools => POOLS.to_vec(),
            Self::State => texts(&["key", "value"]),
            Self::Stats => {
                [&[("database", Text)][..], &with_type(&TOTALS, Numeric), &with_type(&AVERAGES, Numeric)].concat()
            }
            Self::StatsTotals => sums_with(&MORE_TOTALS),
            Self::StatsAverages => sums_with(&MORE_AVERAGES),
            Self::Totals => vec![("name", Text), ("value", Numeric)],
            Self::Users => USERS.to_vec(),
            Self::Version => texts(&["version"]),
        }
    }

    /// An empty list.
    pub fn table(self) -> Table {
        Table::new(self.columns())
    }

    /// The names of the rows of SHOW TOTALS: totals, then averages, in the order of SHOW STATS.
    pub fn names_of_totals() -> impl Iterator<Item = String> {
        let names = |prefix: &'static str| SUMMED.iter().map(move |name| format!("{prefix}_{name}"));
        names("total").chain(names("avg"))
    }
}

fn with_type(names: &[&'static str], of: Type) -> Vec<Column> {
    names.iter().map(|name| (*name, of)).collect()
}

fn sums_with(more: &[&'static str]) -> Vec<Column> {
    [&[("database", Text)][..], &with_type(&SUMS, Numeric), &with_type(more, Numeric)].concat()
}

fn texts(names: &[&'static str]) -> Vec<Column> {
    with_type(names, Text)
}

const CONNECTION: [Column; 21] = [
    ("type", Text),
    ("user", Text),
    ("database", Text),
    ("replication", Text),
    ("state", Text),
    ("addr", Text),
    ("port", Int4),
    ("local_addr", Text),
    ("local_port", Int4),
    ("connect_time", Text),
    ("request_time", Text),
    ("wait", Int4),
    ("wait_us", Int4),
    ("close_needed", Int4),
    ("ptr", Text),
    ("link", Text),
    ("remote_pid", Int4),
    ("tls", Text),
    ("application_name", Text),
    ("prepared_statements", Int4),
    ("id", Int4),
];

const BUFFERS: [Column; 7] = [
    ("recv_pos", Int4),
    ("pkt_pos", Int4),
    ("pkt_remain", Int4),
    ("send_pos", Int4),
    ("send_remain", Int4),
    ("pkt_avail", Int4),
    ("send_avail", Int4),
];

const DATABASES: [Column; 17] = [
    ("name", Text),
    ("host", Text),
    ("port", Int4),
    ("database", Text),
    ("force_user", Text),
    ("pool_size", Int4),
    ("min_pool_size", Int4),
    ("reserve_pool_size", Int4),
    ("server_lifetime", Int4),
    ("pool_mode", Text),
    ("load_balance_hosts", Text),
    ("max_connections", Int4),
    ("current_connections", Int4),
    ("max_client_connections", Int4),
    ("current_client_connections", Int4),
    ("paused", Int4),
    ("disabled", Int4),
];

const POOLS: [Column; 17] = [
    ("database", Text),
    ("user", Text),
    ("cl_active", Int4),
    ("cl_waiting", Int4),
    ("cl_active_cancel_req", Int4),
    ("cl_waiting_cancel_req", Int4),
    ("sv_active", Int4),
    ("sv_active_cancel", Int4),
    ("sv_being_canceled", Int4),
    ("sv_idle", Int4),
    ("sv_used", Int4),
    ("sv_tested", Int4),
    ("sv_login", Int4),
    ("maxwait", Int4),
    ("maxwait_us", Int4),
    ("pool_mode", Text),
    ("load_balance_hosts", Text),
];

const USERS: [Column; 8] = [
    ("name", Text),
    ("pool_size", Text),
    ("reserve_pool_size", Text),
    ("pool_mode", Text),
    ("max_user_connections", Int4),
    ("current_connections", Int4),
    ("max_user_client_connections", Int4),
    ("current_client_connections", Int4),
];

const TOTALS: [&str; 12] = [
    "total_server_assignment_count",
    "total_xact_count",
    "total_query_count",
    "total_received",
    "total_sent",
    "total_xact_time",
    "total_query_time",
    "total_wait_time",
    "total_client_parse_count",
    "total_server_parse_count",
    "total_bind_count",
    "total_client_login_count",
];

const AVERAGES: [&str; 12] = [
    "avg_server_assignment_count",
    "avg_xact_count",
    "avg_query_count",
    "avg_recv",
    "avg_sent",
    "avg_xact_time",
    "avg_query_time",
    "avg_wait_time",
    "avg_client_parse_count",
    "avg_server_parse_count",
    "avg_bind_count",
    "avg_client_login_count",
];

/// What SHOW STATS_TOTALS and SHOW STATS_AVERAGES list under the same names.
const SUMS: [&str; 8] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "bytes_received",
    "bytes_sent",
    "xact_time",
    "query_time",
    "wait_time",
];

/// What the two lists have besides.
const MORE_TOTALS: [&str; 4] = ["client_parse_count", "server_parse_count", "bind_count", "client_login_count"];
const MORE_AVERAGES: [&str; 4] =
    ["avg_client_parse_count", "avg_server_parse_count", "avg_bind_count", "avg_client_login_count"];

const SUMMED: [&str; 12] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "client_bytes",
    "server_bytes",
    "xact_time",
    "query_time",
    "wait_time",
    "ps_client_parse_count",
    "ps_server_parse_count",
    "ps_bind_count",
    "client_login_count",
];

/// What SHOW HELP says.
pub(crate) const HELP: &str = "
\tSHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION
\tSHOW PEERS|PEER_POOLS
\tSHOW SOCKETS|ACTIVE_SOCKETS|LISTS|MEM|STATE
\tSHOW DNS_HOSTS|DNS_ZONES
\tSHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS
\tSET key = arg
\tRELOAD
\tPAUSE [<db>]
\tRESUME [<db>]
\tDISABLE <db>
\tENABLE <db>
\tRECONNECT [<db>]
\tKILL [<db>]
\tKILL_CLIENT <client_id>
\tSHUTDOWN
\tSHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS
\tWAIT_CLOSE [<db>]";
