//! T68, T69, T71, T210: floods on the control channel of a sandbox do not delay other sandboxes.

use crate::harness::{cpu_ticks, cpu_ticks_below, wait};
use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Several processes that write valid messages on the channel, as fast as they can, once they are let.
/// Each write is whole frames and is not mixed with those of others.
const WRITERS: &str = r#"
import os, signal, time
def write_frames(processes, wait):
    body = b'{"ev":"result","data":{},"main":false}'
    flood = (len(body).to_bytes(4, "little") + body) * 700
    channel = os.dup(3)
    for _ in range(processes):
        if os.fork() == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for fd in (0, 1, 2): os.close(fd)
            time.sleep(wait)
            while True: os.write(channel, flood)
"#;

/// How long everything takes by which a neighbour notices that the server is there.
#[derive(Default)]
struct Noticed {
    health: Vec<Duration>,
    runs: Vec<Duration>,
}

impl Noticed {
    /// The time that nine of ten took at most, and the longest.
    fn of(times: &[Duration]) -> (Duration, Duration) {
        let mut times = times.to_vec();
        times.sort();
        (times[(times.len() - 1) * 9 / 10], times[times.len() - 1])
    }

    /// Not much slower than in the calm, and at no time silent. Before, a flood silenced the server
    /// for as long as it lasted.
    fn is_not_far_from(&self, calm: &Self, during: &str) {
        for (what, now, then) in
            [("/healthz", &self.health, &calm.health), ("run", &self.runs, &calm.runs)]
        {
            let ((most, longest), (calm_most, _)) = (Self::of(now), Self::of(then));
            // What the machine does besides must not decide it: builds beside it cost up to a second.
            let allowed = 3 * calm_most + Duration::from_secs(1);
            assert!(most <= allowed, "{during}: {what} {most:?}, calm {calm_most:?}");
            assert!(longest < Duration::from_secs(5), "{during}: {what} {longest:?}");
        }
    }
}

/// Asks for the health of the server, and for runs, until it is told that it is enough.
async fn notice(api: Api, enough: Arc<AtomicBool>) -> Noticed {
    let mut noticed = Noticed::default();
    while !enough.load(Ordering::Relaxed) || noticed.runs.len() < 3 {
        for _ in 0..3 {
            let asked = Instant::now();
            assert_eq!(api.get("/healthz").await["status"], "ok");
            noticed.health.push(asked.elapsed());
        }
        let asked = Instant::now();
        assert_eq!(api.execute("6 * 7").await["value"], 42);
        noticed.runs.push(asked.elapsed());
    }
    noticed
}

/// What a neighbour notices while nothing else happens.
async fn notice_calm(api: &Api) -> Noticed {
    let mut calm = Noticed::default();
    for _ in 0..10 {
        let noticed = notice(api.clone(), Arc::new(AtomicBool::new(true))).await;
        calm.health.extend(noticed.health);
        calm.runs.extend(noticed.runs);
    }
    calm
}

/// What `attack` gives, and what a neighbour has noticed of it.
async fn beside<T>(neighbour: &Api, attack: impl Future<Output = T>) -> (T, Noticed) {
    let enough = Arc::new(AtomicBool::new(false));
    let noticing = tokio::spawn(notice(neighbour.clone(), Arc::clone(&enough)));
    let outcome = attack.await;
    enough.store(true, Ordering::Relaxed);
    (outcome, noticing.await.unwrap())
}

fn in_two_seconds(code: &str) -> Value {
    json!({"code": format!("{WRITERS}{code}"), "limits": {"wall_ms": 2_000, "cpu_percent": 200}})
}

#[tokio::test(flavor = "multi_thread")]
async fn t68_writers_on_the_channel_stop_neither_their_own_clock_nor_a_neighbour() {
    let world = World::start().await;
    let neighbour = world.principal("neighbour", &["USAGE"]).await;
    let calm = notice_calm(&neighbour).await;
    // The cell itself says that all is well, as soon as it is read.
    let attack = in_two_seconds("write_frames(6, 0)\ntime.sleep(1)");
    let floods = async {
        let one = || world.owner.post("/v1/execute", attack.clone());
        tokio::join!(one(), one(), one())
    };
    let (ended, noticed) = beside(&neighbour, floods).await;
    for ended in [ended.0, ended.1, ended.2] {
        assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("timed_out"), &json!(124)));
        let took = ended["usage"]["wall_ms"].as_u64().unwrap();
        assert!(took < 2_000 + 2_500, "{took} ms of 2000");
    }
    noticed.is_not_far_from(&calm, "a flood in three runs");
    // The twin: as many processes that say nothing, and a cell that shows something, end well.
    let quiet = in_two_seconds(
        "for _ in range(6):\n    if os.fork() == 0: os._exit(0)\nfor n in range(100): display(n)\n42",
    );
    let ended = world.owner.post("/v1/execute", quiet).await;
    assert_eq!((&ended["status"], &ended["value"]), (&json!("succeeded"), &json!(42)));
    assert_eq!(ended["results"].as_array().unwrap().len(), 101);
}

