//! Where clients connect: `[[listener]]`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Writer;
use crate::toml_text::Value;

/// What TLS of clients needs.
const TLS_FILES: [(&str, &str); 2] = [("client_tls_cert_file", "tls_cert"), ("client_tls_key_file", "tls_key")];

/// The start-up parameters that PgBouncer takes, whatever is configured.
const ALLOWED_PARAMETERS: [&str; 10] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "IntervalStyle",
    "scram_iterations",
    "search_path",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// Permissions that a file may have.
const MAX_MODE: i64 = 0o777;

impl Writer<'_> {
    pub(super) fn listeners(&mut self) {
        let tls = self.get("client_tls_sslmode");
        if tls.word() != "disable" && TLS_FILES.iter().any(|(name, _)| self.get(name).text().is_none()) {
            let hint = "set client_tls_key_file and client_tls_cert_file";
            return self.refuse_given(tls, "client_tls_sslmode needs a key and its certificate", hint);
        }
        let addresses = self.tcp_addresses();
        let socket = self.unix_socket();
        if addresses.is_empty() && socket.is_none() && self.problems.is_empty() {
            let given = self.get("listen_addr");
            self.refuse_given(given, "nowhere to listen on", "set listen_addr or unix_socket_dir");
        }
        match &addresses[..] {
            [] => {}
            [address] => self.tcp_listener(Value::Text(address.clone())),
            _ => self.tcp_listener(Value::Texts(addresses)),
        }
        if let Some(socket) = socket {
            self.unix_listener(socket);
        }
    }

    /// The addresses of `listen_addr` with the port.
    fn tcp_addresses(&mut self) -> Vec<String> {
        let (given, port) = (self.get("listen_addr"), self.get("listen_port"));
        let Ok(number) = u16::try_from(port.number()) else {
            self.refuse_given(port, "listen_port is no port", "write a number from 1 to 65535");
            return Vec::new();
        };
        if number == 0 {
            return Vec::new();
        }
        let mut found: Vec<IpAddr> = Vec::new();
        for host in given.list() {
            match self.addresses_of(&host) {
                Ok(addresses) => found.extend(addresses),
                Err(error) => {
                    let message = format!("listen_addr: `{}` is no address: {error}", host.escape_debug());
                    self.refuse_given(given, message, "write addresses of this machine, or * for all");
                }
            }
        }
        let mut texts = Vec::new();
        for address in found {
            let text = SocketAddr::new(address, number).to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }

    fn addresses_of(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        if host == "*" {
            let v6 = self.machine.has_ipv6.then_some(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
            return Ok(std::iter::once(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).chain(v6).collect());
        }
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let has_ipv6 = self.machine.has_ipv6;
        let addresses = (self.machine.addresses)(host)?;
        Ok(addresses.into_iter().filter(|address| address.is_ipv4() || has_ipv6).collect())
    }

    /// The path of the Unix socket, if there is to be one; after `@` it is a name in the abstract namespace.
    fn unix_socket(&self) -> Option<String> {
        let (folder, port) = (self.get("unix_socket_dir"), self.get("listen_port"));
        let path = format!("{}/.s.PGSQL.{}", folder.text()?, port.number());
        Some(if path.starts_with('@') { path } else { self.path(&path) })
    }

    fn tcp_listener(&mut self, listen: Value) {
        self.open_entry("listener", self.get("listen_addr").spot);
        let given = self.get("listen_addr");
        self.set("listen", listen, given);
        self.of_all_listeners();
        let reuse = self.get("so_reuseport");
        self.set_unless_default("reuse_port", reuse.truth(), reuse);
        self.tls();
    }

    fn unix_listener(&mut self, path: String) {
        self.open_entry("listener", self.get("unix_socket_dir").spot);
        let folder = self.get("unix_socket_dir");
        let has_no_file = path.starts_with('@');
        self.set("listen", path, folder);
        if !has_no_file {
            self.socket_file();
        }
        self.of_all_listeners();
    }

    /// Who may use the file of the Unix socket.
    fn socket_file(&mut self) {
        let mode = self.get("unix_socket_mode");
        match (0..=MAX_MODE).contains(&mode.number()) {
            true => self.set("socket_mode", format!("{:04o}", mode.number()), mode),
            false => {
                let message = format!("unix_socket_mode {} is no permissions of a file", mode.value.escape_debug());
                self.refuse_given(mode, message, "write them in octal, with a leading zero: 0770");
            }
        }
        let group = self.get("unix_socket_group");
        if let Some(name) = group.text() {
            self.set("socket_group", name, group);
        }
    }

    /// What TCP addresses and the Unix socket have alike.
    fn of_all_listeners(&mut self) {
        let most = self.get("max_client_conn");
        if most.number() < 1 {
            self.refuse_given(most, "with this max_client_conn no client could connect", "write 1 or more");
            return;
        }
        let count = self.count(most.number());
        self.set("hard_limit", count, most);
        self.toml.comment("PgBouncer evicts no idle client for a new one, and has no new one wait.");
        self.set("soft_limit", count, most);
        self.put("newcomer_wait_time", Value::Time(None));
        let login = self.get("client_login_timeout");
        self.set("login_time", login.time_unless_zero(), login);
        let notify = self.get("query_wait_notify");
        self.set("wait_notice_time", notify.time_unless_zero(), notify);
        let welcome = self.get("login_notify_message");
        self.set_unless_default("login_notice", welcome.value, welcome);
        let simple = self.get("disable_pqexec");
        self.set_unless_default("refuse_simple_queries", simple.truth(), simple);
        let size = self.get("max_packet_size");
        self.set_unless_default("max_message_size", size.number(), size);
        self.startup_parameters();
        let backlog = self.get("listen_backlog");
        self.set_unless_default("backlog", backlog.number().max(1), backlog);
    }

    fn startup_parameters(&mut self) {
        let (tracked, ignored) = (self.get("track_extra_parameters"), self.get("ignore_startup_parameters"));
        let allowed = ALLOWED_PARAMETERS.iter().map(|name| (*name).to_owned()).chain(tracked.list());
        self.set("allow_startup_parameters", allowed.collect::<Vec<_>>(), tracked);
        if let Some(text) = ignored.text() {
            // Blanks and commas, as there.
            let names = text.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned);
            self.set("ignore_startup_parameters", names.collect::<Vec<_>>(), ignored);
        }
    }

    /// TLS of clients, which there is over TCP only.
    fn tls(&mut self) {
        let mode = self.get("client_tls_sslmode");
        let verifies = matches!(mode.word(), "verify-ca" | "verify-full");
        let word = match mode.word() {
            "disable" => return,
            "allow" | "prefer" => "allow",
            _ => "require",
        };
        self.set("tls", word, mode);
        for (name, key) in TLS_FILES {
            let given = self.get(name);
            self.set(key, self.path(given.value), given);
        }
        let authority = self.get("client_tls_ca_file");
        if verifies {
            self.set("tls_client_auth", "require", mode);
            if let Some(path) = authority.text() {
                self.set("tls_client_ca", self.path(path), authority);
            }
        }
        // Certificates of clients are looked at where rules may ask for them.
        if let (false, "hba" | "cert", Some(path)) = (verifies, self.get("auth_type").word(), authority.text()) {
            self.set("tls_client_auth", "optional", authority);
            self.set("tls_client_ca", self.path(path), authority);
        }
        if let Some((list, given)) = self.protocols("client_tls_protocols") {
            self.set("tls_protocols", list, given);
        }
        let curves = self.get("client_tls_ecdhcurve");
        self.set_unless_default("tls_curves", vec![curves.value.to_owned()], curves);
        let ciphers = self.ciphers("client_tls_ciphers", "client_tls13_ciphers");
        if let Some((list, given)) = ciphers {
            self.set("tls_ciphers", list, given);
        }
    }
}
