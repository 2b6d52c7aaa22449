//! Faults of the machine: a full disk, no free descriptors. Requests get named errors, the server stays up, and
//! continues when there is space again.

use crate::harness::{self, wait};
use crate::raw;
use crate::test_server::{Api, World, blobs};
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use rustix::process::{Pid, Resource, Rlimit};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A file system of this many KiB, gone when the test is over. Only root can make one.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(kib: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={kib}k");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory.path())
            .output()
            .unwrap();
        assert!(mount.status.success(), "{}", harness::stderr(&mount));
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all room but this many KiB; gives the file to remove.
    fn fill(&self, but: u64) -> PathBuf {
        let file = self.path().join("filler");
        let room = rustix::fs::statvfs(self.path()).unwrap();
        let free = (room.f_bavail * room.f_frsize).saturating_sub(but * 1024);
        fs::write(&file, vec![0; usize::try_from(free).unwrap()]).unwrap();
        file
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

async fn upload(api: &Api, bytes: usize) -> (u16, Value) {
    let form = Form::new().part("file", Part::bytes(vec![7; bytes]).file_name("a.bin"));
    let sent = api.request(Method::POST, "/v1/documents").multipart(form).send().await.unwrap();
    let status = sent.status().as_u16();
    (status, serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap_or_default())
}

fn error_code(response: &(u16, Value)) -> &str {
    response.1["code"].as_str().unwrap_or_else(|| panic!("{response:?}"))
}

/// It did not run and may be sent again, or it ran and its result is lost.
fn is_full(response: &(u16, Value)) -> bool {
    let seen = (response.0, error_code(response));
    matches!(seen, (503, "database.unavailable") | (500, "execution.interrupted"))
}

fn no_panic(world: &World) {
    let log = world.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_as_root), ignore = "only root can mount a small disk")]
async fn t63_a_full_disk_is_said_and_forgotten_when_there_is_room() {
    let disk = SmallDisk::new(12 * 1024);
    let mut world = World::with(&["--records", disk.path().to_str().unwrap()]).await;
    world.owner.execute("1").await;
    let filler = disk.fill(64);
    // Its connection is closed, since not all of it was heard.
    let large = upload(&world.api(&world.owner.key), 4 * 1024 * 1024).await;
    assert_eq!((large.0, error_code(&large)), (503, "database.unavailable"), "{large:?}");
    // With little room some are kept; in the end none.
    let (mut refused, mut files) = (0, 0);
    let code = format!("open('small', 'w').write('x')\nprint('{}')", "x".repeat(20_000));
    for _ in 0..20 {
        let response = world.owner.call("POST", "/v1/execute", Some(json!({"code": code}))).await;
        if response.0 == 200 {
            files += 1;
        } else {
            assert!(is_full(&response), "{response:?}");
            refused += 1;
        }
    }
    assert!(refused > 0, "the disk was not full");
    let session = world.owner.call("POST", "/v1/sessions", Some(json!({}))).await;
    assert!(session.0 == 201 || error_code(&session) == "database.unavailable", "{session:?}");
    assert_eq!(world.owner.get("/healthz").await["status"], "ok");
    world.owner.get("/v1/executions").await;

    fs::remove_file(filler).unwrap();
    assert_eq!(world.owner.execute("40 + 2").await["value"], 42);
    assert_eq!(upload(&world.owner, 1024 * 1024).await.0, 201);
    let running = async || world.owner.get("/v1/executions?status=running").await["items"].clone();
    wait::until("all of them have ended", async || running().await == json!([])).await;
    let staged = fs::read_dir(disk.path().join("db/staging")).unwrap().count();
    assert_eq!(staged, 0, "nothing of what was refused is left");
    assert_eq!(blobs(disk.path()), files + 1, "no bytes without a row");
    no_panic(&world);
    assert_eq!(world.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_as_root), ignore = "only root can mount a small disk")]
