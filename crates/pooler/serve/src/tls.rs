//! The TLS acceptors and connectors of a configuration, made from the certificates and keys in its files. A reload
//! renews them. Decides nothing about logins.

use std::{path::Path, sync::Arc};

use dial::{ALPN, about_file, connector, read_pem};
use driver::{ClientCertificates, TlsAcceptor, TlsConnector, TlsIdentity};
use settings::{Problem, Problems};
use upstream::Kind;

use crate::config::{ClientAuth, Config, Database, Endpoint, ListenerTls};

/// Versions of HTTP, as ALPN names them.
const HTTP_ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Acceptors and connectors, in the order of the configuration.
#[derive(Debug)]
pub struct Tls {
    /// The listeners' addresses.
    opened: Vec<Endpoint>,
    acceptors: Vec<Arc<TlsAcceptor>>,
    connectors: Vec<Option<Arc<TlsConnector>>>,
}

impl Tls {
    /// Reads all files.
    ///
    /// # Errors
    /// Every file that cannot be read or holds the wrong thing, with its place in the configuration.
    pub fn load(config: &Config) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let mut acceptors = Vec::new();
        for listener in &config.listeners {
            let inside: &[&[u8]] = match (listener.kind, &listener.http) {
                (Kind::Postgres, _) => ALPN,
                (Kind::Redis | Kind::MongoDb, None) => &[],
                (Kind::Redis | Kind::MongoDb, Some(_)) => HTTP_ALPN,
            };
            let made = listener.tls.as_ref().map(|tls| acceptor(tls, inside)).transpose();
            let made = made.unwrap_or_else(|(key, message)| {
                problems.push(config.locate(Problem::error(message), &listener.spots, key));
                None
            });
            // A reload may give it a certificate.
            acceptors.push(Arc::new(made.unwrap_or_else(TlsAcceptor::without_certificate)));
        }
        let mut connectors: Vec<Option<Arc<TlsConnector>>> = Vec::new();
        for (index, database) in config.databases.iter().enumerate() {
            // Databases that differ in their names only share a connector.
            let same = |other: &Database| other.tls == database.tls && uses_tls(other);
            let known = config.databases[..index].iter().position(same);
            connectors.push(match known {
                _ if !uses_tls(database) => None,
                Some(known) => connectors[known].clone(),
                None => connector(&database.tls).map(|made| Some(Arc::new(made))).unwrap_or_else(|message| {
                    let key = if database.spots.contains_key("url_file") { "url_file" } else { "url" };
                    problems.push(config.locate(Problem::error(message), &database.spots, key));
                    None
                }),
            });
        }
        let opened = config.listeners.iter().map(|listener| listener.listen.clone()).collect();
        if problems.is_empty() { Ok(Self { opened, acceptors, connectors }) } else { Err(Problems(problems)) }
    }

    /// Loads the files again for a reloaded configuration. Open listeners, found by their addresses, use the new files
    /// for new connections; existing connections are unaffected.
    ///
    /// # Errors
    /// As [`Tls::load`]; nothing changes then.
    pub fn renew(&self, config: &Config) -> Result<Self, Problems> {
        let newer = Self::load(config)?;
        for (listener, new) in config.listeners.iter().zip(&newer.acceptors) {
            let old = self.opened.iter().position(|opened| *opened == listener.listen);
            if let Some(old) = old {
                self.acceptors[old].replace(new);
            }
        }
        Ok(newer)
    }

    /// The acceptor of a listener, by its index in the configuration.
    pub fn acceptor(&self, listener: usize) -> Option<Arc<TlsAcceptor>> {
        self.acceptors.get(listener).cloned()
    }

    /// The connector of a database, by its index in the configuration.
    pub fn connector(&self, database: usize) -> Option<Arc<TlsConnector>> {
        self.connectors.get(database).cloned().flatten()
    }
}

/// Whether connections to a database may use TLS.
pub fn uses_tls(database: &Database) -> bool {
    dial::uses_tls(&database.hosts, &database.tls)
}

fn acceptor(tls: &ListenerTls, inside: &[&[u8]]) -> Result<TlsAcceptor, (&'static str, String)> {
    let identity = TlsIdentity {
        certificates: read_pem(&tls.cert).map_err(|message| ("tls_cert", message))?,
        key: read_pem(&tls.key).map_err(|message| ("tls_key", message))?,
    };
    let authority = |path: &Path| read_pem(path).map_err(|message| ("tls_client_ca", message));
    let clients = match &tls.clients {
        ClientAuth::Off => ClientCertificates::Ignored,
        ClientAuth::Optional(path) => ClientCertificates::Optional(authority(path)?),
        ClientAuth::Required(path) => ClientCertificates::Required(authority(path)?),
    };
    TlsAcceptor::within(&tls.limits, &identity, &clients, inside)
        .map_err(|error| ("tls_cert", about_file(&tls.cert, &error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::from_text;

    fn lay_down(folder: &Path, name: &str) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        std::fs::write(folder.join("c.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.join("k.pem"), made.signing_key.serialize_pem()).unwrap();
    }

    fn config(folder: &Path, more: &str) -> Config {
        let text = format!(
            "[[listener]]\nlisten = \"127.0.0.1:1\"\ntls_cert = \"c.pem\"\ntls_key = \"k.pem\"\n\
             [[database]]\nname = \"d\"\nurl = \"postgres://a@h/d{more}\"\n"
        );
        from_text(&folder.join("p.toml"), &text, &|_| None).unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn files_are_found_beside_the_configuration_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        lay_down(folder.path(), "one.test");
        let config = config(folder.path(), "?sslmode=verify-full&sslrootcert=c.pem");
        let tls = Tls::load(&config).unwrap();
        assert!(tls.acceptor(0).is_some() && tls.connector(0).is_some());
        lay_down(folder.path(), "two.test");
        let before = tls.acceptor(0).unwrap();
        let newer = tls.renew(&config).unwrap();
        assert!(newer.connector(0).is_some() && Arc::ptr_eq(&before, &tls.acceptor(0).unwrap()));
        std::fs::write(folder.path().join("k.pem"), "no key").unwrap();
        let problem = tls.renew(&config).unwrap_err().to_string();
        assert!(problem.contains("c.pem") && problem.contains("no private key"), "{problem}");
        assert!(problem.contains("p.toml:3"), "{problem}");
    }

    #[test]
    fn a_key_that_belongs_to_another_certificate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        lay_down(folder.path(), "one.test");
        let certificate = std::fs::read(folder.path().join("c.pem")).unwrap();
        lay_down(folder.path(), "two.test");
        std::fs::write(folder.path().join("c.pem"), certificate).unwrap();
        let problem = Tls::load(&config(folder.path(), "")).unwrap_err().to_string();
        assert!(problem.contains("the key does not belong to the certificate"), "{problem}");
    }

    #[test]
    fn missing_files_are_problems_of_both_sides() {
        let folder = tempfile::tempdir().unwrap();
        let problems = Tls::load(&config(folder.path(), "?sslmode=verify-ca&sslrootcert=r.pem")).unwrap_err().0;
        let shown: Vec<_> = problems.iter().map(|problem| problem.message.clone()).collect();
        assert!(shown.len() == 2 && shown[0].contains("c.pem") && shown[1].contains("r.pem"), "{shown:?}");
    }
}
