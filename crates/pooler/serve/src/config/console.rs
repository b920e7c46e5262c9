//! `[console]`: who may use the console, and the database by which it is reached. It opens nothing.

use driver::Address;
use postgres_session::Target;
use seam::Origin;
use settings::{Section, Spots};
use upstream::{Kind, MongoOptions, UpstreamTls};

use super::{AuthQuery, AuthType, Config, Database, PoolSettings, auth_query::AuthKeys};

/// `[console]`.
pub const CONSOLE_KEYS: &[&str] = &["name", "admins", "viewers"];

/// The console's database, unless another name is configured.
const DEFAULT_NAME: &str = "poolhouse";

/// PgBouncer's name for the database of its console.
pub const PGBOUNCER_NAME: &str = "pgbouncer";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Console {
    /// The database that clients ask for.
    pub name: String,
    /// Users who may look and give orders.
    pub admins: Vec<String>,
    /// Users who may look.
    pub viewers: Vec<String>,
    /// How users are looked up who are not configured, if they are.
    pub auth: Option<AuthQuery>,
    pub spots: Spots,
}

impl Default for Console {
    fn default() -> Self {
        Self { name: DEFAULT_NAME.to_owned(), admins: Vec::new(), viewers: Vec::new(), auth: None, spots: Spots::new() }
    }
}

impl Console {
    /// Whether any user may use it.
    pub fn is_on(&self) -> bool {
        !(self.admins.is_empty() && self.viewers.is_empty())
    }

    /// What a user may do there; `None` is nothing.
    pub fn role(&self, user: &str) -> Option<console::Role> {
        let is_one = |users: &[String]| users.iter().any(|one| one == user);
        match (is_one(&self.admins), is_one(&self.viewers)) {
            (true, _) => Some(console::Role::Admin),
            (false, true) => Some(console::Role::Viewer),
            (false, false) => None,
        }
    }
}

/// The user id that the kernel shows for users of other namespaces: any of them may be behind it.
const OVERFLOW_UID: u32 = 65_534;

impl Config {
    /// Whether there is a console.
    pub fn has_console(&self) -> bool {
        self.console.is_on() || self.lets_every_client_look() || self.is_in_place_of_pgbouncer()
    }

    /// Whether a client is the user that runs the process, at a Unix socket, and says so by the console's user name: in
    /// PgBouncer's place it may use the console without a password.
    pub fn owns_console(&self, user: &str, origin: &Origin) -> bool {
        let is_own = |uid| uid == rustix::process::geteuid().as_raw() && uid != OVERFLOW_UID;
        self.is_in_place_of_pgbouncer() && user == PGBOUNCER_NAME && origin.uid.is_some_and(is_own)
    }

    /// What a user may do at the console; `None` is nothing, as it is where clients do not prove who they are.
    pub fn console_role(&self, user: &str) -> Option<console::Role> {
        if !self.authenticates(Kind::Postgres) {
            return None;
        }
        self.console.role(user).or_else(|| self.lets_every_client_look().then_some(console::Role::Viewer))
    }

    /// Where every client is let in, as whatever user it says, each may look; the section must be there.
    fn lets_every_client_look(&self) -> bool {
        matches!(self.auth, AuthType::Any) && !self.console.spots.is_empty()
    }
}

impl Database {
    /// The console, which listens on the abstract Unix socket `socket`. Each client gets a dedicated server there,
    /// which is told the client's own user and trusts it.
    pub fn console(console: &Console, socket: &str) -> Self {
        Self {
            kind: Kind::Postgres,
            name: console.name.clone(),
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
            auth: console.auth.clone(),
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

/// Reads the section. `asked`: how users are looked up.
pub(super) fn read(section: &Section<'_>, asked: &AuthKeys) -> Console {
    let name = section.string("name").filter(|name| !name.is_empty());
    if section.has("name") && name.is_none() {
        section.error("name", "the console's database needs a name");
    }
    let mut console = Console {
        name: name.unwrap_or_else(|| DEFAULT_NAME.to_owned()),
        admins: section.texts("admins").unwrap_or_default(),
        viewers: section.texts("viewers").unwrap_or_default(),
        auth: None,
        spots: section.spots(),
    };
    console.auth = asked.of_console().filter(|_| console.is_on());
    console
}
