//! What must be read out of a certificate besides what rustls does: the common name, the hash that channel binding
//! uses, and the validity of one that is trusted by itself. Trusts no certificate.

use std::time::{Duration, SystemTime};

use rustls::{CertificateError, Error, pki_types::UnixTime};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_cert::{
    Certificate,
    der::{Decode, Tag, Tagged, asn1::ObjectIdentifier},
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// What people want to know of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFacts {
    /// The subject, as `CN=db.internal`.
    pub subject: String,
    pub expires: SystemTime,
    /// The version of X.509, from 1.
    pub version: u8,
}

impl CertificateFacts {
    pub(super) fn of(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?.tbs_certificate;
        Some(Self {
            subject: certificate.subject.to_string(),
            expires: SystemTime::UNIX_EPOCH + certificate.validity.not_after.to_unix_duration(),
            version: certificate.version as u8 + 1,
        })
    }
}

/// Longest common name that is looked at, in bytes; X.520 allows 64.
const MAX_COMMON_NAME: usize = 255;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The hash of a certificate that `tls-server-end-point` binds to (RFC 5929): with the hash function of its signature,
/// but with SHA-256 for those that are weaker. `None` for a signature without one.
pub(super) fn end_point(der: &[u8]) -> Option<Box<[u8]>> {
    let certificate = Certificate::from_der(der).ok()?;
    let hash: Vec<u8> = match certificate.signature_algorithm.oid.to_string().as_str() {
        // MD5, SHA-1 and SHA-256 with RSA; SHA-1 and SHA-256 with ECDSA.
        "1.2.840.113549.1.1.4" | "1.2.840.113549.1.1.5" | "1.2.840.113549.1.1.11" => Sha256::digest(der).to_vec(),
        "1.2.840.10045.4.1" | "1.2.840.10045.4.3.2" => Sha256::digest(der).to_vec(),
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" => Sha224::digest(der).to_vec(),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Sha384::digest(der).to_vec(),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Sha512::digest(der).to_vec(),
        _ => return None,
    };
    Some(hash.into())
}

/// The common name of a certificate's subject; `None` if there is none, more than one, or one that is no plain text.
pub(super) fn common_name(der: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(der).ok()?;
    let names = certificate.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = names.filter(|attribute| attribute.oid == COMMON_NAME);
    let (name, None) = (names.next()?, names.next()) else { return None };
    if !matches!(name.value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String) {
        return None;
    }
    let text = std::str::from_utf8(name.value.value()).ok()?;
    let plain = !text.is_empty() && text.len() <= MAX_COMMON_NAME && !text.contains('\0');
    plain.then(|| text.to_owned())
}

/// Whether a certificate that has no alternative names for hosts names this one as its common name.
pub(super) fn common_name_is_host(der: &[u8], host: &str) -> bool {
    let Ok(certificate) = Certificate::from_der(der) else { return false };
    let Ok(alternatives) = certificate.tbs_certificate.get::<SubjectAltName>() else { return false };
    let names_host = |name: &GeneralName| matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_));
    if alternatives.is_some_and(|(_, names)| names.0.iter().any(names_host)) {
        return false;
    }
    let Some(pattern) = common_name(der) else { return false };
    let host = host.trim_end_matches('.');
    match pattern.strip_prefix("*.") {
        // A star stands for one label.
        Some(parent) => host.split_once('.').is_some_and(|(first, rest)| !first.is_empty() && same(rest, parent)),
        None => same(host, &pattern),
    }
}

fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// Whether `now` is within the certificate's time.
pub(super) fn check_validity(der: &[u8], now: UnixTime) -> Result<(), Error> {
    let certificate = Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding)?;
    let validity = certificate.tbs_certificate.validity;
    let now = Duration::from_secs(now.as_secs());
    if now < validity.not_before.to_unix_duration() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.to_unix_duration() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}
