//! No URL, redirect or DNS response leads the server to a forbidden address.

use crate::server::{Server, Tripwire, config, fetch, ok, redirect, resolver, say};
use belljar_egress::{FetchConfig, FetchError};
use policy::{NonPublicAddress, RouteError, UrlError};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why a URL was refused, in one word.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    Scheme,
    Userinfo,
    Port,
    Host,
    Unreadable,
    TooLong,
    Unknown,
    Address(NonPublicAddress),
    Another,
}

use NonPublicAddress::{
    Broadcast, Documentation, LinkLocal, Loopback, Metadata, Multicast, Private, Reserved, Shared,
    Tunnel, Unspecified,
};
use Why::{Address, Host, Port, Scheme, Unknown, Unreadable, Userinfo};

/// Refused as what a user writes, and as where a server redirects to.
const REFUSED: &[(&str, Why)] = &[
    ("file:///etc/passwd", Scheme),
    ("file://localhost/etc/passwd", Scheme),
    ("ftp://inside.test/", Scheme),
    ("data:text/plain,hello", Scheme),
    ("gopher://inside.test:80/_GET", Scheme),
    ("javascript:alert(1)", Scheme),
    ("dict://inside.test:11211/stat", Scheme),
    ("unix:/var/run/docker.sock", Scheme),
    ("ws://inside.test/", Scheme),
    ("blob:http://inside.test/1", Scheme),
    ("view-source:http://inside.test/", Scheme),
    ("http://me@inside.test/", Userinfo),
    ("http://me:password@inside.test/", Userinfo),
    ("http://public.test@127.0.0.1/", Userinfo),
    ("http://public.test%2f@127.0.0.1/", Userinfo),
    ("http://public.test:80@127.0.0.1/", Userinfo),
    ("http://inside.test:22/", Port),
    ("http://127.0.0.1:22/", Port),
    ("http://127.0.0.1:6379/", Port),
    ("http://inside.test:8080/", Port),
    ("https://[::1]:9200/", Port),
    ("http://inside.test:0/", Port),
    ("http://", Unreadable),
    ("http://127.0.0.1:99999/", Unreadable),
    ("http://[::1", Unreadable),
    ("http://[::1%25lo]/", Unreadable),
    ("http://127.0.0.1.5/", Unreadable),
    ("http://127.0.0.256/", Unreadable),
    ("http://127.0.0.1%00.public.test/", Unreadable),
    ("http://a b/", Unreadable),
    ("http://inside..test/", Host),
    ("http://inside.test,public.test/", Host),
    ("http://$(hostname)/", Host),
    ("http://127.0.0.1/", Address(Loopback)),
    ("https://127.0.0.1/", Address(Loopback)),
    ("http://127.0.0.1:443/", Address(Loopback)),
    ("http://127.1/", Address(Loopback)),
    ("http://127.0.0.1./", Address(Loopback)),
    ("http://127.255.255.254/", Address(Loopback)),
    ("http://2130706433/", Address(Loopback)),
    ("http://0x7f000001/", Address(Loopback)),
    ("http://0x7f.0x0.0x0.0x1/", Address(Loopback)),
    ("http://017700000001/", Address(Loopback)),
    ("http://0177.0.0.01/", Address(Loopback)),
    ("http://%31%32%37.0.0.1/", Address(Loopback)),
    ("http://１２７.０.０.１/", Address(Loopback)),
    ("http://127。0。0。1/", Address(Loopback)),
    ("http:\\\\127.0.0.1\\", Address(Loopback)),
    ("http://127.0.0.1#@public.test/", Address(Loopback)),
    ("http://127.0.0.1\\@public.test/", Address(Loopback)),
    ("http://127.0.0.1?@public.test/", Address(Loopback)),
    ("http://[::1]/", Address(Loopback)),
    ("http://[0:0:0:0:0:0:0:1]/", Address(Loopback)),
    ("http://[::ffff:127.0.0.1]/", Address(Loopback)),
    ("http://[::ffff:7f00:1]/", Address(Loopback)),
    ("http://[64:ff9b::127.0.0.1]/", Address(Loopback)),
    ("http://[::127.0.0.1]/", Address(Reserved)),
    ("http://[2002:7f00:1::]/", Address(Tunnel)),
    ("http://[2001:0:7f00:1::]/", Address(Tunnel)),
    ("http://0/", Address(Unspecified)),
    ("http://0.0.0.0/", Address(Unspecified)),
    ("http://[::]/", Address(Unspecified)),
    ("http://[::ffff:0.0.0.0]/", Address(Unspecified)),
    ("http://10.0.0.1/", Address(Private)),
    ("http://172.16.0.1/", Address(Private)),
    ("http://192.168.1.1/", Address(Private)),
    ("http://3232235777/", Address(Private)),
    ("http://[fd00::1]/", Address(Private)),
    ("http://[fe80::1]/", Address(LinkLocal)),
    ("http://100.64.0.1/", Address(Shared)),
    ("http://169.254.169.254/latest/meta-data/", Address(Metadata)),
    ("http://0xa9fea9fe/", Address(Metadata)),
    ("http://2852039166/", Address(Metadata)),
    ("http://[::ffff:169.254.169.254]/", Address(Metadata)),
    ("http://[fd00:ec2::254]/", Address(Metadata)),
    ("http://168.63.129.16/", Address(Metadata)),
    ("http://169.254.1.1/", Address(LinkLocal)),
    ("http://192.0.2.1/", Address(Documentation)),
    ("http://224.0.0.1/", Address(Multicast)),
    ("http://255.255.255.255/", Address(Broadcast)),
    ("http://240.0.0.1/", Address(Reserved)),
    ("http://inside.test/", Address(Loopback)),
    ("http://INSIDE.test./", Address(Loopback)),
    ("https://inside6.test/", Address(Loopback)),
    ("http://mapped.test/", Address(Loopback)),
    ("http://mixed.test/", Address(Loopback)),
    ("http://metadata.test/", Address(Metadata)),
    ("http://nowhere.test/", Unknown),
    ("http://silent.test/", Unknown),
    // The operator has excepted these, and no exception goes so far.
    ("http://zero.test:PORT/", Address(Unspecified)),
    ("http://zero6.test:PORT/", Address(Unspecified)),
    ("http://turned.test:PORT/", Address(Metadata)),
    // The operator has excepted the server at this port, and not these names of other hosts.
    ("http://127.0.0.1:PORT/", Port),
    ("http://inside.test:PORT/", Port),
    ("http://x.docs.test:PORT/", Port),
];

