//! Which certificates the proxy trusts, and why a sandbox can trust the proxy.

use crate::host::{Host, Vouching, self_signed};
use crate::world::{Rules, World, all_names, credential, limits, policy};
use belljar_egress::{Ca, CaError, EgressPolicy, Roots};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;

/// What is answered about a host with this certificate.
async fn fetch(vouching: &Vouching, config: ServerConfig) -> (u16, String, Host) {
    let host = Host::tls(config).await;
    let world = World::new(&vouching.pem(), all_names(), limits());
    let credentials = vec![credential("api.test", host.port())];
    let sandbox =
        world.sandbox(&Rules::new(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) }));
    let url = format!("https://api.test:{}/", host.port());
    let response = sandbox.client("").get(url).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap(), host)
}

#[tokio::test]
async fn a_host_that_cannot_prove_who_it_is_gets_nothing() {
    let vouching = Vouching::new();
    let past = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    };
    let future = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(3020, 1, 1);
        params.not_after = rcgen::date_time_ymd(3021, 1, 1);
    };
    for (config, expected) in [
        (vouching.config(&["api.test"], &[], past), "its certificate has expired"),
        (vouching.config(&["api.test"], &[], future), "its certificate is not valid yet"),
        (vouching.config(&["other.test"], &[], |_| {}), "its certificate is for another name"),
        (self_signed("api.test"), "its certificate has an unknown issuer"),
        // Signed by an issuer that only has the name of a trusted one.
        (Vouching::new().config(&["api.test"], &[], |_| {}), "its certificate is not valid"),
    ] {
        let (status, text, host) = fetch(&vouching, config).await;
        assert_eq!(status, 502);
        assert_eq!(text, format!("api.test:{} is not trusted: {expected}\n", host.port()));
        assert_eq!(host.requests().len(), 0);
    }
    let (status, _, _) = fetch(&vouching, vouching.config(&["api.test"], &[], |_| {})).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_host_without_tls_is_reported_as_such() {
    let host = Host::plain().await;
    let world = World::usual();
    let credentials = vec![credential("api.test", host.port())];
    let sandbox =
        world.sandbox(&Rules::new(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) }));
    let url = format!("https://api.test:{}/", host.port());
    let response = sandbox.client("").get(url).send().await.unwrap();
    assert_eq!(response.status(), 502);
    let expected = format!("TLS handshake with api.test:{} failed\n", host.port());
    assert_eq!(response.text().await.unwrap(), expected);
}

/// Asks through the proxy as a program in Python would, with all that newer ones check.
const PYTHON: &str = r#"
import http.client, ssl, sys
proxy, bundle, name, port = sys.argv[1:]
context = ssl.create_default_context(cafile=bundle)
context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
assert context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED
host, _, number = proxy.partition(":")
connection = http.client.HTTPSConnection(host, int(number), context=context, timeout=20)
connection.set_tunnel(name, int(port))
connection.request("GET", "/")
print(connection.getresponse().status, connection.sock.version())
"#;

#[tokio::test(flavor = "multi_thread")]
async fn python_believes_the_proxy_by_its_strictest_rules() {
    let vouching = Vouching::new();
    let directory = tempfile::tempdir().unwrap();
    let bundle = directory.path().join("bundle.pem");
    for name in ["api.test", "127.0.0.2"] {
        let host = Host::tls(vouching.config(&[name], &[], |_| {})).await;
        let world = World::new(&vouching.pem(), all_names(), limits());
        let credentials = vec![credential(name, host.port())];
        let sandbox =
            world.sandbox(&Rules::new(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) }));
        fs::write(&bundle, &world.ca).unwrap();
        let output = tokio::process::Command::new("python3")
            .args(["-c", PYTHON, &sandbox.address.to_string()])
            .args([bundle.to_str().unwrap(), name, &host.port().to_string()])
            .output()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "200 TLSv1.3", "{name}: {text}");
    }
}

#[test]
fn the_authority_is_made_once_and_its_key_is_the_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    let made = Ca::load_or_create(directory.path()).unwrap().certificate_pem();
    assert_eq!(Ca::load_or_create(directory.path()).unwrap().certificate_pem(), made);
    let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!made.contains("PRIVATE"));
    assert!(Roots::from_pem(made.as_bytes()).unwrap().to_pem().contains("BEGIN CERTIFICATE"));
}

#[test]
fn all_who_make_an_authority_at_once_have_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let make = || Ca::load_or_create(directory.path()).unwrap().certificate_pem();
    let made: Vec<String> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    assert!(made.iter().all(|it| *it == made[0]));
}

fn only_file(directory: &Path) -> std::path::PathBuf {
    fs::read_dir(directory).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn a_key_that_others_can_read_or_that_is_broken_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    Ca::load_or_create(directory.path()).unwrap();
    let path = only_file(directory.path());
    let good = fs::read_to_string(&path).unwrap();

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let exposed = Ca::load_or_create(directory.path()).unwrap_err();
    assert!(exposed.to_string().ends_with("run `chmod 600` on it"), "{exposed}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

    let other = tempfile::tempdir().unwrap();
    Ca::load_or_create(other.path()).unwrap();
    let other = fs::read_to_string(only_file(other.path())).unwrap();
    let certificate = |text: &str| text[text.find("-----BEGIN CERT").unwrap()..].to_owned();
    let key = good.replace(&certificate(&good), "");
    for broken in [
        String::new(),
        "no key".to_owned(),
        key.clone(),
        certificate(&good),
        good[..good.len() / 2].to_owned(),
        // Another's certificate.
        key + &certificate(&other),
    ] {
        fs::write(&path, broken).unwrap();
        let error = Ca::load_or_create(directory.path()).unwrap_err();
        assert!(matches!(error, CaError::InvalidFile { .. }), "{error:?}");
        assert!(error.to_string().contains("delete the file"), "{error}");
    }
    fs::write(&path, good).unwrap();
    Ca::load_or_create(directory.path()).unwrap();
    assert!(Ca::load_or_create(Path::new("/nowhere")).is_err());
}

/// What OpenSSL reads in a certificate.
fn read_by_openssl(pem: &str) -> String {
    use std::io::Write;
    let mut child = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-text"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(pem.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn the_authority_says_what_it_is_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let text = read_by_openssl(&Ca::load_or_create(directory.path()).unwrap().certificate_pem());
    for line in [
        "X509v3 Basic Constraints: critical\n                CA:TRUE, pathlen:0",
        "X509v3 Key Usage: critical\n                Certificate Sign, CRL Sign",
        "X509v3 Subject Key Identifier:",
        "NIST CURVE: P-256",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[tokio::test]
async fn the_proxy_stands_in_for_no_host_without_a_credential() {
    let vouching = Vouching::new();
    let host = Host::tls(vouching.config(&["good.test"], &[], |_| {})).await;
    let world = World::usual();
    let rules = Rules::new(policy(&[&format!("good.test:{}", host.port()), "127.0.0.2:0"]));
    let sandbox = world.sandbox(&rules);
    let url = format!("https://good.test:{}/", host.port());
    // Who trusts the proxy's authority alone does not trust what is on the other side.
    assert!(sandbox.client("").get(&url).send().await.is_err());
    assert_eq!(sandbox.client(&vouching.pem()).get(&url).send().await.unwrap().status(), 200);
    assert_eq!(Arc::strong_count(&rules), 2);
}
