//! Reload of configuration and certificate on SIGHUP.

#[path = "support/mod.rs"]
mod support;

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use support::site::Site;
use support::{TIMEOUT, wait_for};
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

const NAME: &str = "localhost";

/// Creates a certificate in files of this name.
fn certificate(directory: &Path, name: &str) -> CertifiedKey<KeyPair> {
    let made = generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let write = |kind: &str, text: String| {
        std::fs::write(directory.join(format!("{name}.{kind}")), text).expect("a file");
    };
    write("pem", made.cert.pem());
    write("key", made.signing_key.serialize_pem());
    made
}

/// Returns a configuration with the certificate of this name.
fn config(directory: &Path, name: &str, rest: &str) -> String {
    let file = |kind: &str| directory.join(format!("{name}.{kind}")).display().to_string();
    format!("[tls]\ncertificate = {:?}\nkey = {:?}\n{rest}", file("pem"), file("key"))
}

/// Whether the gateway presents this certificate.
fn is_presented(address: SocketAddr, certificate: &CertifiedKey<KeyPair>) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.cert.der().clone()).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = NAME.try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = TcpStream::connect(address).expect("the gateway listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    while client.is_handshaking() {
        if client.complete_io(&mut stream).is_err() {
            return false;
        }
    }
    true
}

#[test]
fn a_reload_presents_the_certificate_of_the_new_configuration() {
    let directory = tempfile::tempdir().expect("a directory");
    let (old, new) = (certificate(directory.path(), "old"), certificate(directory.path(), "new"));
    let site = Site::start(&config(directory.path(), "old", ""));
    assert!(is_presented(site.gateway.address, &old) && !is_presented(site.gateway.address, &new));
    site.reload(&config(directory.path(), "new", ""));
    wait_for("the new certificate is presented", || is_presented(site.gateway.address, &new).then_some(()));
    // An invalid configuration names no certificate: the files that were named last are read again.
    let newer = certificate(directory.path(), "new");
    site.reload("nonsense");
    wait_for("the certificate is read again", || is_presented(site.gateway.address, &newer).then_some(()));
}

#[test]
fn a_reload_warns_about_exactly_the_settings_that_need_a_restart() {
    let site = Site::start("[limits]\nconnections = 100\n[timeouts]\nheaders = \"1m\"\n");
    site.reload("[limits]\nconnections = 100\nheaders = 50\n[timeouts]\nheaders = \"2m\"\n");
    wait_for("the reload is logged", || site.gateway.log().contains("configuration reloaded").then_some(()));
    assert!(!site.gateway.log().contains("restart"), "{}", site.gateway.log());
    site.reload("listen = \"127.0.0.1:1\"\n[limits]\nconnections = 200\n[store]\nmemory = \"1MiB\"\n");
    let warning = wait_for("the warning is logged", || {
        site.gateway.log().lines().find(|line| line.contains("restart")).map(str::to_owned)
    });
    assert!(
        warning.contains("limits.connections, store.memory") || warning.contains("store, limits.connections"),
        "{warning}"
    );
}

#[test]
fn a_reload_does_not_change_the_form_of_cache_keys() {
    let routes = "site = \"www.example.com\"\n[routes]\n\"/posts/{slug}\" = { isr = \"1h\" }\n";
    let site = Site::start(routes);
    assert_eq!(site.get("/posts/a").header("x-facetheory-isr"), Some("miss"));
    site.reload(&format!("{routes}[store]\nkey_form = \"facetheory-ts\"\n"));
    wait_for("the warning is logged", || site.gateway.log().contains("need a restart").then_some(()));
    assert_eq!(site.get("/posts/a").header("x-facetheory-isr"), Some("hit"));
}

#[test]
fn an_empty_file_does_not_replace_the_configuration_on_reload() {
    let directory = tempfile::tempdir().expect("a directory");
    let origin = support::origin::Origin::start();
    let rules = "[routes]\n\"/**\" = { isr = \"1h\" }\n";
    let gateway = support::gateway::Gateway::start(directory.path(), origin.address, rules, &[]);
    for (count, empty) in ["", " \n\t\r\n", "# [routes]\n  # none\n"].into_iter().enumerate() {
        std::fs::write(directory.path().join("facetheory.toml"), empty).expect("a file");
        gateway.reload();
        wait_for("the error is logged", || {
            (gateway.log().matches("the configuration file is empty").count() == count + 1).then_some(())
        });
        let page = format!("/{count}");
        assert_eq!(gateway.exchange(support::site::get(&page, "")).state(), "miss", "the rule applies");
    }
    assert!(!gateway.log().contains("configuration reloaded"), "{}", gateway.log());
}

#[test]
fn a_gateway_starts_with_an_empty_file_and_warns() {
    let directory = tempfile::tempdir().expect("a directory");
    let origin = support::origin::Origin::start();
    let gateway = support::gateway::Gateway::start(directory.path(), origin.address, "# nothing\n", &[]);
    wait_for("the warning is logged", || gateway.log().contains("the file is empty").then_some(()));
    gateway.reload();
    wait_for("the reload is logged", || gateway.log().contains("configuration reloaded").then_some(()));
}