const NAMES: &[(&str, &[&str])] = &[
    ("docs.test", &["127.0.0.2"]),
    ("inside.test", &["127.0.0.1"]),
    ("inside.test.", &["127.0.0.1"]),
    ("inside6.test", &["::1"]),
    ("mapped.test", &["::ffff:127.0.0.1"]),
    ("mixed.test", &["1.1.1.1", "127.0.0.1"]),
    ("metadata.test", &["169.254.169.254"]),
    ("silent.test", &[]),
    ("zero.test", &["0.0.0.0"]),
    ("zero6.test", &["::ffff:0.0.0.0"]),
    ("turned.test", &["127.0.0.1", "169.254.169.254"]),
];

fn why(error: &FetchError) -> Why {
    match error {
        FetchError::Url(refused) | FetchError::Redirect(refused) => match refused {
            UrlError::TooLong(_) => Why::TooLong,
            UrlError::Parse(_) => Unreadable,
            UrlError::Scheme(_) => Scheme,
            UrlError::Userinfo => Userinfo,
            UrlError::Host(_) => Host,
            UrlError::Port(_) => Port,
        },
        FetchError::Unresolved { .. } | FetchError::Route { source: RouteError::NoAddress, .. } => {
            Unknown
        }
        FetchError::Route { source: RouteError::Address(reason), .. } => Address(*reason),
        _ => Why::Another,
    }
}

fn with_port(url: &str, port: u16) -> String {
    url.replace("PORT", &port.to_string())
}

/// Redirects `/to/N` to the N-th refused URL, `/far/N` there by two more steps, and has a file.
async fn redirecting_server() -> Server {
    Server::start(|path, stream| async move {
        let port = stream.local_addr().unwrap().port();
        let parts: Vec<&str> = path.split('/').collect();
        let answer = match parts[..] {
            ["", "to", number] => {
                redirect(&with_port(REFUSED[number.parse::<usize>().unwrap()].0, port))
            }
            ["", "far", number] => redirect(&format!("/nearer/{number}")),
            ["", "nearer", number] => redirect(&format!("//docs.test:{port}/to/{number}")),
            _ => ok("", b"harmless"),
        };
        say(stream, answer).await;
    })
    .await
}

fn excepting(server: &Server) -> FetchConfig {
    let port = server.address.port();
    let table: HashMap<&str, Vec<IpAddr>> = NAMES
        .iter()
        .map(|(name, answers)| (*name, answers.iter().map(|it| it.parse().unwrap()).collect()))
        .collect();
    let excepted = ["docs.test", "zero.test", "zero6.test", "turned.test"];
    FetchConfig {
        exceptions: excepted.map(|name| format!("{name}:{port}").parse().unwrap()).into(),
        resolver: resolver(move |name| table.get(name).cloned()),
        ..server.config()
    }
}

/// Where a connection would go if a refused URL were asked: the same port at the loopback address
/// (which 0.0.0.0 leads to as well), and, where this user may listen there, the ports of the web.
async fn tripwire(port: u16) -> Tripwire {
    let mut tripwire = Tripwire::new();
    let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
    tripwire.listen(SocketAddr::new(loopback, port)).await.unwrap();
    for address in ["127.0.0.1:80", "127.0.0.1:443", "[::1]:80", "[::1]:443"] {
        let _ = tripwire.listen(address.parse().unwrap()).await;
    }
    tripwire
}