async fn t63_what_ran_on_a_full_disk_does_not_ask_to_be_sent_again() {
    let disk = SmallDisk::new(12 * 1024);
    let world = World::with(&["--records", disk.path().to_str().unwrap()]).await;
    let session = world.owner.post("/v1/sessions", json!({})).await;
    let path = format!("/v1/sessions/{}/execute", session["sandbox_id"].as_str().unwrap());
    let count = |code: &str| {
        let code = format!("{code}\nprint('{}')\nn", "x".repeat(20_000));
        world.owner.call("POST", &path, Some(json!({"code": code})))
    };
    assert_eq!(count("n = 0").await.0, 200);
    let filler = disk.fill(64);
    let (mut ran, mut lost) = (0, 0);
    for _ in 0..20 {
        let response = count("n += 1").await;
        match response.0 {
            200 => ran += 1,
            500 => lost += 1,
            _ => assert!(is_full(&response), "{response:?}"),
        }
    }
    assert!(ran + lost < 20, "the disk was not full");
    fs::remove_file(filler).unwrap();
    let response = world.owner.call("POST", &path, Some(json!({"code": "n"}))).await;
    assert_eq!((response.0, &response.1["value"]), (200, &json!(ran + lost)), "{response:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_as_root), ignore = "only root can mount a small disk")]
async fn t63_a_conversation_goes_on_when_its_end_found_no_room() {
    let disk = SmallDisk::new(12 * 1024);
    let world = World::with(&["--records", disk.path().to_str().unwrap()]).await;
    let chat = json!({"key": "chat"});
    let first = world.owner.post("/v1/sessions", chat.clone()).await;
    let path = format!("/v1/sessions/{}", first["sandbox_id"].as_str().unwrap());
    let filler = disk.fill(0);
    let change = || Some(json!({"name": "n".repeat(100)}));
    while world.owner.call("PATCH", &path, change()).await.0 == 200 {}
    let closed = world.owner.call("DELETE", &path, None).await;
    assert_eq!((closed.0, error_code(&closed)), (503, "database.unavailable"), "{closed:?}");
    fs::remove_file(filler).unwrap();
    let (status, second) = world.owner.call("POST", "/v1/sessions", Some(chat)).await;
    assert_eq!((status, &second["status"]), (201, &json!("ready")), "{second}");
    assert_ne!(second["sandbox_id"], first["sandbox_id"]);
    no_panic(&world);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_as_root), ignore = "only root can mount a small disk")]
async fn t63_a_session_that_ends_while_there_is_no_room_is_marked_when_there_is() {
    let disk = SmallDisk::new(12 * 1024);
    let world = World::with(&["--records", disk.path().to_str().unwrap()]).await;
    let other = format!("/v1/sessions/{}", world.owner.session().await);
    let short = world.owner.post("/v1/sessions", json!({"idle_seconds": 2})).await;
    let path = format!("/v1/sessions/{}", short["sandbox_id"].as_str().unwrap());
    let filler = disk.fill(0);
    let change = || Some(json!({"name": "n".repeat(100)}));
    while world.owner.call("PATCH", &other, change()).await.0 == 200 {}
    wait::until("it ends", async || world.owner.get(&path).await["status"] == "expired").await;
    // A list looks at what is written down.
    let marked = async || world.owner.get("/v1/sessions?status=expired").await["items"].clone();
    let is_unmarked = async || marked().await == json!([]);
    wait::stays(Duration::from_secs(1), "there is no room to mark it", is_unmarked).await;
    fs::remove_file(filler).unwrap();
    wait::until("it is marked", async || marked().await != json!([])).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_as_root), ignore = "only root can mount a small disk")]
