//! Packages and uv come from the index; if it is unreachable, the error says what to do.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use crate::world::{self, CLOSED_INDEX, World, visit_files};
use belljar_environment::{IndexUrl, Progress};

#[test]
fn a_machine_without_uv_fetches_it_once() {
    let world = World::without_uv();
    let fetched = |events: &[Progress]| {
        events.iter().any(|event| matches!(event, Progress::FetchingUv { .. }))
    };
    let (events, built) = world.watch(&world::small());
    assert_eq!(built.unwrap().packages.len(), 1);
    assert!(fetched(&events), "{events:?}");

    let other = world::small_under_another_name();
    let (events, built) = world.watch(&other);
    assert_eq!(built.unwrap().packages.len(), 1);
    assert!(!fetched(&events), "{events:?}");
}

#[test]
fn without_uv_and_without_network_the_error_names_both() {
    let world = World::without_uv().without_network();
    let error = world.ensure(&world::small()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "uv is not installed, and downloading it from the package index {CLOSED_INDEX} failed \
             ({CLOSED_INDEX}/uv/: [Errno 111] Connection refused); install uv, connect to the \
             network once, or use environment `bare` (`--env bare`, or `serve --environment bare`)"
        )
    );
    assert_eq!(world.names(), Vec::<String>::new());
}

#[test]
fn without_network_the_error_names_what_is_missing() {
    let world = World::new().without_network();
    let error = world.ensure(&world::small()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "packages of environment `small` (tabulate) are not on this machine, and the package \
             index {CLOSED_INDEX} is unreachable (Connection refused (os error 111)); connect to \
             the network once, pass a directory that contains them with --wheels DIR, or use \
             environment `bare` (`--env bare`, or `serve --environment bare`)"
        )
    );
    assert_eq!(world.names(), Vec::<String>::new());
}

#[test]
fn bare_needs_no_network() {
    let world = World::without_uv().without_network();
    assert_eq!(world.ensure(&world::bare()).unwrap().packages, []);
}

#[test]
fn a_uv_that_is_not_the_pinned_one_is_deleted() {
    let mut world = World::without_uv();
    let (index, requests) = serve_forged_uv();
    world.machine.index = IndexUrl::new(index.replace("://", "://ada:secret@"));
    let error = world.ensure(&world::small()).unwrap_err().to_string();
    let start = format!("the uv downloaded from {index} does not have the expected hash (");
    assert!(error.starts_with(&start), "{error}");
    assert!(!error.contains("secret"), "{error}");

    let requests = requests.join().unwrap();
    assert_eq!(requests[0].path, "/simple/uv/");
    assert!(requests[1].path.starts_with("/files/uv-"), "{}", requests[1].path);
    assert!(requests.iter().all(|request| request.authorized), "the index asks for a password");
    visit_files(&world.data.path().join("tools"), &mut |path, metadata| {
        assert!(metadata.is_dir(), "{} was kept", path.display());
    });
}

struct Request {
    path: String,
    authorized: bool,
}

/// An index that lists uv for every architecture and answers two requests, the second with forged
/// content. Returns its address, and the requests after both were made.
fn serve_forged_uv() -> (String, thread::JoinHandle<Vec<Request>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let index = format!("http://{}/simple", listener.local_addr().unwrap());
    let page = "<a href='../../files/uv-0.13.7-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl#sha256=00'>uv</a>\
        <a href='../../files/uv-0.13.7-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl'>uv</a>";
    let requests = thread::spawn(move || {
        [page, "forged"].into_iter().map(|body| answer(&listener, body)).collect()
    });
    (index, requests)
}

fn answer(listener: &TcpListener, body: &str) -> Request {
    let (mut stream, _) = listener.accept().unwrap();
    let head: Vec<String> = BufReader::new(&stream)
        .lines()
        .map(Result::unwrap)
        .take_while(|line| !line.is_empty())
        .collect();
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    Request {
        path: head[0].split(' ').nth(1).unwrap().to_owned(),
        authorized: head.iter().any(|line| line == "Authorization: Basic YWRhOnNlY3JldA=="),
    }
}
