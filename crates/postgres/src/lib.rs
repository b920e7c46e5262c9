//! The PostgreSQL wire protocol as a poolable session: bytes in, bytes and verdicts out. It knows no socket, no clock
//! and no configuration.
#![forbid(unsafe_code)]

mod directory;

pub use directory::{Directory, Login, PoolMode, Proof, ServerLogin, Unknown};
use protocol::{ClientTag, Input, LeaseFailure, Origin, Outbox, PoolId, Protocol, Refusal, ServerTag, Sessions};
use std::sync::Arc;

/// The protocol.
pub struct Postgres {
    #[allow(dead_code)]
    directory: Arc<dyn Directory>,
}

/// A client.
pub struct Client {}
/// A server.
pub struct Server {}

impl Postgres {
    /// A protocol that asks `directory` who may log in.
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        Self { directory }
    }
}

impl Protocol for Postgres {
    type Client = Client;
    type Server = Server;
    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) -> Client { Client {} }
    fn server_start(&self, _: ServerTag, _: PoolId, _: &mut Outbox) -> Server { Server {} }
    fn client_input(&self, _: ClientTag, _: &mut Client, _: &mut dyn Sessions<ServerTag, Server>, _: Input<'_>, _: &mut Outbox) -> usize { 0 }
    fn server_input(&self, _: ServerTag, _: &mut Server, _: &mut dyn Sessions<ClientTag, Client>, _: Input<'_>, _: &mut Outbox) -> usize { 0 }
    fn granted(&self, _: ClientTag, _: &mut Client, _: ServerTag, _: &mut Server, _: &mut Outbox) {}
    fn lease_failed(&self, _: ClientTag, _: &mut Client, _: LeaseFailure, _: &mut Outbox) {}
    fn client_gone(&self, _: ClientTag, _: &mut Client, _: &mut dyn Sessions<ServerTag, Server>, _: &mut Outbox) {}
    fn server_gone(&self, _: ServerTag, _: &mut Server, _: &mut dyn Sessions<ClientTag, Client>, _: &mut Outbox) {}
    fn refuse(&self, _: ClientTag, _: &mut Client, _: Refusal, _: &mut Outbox) {}
    fn reset(&self, _: ServerTag, _: &mut Server, _: &mut Outbox) {}
    fn check(&self, _: ServerTag, _: &mut Server, _: &mut Outbox) {}
    fn retire(&self, _: ServerTag, _: &mut Server, _: &mut Outbox) {}
    fn cancel(&self, _: ClientTag, _: &mut Client, _: &mut dyn Sessions<ServerTag, Server>, _: u64, _: bool, _: &mut Outbox) {}
}
