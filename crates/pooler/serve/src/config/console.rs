//! The database that stands for the process's own console. It opens nothing.

use driver::Address;
use postgres_session::Target;
use upstream::{Kind, MongoOptions, UpstreamTls};

use super::{Database, PoolSettings};

impl Database {
    /// A console that clients call `name`, and that listens on the abstract Unix socket `socket`. Each client gets a
    /// dedicated server there, which is told the client's own user and trusts it.
    pub fn console(name: &str, socket: &str) -> Self {
        Self {
            kind: Kind::Postgres,
            name: name.to_owned(),
            hosts: Address::of_abstract_socket(socket).into(),
            sentinel: None,
            mongo: MongoOptions::default(),
            target: Target::default(),
            database: None,
            user: None,
            password: None,
            password_command: None,
            tls: UpstreamTls::default(),
            parameters: Vec::new(),
            pool: PoolSettings::default(),
            auth: None,
            max_connections: 0,
            max_user_connections: 0,
            clients: None,
            is_console: true,
            ignored: Vec::new(),
            srv: None,
            mongo_of_url: MongoOptions::default(),
            spots: Default::default(),
        }
    }
}
