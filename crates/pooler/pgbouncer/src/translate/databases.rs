//! `[databases]`: a `[[database]]` for each.

use settings::Problem;

use super::{Writer, pools::life_time};
use crate::{
    general::{Given, invalid},
    ini::{SectionName, Spot},
    known::{DATABASE, Known, find},
    pairs::pairs,
};

/// The name that stands for all databases without an entry.
pub(super) const FALLBACK: &str = "*";
/// The name of the console.
pub(super) const CONSOLE: &str = "pgbouncer";
/// Where users of [`FALLBACK`] are looked up if no `auth_dbname` says it.
const FALLBACK_AUTH_DATABASE: &str = "postgres";

/// An entry of `[databases]`, `[users]` or `[peers]`: a name and a connection string.
pub struct Entry {
    pub name: String,
    pub spot: Spot,
    values: Vec<(&'static Known, String, Spot)>,
}

impl Entry {
    pub fn get(&self, name: &str) -> Option<Given<'_>> {
        let found = self.values.iter().rev().find(|(known, _, _)| known.name == name);
        found.map(|(known, value, spot)| Given::new(known, value, spot))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(|given| given.value)
    }

    pub fn says_something(&self) -> bool {
        !self.values.is_empty()
    }
}

impl Writer<'_> {
    pub(super) fn read_databases(&mut self) -> Vec<Entry> {
        let entries = self.read_entries(SectionName::Databases);
        if entries.is_empty() && self.problems.is_empty() {
            let problem = Problem::warning("no database is configured: clients reach the console only");
            let problem = problem.hint("add one to [databases], and reload");
            self.notes.push(problem.in_file(&self.ini.files[0].path));
        }
        for entry in entries.iter().filter(|entry| entry.name == CONSOLE) {
            self.refuse(
                &entry.spot,
                "database name \"pgbouncer\" is reserved",
                "it is the console's: take another name",
            );
        }
        entries
    }

    /// The entries of a section; a later one of the same name replaces an earlier one.
    pub(super) fn read_entries(&mut self, section: SectionName) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for setting in self.ini.settings.iter().filter(|setting| setting.section == section) {
            let mut entry = Entry { name: setting.key.clone(), spot: setting.key_spot.clone(), values: Vec::new() };
            match pairs(&setting.value) {
                Err(at) => {
                    let end = setting.value.len().max(at + 1).min(setting.value.len());
                    let hint = "it is key=value, with blanks between; a value with blanks stands in single quotes";
                    let spot = setting.value_spot.part(&(at..end));
                    self.refuse(&spot, "syntax error in connection string", hint);
                }
                Ok(pairs) => {
                    for pair in pairs {
                        let key_spot = setting.value_spot.part(&pair.key_span);
                        let value_spot = setting.value_spot.part(&pair.value_span);
                        match find(section, &pair.key) {
                            None => self.refuse_unknown(section, &pair.key, &key_spot),
                            Some(known) if !admits(known, &pair.value) => {
                                let problem = invalid(known, &pair.value);
                                self.problems.push(self.ini.locate(problem, &value_spot));
                            }
                            Some(known) => entry.values.push((known, pair.value, value_spot)),
                        }
                    }
                }
            }
            entries.retain(|earlier| earlier.name != entry.name);
            entries.push(entry);
        }
        entries
    }

    fn refuse_unknown(&mut self, section: SectionName, key: &str, spot: &Spot) {
        let what = match section {
            SectionName::Users => "user",
            _ => "connection",
        };
        let names: Vec<&str> = crate::known::known(section).iter().map(|known| known.name).collect();
        let message = format!("unrecognized {what} parameter: {}", key.escape_debug());
        let hint = match settings::nearest(key, &names) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("known are {}", names.join(", ")),
        };
        self.refuse(spot, message, hint);
    }

    pub(super) fn databases(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.open_entry("database", Some(&entry.spot));
            self.toml.set("name", &entry.name.as_str().into(), Some(&entry.spot));
            let url = self.url(entry);
            self.toml.set("url", &url.into(), Some(&entry.spot));
            self.database_sizes(entry);
            self.database_rules(entry);
            self.database_auth(entry);
        }
    }

    fn database_sizes(&mut self, entry: &Entry) {
        let size = entry.get("pool_size").filter(|size| size.number() >= 0);
        if let Some(size) = size {
            self.set("max_size", self.size(size), size);
            self.set("max_replication_size", self.size(size), size);
        }
        let most = self.size(size.unwrap_or(self.get("default_pool_size")));
        let general = self.get("min_pool_size");
        match entry.get("min_pool_size").filter(|least| least.number() >= 0) {
            Some(least) => self.set("min_size", least.number().min(most), least),
            // The size bounds it, there as well.
            None if general.number() > most => self.put("min_size", most),
            None => {}
        }
        let reserve = entry.get("reserve_pool_size").or(entry.get("reserve_pool"));
        if let Some(reserve) = reserve.filter(|reserve| reserve.number() >= 0) {
            self.set("reserve_size", self.count(reserve.number()), reserve);
        }
        if let Some(servers) = entry.get("max_db_connections").filter(|most| most.number() >= 0) {
            self.set("max_connections", self.count(servers.number()), servers);
        }
        if let Some(clients) = entry.get("max_db_client_connections").filter(|most| most.number() > 0) {
            self.client_limit(clients);
        }
    }

    fn database_rules(&mut self, entry: &Entry) {
        if let Some(mode) = entry.get("pool_mode") {
            self.set("mode", mode.word(), mode);
        }
        if let Some(query) = entry.get("connect_query") {
            self.set("connect_query", query.value, query);
        }
        if let Some(wait) = entry.get("query_wait_timeout").filter(|wait| wait.number() >= 0) {
            self.set("max_wait_time", wait.time_unless_zero(), wait);
            self.set("unavailable_wait_time", wait.time_unless_zero(), wait);
        }
        if let Some(life) = entry.get("server_lifetime") {
            self.set("max_life_time", Some(life_time(life)), life);
        }
        if entry.name == FALLBACK {
            let time = self.get("autodb_idle_timeout");
            self.set("pool_idle_time", time.time_unless_zero(), time);
        }
    }

    fn database_auth(&mut self, entry: &Entry) {
        let (user, query) = (entry.get("auth_user"), entry.get("auth_query"));
        if let Some(user) = user {
            self.set("auth_user", user.value, user);
        }
        let is_inherited = self.get("auth_user").text().is_some();
        if user.is_none() && !is_inherited {
            return;
        }
        let general = [self.get("auth_query"), self.get("auth_dbname")];
        let [of_all, name_of_all] =
            general.map(|given| Some(given).filter(|_| !is_inherited && given.text().is_some()));
        if let Some(query) = query.or(of_all) {
            self.set("auth_query", query.value, query);
        }
        let own = entry.get("auth_dbname").filter(|given| given.text().is_some());
        match own.or(name_of_all) {
            Some(database) => self.lookup_server(database),
            None if entry.name == FALLBACK && self.get("auth_dbname").text().is_none() => {
                self.toml.comment("Not the database that the client names, in which anyone could put the query.");
                self.put("auth_database", FALLBACK_AUTH_DATABASE);
                let text = format!(
                    "`*` has no auth_dbname: the auth_query runs in the database {FALLBACK_AUTH_DATABASE}, not in the \
                     one that a client names"
                );
                self.note(&entry.spot, text);
            }
            None => {}
        }
    }

    /// The URL of an entry.
    fn url(&mut self, entry: &Entry) -> String {
        let mut parameters: Vec<(&str, String)> = Vec::new();
        let folder = self.get("unix_socket_dir");
        let default = folder.text().filter(|folder| !folder.starts_with('@')).unwrap_or("/tmp");
        let hosts: Vec<&str> = entry.text("host").unwrap_or(default).split(',').map(str::trim).collect();
        let port = entry.text("port").map(first_number);
        let is_plain = |host: &&str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b));
        let authority = match hosts.iter().all(is_plain) {
            true => hosts.iter().map(|host| place(host, port)).collect::<Vec<_>>().join(","),
            false => {
                let paths =
                    hosts.iter().map(|host| if host.starts_with('/') { self.path(host) } else { (*host).into() });
                parameters.push(("host", paths.collect::<Vec<_>>().join(",")));
                parameters.extend(port.map(|port| ("port", port.to_owned())));
                String::new()
            }
        };
        self.refuse_places(entry, &hosts);
        Self::balance(entry, &hosts, &mut parameters);
        if hosts.iter().any(|host| !host.starts_with('/')) {
            self.server_tls(&mut parameters);
        }
        let login = entry.text("user").map(encode).map(|user| match entry.text("password") {
            Some(password) => format!("{user}:{}@", encode(password)),
            None => format!("{user}@"),
        });
        if let (None, Some(password)) = (entry.text("user"), entry.get("password")) {
            password.spot.iter().for_each(|spot| self.note(spot, "a password without a user has no effect"));
        }
        parameters.extend(start_up(entry).map(|options| ("options", options)));
        let name = entry.text("dbname").or_else(|| (entry.name != FALLBACK).then_some(entry.name.as_str()));
        let query: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
        let question = if query.is_empty() { "" } else { "?" };
        let (login, name) = (login.unwrap_or_default(), name.map(encode).unwrap_or_default());
        format!("postgres://{login}{authority}/{name}{question}{}", query.join("&"))
    }

    fn refuse_places(&mut self, entry: &Entry, hosts: &[&str]) {
        if let (Some(given), true) = (entry.get("host"), hosts.iter().any(|host| host.starts_with('@'))) {
            let hint = "name the folder of the socket";
            self.refuse_given(given, "a server's Unix socket in the abstract namespace is not supported", hint);
        }
        if let Some(given) = entry.get("port")
            && !first_number(given.value).parse::<u16>().is_ok_and(|port| port > 0)
        {
            let message = format!("invalid port: {}", given.value.escape_debug());
            self.refuse_given(given, message, "a port is a number from 1 to 65535");
        }
    }

    /// Which of several hosts a new connection goes to.
    fn balance(entry: &Entry, hosts: &[&str], parameters: &mut Vec<(&'static str, String)>) {
        if hosts.len() < 2 {
            return;
        }
        let takes_turns = entry.get("load_balance_hosts").is_none_or(|given| given.word() != "disable");
        let order = if takes_turns { "round-robin" } else { "last-good" };
        parameters.push(("load_balance_hosts", order.to_owned()));
    }

    fn server_tls(&mut self, parameters: &mut Vec<(&'static str, String)>) {
        let mode = self.get("server_tls_sslmode");
        if !mode.is_default() {
            parameters.push(("sslmode", mode.word().to_owned()));
        }
        if mode.word() == "disable" {
            return;
        }
        // Others do not look at the certificate, and would with an authority.
        if mode.word().starts_with("verify") {
            let authority = self.get("server_tls_ca_file").text().map(|path| self.path(path));
            if authority.is_none() && mode.word() == "verify-ca" {
                let message = "with server_tls_sslmode = verify-ca and no server_tls_ca_file, any certificate would do \
                               that one of the system's many authorities has signed for any host";
                self.refuse_given(mode, message, "set server_tls_ca_file, or server_tls_sslmode = verify-full");
            }
            parameters.push(("sslrootcert", authority.unwrap_or_else(|| "system".to_owned())));
        }
        for (name, key) in [("server_tls_cert_file", "sslcert"), ("server_tls_key_file", "sslkey")] {
            if let Some(path) = self.get(name).text() {
                parameters.push((key, self.path(path)));
            }
        }
        if let Some((list, _)) = self.protocols("server_tls_protocols") {
            parameters.push(("tls_protocols", list.join(",")));
        }
        if let Some((list, _)) = self.ciphers("server_tls_ciphers", "server_tls13_ciphers") {
            parameters.push(("tls_ciphers", list.join(",")));
        }
    }
}

/// Whether a value is of its kind. PgBouncer takes what is no number for 0.
fn admits(known: &Known, value: &str) -> bool {
    let is_unset = value == "-1" && DATABASE.iter().any(|other| other.name == known.name);
    is_unset || known.kind.admits(value)
}

/// A port as PgBouncer reads it: a list of them counts as its first.
fn first_number(text: &str) -> &str {
    let text = text.trim();
    text.split_once(',').map_or(text, |(first, _)| first.trim_end())
}

fn place(host: &str, port: Option<&str>) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    match port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

/// The settings with which a connection starts, as an `options` parameter.
fn start_up(entry: &Entry) -> Option<String> {
    let set = |name: &str| {
        let value = entry.text(name)?.replace('\\', "\\\\").replace(' ', "\\ ").replace('\t', "\\\t");
        Some(format!("-c {name}={value}"))
    };
    let all: Vec<String> =
        ["client_encoding", "datestyle", "timezone", "application_name"].into_iter().filter_map(set).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Percent-encodes all that means something in a URL. A path stays readable.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' => encoded.push(byte as char),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
