//! TLS of the API, with a certificate that is read again when its files change.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use island_daemon::chain::Chain;
use parking_lot::RwLock;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::{CryptoProvider, aws_lc_rs},
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
};
use tokio_util::sync::CancellationToken;

use island_coordinator_domain::config::Tls;

/// Pause between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(5);

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// A file has no certificate.
    #[error("{0} has no certificate in PEM")]
    Empty(PathBuf),
    /// The key does not belong to the certificate, or is of an unknown kind.
    #[error("use the key {path}")]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
}

/// The certificate that new connections get.
#[derive(Debug)]
pub struct Certificate {
    files: Tls,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Certificate {
    /// Reads the files.
    pub fn load(files: &Tls) -> Result<Arc<Self>, CertificateError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let current = RwLock::new(Arc::new(read(files, &provider)?));
        Ok(Arc::new(Self { files: files.clone(), provider, current }))
    }

    /// Accepts connections of HTTP/1.1 with this certificate.
    pub fn acceptor(self: &Arc<Self>) -> TlsAcceptor {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// When the certificate of this server expires, in seconds since 1970; `None` if its dates cannot be read.
    pub fn expires(&self) -> Option<i64> {
        let current = self.current.read().clone();
        not_after(current.cert.first()?)
    }

    /// Reads the files again. On an error the current certificate stays in use.
    fn reload(&self) -> Result<(), CertificateError> {
        *self.current.write() = Arc::new(read(&self.files, &self.provider)?);
        Ok(())
    }

    /// Reads the files whenever one of them has changed, until `stop` is triggered.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut known = versions(&self.files);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            let found = versions(&self.files);
            // One of the two may be there before the other: both are read again when the second one follows.
            if found == known {
                continue;
            }
            match self.reload() {
                Ok(()) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "certificate replaced");
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "new certificate not usable; the old one stays in use");
                }
            }
            known = found;
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

/// When the certificate in a file expires, in seconds since 1970; `None` if it cannot be read.
pub fn expires(certificate: &Path) -> Option<i64> {
    not_after(&CertificateDer::from_pem_file(certificate).ok()?)
}

fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, leaf) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(leaf.validity().not_after.timestamp())
}

fn read(files: &Tls, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
    let unreadable = |path: &Path, source| CertificateError::Read { path: path.to_owned(), source };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| unreadable(&files.certificate, source))?;
    if chain.is_empty() {
        return Err(CertificateError::Empty(files.certificate.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| unreadable(&files.key, source))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|source| CertificateError::Key { path: files.key.clone(), source })
}

/// What changes with the content of each file, also if it is a link that leads elsewhere now.
fn versions(files: &Tls) -> [Option<(SystemTime, u64)>; 2] {
    let version = |path: &Path| -> io::Result<_> {
        let metadata = fs::metadata(path)?;
        Ok((metadata.modified()?, metadata.len()))
    };
    [&files.certificate, &files.key].map(|path| version(path).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a new certificate and its key.
    fn make(files: &Tls) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        parameters.not_after = rcgen::date_time_ymd(2050, 1, 2);
        let made = parameters.self_signed(&key).expect("a certificate");
        fs::write(&files.certificate, made.pem()).expect("write");
        fs::write(&files.key, key.serialize_pem()).expect("write");
    }

    fn leaf(certificate: &Certificate) -> Vec<u8> {
        certificate.current.read().cert[0].to_vec()
    }

    #[test]
    fn a_new_pair_replaces_the_old_one_and_half_a_pair_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Tls { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        assert!(matches!(Certificate::load(&files), Err(CertificateError::Read { .. })));
        make(&files);
        let certificate = Certificate::load(&files).expect("a certificate");
        let first = leaf(&certificate);
        assert_eq!(certificate.expires(), Some(2_524_694_400), "2050-01-02");
        assert_eq!(expires(&files.certificate), certificate.expires());
        assert_eq!(expires(&files.key), None, "it has no certificate");

        let key = fs::read(&files.key).expect("the key");
        make(&files);
        fs::write(&files.key, &key).expect("write");
        assert!(matches!(certificate.reload(), Err(CertificateError::Key { .. })));
        assert_eq!(leaf(&certificate), first);

        make(&files);
        certificate.reload().expect("a pair");
        assert_ne!(leaf(&certificate), first);

        fs::write(&files.certificate, "").expect("write");
        assert!(matches!(certificate.reload(), Err(CertificateError::Empty(_))));
    }
}
