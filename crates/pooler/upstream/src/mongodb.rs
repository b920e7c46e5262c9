//! What stands behind the `?` of a `mongodb://` URL, in the words of MongoDB's drivers
//! (<https://www.mongodb.com/docs/manual/reference/connection-string/>). An option that is for drivers and means
//! nothing here is ignored, and told with what does the same here.

use std::time::Duration;

use settings::nearest;

use crate::tls::UrlTls;

/// What of a URL is MongoDB's alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MongoOptions {
    /// `replicaSet`: what the hosts must be members of.
    pub replica_set: Option<String>,
    /// `directConnection`: the host is meant itself, whatever replica set it is of.
    pub direct: bool,
    /// `authSource`: the database that knows the user; without it that of the URL, or `admin`.
    pub auth_source: Option<String>,
    /// `authMechanism` is SCRAM-SHA-1.
    pub sha1: bool,
    /// `localThresholdMS`: how much longer than those of the nearest host the answers of a host may take that reads are
    /// sent to.
    pub local_threshold: Option<Duration>,
}

/// The options that are understood.
const KNOWN: &[&str] = &[
    "replicaSet",
    "authSource",
    "authMechanism",
    "tls",
    "ssl",
    "tlsCAFile",
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsInsecure",
    "connectTimeoutMS",
    "directConnection",
    "appName",
    "localThresholdMS",
    "loadBalanced",
    "srvServiceName",
    "srvMaxHosts",
];

/// An option of a URL that is for drivers, and says nothing to Poolhouse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ignored {
    pub name: &'static str,
    /// The setting that does the same for Poolhouse.
    pub setting: Option<&'static str>,
}

/// Options of drivers' pools, and the setting that does the same here.
const OURS: &[(&str, &str)] = &[
    ("maxPoolSize", "max_size"),
    ("minPoolSize", "min_size"),
    ("maxIdleTimeMS", "max_idle_time"),
    ("maxConnecting", "max_connecting"),
    ("waitQueueTimeoutMS", "max_wait_time"),
    ("socketTimeoutMS", "query_time"),
    ("timeoutMS", "query_time"),
    ("serverSelectionTimeoutMS", "unavailable_wait_time"),
];

/// Options that each client says for itself.
const CLIENTS: &[&str] = &[
    "readPreference",
    "readPreferenceTags",
    "maxStalenessSeconds",
    "readConcernLevel",
    "w",
    "wtimeoutMS",
    "journal",
    "retryReads",
    "retryWrites",
    "compressors",
    "zlibCompressionLevel",
    "heartbeatFrequencyMS",
    "serverMonitoringMode",
    "uuidRepresentation",
    "tlsDisableOCSPEndpointCheck",
];

/// The URL's options as they are read.
#[derive(Default)]
pub struct Options {
    pub options: MongoOptions,
    /// `connectTimeoutMS`.
    pub connect_time: Option<Duration>,
    /// TLS was asked for, or was not to be.
    pub secure: Option<bool>,
    /// `srvServiceName`, and `srvMaxHosts`.
    pub srv_service: Option<String>,
    pub srv_max_hosts: Option<usize>,
    /// What says nothing here.
    pub ignored: Vec<Ignored>,
}

fn truth(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{key} is true or false")),
    }
}

impl Options {
    /// Takes one of them. Their names are the same in whatever case.
    ///
    /// # Errors
    /// What is wrong with it, or that it is not for Poolhouse.
    pub fn parameter(&mut self, given: &str, value: String, tls: &mut UrlTls) -> Result<(), String> {
        let is = |name: &&&str| name.eq_ignore_ascii_case(given);
        let of_pools = OURS.iter().map(|&(name, ours)| Ignored { name, setting: Some(ours) });
        let mut drivers = of_pools.chain(CLIENTS.iter().map(|&name| Ignored { name, setting: None }));
        if let Some(ignored) = drivers.find(|ignored| ignored.name.eq_ignore_ascii_case(given)) {
            if !self.ignored.contains(&ignored) {
                self.ignored.push(ignored);
            }
            return Ok(());
        }
        let Some(key) = KNOWN.iter().find(is) else {
            let guess = nearest(given, KNOWN).map(|n| format!(", did you mean `{n}`?")).unwrap_or_default();
            return Err(format!(
                "unknown parameter `{}` behind the `?` of a mongodb:// URL{guess}",
                given.escape_debug()
            ));
        };
        match *key {
            "replicaSet" => self.options.replica_set = Some(value).filter(|name| !name.is_empty()),
            "authSource" => self.options.auth_source = Some(value).filter(|name| !name.is_empty()),
            "authMechanism" if matches!(&*value, "SCRAM-SHA-256" | "SCRAM-SHA-1") => {
                self.options.sha1 = value == "SCRAM-SHA-1";
            }
            "authMechanism" => {
                return Err(format!(
                    "authMechanism {} is not available: SCRAM-SHA-256 and SCRAM-SHA-1 are",
                    value.escape_debug()
                ));
            }
            "tls" | "ssl" => self.secure = Some(truth(key, &value)?),
            "tlsCAFile" => tls.parameter("sslrootcert", &value)?,
            "tlsAllowInvalidHostnames" if truth(key, &value)? => tls.parameter("sslmode", "verify-ca")?,
            "tlsAllowInvalidCertificates" | "tlsInsecure" if truth(key, &value)? => {
                tls.parameter("sslmode", "require")?
            }
            "connectTimeoutMS" => {
                let time: u64 = value.parse().map_err(|_| "connectTimeoutMS is a whole number of milliseconds")?;
                self.connect_time = (time > 0).then(|| Duration::from_millis(time));
            }
            "localThresholdMS" => {
                let time: u64 = value.parse().map_err(|_| "localThresholdMS is a whole number of milliseconds")?;
                self.options.local_threshold = Some(Duration::from_millis(time));
            }
            "loadBalanced" if truth(key, &value)? => {
                return Err("loadBalanced is not available: name the hosts themselves".to_owned());
            }
            "srvServiceName" => self.srv_service = Some(value).filter(|name| !name.is_empty()),
            "srvMaxHosts" => {
                let most: usize = value.parse().map_err(|_| "srvMaxHosts is a whole number")?;
                self.srv_max_hosts = (most > 0).then_some(most);
            }
            "directConnection" => self.options.direct = truth(key, &value)?,
            _ => {}
        }
        Ok(())
    }
}