async fn t63_records_that_cannot_be_written_are_said_at_the_start() {
    let disk = SmallDisk::new(12 * 1024);
    let mut world = World::with(&["--records", disk.path().to_str().unwrap()]).await;
    world.stop().await;
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(disk.path()).status();
    assert!(remount.unwrap().success());
    let refused = harness::belljar(&["serve", "--listen", "127.0.0.1:0", "--environment", "bare"])
        .env("BELLJAR_RECORDS", disk.path())
        .output()
        .unwrap();
    let text = harness::stderr(&refused);
    assert_eq!(refused.status.code(), Some(125), "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn a_first_start_that_fails_has_shown_the_owners_key() {
    let records = tempfile::tempdir().unwrap();
    let start = |environment| {
        let words = ["serve", "--listen", "127.0.0.1:0", "--environment", environment];
        harness::belljar(&words).env("BELLJAR_RECORDS", records.path()).output().unwrap()
    };
    let failed = start("nope");
    assert_eq!(failed.status.code(), Some(2), "{}", harness::stderr(&failed));
    let said = harness::stdout(&failed);
    assert!(said.lines().any(|line| line.starts_with("bj_")), "{said}");
    assert!(!said.contains("listens on"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t63_without_descriptors_requests_are_refused_and_later_served() {
    const WAITING_MAX: usize = 200;
    const FORM: &str = "multipart/form-data; boundary=b";
    const FILE: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\r\n7\r\n--b--\r\n";
    let world = World::start().await;
    // It is there already; a new one would wait.
    let mut kept = raw::Kept::open(world.address(), &world.owner.key).await;
    let json = "application/json";
    assert_eq!(kept.post("/v1/execute", json, "{\"code\": \"1\"}").await.0, 200);
    let pid = Pid::from_raw(world.pid().cast_signed()).unwrap();
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let usual = Rlimit { current: most, maximum: most };
    // Those that every process begins with; others below may have been closed since.
    let few = Rlimit { current: Some(3), ..usual };
    rustix::process::prlimit(Some(pid), Resource::Nofile, few).unwrap();
    // Sandboxes that wait need none; there are no more than these.
    let mut response = (200, serde_json::Value::Null);
    for _ in 0..WAITING_MAX {
        response = kept.post("/v1/execute", json, "{\"code\": \"1\"}").await;
        if response.0 != 200 {
            break;
        }
    }
    assert!([429, 503].contains(&response.0), "there were descriptors left: {response:?}");
    error_code(&response);
    let document = kept.post("/v1/documents", FORM, FILE).await;
    assert!(document.0 == 201 || error_code(&document) == "database.unavailable", "{document:?}");
    rustix::process::prlimit(Some(pid), Resource::Nofile, usual).unwrap();
    let serves = async || kept.post("/v1/execute", json, "{\"code\": \"1\"}").await.0 == 200;
    wait::within(Duration::from_secs(10), "it serves again", serves).await;
    assert_eq!(upload(&world.owner, 10).await.0, 201);
    no_panic(&world);
}

/// The number of times that something was written only to see whether it can be.
fn probes(database: &Path) -> i64 {
    let records = rusqlite::Connection::open(database).unwrap();
    records.query_row("SELECT probes FROM server", [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_as_root), ignore = "only root can mount a small disk")]
async fn t123_a_server_that_cannot_keep_anything_lives_and_is_not_ready() {
    let disk = SmallDisk::new(12 * 1024);
    let world = World::with(&["--records", disk.path().to_str().unwrap()]).await;
    let nobody = world.api("");
    let ready = async |wanted: u16| {
        let readiness = async || {
            let readiness = nobody.call("GET", "/readyz", None).await;
            (readiness.0 == wanted).then_some(readiness.1)
        };
        wait::until_some(&format!("/readyz answers {wanted}"), readiness).await
    };
    let all = json!({"status": "ready", "database": "ok", "disk": "ok", "sandboxes": "ok"});
    assert_eq!(ready(200).await, all);
    let filler = disk.fill(64);
    let full = ready(503).await;
    assert_eq!((&full["status"], &full["disk"]), (&json!("unready"), &json!("failed")));
    assert_eq!(nobody.get("/healthz").await["status"], "ok", "it is alive");
    fs::remove_file(filler).unwrap();
    assert_eq!(ready(200).await, all);
    no_panic(&world);
}

#[tokio::test(flavor = "multi_thread")]
async fn t123_asking_whether_it_is_ready_is_no_lever() {
    let world = World::start().await;
    let nobody = world.api("");
    let (began, before) = (Instant::now(), probes(&world.database()));
    let asking = (0..400).map(|_| {
        let nobody = nobody.clone();
        tokio::spawn(async move { nobody.call("GET", "/readyz", None).await.0 })
    });
    for answer in asking.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap(), 200);
    }
    let most = 2 + i64::try_from(began.elapsed().as_secs() / 4).unwrap();
    let probed = probes(&world.database()) - before;
    assert!((1..=most).contains(&probed), "{probed} of {most} in {:?}", began.elapsed());
}
