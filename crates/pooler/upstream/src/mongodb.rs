//! What stands behind the `?` of a `mongodb://` URL, in the words of MongoDB's drivers
//! (<https://www.mongodb.com/docs/manual/reference/connection-string/>). An option that is for drivers and means
//! nothing here is ignored, and told with what does the same here.

use std::time::Duration;

use settings::nearest;

use crate::tls::{SslMode, UrlTls};

/// Options that only MongoDB has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MongoOptions {
    /// `replicaSet`: the set that all hosts must be members of.
    pub replica_set: Option<String>,
    /// `directConnection`: only the host itself is used, whatever replica set it belongs to.
    pub direct: bool,
    /// `authSource`: the database that has the user. The default is the database of the URL, or `admin`.
    pub auth_source: Option<String>,
    /// `authMechanism` is SCRAM-SHA-1.
    pub sha1: bool,
    /// `localThresholdMS`: how much longer than the nearest host another host may take to answer, if reads are to be
    /// sent there.
    pub local_threshold: Option<Duration>,
}

/// Options that have an effect here.
const SUPPORTED_OPTIONS: &[&str] = &[
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

/// An option of a URL that only drivers use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ignored {
    pub name: &'static str,
    /// The setting that does the same for Poolhouse.
    pub setting: Option<&'static str>,
}

/// Options of drivers' pools, with the setting that does the same here.
const POOL_OPTIONS: &[(&str, &str)] = &[
    ("maxPoolSize", "max_size"),
    ("minPoolSize", "min_size"),
    ("maxIdleTimeMS", "max_idle_time"),
    ("maxConnecting", "max_connecting"),
    ("waitQueueTimeoutMS", "max_wait_time"),
    ("socketTimeoutMS", "query_time"),
    ("timeoutMS", "query_time"),
    ("serverSelectionTimeoutMS", "unavailable_wait_time"),
];

/// Options that each client sets for itself.
const CLIENT_OPTIONS: &[&str] = &[
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
pub struct UrlOptions {
    pub options: MongoOptions,
    /// `connectTimeoutMS`.
    pub connect_time: Option<Duration>,
    /// `tls`, if it was given.
    pub secure: Option<bool>,
    /// `srvServiceName`, and `srvMaxHosts`.
    pub srv_service: Option<String>,
    pub srv_max_hosts: Option<usize>,
    /// Options that only drivers use.
    pub ignored: Vec<Ignored>,
}

fn parse_bool(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{key} is true or false")),
    }
}

impl UrlOptions {
    /// Takes an option, whose name may be in any case.
    ///
    /// # Errors
    /// The value is wrong, or the option is unknown or not available.
    pub fn parameter(&mut self, given: &str, value: String, tls: &mut UrlTls) -> Result<(), String> {
        let is = |name: &&&str| name.eq_ignore_ascii_case(given);
        let of_pools = POOL_OPTIONS.iter().map(|&(name, setting)| Ignored { name, setting: Some(setting) });
        let mut drivers = of_pools.chain(CLIENT_OPTIONS.iter().map(|&name| Ignored { name, setting: None }));
        if let Some(ignored) = drivers.find(|ignored| ignored.name.eq_ignore_ascii_case(given)) {
            if !self.ignored.contains(&ignored) {
                self.ignored.push(ignored);
            }
            return Ok(());
        }
        let Some(key) = SUPPORTED_OPTIONS.iter().find(is) else {
            let guess = nearest(given, SUPPORTED_OPTIONS).map(|n| format!(", did you mean `{n}`?")).unwrap_or_default();
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
            "tls" | "ssl" => self.secure = Some(parse_bool(key, &value)?),
            "tlsCAFile" => tls.parameter("sslrootcert", &value)?,
            "tlsAllowInvalidHostnames" if parse_bool(key, &value)? => tls.weaken(SslMode::VerifyCa),
            "tlsAllowInvalidCertificates" | "tlsInsecure" if parse_bool(key, &value)? => tls.weaken(SslMode::Require),
            "connectTimeoutMS" => {
                let time: u64 = value.parse().map_err(|_| "connectTimeoutMS is a whole number of milliseconds")?;
                self.connect_time = (time > 0).then(|| Duration::from_millis(time));
            }
            "localThresholdMS" => {
                let time: u64 = value.parse().map_err(|_| "localThresholdMS is a whole number of milliseconds")?;
                self.options.local_threshold = Some(Duration::from_millis(time));
            }
            "loadBalanced" if parse_bool(key, &value)? => {
                return Err("loadBalanced is not available: name the hosts themselves".to_owned());
            }
            "srvServiceName" => self.srv_service = Some(value).filter(|name| !name.is_empty()),
            "srvMaxHosts" => {
                let most: usize = value.parse().map_err(|_| "srvMaxHosts is a whole number")?;
                self.srv_max_hosts = (most > 0).then_some(most);
            }
            "directConnection" => self.options.direct = parse_bool(key, &value)?,
            _ => {}
        }
        Ok(())
    }
}
