//! The proxy connects to the checked address, whatever the name resolves to the next time.

use crate::host::Host;
use crate::world::{Rules, World, limits, policy, status};
use belljar_egress::Resolver;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Gives one list of addresses after the other, and the last of them from then on.
fn answers(lists: &[&[&str]]) -> (Resolver, Arc<AtomicUsize>) {
    let parse = |list: &&[&str]| list.iter().map(|it| it.parse().unwrap()).collect();
    let lists: Vec<Vec<IpAddr>> = lists.iter().map(parse).collect();
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = lookups.clone();
    let resolver = Resolver::Custom(Arc::new(move |_| {
        let turn = count.fetch_add(1, Ordering::Relaxed).min(lists.len() - 1);
        Ok(lists[turn].clone())
    }));
    (resolver, lookups)
}

fn connections(host: &Host) -> usize {
    host.connections.load(Ordering::Relaxed)
}

#[tokio::test]
async fn t40_resolve_then_pin() {
    let host = Host::plain().await;
    let tripwire = Host::start(None, &format!("127.0.0.3:{}", host.port())).await;
    let to = format!("flips.test:{}", host.port());
    let (resolver, lookups) = answers(&[&["127.0.0.2"], &["127.0.0.3"]]);
    let world = World::new("", resolver, limits());
    let rules = Rules::new(policy(&[&to, "127.0.0.2:0"]));
    let sandbox = world.sandbox(&rules);

    // One question for one connection, and its answer is where the connection goes.
    sandbox.tunnel(&to).await.unwrap();
    assert_eq!((lookups.load(Ordering::Relaxed), connections(&host)), (1, 1));

    // The name has another address by now, which was not opened.
    let error = sandbox.tunnel(&to).await.unwrap_err();
    assert!(status(&error).contains("403 network.denied"), "{error}");
    assert!(status(&error).contains("not public (loopback)"), "{error}");
    let url = format!("http://{to}/");
    assert_eq!(sandbox.client("").get(&url).send().await.unwrap().status(), 403);
    assert_eq!((connections(&host), connections(&tripwire)), (1, 0));
    assert_eq!(rules.log().iter().map(|it| it.3).collect::<Vec<_>>(), [true, false, false]);
}

#[tokio::test]
async fn t40_a_connection_that_is_kept_is_judged_again() {
    let host = Host::plain().await;
    let to = format!("flips.test:{}", host.port());
    let (resolver, lookups) = answers(&[&["127.0.0.2"]]);
    let world = World::new("", resolver, limits());
    let rules = Rules::new(policy(&[&to, "127.0.0.2:0"]));
    let sandbox = world.sandbox(&rules);
    let client = sandbox.client("");
    let url = format!("http://{to}/");
    for _ in 0..3 {
        assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    }
    assert_eq!((lookups.load(Ordering::Relaxed), connections(&host)), (1, 1));
    // The name stays open, but its address is not any more.
    rules.become_these(policy(&[&to]));
    assert_eq!(client.get(&url).send().await.unwrap().status(), 403);
    assert_eq!(host.requests().len(), 3);
}

#[tokio::test]
async fn t40_a_public_name_with_a_private_or_special_address_is_refused() {
    let tripwire = Host::start(None, "127.0.0.1:0").await;
    let port = tripwire.port();
    for list in [
        &["127.0.0.1"][..],
        &["8.8.8.8", "127.0.0.1"],
        &["127.0.0.1", "8.8.8.8"],
        &["::ffff:127.0.0.1"],
        &["::1"],
        &["10.0.0.1"],
        &["192.168.0.1"],
        &["169.254.169.254"],
        &["fd00:ec2::254"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["0.0.0.0"],
        &["224.0.0.1"],
        &["255.255.255.255"],
    ] {
        let (resolver, _) = answers(&[list]);
        let world = World::new("", resolver, limits());
        let sandbox = world.sandbox(&Rules::new(policy(&["public.test:0", "0.0.0.0"])));
        let error = sandbox.tunnel(&format!("public.test:{port}")).await.unwrap_err();
        assert!(status(&error).contains("403 network.denied"), "{list:?}: {error}");
    }
    assert_eq!(connections(&tripwire), 0);
}

#[tokio::test]
async fn a_name_that_is_not_open_is_not_even_looked_up() {
    let lookups = Arc::new(Mutex::new(Vec::new()));
    let names = lookups.clone();
    let resolver = Resolver::Custom(Arc::new(move |name: &str| {
        names.lock().unwrap().push(name.to_owned());
        Ok(Vec::new())
    }));
    let world = World::new("", resolver, limits());
    let sandbox = world.sandbox(&Rules::new(policy(&["open.test"])));
    sandbox.tunnel("data-to-carry-away.evil.test:443").await.unwrap_err();
    let unknown = sandbox.tunnel("open.test:443").await.unwrap_err();
    assert_eq!(status(&unknown), "HTTP/1.1 502 open.test:443 cannot be resolved");
    assert_eq!(*lookups.lock().unwrap(), ["open.test"]);
}

#[tokio::test]
async fn an_address_that_does_not_answer_leaves_the_others() {
    let host = Host::plain().await;
    let to = format!("two.test:{}", host.port());
    let (resolver, _) = answers(&[&["127.0.0.9", "127.0.0.2"]]);
    let world = World::new("", resolver, limits());
    let rules = Rules::new(policy(&[&to, "127.0.0.2:0", "127.0.0.9:0"]));
    let sandbox = world.sandbox(&rules);
    assert!(sandbox.tunnel(&to).await.is_ok());
    let closed = world.sandbox(&Rules::new(policy(&["127.0.0.9:0"])));
    let error = closed.tunnel("127.0.0.9:9").await.unwrap_err();
    let expected = "HTTP/1.1 502 cannot connect to 127.0.0.9:9: connection refused";
    assert_eq!(status(&error), expected);
}
