//! TLS in a URL, with libpq's parameters. Opens no file.

use std::path::{Path, PathBuf};

use settings::choose;

use seam::TlsLimits;

use crate::{
    kind::Kind,
    tls_limits::{allow_ciphers, allow_versions},
};

pub const URL_TLS_KEYS: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslnegotiation",
    "channel_binding",
    "tls_protocols",
    "tls_ciphers",
];

/// TLS towards an upstream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpstreamTls {
    pub mode: SslMode,
    pub root: Option<Root>,
    /// The files of Poolhouse's own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// `sslnegotiation=direct`: the handshake begins without asking for TLS first.
    pub direct: bool,
    pub binding: ChannelBinding,
    /// Poolhouse's own parameters `tls_protocols` and `tls_ciphers`.
    pub limits: TlsLimits,
}

/// libpq's `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum SslMode {
    Disable,
    /// If the upstream refuses a connection without TLS.
    Allow,
    /// If the upstream offers TLS.
    #[default]
    Prefer,
    /// Always, with any certificate unless `sslrootcert` is given.
    Require,
    /// Always, with a certificate that an authority in `sslrootcert` has signed.
    VerifyCa,
    /// Always, with such a certificate for the host of the URL.
    VerifyFull,
}

impl SslMode {
    const WORDS: &[(&'static str, Self)] = &[
        ("disable", Self::Disable),
        ("allow", Self::Allow),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
        ("verify-ca", Self::VerifyCa),
        ("verify-full", Self::VerifyFull),
    ];
}

/// libpq's `channel_binding`: whether the login is bound to the TLS connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChannelBinding {
    Never,
    #[default]
    Prefer,
    /// The login fails without it.
    Require,
}

/// Authorities that may have signed an upstream's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Root {
    /// The authorities that this machine trusts.
    System,
    File(PathBuf),
}

impl UpstreamTls {
    /// Makes relative paths start at a folder.
    pub fn within(self, folder: &Path) -> Self {
        let root = self.root.map(|root| match root {
            Root::File(path) => Root::File(folder.join(path)),
            Root::System => Root::System,
        });
        let identity = self.identity.map(|(cert, key)| (folder.join(cert), folder.join(key)));
        Self { root, identity, ..self }
    }
}

/// The TLS parameters of a URL while they are read.
#[derive(Default)]
pub struct UrlTls {
    mode: Option<SslMode>,
    root: Option<Root>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    direct: bool,
    binding: ChannelBinding,
    limits: TlsLimits,
}

impl UrlTls {
    /// Takes one of [`URL_TLS_KEYS`].
    ///
    /// # Errors
    /// The value is wrong, or Poolhouse lacks this parameter of libpq.
    pub fn parameter(&mut self, key: &str, value: &str) -> Result<(), String> {
        let file = || (!value.is_empty()).then(|| PathBuf::from(value));
        match key {
            "sslmode" => {
                self.mode = Some(choose(value, SslMode::WORDS).map_err(|message| format!("sslmode: {message}"))?)
            }
            "sslrootcert" if value == "system" => self.root = Some(Root::System),
            "sslrootcert" => self.root = file().map(Root::File),
            "sslcert" => self.cert = file(),
            "sslkey" => self.key = file(),
            "sslnegotiation" => {
                self.direct = choose(value, &[("postgres", false), ("direct", true)])
                    .map_err(|message| format!("sslnegotiation: {message}"))?;
            }
            "tls_protocols" => allow_versions(&mut self.limits, [value])?,
            "tls_ciphers" => allow_ciphers(&mut self.limits, [value])?,
            "channel_binding" => {
                let words = [
                    ("disable", ChannelBinding::Never),
                    ("prefer", ChannelBinding::Prefer),
                    ("require", ChannelBinding::Require),
                ];
                self.binding = choose(value, &words).map_err(|message| format!("channel_binding: {message}"))?;
            }
            _ => return Err(format!("{key} is not available; TLS parameters are {}", URL_TLS_KEYS.join(", "))),
        }
        Ok(())
    }

    /// Verifies no more of the upstream's certificate than `mode` does.
    pub fn weaken(&mut self, mode: SslMode) {
        self.mode = Some(self.mode.map_or(mode, |given| given.min(mode)));
    }

