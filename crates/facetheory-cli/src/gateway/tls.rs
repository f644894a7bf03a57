//! TLS for client connections, with a certificate that can be replaced while connections are open.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// The TLS settings of a listener.
#[derive(Debug)]
pub(crate) struct Tls {
    certificate: Arc<CurrentCertificate>,
    config: Arc<ServerConfig>,
}

#[derive(Debug)]
struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Tls {
    /// Reads a certificate chain and its private key from PEM files.
    pub(crate) fn open(certificate: &Path, key: &Path) -> Result<Self> {
        let certificate = Arc::new(CurrentCertificate(ArcSwap::new(read(certificate, key)?)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .context("cannot set up TLS")?
            .with_no_client_auth()
            .with_cert_resolver(certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { certificate, config: Arc::new(config) })
    }

    /// Uses another certificate for all later connections. If a file is invalid, the current certificate stays.
    pub(crate) fn reload(&self, certificate: &Path, key: &Path) -> Result<()> {
        self.certificate.0.store(read(certificate, key)?);
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .with_context(|| format!("cannot read a certificate from {}", certificate.display()))?;
    ensure!(!chain.is_empty(), "{} contains no certificate", certificate.display());
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read a private key from {}", key.display()))?;
    let certified =
        CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).with_context(|| {
            format!(
                "the private key in {} does not match the certificate in {}",
                key.display(),
                certificate.display()
            )
        })?;
    Ok(Arc::new(certified))
}
