//! The socket identifies the sandbox; nothing in a request does.

use crate::host::Host;
use crate::world::{Rules, World, credential, policy};
use belljar_egress::EgressPolicy;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn t41_proxy_identity() {
    let host = Host::plain().await;
    let to = format!("good.test:{}", host.port());
    let url = format!("http://{to}/");
    let world = World::usual();
    let (a_rules, b_rules) = (Rules::new(policy(&[&to, "127.0.0.2:0"])), Rules::new(policy(&[])));
    let (a, b) = (world.sandbox(&a_rules), world.sandbox(&b_rules));

    assert_eq!(a.client("").get(&url).send().await.unwrap().status(), 200);
    for (header, value) in [
        ("proxy-authorization", "Basic YTph"),
        ("x-forwarded-for", "127.0.0.1"),
        ("forwarded", "for=a"),
        ("via", "1.1 a"),
    ] {
        let answer = b.client("").get(&url).header(header, value).send().await.unwrap();
        assert_eq!(answer.status(), 403, "{header}");
    }
    assert_eq!(host.requests().len(), 1);
    assert!(b_rules.log().iter().all(|(_, _, _, allowed)| !allowed));
    assert_eq!(a_rules.log().len(), 1);
}

/// Code in A that passes on what others send it has no more than A has.
#[tokio::test]
async fn t41_a_relay_inside_a_sandbox_gets_the_rules_of_that_sandbox_only() {
    let host = Host::plain().await;
    let (mine, theirs) =
        (format!("good.test:{}", host.port()), format!("other.test:{}", host.port()));
    let world = World::usual();
    let a_rules = Rules::new(policy(&[&mine, "127.0.0.2:0"]));
    let b_rules = Rules::new(policy(&[&theirs, "127.0.0.2:0"]));
    let (a, b) = (world.sandbox(&a_rules), world.sandbox(&b_rules));
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = relay.local_addr().unwrap();
    let inner = a.address;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = relay.accept().await {
            let mut proxy = TcpStream::connect(inner).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut stream, &mut proxy).await });
        }
    });
    let proxy = reqwest::Proxy::all(format!("http://{address}")).unwrap();
    let client = reqwest::Client::builder().proxy(proxy).build().unwrap();
    let get = async |to: &str| client.get(format!("http://{to}/")).send().await.unwrap().status();
    assert_eq!(get(&mine).await, 200);
    assert_eq!(get(&theirs).await, 403);
    assert_eq!(b.client("").get(format!("http://{theirs}/")).send().await.unwrap().status(), 200);
    assert_eq!(a_rules.log().len(), 2);
}

#[tokio::test]
async fn when_a_sandbox_ends_its_connections_end() {
    let host = Host::plain().await;
    let to = format!("good.test:{}", host.port());
    let world = World::usual();
    let rules = Rules::new(EgressPolicy {
        credentials: vec![credential("api.test", 443)],
        ..policy(&[&to, "127.0.0.2:0"])
    });
    let sandbox = world.sandbox(&rules);
    let mut open = sandbox.tunnel(&to).await.unwrap();
    let mut intercepted = sandbox.tunnel("api.test:443").await.unwrap();
    drop(sandbox);
    assert_eq!(crate::world::hear_all(&mut open).await, "");
    assert_eq!(crate::world::hear_all(&mut intercepted).await, "");
}
