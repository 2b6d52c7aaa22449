//! How much the proxy costs, against the same clients and hosts without it. By hand:
//! `cargo test --release -p belljar-egress --test proxy -- --ignored --nocapture speed`.

use crate::host::{Host, Vouching};
use crate::world::{Rules, Sandbox, World, all_names, credential, limits, way};
use belljar_egress::{Limits, Way};
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
    let asked = client.get(format!("{url}zeros?{DOWNLOAD_BYTES}")).send().await;
    let mut response = asked.unwrap();
    let mut received = 0;
    while let Some(part) = response.chunk().await.unwrap() {
        received += part.len() as u64;
    }
    assert_eq!(received, DOWNLOAD_BYTES);
    (began.elapsed(), worked() - before)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, by hand and in release"]
async fn speed() {
    let vouching = Vouching::new();
    let names = ["api.test", "good.test"];
    let tls = Host::tls(vouching.config(&names, &["http/1.1"], |_| {})).await;
    let http2 = Host::tls(vouching.config(&names, &["h2", "http/1.1"], |_| {})).await;
    let plain = Host::plain().await;
    let limits = Limits { bytes_down: 1 << 40, ..limits() };
    let world = World::new(&vouching.pem(), all_names(), limits);
    let credentials = [&tls, &http2].map(|host| credential("api.test", host.port())).into();
    let rules = Rules::new(Way { credentials, ..way(&["good.test:0", "127.0.0.2:0"]) });
    let sandbox = world.sandbox(&rules);

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
    }
}
