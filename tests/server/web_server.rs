//! A web server on the host, which sandboxes reach only if a network rule lists it.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names that the server resolves to this machine, as an operator's own names would be.
pub const RESOLVED: [&str; 4] =
    ["--resolve", "site.test=127.0.0.1", "--resolve", "other.test=127.0.0.1"];

/// A web server that answers everything with `here`, and counts.
pub struct Site {
    pub port: u16,
    asked: Arc<AtomicUsize>,
}

impl Site {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.read(&mut [0; 4096]);
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(format!("{head}here").as_bytes());
            }
        });
        Self { port, asked }
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    pub fn read(&self, host: &str) -> String {
        read(host, self.port)
    }

    /// As values of a rule: the name, and the address that it has, which is not a public one.
    pub fn values(&self) -> Value {
        json!([format!("site.test:{}", self.port), format!("127.0.0.1:{}", self.port)])
    }
}

pub fn read(host: &str, port: u16) -> String {
    format!(
        "import urllib.request\nurllib.request.urlopen('http://{host}:{port}/').read().decode()"
    )
}