    /// Checks the parameters of a URL whose scheme implies TLS: by default the upstream must prove its identity.
    ///
    /// # Errors
    /// As [`finish`](Self::finish), or `sslmode` permits a connection without TLS. An error has the option names of
    /// this kind of URL.
    pub fn finish_strict(self, kind: Kind) -> Result<UpstreamTls, String> {
        if self.mode.is_some_and(|mode| mode < SslMode::Require) {
            return Err("rediss:// is with TLS: its sslmode is verify-full, verify-ca or require".to_owned());
        }
        if self.mode == Some(SslMode::VerifyCa) && !matches!(self.root, Some(Root::File(_))) {
            let (given, needed) = match kind {
                Kind::MongoDb => ("tlsAllowInvalidHostnames", "tlsCAFile"),
                Kind::Postgres | Kind::Redis => ("sslmode=verify-ca", "sslrootcert"),
            };
            return Err(format!(
                "{given} needs {needed} with a file: \
                 the authorities that this machine trusts sign certificates of any host"
            ));
        }
        let verifies = self.mode.is_none_or(|mode| mode > SslMode::Require);
        let root = self.root.or(verifies.then_some(Root::System));
        let mode = Some(self.mode.unwrap_or(SslMode::VerifyFull));
        Self { mode, root, ..self }.finish()
    }

    /// Checks the parameters against each other.
    ///
    /// # Errors
    /// Why they do not fit together.
    pub fn finish(self) -> Result<UpstreamTls, String> {
        let strict = self.root == Some(Root::System);
        let mode = self.mode.unwrap_or(if strict { SslMode::VerifyFull } else { SslMode::default() });
        if strict && mode < SslMode::VerifyFull {
            return Err("sslrootcert=system trusts so many that it needs sslmode=verify-full".to_owned());
        }
        if mode >= SslMode::VerifyCa && self.root.is_none() {
            let message = "sslmode=verify-ca and verify-full need sslrootcert: a file, or \"system\"";
            return Err(message.to_owned());
        }
        if self.root.is_some() && mode < SslMode::Require {
            return Err(
                "sslrootcert needs sslmode=verify-full (or verify-ca): otherwise nothing is verified".to_owned()
            );
        }
        if self.direct && mode < SslMode::Require {
            return Err("sslnegotiation=direct needs sslmode=require, or a stricter one".to_owned());
        }
        if self.binding == ChannelBinding::Require && mode == SslMode::Disable {
            return Err("channel_binding=require cannot be with sslmode=disable".to_owned());
        }
        let identity = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("sslcert and sslkey belong together: give both".to_owned()),
        };
        let Self { root, direct, binding, limits, .. } = self;
        Ok(UpstreamTls { mode, root, identity, direct, binding, limits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parameters: &str) -> Result<UpstreamTls, String> {
        let mut tls = UrlTls::default();
        for pair in parameters.split_whitespace() {
            let (key, value) = pair.split_once('=').unwrap();
            tls.parameter(key, value)?;
        }
        tls.finish()
    }

    #[test]
    fn by_default_tls_is_preferred() {
        assert_eq!(read("").unwrap(), UpstreamTls { mode: SslMode::Prefer, ..UpstreamTls::default() });
    }

    #[test]
    fn the_strictest_parameters_are_read() {
        let tls = read(
            "sslmode=verify-full sslrootcert=ca.pem sslcert=c sslkey=k sslnegotiation=direct channel_binding=require",
        );
        let tls = tls.unwrap().within(Path::new("/etc"));
        assert_eq!((tls.mode, tls.direct, tls.binding), (SslMode::VerifyFull, true, ChannelBinding::Require));
        assert_eq!(tls.root, Some(Root::File("/etc/ca.pem".into())));
        assert_eq!(tls.identity, Some(("/etc/c".into(), "/etc/k".into())));
        assert_eq!(read("sslrootcert=system").unwrap().mode, SslMode::VerifyFull);
    }

    #[test]
    fn contradictory_parameters_are_refused() {
        for (parameters, part) in [
            ("sslmode=verify-full", "sslrootcert"),
            ("sslmode=verify-ca sslrootcert=system", "verify-full"),
            ("sslrootcert=ca.pem", "verifi"),
            ("sslnegotiation=direct", "sslmode=require"),
            ("sslmode=disable channel_binding=require", "cannot"),
            ("sslcert=c", "sslkey"),
            ("sslmode=verify", "verify-ca"),
            ("sslpassword=x", "not available"),
        ] {
            let error = read(parameters).unwrap_err();
            assert!(error.contains(part), "{parameters}: {error}");
        }
    }
}
