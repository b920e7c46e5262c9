//! When the certificate of an upstream is believed: as libpq does it, which differs in places from what browsers do.
//! Certificates that are listed as trusted themselves are believed though no authority signed them, and a certificate
//! without alternative names may name its host as its common name. Knows no connection.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{TlsError, certificate, certificates};

/// What an upstream's certificate must be like.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Anything: the connection is encrypted, but with whom is not known.
    Anybody,
    /// A certificate signed by an authority in this PEM text, or one in the text itself.
    Authority(Vec<u8>),
    /// That, and made out for the host that was connected to.
    Host(Vec<u8>),
    /// Made out for the host, and signed by an authority that this machine trusts.
    System,
}

/// What is demanded of an upstream's certificate.
#[derive(Debug)]
pub(super) struct Rule {
    trusted: Option<Trusted>,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Trusted {
    authorities: RootCertStore,
    /// Those same certificates, which may also be shown themselves.
    listed: Vec<CertificateDer<'static>>,
    check_name: bool,
}

impl Rule {
    pub(super) fn new(trust: &Trust, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let trusted = match trust {
            Trust::Anybody => None,
            Trust::Authority(pem) => Some(Trusted::new(certificates(pem)?, false)?),
            Trust::Host(pem) => Some(Trusted::new(certificates(pem)?, true)?),
            Trust::System => Some(Trusted::of_this_machine()?),
        };
        Ok(Self { trusted, algorithms: provider.signature_verification_algorithms })
    }
}

impl Trusted {
    fn new(listed: Vec<CertificateDer<'static>>, check_name: bool) -> Result<Self, TlsError> {
        let mut authorities = RootCertStore::empty();
        for certificate in &listed {
            authorities.add(certificate.clone())?;
        }
        Ok(Self { authorities, listed, check_name })
    }

    fn of_this_machine() -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut authorities = RootCertStore::empty();
        let (added, _) = authorities.add_parsable_certificates(found.certs);
        if added == 0 {
            return Err(TlsError::new("this machine lists no trusted authorities (install ca-certificates)"));
        }
        Ok(Self { authorities, listed: Vec::new(), check_name: true })
    }
}

impl ServerCertVerifier for Rule {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if trusted.listed.iter().any(|listed| listed == end_entity) {
            certificate::check_validity(end_entity, now)?;
        } else {
            let (authorities, all) = (&trusted.authorities, self.algorithms.all);
            verify_server_cert_signed_by_trust_anchor(&parsed, authorities, intermediates, now, all)?;
        }
        if trusted.check_name && !is_for(&parsed, end_entity, server_name) {
            return Err(CertificateError::NotValidForName.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn is_for(parsed: &ParsedCertificate<'_>, certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    if verify_server_name(parsed, name).is_ok() {
        return true;
    }
    match name {
        ServerName::DnsName(host) => certificate::common_name_is_host(certificate, host.as_ref()),
        _ => false,
    }
}