#[tokio::test]
async fn t35_no_url_and_no_redirect_leads_inside() {
    let server = redirecting_server().await;
    let tripwire = tripwire(server.address.port()).await;
    let config = excepting(&server);
    for (number, (url, expected)) in REFUSED.iter().enumerate() {
        let url = with_port(url, server.address.port());
        let roads =
            [server.url(&format!("/to/{number}")), server.url(&format!("/far/{number}")), url];
        for road in &roads {
            let (fetched, bytes) = fetch(config.clone(), road).await;
            let error = fetched.unwrap_err();
            assert_eq!(why(&error), *expected, "{roads:?}: {error:?}");
            assert!(bytes.is_empty());
        }
    }
    let (fetched, bytes) = fetch(config, &server.url("/file")).await;
    assert_eq!(fetched.unwrap().name, "file");
    assert_eq!(bytes, b"harmless");
    tripwire.was_not_touched().await;
}

#[tokio::test]
async fn t35_a_url_without_end_is_refused_before_it_is_read() {
    let server = Server::saying(redirect(&format!("/{}", "a".repeat(9_000)))).await;
    let long = server.url(&"/a".repeat(5_000));
    for url in [long, server.url("/")] {
        let (fetched, _) = fetch(server.config(), &url).await;
        assert_eq!(why(&fetched.unwrap_err()), Why::TooLong);
    }
    assert_eq!(server.requests(), 1);
}

/// A name whose answers change with each question, and how often it was asked.
fn flipping(server: &Server, answers: [&str; 2]) -> (FetchConfig, Arc<AtomicUsize>) {
    let answers: [IpAddr; 2] = answers.map(|answer| answer.parse().unwrap());
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = lookups.clone();
    let config = FetchConfig {
        resolver: resolver(move |_| {
            let question = count.fetch_add(1, Ordering::Relaxed);
            Some(vec![answers[question % 2]])
        }),
        ..server.config()
    };
    (config, lookups)
}

#[tokio::test]
async fn t35_a_name_that_changes_its_mind_gains_nothing() {
    let server = Server::start(|path, stream| {
        say(stream, if path == "/again" { redirect("/file") } else { ok("", b"harmless") })
    })
    .await;
    let mut tripwire = Tripwire::new();
    let inside = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), server.address.port());
    tripwire.listen(inside).await.unwrap();

    // What was checked is what is connected to, without a second question.
    let (config, lookups) = flipping(&server, ["127.0.0.2", "0.0.0.0"]);
    let (fetched, bytes) = fetch(config, &server.url("/file")).await;
    assert!(fetched.is_ok(), "{fetched:?}");
    assert_eq!(bytes, b"harmless");
    assert_eq!(lookups.load(Ordering::Relaxed), 1);

    // The next hop is a new question and a new decision, also at the same host.
    let (config, lookups) = flipping(&server, ["127.0.0.2", "0.0.0.0"]);
    let (fetched, _) = fetch(config, &server.url("/again")).await;
    assert_eq!(why(&fetched.unwrap_err()), Address(Unspecified));
    assert_eq!(lookups.load(Ordering::Relaxed), 2);

    // A refusal is final: the name is not looked up again.
    let (config, lookups) = flipping(&server, ["0.0.0.0", "127.0.0.2"]);
    let (fetched, _) = fetch(config, &server.url("/file")).await;
    assert_eq!(why(&fetched.unwrap_err()), Address(Unspecified));
    assert_eq!(lookups.load(Ordering::Relaxed), 1);

    tripwire.was_not_touched().await;
}

#[tokio::test]
async fn t35_the_resolver_of_the_machine_is_judged_too() {
    let mut tripwire = Tripwire::new();
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let inside = tripwire.listen(any).await.unwrap();
    let (fetched, _) = fetch(FetchConfig::default(), "http://localhost/").await;
    assert_eq!(why(&fetched.unwrap_err()), Address(Loopback));
    let url = format!("http://localhost:{}/", inside.port());
    let (fetched, _) = fetch(FetchConfig::default(), &url).await;
    assert_eq!(why(&fetched.unwrap_err()), Port);
    tripwire.was_not_touched().await;
}

/// Runs a test that fetches again, in a process whose environment names a proxy.
#[tokio::test]
async fn t35_a_proxy_of_the_environment_is_not_used() {
    let mut tripwire = Tripwire::new();
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let proxy = format!("http://{}", tripwire.listen(any).await.unwrap());
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "files::a_file_of_an_excepted_host_is_fetched_as_it_is"]);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        again.env(name, &proxy);
    }
    let output = tokio::task::spawn_blocking(move || again.output().unwrap()).await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("1 passed"), "{printed}");
    tripwire.was_not_touched().await;
}

#[tokio::test]
async fn t35_an_exception_is_for_its_port_only() {
    let server = Server::saying(ok("", b"harmless")).await;
    let other = Server::saying(ok("", b"secret")).await;
    let known = config(&[("docs.test", server.address)]);
    let (fetched, bytes) = fetch(known.clone(), &server.url("/")).await;
    assert!(fetched.is_ok());
    assert_eq!(bytes, b"harmless");
    let (fetched, _) = fetch(known, &other.url("/")).await;
    assert_eq!(why(&fetched.unwrap_err()), Port);
    assert_eq!(other.requests(), 0);
}
