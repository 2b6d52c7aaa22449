//! A server in its own network namespace, where an address of the public internet answers: allowed hosts are
//! reached, and other hosts are not, although one answers there.

use crate::harness::{self, stderr, stdout};
use crate::helper;
use crate::test_server::World;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Of no special use, and of nobody in this network but us.
const ADDRESS: &str = "192.0.66.2";
const NAMES: [&str; 4] = ["github.com", "api.github.com", "gist.github.com", "example.com"];

struct Internet {
    world: World,
    host: Child,
    files: TempDir,
}

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = self.host.kill();
        let _ = self.host.wait();
    }
}

impl Internet {
    async fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let (roots, certificate) = certificates(files.path());
        let network = format!(
            "ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec env SSL_CERT_FILE={} \"$@\"",
            roots.display()
        );
        let resolved = NAMES.map(|name| format!("{name}={ADDRESS}"));
        let options: Vec<&str> = resolved.iter().flat_map(|it| ["--resolve", it]).collect();
        let program = ["unshare", "--net", "sh", "-c", &network, "sh"];
        let world = World::under(&program, &options).await;
        let script = helper("internet.py");
        let mut host = inside(&world, &script);
        host.args([ADDRESS, certificate.to_str().unwrap()]).stdout(Stdio::piped());
        let mut host = host.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(host.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self { world, host, files }
    }

    fn belljar(&self, args: &[&str]) -> Output {
        let api = &self.world.owner;
        let mut command = inside(&self.world, &harness::belljar(args));
        command.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn done(&self, args: &[&str]) {
        let output = self.belljar(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    }

    fn tool(&self, tool: &Value) {
        let path = self.files.path().join("tool.json");
        std::fs::write(&path, tool.to_string()).unwrap();
        self.done(&["tool", "add", path.to_str().unwrap()]);
    }
}

/// The same command in the network of the server.
fn inside(world: &World, command: &Command) -> Command {
    let mut entering = Command::new("nsenter");
    entering.arg(format!("--net=/proc/{}/ns/net", world.pid())).arg(command.get_program());
    entering.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => entering.env(name, value),
            None => entering.env_remove(name),
        };
    }
    entering
}

/// Of an authority, and of the names with their key.
fn certificates(files: &Path) -> (PathBuf, PathBuf) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
    authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(NAMES.map(str::to_owned)).unwrap();
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let (roots, of_names) = (files.join("roots.pem"), files.join("names.pem"));
    std::fs::write(&roots, authority.pem()).unwrap();
    std::fs::write(&of_names, key.serialize_pem() + &certificate.pem()).unwrap();
    (roots, of_names)
}

// proves S-063
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_as_root), ignore = "only root can make such a network")]
async fn the_example_of_the_seed_opens_github_over_http_and_https_and_nothing_else() {
    let internet = Internet::start().await;
    let values = ["github.com:80", "github.com:443", "api.github.com", "api.github.com:80"];
    let rule = ["network", "rule", "new", "github_access_rule"];
    internet.done(&[&rule[..], &values].concat());
    let integration =
        ["network", "integration", "new", "github_integration", "--rule", "github_access_rule"];
    internet.done(&integration);
    let read = |url: &str| {
        let code = match url.strip_prefix("ssh://") {
            Some(host) => {
                format!("import socket\nprint(socket.create_connection(({host:?}, 22)).recv(7))")
            }
            None => format!(
                "import urllib.request\nprint(urllib.request.urlopen({url:?}).read().decode())"
            ),
        };
        let exec = ["exec", "--env", "bare", "--integration", "github_integration", &code];
        let output = internet.belljar(&exec);
        (stdout(&output), stderr(&output))
    };
    for url in [
        "http://github.com:80",
        "https://github.com",
        "https://api.github.com",
        "http://api.github.com",
    ] {
        let (page, said) = read(url);
        assert_eq!(page, "here\n", "{url}: {said}");
    }
    for (url, host) in [
        ("https://example.com", "example.com:443"),
        ("ssh://github.com", "github.com:22"),
        ("https://gist.github.com", "gist.github.com:443"),
    ] {
        let (page, said) = read(url);
        assert_eq!(page, "", "{url}");
        let refused = format!("{host} is not allowed by any integration of this session");
        assert!(said.contains(&refused), "{url}: {said}");
    }
}

// proves W-047
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_as_root), ignore = "only root can make such a network")]
async fn a_tool_that_is_allowed_the_network_reaches_the_internet_and_another_is_blocked() {
    let internet = Internet::start().await;
    let code = "import urllib.request\n\ndef run(input):\n    \
                return urllib.request.urlopen('https://example.com').read().decode()\n";
    for (name, allow) in [("closed", false), ("open", true)] {
        internet.tool(&json!({"name": name, "tool_type": "code_runner", "environment": "bare",
            "configuration": {"code": code, "allow_network": allow}}));
    }
    let open = internet.belljar(&["tool", "call", "open", "--args", "{}"]);
    assert_eq!(stdout(&open), "\"here\"\n", "{}", stderr(&open));
    let closed = internet.belljar(&["tool", "call", "closed", "--args", "{}"]);
    assert_eq!(stdout(&closed), "");
    assert!(stderr(&closed).contains("example.com:443 is not allowed"), "{}", stderr(&closed));
}