#[tokio::test(flavor = "multi_thread")]
async fn t69_writers_on_the_channel_between_runs_hold_up_neither_the_next_run_nor_a_close() {
    let world = World::start().await;
    let neighbour = world.principal("neighbour", &["USAGE"]).await;
    let calm = notice_calm(&neighbour).await;
    let session = async || {
        let session = world.owner.session().await;
        let begin = format!("{WRITERS}write_frames(6, 0.5)\nx = 41");
        assert_eq!(world.owner.run(&session, &begin).await["status"], "succeeded");
        // Then the channel is full, and all of them wait for a reader.
        let used = async || cpu_ticks_below(world.pid());
        wait::at_rest(Duration::from_secs(1), "the writers", used).await;
        session
    };
    let (first, second) = (session().await, session().await);
    let next = async |session: &str| {
        let body = json!({"code": "x + 1", "limits": {"wall_ms": 2_000}});
        world.owner.post(&format!("/v1/sessions/{session}/execute"), body).await
    };
    let ran = async { tokio::join!(next(&first), next(&second)) };
    let (ran, noticed) = beside(&neighbour, ran).await;
    for ran in [ran.0, ran.1] {
        assert_eq!(ran["status"], "timed_out", "{ran}");
        let took = ran["usage"]["wall_ms"].as_u64().unwrap();
        assert!(took < 2_000 + 2_500, "{took} ms of 2000");
    }
    noticed.is_not_far_from(&calm, "a flood between runs");

    let third = session().await;
    let close = async {
        let run = format!("/v1/sessions/{third}/execute");
        let running = world.owner.post(&run, json!({"code": "x + 1"}));
        let closing = async {
            let path = format!("/v1/sessions/{third}");
            wait::until("it runs", async || world.owner.get(&path).await["status"] == "busy").await;
            let asked = Instant::now();
            world.owner.delete(&path).await;
            asked.elapsed()
        };
        tokio::join!(running, closing)
    };
    let ((ran, closed), noticed) = beside(&neighbour, close).await;
    assert_eq!(ran["status"], "cancelled", "{ran}");
    assert!(closed < Duration::from_secs(3), "{closed:?}");
    noticed.is_not_far_from(&calm, "a close in a flood");

    // The twin: a thread that shows something between two runs disturbs neither.
    let twin = world.owner.session().await;
    let shows = "import threading, time\ndef show():\n    for n in range(50): display(n)\n    open('shown', 'w')\n\
                 t = threading.Timer(0.2, show); t.start(); x = 41";
    assert_eq!(world.owner.run(&twin, shows).await["status"], "succeeded");
    let files = format!("/v1/sessions/{twin}/files");
    let shown = async || world.owner.get(&files).await.to_string().contains("shown");
    wait::until("the thread has shown everything", shown).await;
    let ran = world.owner.run(&twin, "t.join(); x + 1").await;
    assert_eq!((&ran["status"], &ran["value"]), (&json!("succeeded"), &json!(42)), "{ran}");
    world.owner.delete(&format!("/v1/sessions/{twin}")).await;
}

/// Memory of the server: now, and at most since it was asked for last, in bytes.
fn memory(world: &World) -> (u64, u64) {
    let pid = world.pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().unwrap() * 1024
    };
    let memory = (field("VmRSS"), field("VmHWM"));
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    memory
}

