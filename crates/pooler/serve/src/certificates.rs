//! The certificates of a configuration: which listener or database uses each, and when it expires. Trusts none of them.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use dial::read_pem;
use driver::{CertificateFacts, certificate_facts};
use upstream::Root;

use crate::config::{ClientAuth, Config};

/// A file with more certificates lists the authorities of a whole system, some of them expired.
const MAX_WATCHED_IN_A_FILE: usize = 10;

/// A certificate and its use.
#[derive(Clone, Debug)]
pub struct KnownCertificate {
    /// `listener` or `database`.
    pub used_by: &'static str,
    /// The listener's address, or the database's name.
    pub name: String,
    pub file: PathBuf,
    pub facts: CertificateFacts,
}

impl KnownCertificate {
    /// Seconds until it expires; negative after that.
    pub fn remaining_seconds(&self, now: SystemTime) -> f64 {
        match self.facts.expires.duration_since(now) {
            Ok(remaining) => remaining.as_secs_f64(),
            Err(since) => -since.duration().as_secs_f64(),
        }
    }
}

/// Reads the certificates; of each file the one that expires first. Files that cannot be read are left out: their
/// errors are reported elsewhere.
pub fn certificates(config: &Config) -> Vec<KnownCertificate> {
    let mut known = Vec::new();
    let mut add = |used_by, name: &str, file: &Path| {
        let Some(facts) = first_to_expire(file) else { return };
        known.push(KnownCertificate { used_by, name: name.to_owned(), file: file.to_owned(), facts });
    };
    for listener in &config.listeners {
        let Some(tls) = &listener.tls else { continue };
        let name = listener.listen.to_string();
        add("listener", &name, &tls.cert);
        if let ClientAuth::Optional(authority) | ClientAuth::Required(authority) = &tls.clients {
            add("listener", &name, authority);
        }
    }
    for database in &config.databases {
        if let Some((cert, _)) = &database.tls.identity {
            add("database", &database.name, cert);
        }
        if let Some(Root::File(root)) = &database.tls.root {
            add("database", &database.name, root);
        }
    }
    known
}

fn first_to_expire(file: &Path) -> Option<CertificateFacts> {
    let facts = certificate_facts(&read_pem(file).ok()?).ok()?;
    if facts.len() > MAX_WATCHED_IN_A_FILE {
        return None;
    }
    facts.into_iter().min_by_key(|facts| facts.expires)
}
