//! What is configured of TLS at a listener. Opens no file.

use std::path::PathBuf;

use seam::TlsLimits;
use settings::Section;
use upstream::{allow_ciphers, allow_curves, allow_versions};

use super::Endpoint;

/// Keys of a `[[listener]]`.
pub const LISTENER_TLS_KEYS: &[&str] =
    &["tls", "tls_cert", "tls_key", "tls_client_ca", "tls_client_auth", "tls_protocols", "tls_ciphers", "tls_curves"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerTls {
    /// Whether clients without TLS are refused.
    pub required: bool,
    /// The file of the certificate, and of the certificates that link it to an authority.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// What is made of clients' certificates.
    pub clients: ClientAuth,
    /// Versions and ciphers.
    pub limits: TlsLimits,
}

/// What is made of clients' certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientAuth {
    /// None is asked for.
    Off,
    /// One may be shown; an authority in this file must have signed it.
    Optional(PathBuf),
    Required(PathBuf),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Off,
    Soft,
    Require,
}

/// Reads the TLS keys of a listener's section; errors are reported there.
pub fn listener_tls(section: &Section<'_>, listen: &Endpoint) -> Option<ListenerTls> {
    let modes = [("off", Word::Off), ("allow", Word::Soft), ("require", Word::Require)];
    let auths = [("off", Word::Off), ("optional", Word::Soft), ("require", Word::Require)];
    let mode = section.choice("tls", &modes);
    let (cert, key) = (section.path("tls_cert"), section.path("tls_key"));
    let authority = section.path("tls_client_ca");
    let auth = section.choice("tls_client_auth", &auths);
    // A certificate alone says clearly enough that it is to be used.
    let given = LISTENER_TLS_KEYS.iter().skip(1).find(|key| section.has(key)).copied();
    match mode.unwrap_or(if given.is_some() { Word::Soft } else { Word::Off }) {
        Word::Off => {
            if let Some(key) = given {
                section.error(key, format!("`{key}` has no effect: tls is \"off\" here"));
            }
            return None;
        }
        Word::Soft | Word::Require if matches!(listen, Endpoint::Unix(_)) => {
            section.error("tls", "there is no TLS on a Unix socket: take the tls keys away");
            return None;
        }
        Word::Soft | Word::Require => {}
    }
    let clients = match (auth.unwrap_or(if authority.is_some() { Word::Soft } else { Word::Off }), authority) {
        (Word::Off, None) => ClientAuth::Off,
        (Word::Off, Some(_)) => {
            section.error("tls_client_ca", "`tls_client_ca` has no effect: tls_client_auth is \"off\"");
            ClientAuth::Off
        }
        (Word::Soft, Some(file)) => ClientAuth::Optional(file),
        (Word::Require, Some(file)) => ClientAuth::Required(file),
        (Word::Soft | Word::Require, None) => {
            section.error(
                "tls_client_auth",
                "`tls_client_auth` needs `tls_client_ca`, the authority of clients' certificates",
            );
            ClientAuth::Off
        }
    };
    let (Some(cert), Some(key)) = (cert, key) else {
        let missing = if section.has("tls_cert") { "tls_key" } else { "tls_cert" };
        if !section.has(missing) {
            section.error("tls", format!("TLS needs `{missing}`, the name of a file in PEM"));
        }
        return None;
    };
    let limits = tls_limits(section);
    Some(ListenerTls { required: mode == Some(Word::Require), cert, key, clients, limits })
}

fn tls_limits(section: &Section<'_>) -> TlsLimits {
    let mut limits = TlsLimits::default();
    let list = |key| section.texts(key);
    let report = |key, outcome: Result<(), String>| {
        if let Err(why) = outcome {
            section.error(key, format!("`{key}`: {why}"));
        }
    };
    if let Some(names) = list("tls_protocols") {
        report("tls_protocols", allow_versions(&mut limits, names.iter().map(String::as_str)));
    }
    if let Some(names) = list("tls_ciphers") {
        report("tls_ciphers", allow_ciphers(&mut limits, names.iter().map(String::as_str)));
    }
    if let Some(names) = list("tls_curves") {
        report("tls_curves", allow_curves(&mut limits, names.iter().map(String::as_str)));
    }
    limits
}