const MIB: u64 = 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn t71_a_forged_value_costs_the_server_little_and_a_large_honest_one_arrives() {
    let world = World::start().await;
    let neighbour = world.principal("neighbour", &["USAGE"]).await;
    let forge = |value: &str| {
        let code = format!(
            "import os, time\nvalue = {value}\n\
             body = b'{{\"ev\":\"done\",\"error\":null,\"exit_code\":null,\"value\":' + value + b'}}'\n\
             left = memoryview(len(body).to_bytes(4, 'little') + body)\n\
             while left: left = left[os.write(3, left):]\ntime.sleep(30)"
        );
        // Time does not matter here, and the machine may be busy.
        json!({"code": code, "limits": {"wall_ms": 55_000}})
    };
    // What the first runs leave behind is no part of it.
    let calm = notice_calm(&neighbour).await;
    let (before, _) = memory(&world);
    let rows = |count: usize| format!("b'[' + b','.join([b'{{\"a\":1}}'] * {count}) + b']'");
    for (name, value, problem) in [
        ("2.9 MB of objects", rows(360_000), "the limit result_bytes is"),
        (
            "2.9 MB of lists",
            "b'[' + b','.join([b'[1]'] * 725_000) + b']'".into(),
            "the limit result_bytes is",
        ),
        ("2 MB of objects", rows(250_000), "too many parts"),
    ] {
        let attack = async {
            let one = || world.owner.post("/v1/execute", forge(&value));
            tokio::join!(one(), one())
        };
        let ((ended, _), noticed) = beside(&neighbour, attack).await;
        let seen = format!("{name}: {} {} {}", ended["status"], ended["error"], ended["usage"]);
        println!("{seen}");
        assert_eq!(ended["value"], Value::Null, "{seen}");
        let warned = ended["warnings"].to_string();
        let is_told = warned.contains("output.too_large") && warned.contains(problem);
        assert!(is_told, "{seen} {warned}");
        let (_, most) = memory(&world);
        println!("{name}: {} MiB, and at most {} MiB", before / MIB, most / MIB);
        // Two frames, each once as bytes. Before, it was 900 MB for each of them.
        assert!(most < before + 96 * MIB, "{name}: {before} bytes, then {most}");
        noticed.is_not_far_from(&calm, name);
    }
    let is_back = async || memory(&world).0 < before + 64 * MIB;
    wait::until("the memory is given back", is_back).await;
    // The twin.
    let honest = "[{'date': '2026-01-01', 'v': n + 0.5} for n in range(50_000)]";
    let ended = world.owner.execute(honest).await;
    assert_eq!(ended["value"].as_array().unwrap().len(), 50_000);
    assert_eq!(ended["value"][49_999]["v"], 49_999.5);
}

/// Displays four results of 1.5 MB that are full of a secret, or of text that is as long.
const SHOWS: &str = r#"
import os
def run(input: dict) -> int:
    text = ("x" + (os.environ["TOKEN"] if input["secret"] else "Another-4F7A-Z")) * 100_000
    for _ in range(4):
        display(text)
    return 42
"#;

#[tokio::test(flavor = "multi_thread")]
async fn t210_results_full_of_secrets_cost_the_server_little_and_stop_no_neighbour() {
    let world = World::start().await;
    let neighbour = world.principal("neighbour", &["USAGE"]).await;
    let tool = json!({"name": "shows", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": SHOWS, "env_variables": [{"name": "TOKEN", "value": "Canary-4F7A-Zz"}]}});
    let tool = world.owner.post("/v1/tools", tool).await;
    let call = format!("/v1/tools/{}/call", tool["id"].as_str().unwrap());
    let shown = async |secret: bool| {
        let body = json!({"arguments": {"secret": secret}});
        let record = world.owner.post(&call, body).await;
        assert_eq!(record["value"], 42, "{} {}", record["error"], record["warnings"]);
        record["results"].to_string()
    };
    let calm = notice_calm(&neighbour).await;
    let cpu_time_of = async |secret: bool| {
        let before = cpu_ticks(world.pid());
        let flood = async { tokio::join!(shown(secret), shown(secret)) };
        let ((one, other), noticed) = beside(&neighbour, flood).await;
        (one, other, noticed, cpu_ticks(world.pid()) - before)
    };
    let (plain, _, _, plain_ticks) = cpu_time_of(false).await;
    assert_eq!(plain.matches("Another-4F7A-Z").count(), 400_000, "the twin is shown whole");
    let (one, other, noticed, ticks) = cpu_time_of(true).await;
    for results in [one, other] {
        assert_eq!(results.matches("[redacted:TOKEN]").count(), 400_000);
        assert!(!results.contains("Canary"));
    }
    // Before, it was 40 s of CPU time, on the threads that serve requests.
    assert!(ticks < 10 * plain_ticks + 500, "{ticks} ticks, {plain_ticks} without secrets");
    noticed.is_not_far_from(&calm, "results full of secrets");
}
