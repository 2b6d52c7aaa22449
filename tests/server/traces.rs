//! Traces of the server, as a collector receives them.

use crate::harness::wait;
use crate::raw;
use crate::test_server::World;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Appears in what users send, and must not appear in traces.
const PRIVATE: &str = "marker-4cf1";

/// What is sent to a collector of traces, as bytes.
fn collector() -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.unwrap(), Arc::clone(&seen));
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                let mut piece = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = stream.read(&mut piece) {
                    seen.lock().unwrap().extend_from_slice(&piece[..length]);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
            });
        }
    });
    (address, sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn t125_traces_tell_of_requests_and_of_nothing_that_is_a_users() {
    let (collector, sent) = collector();
    let mut world = World::with(&["--otlp-endpoint", &collector, "--log", "trace"]).await;
    let code = format!("print({PRIVATE:?})\nraise Exception({PRIVATE:?})");
    world.owner.execute(&code).await;
    let session = world.owner.session().await;
    world.owner.run(&session, &code).await;
    let secret = json!({"name": "S", "value": PRIVATE, "inject": {"env": "S"}});
    world.owner.call("POST", "/v1/secrets", Some(secret)).await;
    let path = format!("/v1/sessions?key={PRIVATE}");
    world.owner.get(&path).await;
    world.owner.refused("GET", &format!("/v1/assets/{PRIVATE}/{PRIVATE}.txt"), None).await;
    world.owner.refused("POST", "/v1/documents", Some(json!({"urls": [PRIVATE]}))).await;
    // HTTP/2, whose library would make a span of every frame that any client sends, without a key.
    let mut greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    greeting.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    greeting.extend([0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut connection = std::net::TcpStream::connect(raw::authority(world.address())).unwrap();
    connection.write_all(&greeting).unwrap();
    assert!(connection.read(&mut [0; 64]).unwrap() > 0, "it does not speak HTTP/2");
    world.stop().await;
    let has = |text: &str| {
        let sent = sent.lock().unwrap();
        sent.windows(text.len()).any(|window| window == text.as_bytes())
    };
    wait::until("something is sent", async || has("/v1/execute")).await;
    let secret = world.owner.key.splitn(3, '_').nth(2).unwrap();
    for private in [PRIVATE, secret] {
        assert!(!has(private), "{private} is in the traces");
    }
    for library in ["hyper", "h2::", "rustls", "reqwest"] {
        assert!(!has(library), "{library} tells what it does");
    }
}
