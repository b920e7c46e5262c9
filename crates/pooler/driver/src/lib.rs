//! The driver: sockets, reactors, worker threads and the real clock. Whatever is relayed goes through it. It knows no
//! protocol: sessions tell it what to do through the seam.
//!
//! [`Driver::start`] begins the work of the proxy, [`Handle`] watches and steers it. A [`SteppedWorkers`] does the work
//! of the proxy on one thread, over a [`reactor`] that its caller brings: the simulator. Clients of databases, such as
//! the load generator, use a [`reactor`] and a [`resolver`] without any of this.

mod alarms;
mod by_pool;
mod client_state;
mod client_total;
mod clock;
mod config;
mod descriptors;
mod driver;
mod evictions;
mod handle;
mod histogram;
mod kept_places;
mod listener;
mod lobby;
mod log_switches;
mod mailbox;
mod network;
mod orders;
mod outages;
mod pace;
mod process;
mod proxy_header;
pub mod reactor;
mod registry;
pub mod resolver;
mod shared;
mod shared_pool;
mod snapshot;
mod socket;
mod stepped_workers;
mod tcp_info;
mod tenants;
mod throttle;
mod tls;
mod traffic;
mod worker;

pub use clock::Clock;
pub use config::{
    Address, BeginWith, Changes, DriverConfig, Hosts, ListenerSpec, LoggedConnections, PoolSpec, PoolTimeouts,
    TenantLimits, Timeouts, Upstreams,
};
pub use descriptors::raise_descriptor_limit;
pub use driver::{Driver, REACTOR};
pub use handle::Handle;
pub use kept_places::ClientRank;
pub use network::Network;
pub use orders::{DatabaseName, Order};
pub use pace::Pace;
pub use snapshot::{
    BUCKET_BOUNDS_US, CapUsage, ClientFilter, ClientInfo, DurationHistogram, ForgottenPools, ListenerSnapshot,
    PoolLoad, PoolSnapshot, PoolState, PoolTimes, PoolTotals, ServerInfo, Snapshot, TenantSnapshot, WorkerSnapshot,
};
pub use socket::{TcpOptions, prepare_listener};
pub use stepped_workers::{NextStep, SteppedWorkers};
pub use tls::{
    CertificateFacts, ClientCertificates, TlsAcceptor, TlsConnector, TlsError, TlsIdentity, Trust, certificate_facts,
    tls_failure_of,
};
