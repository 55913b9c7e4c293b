//! Keys and certificates, generated anew for each cluster.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use thiserror::Error;

/// First address of the service network, used by the service `kubernetes`.
pub const API_SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// Generating a key or certificate failed; with fixed input this means a broken crypto library.
#[derive(Debug, Error)]
#[error("cannot make the cluster's certificates: {0}")]
pub struct CertificateError(#[from] rcgen::Error);

/// All in PEM.
#[derive(Debug)]
pub struct Certificates {
    /// Certificate of the cluster's authority.
    pub authority: String,
    /// The API server's certificate.
    pub server: String,
    /// Its key.
    pub server_key: String,
    /// Signing key for the tokens of service accounts.
    pub service_account_key: String,
    /// Its public key.
    pub service_account_public: String,
}

impl Certificates {
    /// Generates them within a millisecond: keys are elliptic curve keys.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn generate() -> Result<Self, CertificateError> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, "tessera-test-authority");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut server = CertificateParams::new(vec![
            "localhost".to_owned(),
            "kubernetes".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ])?;
        for address in [Ipv4Addr::LOCALHOST, API_SERVICE_ADDRESS] {
            server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(address)));
        }
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let server = server.signed_by(&server_key, &authority)?;

        let service_account = KeyPair::generate()?;
        Ok(Self {
            authority: authority.pem(),
            server: server.pem(),
            server_key: server_key.serialize_pem(),
            service_account_key: service_account.serialize_pem(),
            service_account_public: service_account.public_key_pem(),
        })
    }
}
