//! How much the proxy costs, against the same clients and hosts without it. By hand:
//! `cargo test --release -p belljar-egress --test proxy -- --ignored --nocapture speed`.

use crate::host::{Host, Vouching};
use crate::world::{Rules, Sandbox, World, all_names, credential, limits, policy};
use belljar_egress::{EgressPolicy, ProxyLimits};
use std::time::{Duration, Instant};

const REQUESTS: usize = 400;
const DOWNLOAD_BYTES: u64 = 1 << 30;

/// A client that asks the host itself.
fn direct(vouching: &Vouching, host: &Host) -> reqwest::ClientBuilder {
    let root = reqwest::Certificate::from_pem(vouching.pem().as_bytes()).unwrap();
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only([root]);
    builder.resolve("api.test", host.address).resolve("good.test", host.address)
}

fn proxied(sandbox: &Sandbox, world: &World, vouching: &Vouching) -> reqwest::ClientBuilder {
    let roots = [world.ca.clone(), vouching.pem()]
        .map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
    let proxy = reqwest::Proxy::all(format!("http://{}", sandbox.address)).unwrap();
    reqwest::Client::builder().proxy(proxy).tls_certs_only(roots)
}

/// The median of many requests one after the other.
async fn small(client: reqwest::Client, url: &str) -> Duration {
    let mut times = Vec::new();
    for _ in 0..REQUESTS {
        let began = Instant::now();
        let response = client.get(url).send().await.unwrap();
        assert_eq!(response.bytes().await.unwrap(), "hello");
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[REQUESTS / 2]
}

/// How long all processors together have worked for this process, which does not depend on what
/// else the machine does.
fn worked() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// The time that it took, and the work.
async fn large(client: reqwest::Client, url: &str) -> (Duration, Duration) {
    let (began, before) = (Instant::now(), worked());
    let download = client.get(format!("{url}long?{DOWNLOAD_BYTES}")).send().await;
    let mut response = download.unwrap();
    let mut received = 0;
    while let Some(part) = response.chunk().await.unwrap() {
        received += part.len() as u64;
    }
    assert_eq!(received, DOWNLOAD_BYTES);
    (began.elapsed(), worked() - before)
}

/// Downloads as code in a sandbox would, and says how many seconds it took.
const PYTHON: &str = r#"
import http.client, ssl, sys, time
proxy, bundle, scheme, name, port, address, path = sys.argv[1:]
context = ssl.create_default_context(cafile=bundle)
context.check_hostname = bool(proxy)
host, _, number = proxy.partition(":") if proxy else (address, "", port)
if scheme == "https":
    connection = http.client.HTTPSConnection(host, int(number), context=context)
    if proxy:
        connection.set_tunnel(name, int(port))
else:
    connection = http.client.HTTPConnection(host, int(number))
    path = f"http://{name}:{port}{path}" if proxy else path
began = time.perf_counter()
connection.request("GET", path, headers={"Host": f"{name}:{port}"})
response, buffer, received = connection.getresponse(), bytearray(1 << 20), 0
while count := response.readinto(buffer):
    received += count
print(time.perf_counter() - began, received)
"#;

async fn python(proxy: &str, bundle: &std::path::Path, url: &str, host: &Host) -> f64 {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (name, port) = rest.trim_end_matches('/').split_once(':').unwrap();
    let output = tokio::process::Command::new("python3")
        .args(["-c", PYTHON, proxy, bundle.to_str().unwrap(), scheme, name, port])
        .args([host.address.ip().to_string(), format!("/long?{DOWNLOAD_BYTES}")])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (seconds, received) = text.trim().split_once(' ').unwrap();
    assert_eq!(received, DOWNLOAD_BYTES.to_string());
    seconds.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, by hand and in release"]
async fn speed() {
    let vouching = Vouching::new();
    let names = ["api.test", "good.test"];
    let tls = Host::tls(vouching.config(&names, &["http/1.1"], |_| {})).await;
    let http2 = Host::tls(vouching.config(&names, &["h2", "http/1.1"], |_| {})).await;
    let plain = Host::plain().await;
    let limits = ProxyLimits { bytes_down: 1 << 40, ..limits() };
    let world = World::new(&vouching.pem(), all_names(), limits);
    let credentials = [&tls, &http2].map(|host| credential("api.test", host.port())).into();
    let rules = Rules::new(EgressPolicy { credentials, ..policy(&["good.test:0", "127.0.0.2:0"]) });
    let sandbox = world.sandbox(&rules);
    let directory = tempfile::tempdir().unwrap();
    let bundle = directory.path().join("bundle.pem");
    std::fs::write(&bundle, world.ca.clone() + &vouching.pem()).unwrap();

    for (what, url, host) in [
        ("plain", format!("http://good.test:{}/", plain.port()), &plain),
        ("tunnel", format!("https://good.test:{}/", tls.port()), &tls),
        ("intercepted", format!("https://api.test:{}/", tls.port()), &tls),
        ("intercepted, h2", format!("https://api.test:{}/", http2.port()), &http2),
    ] {
        for (how, idle) in [("kept", usize::MAX), ("new", 0)] {
            let without = direct(&vouching, host).pool_max_idle_per_host(idle).build().unwrap();
            let with = proxied(&sandbox, &world, &vouching).pool_max_idle_per_host(idle);
            let without = small(without, &url).await;
            let with = small(with.build().unwrap(), &url).await;
            let ratio = with.as_secs_f64() / without.as_secs_f64();
            println!("small, {what}, {how}: {without:?} direct, {with:?} proxied, {ratio:.2} x");
        }
        let (without, work_without) = large(direct(&vouching, host).build().unwrap(), &url).await;
        let client = proxied(&sandbox, &world, &vouching).build().unwrap();
        let (with, work_with) = large(client, &url).await;
        let ratio = without.as_secs_f64() / with.as_secs_f64();
        println!("1 GiB, {what}: {without:?} direct, {with:?} proxied, {ratio:.2} of direct");
        println!("    work of all: {work_without:?} direct, {work_with:?} proxied");
        let without = python("", &bundle, &url, host).await;
        let with = python(&sandbox.address.to_string(), &bundle, &url, host).await;
        let ratio = without / with;
        println!("    in Python: {without:.2} s direct, {with:.2} s proxied, {ratio:.2} of direct");
    }
}
