//! TLS: one certificate, which can be replaced while connections are open.

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

/// The certificate that visitors are shown.
#[derive(Debug)]
pub(crate) struct Tls {
    shown: Arc<Shown>,
    acceptor: ServerConfigOf,
}

/// Wrapped, since an acceptor has no `Debug`.
struct ServerConfigOf(TlsAcceptor);

impl std::fmt::Debug for ServerConfigOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

#[derive(Debug)]
struct Shown(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Tls {
    /// The certificates of this PEM file, the visitor's first, with the private key of that one.
    pub(crate) fn open(certificate: &Path, key: &Path) -> Result<Self> {
        let shown = Arc::new(Shown(ArcSwap::new(read(certificate, key)?)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .context("TLS cannot be set up")?
            .with_no_client_auth()
            .with_cert_resolver(shown.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = ServerConfigOf(TlsAcceptor::from(Arc::new(config)));
        Ok(Tls { shown, acceptor })
    }

    /// Shows the certificate of these files from now on. If they are wrong, the one that is shown stays.
    pub(crate) fn replace(&self, certificate: &Path, key: &Path) -> Result<()> {
        self.shown.0.store(read(certificate, key)?);
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor.0
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .with_context(|| format!("no certificate can be read from {}", certificate.display()))?;
    ensure!(!chain.is_empty(), "{} has no certificate", certificate.display());
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("no private key can be read from {}", key.display()))?;
    let certified =
        CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).with_context(|| {
            format!(
                "the key in {} does not belong to the certificate in {}",
                key.display(),
                certificate.display()
            )
        })?;
    Ok(Arc::new(certified))
}
