//! Large output: its cost for the server, how it is stored and read, and the limits of the operator.

use crate::harness::wait;
use crate::raw::{authority, connect};
use crate::test_server::{Api, World, events, parse_events, printed};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::fs;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MIB: u64 = 1024 * 1024;
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// Prints `BYTES` bytes as lines of a hundred.
const PRINT: &str = "import sys\nfor _ in range(BYTES // 100_000):\n    sys.stdout.write(('x' * 99 + '\\n') * 1000)\n";

fn prints(bytes: u64) -> String {
    PRINT.replace("BYTES", &bytes.to_string())
}

fn limits(output_bytes: u64) -> Value {
    json!({"output_bytes": output_bytes, "wall_ms": 240_000, "cpu_ms": 240_000})
}

async fn run(api: &Api, code: &str, limits: Value) -> (u16, Value) {
    let request = api
        .request(Method::POST, "/v1/execute")
        .timeout(PATIENCE)
        .header("content-type", "application/json")
        .body(json!({"code": code, "limits": limits}).to_string());
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

/// A field of `/proc/PID/status`, in bytes.
pub(crate) fn memory(world: &World, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", world.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    let kib: u64 = line.unwrap().trim().strip_suffix(" kB").unwrap().trim().parse().unwrap();
    kib * 1024
}

/// That the server has given back what it took, but for `more` bytes.
pub(crate) async fn gives_back(world: &World, before: u64, more: u64) {
    let what = format!("it has at most {} MiB more than {} MiB", more / MIB, before / MIB);
    wait::until(&what, async || memory(world, "RssAnon") <= before + more).await;
}

fn dropped(record: &Value) -> u64 {
    record["truncated"]["output_dropped_bytes"].as_u64().unwrap_or_default()
}

fn says_budget(record: &Value) -> bool {
    let warnings = record["warnings"].as_array().unwrap();
    let budget = |it: &&Value| it["message"].as_str().unwrap().contains("budget for the output");
    warnings.iter().find(budget).is_some_and(|it| it["code"] == "output.too_large")
}

/// Another workspace, and its owner.
pub(crate) async fn workspace(world: &World, name: &str) -> Api {
    let made = world.owner.post("/v1/workspaces", json!({"name": name})).await;
    world.api(made["key"]["secret"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn t75_fourteen_floods_of_output_do_not_take_the_memory_of_a_small_server() {
    const FLOODS: usize = 14;
    const FLOOD: u64 = 60_000_000;
    let world =
        World::with(&["--max-output-bytes", "67108864", "--output-budget-mib", "256"]).await;
    let neighbour = workspace(&world, "neighbour").await;
    let session = neighbour.session().await;
    neighbour.run(&session, "kept = 42").await;
    world.owner.execute("print(1)").await;
    let before = memory(&world, "RssAnon");
    let floods: Vec<_> = (0..FLOODS)
        .map(|_| {
            let api = world.owner.clone();
            tokio::spawn(async move { run(&api, &prints(FLOOD), limits(64 * MIB)).await })
        })
        .collect();
    // Ordinary output of another principal is complete meanwhile.
    let beside = neighbour.execute("print('y' * 50_000)").await;
    assert_eq!((printed(&beside).len(), dropped(&beside)), (50_001, 0), "{:?}", beside["warnings"]);
    let mut cut = 0;
    for flood in floods {
        let (status, record) = flood.await.unwrap();
        assert_eq!((status, record["status"].as_str()), (200, Some("succeeded")));
        let kept = printed(&record);
        assert_eq!(kept.len() as u64 + dropped(&record), FLOOD);
        assert!(kept.as_bytes().chunks(100).all(|line| line[0] == b'x'));
        assert_eq!(dropped(&record) > 0, says_budget(&record));
        cut += usize::from(dropped(&record) > 0);
    }
    // 840 MB do not fit into 128 MiB at once; whether two or ten were cut depends on the moment.
    let peak = memory(&world, "VmHWM");
    assert!(peak < before + 640 * MIB, "{} MiB, {cut} of {FLOODS} cut", peak / MIB);
    assert_eq!(neighbour.run(&session, "kept").await["value"], 42);
    gives_back(&world, before, 64 * MIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t76_streams_and_records_without_a_reader_cost_little() {
    const UNREAD: usize = 32;
    const BYTES: u64 = 16_000_000;
    let world = World::start().await;
    let (_, record) = run(&world.owner, &prints(BYTES), limits(16 * MIB)).await;
    assert_eq!((printed(&record).len() as u64, dropped(&record)), (BYTES, 0));
    let id = record["id"].as_str().unwrap();
    let again = world.owner.get(&format!("/v1/executions/{id}")).await;
    assert_eq!(again["output"], record["output"]);
    assert_eq!(again["usage"], record["usage"]);
    let before = memory(&world, "RssAnon");
    let mut unread = Vec::new();
    for number in 0..UNREAD {
        let what = if number % 2 == 0 { "/events" } else { "" };
        let mut stream = connect(world.address()).await;
        let request = format!(
            "GET /v1/executions/{id}{what} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            authority(world.address()),
            world.owner.key
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        unread.push(stream);
    }
    // What was read for them would be there within this.
    let is_bounded = async || memory(&world, "RssAnon") < before + UNREAD as u64 * 4 * MIB;
    wait::stays(Duration::from_secs(2), "unread answers take little memory", is_bounded).await;
    // One who reads gets everything, and one who comes back what was missing.
    let path = format!("/v1/executions/{id}/events");
    let all = world.owner.request(Method::GET, &path).timeout(PATIENCE).send().await.unwrap();
    let all = events(all).await;
    assert_eq!(
        all.iter().map(|it| it.0).collect::<Vec<_>>(),
        (1..=all.len() as u64).collect::<Vec<_>>()
    );
    assert_eq!(all.last().unwrap().1, "end");
    let text = |all: &[(u64, String, Value)]| -> usize {
        let output = all.iter().filter(|it| it.1 == "output");
        output.map(|it| it.2["text"].as_str().unwrap().len()).sum()
    };
    assert_eq!(text(&all) as u64, BYTES);
    let half = all.len() / 2;
    let rest = world.owner.request(Method::GET, &path).header("last-event-id", all[half - 1].0);
    let rest = events(rest.timeout(PATIENCE).send().await.unwrap()).await;
    assert_eq!(rest, all[half..]);
    drop(unread);
    gives_back(&world, before, 64 * MIB).await;
}

/// The peak of the server's memory while `work` runs, above what it had before.
async fn peak_during<T>(world: &World, work: impl Future<Output = T>) -> (u64, T) {
    let before = memory(world, "VmRSS");
    fs::write(format!("/proc/{}/clear_refs", world.pid()), "5").unwrap();
    let done = work.await;
    (memory(world, "VmHWM").saturating_sub(before), done)
}

#[tokio::test(flavor = "multi_thread")]
async fn t215_a_list_of_values_takes_their_text_and_not_two_hundred_times_as_much() {
    const VALUES: usize = 8;
    const LIST: &str = "/v1/executions?limit=200";
    // 400 KB as text, 28 MB as a tree.
    let value = json!(vec![json!({"a": 1}); 50_000]);
    let world = World::start().await;
    for _ in 0..VALUES {
        let record = world.owner.execute("[{'a': 1}] * 50_000").await;
        assert_eq!(record["status"], "succeeded", "{}", record["error"]);
    }
    let record = world.owner.get(LIST).await["items"][0].clone();
    assert!(record["value"] == value, "the list has the value");
    assert_eq!((&record["output"], &record["results"]), (&json!([]), &json!([])));
    let lists = async { tokio::join!(world.owner.get(LIST), world.owner.get(LIST)) };
    let (peak, (one, other)) = peak_during(&world, lists).await;
    for list in [one, other] {
        assert_eq!(list["items"].as_array().unwrap().len(), VALUES);
        assert!(list["items"].as_array().unwrap().iter().all(|item| item["value"] == value));
    }
    assert!(peak < 64 * MIB, "two lists of 3.2 MB took {} MiB", peak / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn t215_a_listed_record_has_the_members_of_its_detail() {
    let world = World::start().await;
    let ask = Some(json!({"permission": "ask"}));
    assert_eq!(world.owner.call("PUT", "/v1/permissions/execute_python", ask).await.0, 200);
    let waiting = world.owner.execute("'\\u{e9} \"quoted\"'\n# waits").await;
    let done = world.owner.get("/v1/executions").await["items"].clone();
    assert_eq!(done.as_array().unwrap().len(), 1);
    for item in done.as_array().unwrap() {
        let path = format!("/v1/executions/{}", item["id"].as_str().unwrap());
        assert_eq!(item, &world.owner.get(&path).await);
    }
    assert_eq!((&done[0]["id"], &done[0]["code"]), (&waiting["id"], &waiting["code"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn t76_a_slow_listener_of_a_run_reads_the_rest_from_its_record() {
    const BYTES: u64 = 12_000_000;
    let world = World::start().await;
    let begun = world
        .owner
        .request(Method::POST, "/v1/execute")
        .timeout(PATIENCE)
        .header("content-type", "application/json")
        .header("accept", "text/event-stream")
        .body(json!({"code": prints(BYTES), "limits": limits(16 * MIB)}).to_string());
    let mut answer = begun.send().await.unwrap();
    let id = answer.headers()["location"].to_str().unwrap().to_owned();
    let mut heard = answer.chunk().await.unwrap().unwrap().to_vec();
    let is_over = async || !world.owner.get(&id).await["ended_at"].is_null();
    wait::within(PATIENCE, "the run has ended", is_over).await;
    while let Some(piece) = answer.chunk().await.unwrap() {
        heard.extend_from_slice(&piece);
    }
    let all = parse_events(&String::from_utf8(heard).unwrap());
    assert_eq!(
        all.iter().map(|it| it.0).collect::<Vec<_>>(),
        (1..=all.len() as u64).collect::<Vec<_>>()
    );
    assert_eq!(all.last().unwrap().1, "end");
    let output = all.iter().filter(|it| it.1 == "output");
    assert_eq!(output.map(|it| it.2["text"].as_str().unwrap().len()).sum::<usize>() as u64, BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn t76_a_large_answer_is_given_again_under_its_key() {
    const BYTES: u64 = 3_000_000;
    let world = World::start().await;
    let ask = async || {
        let request = world
            .owner
            .request(Method::POST, "/v1/execute")
            .timeout(PATIENCE)
            .header("content-type", "application/json")
            .header("idempotency-key", "large")
            .body(json!({"code": prints(BYTES), "limits": limits(16 * MIB)}).to_string());
        let answer = request.send().await.unwrap();
        let again = answer.headers().contains_key("idempotency-replayed");
        let record: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        (again, record)
    };
    let (first, record) = ask().await;
    assert_eq!((first, printed(&record).len() as u64), (false, BYTES));
    assert_eq!(ask().await, (true, record));
}

#[tokio::test(flavor = "multi_thread")]
async fn t77_what_the_operator_allows_at_most_holds_for_every_limit_and_workspace() {
    let world = World::with(&[
        "--max-memory-bytes",
        "268435456",
        "--max-processes",
        "16",
        "--max-output-bytes",
        "2000000",
        "--workspace-limit",
        "guests:memory_bytes=134217728,guests:wall_ms=5000",
    ])
    .await;
    let guests = workspace(&world, "guests").await;
    let cores = available_parallelism().unwrap().get() as u64;
    for (limit, most) in [
        ("memory_bytes", 256 * MIB),
        ("processes", 16),
        ("output_bytes", 2_000_000),
        ("cpu_percent", cores * 100),
        ("open_files", 16_384),
        ("result_bytes", 6 * MIB),
    ] {
        let (status, refused) = run(&world.owner, "1", json!({limit: most + 1})).await;
        assert_eq!((status, refused["code"].as_str()), (400, Some("args.invalid")), "{refused}");
        let said = refused.to_string();
        assert!(said.contains(limit) && said.contains(&most.to_string()), "{said}");
        let (status, ran) = run(&world.owner, "1", json!({limit: most})).await;
        assert_eq!((status, &ran["limits"][limit]), (200, &json!(most)), "{ran}");
    }
    // A default limit is lowered, with a warning.
    let usual = world.owner.execute("1").await;
    assert_eq!(usual["limits"]["memory_bytes"], 256 * MIB);
    assert_eq!(usual["limits"]["processes"], 16);
    let usual = guests.execute("1").await;
    assert_eq!(
        (&usual["limits"]["memory_bytes"], &usual["limits"]["wall_ms"]),
        (&json!(128 * MIB), &json!(5000))
    );
    // A workspace has its own, also for its sessions, and no other has them.
    let more = json!({"memory_bytes": 200 * MIB});
    assert_eq!(run(&guests, "1", more.clone()).await.0, 400);
    assert_eq!(guests.refused("POST", "/v1/sessions", Some(json!({"limits": more}))).await.0, 400);
    let session = guests.session().await;
    let path = format!("/v1/sessions/{session}/execute");
    let asked = Some(json!({"code": "1", "limits": {"wall_ms": 6000}}));
    assert_eq!(guests.refused("POST", &path, asked).await.0, 400);
    assert_eq!(run(&world.owner, "1", more.clone()).await.0, 200);
    world.owner.post("/v1/sessions", json!({"limits": more})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t78_single_bytes_make_a_record_and_events_in_proportion_to_the_output() {
    const BYTES: usize = 10_000;
    let world = World::start().await;
    // The pauses let the server see each byte by itself.
    let code = format!(
        "import os, time\nfor _ in range({}):\n    for stream in (1, 2):\n        \
         os.write(stream, b'x')\n        time.sleep(0.0005)",
        BYTES / 2
    );
    let (_, record) = run(&world.owner, &code, limits(MIB)).await;
    assert_eq!(record["usage"]["output_bytes"], BYTES);
    let pieces = record["output"].as_array().unwrap();
    let texts = pieces.iter().map(|it| it["text"].as_str().unwrap().len());
    assert_eq!(texts.sum::<usize>(), BYTES);
    assert_eq!(printed(&record).len(), BYTES / 2);
    let record_bytes = record["output"].to_string().len();
    let path = format!("/v1/executions/{}/events", record["id"].as_str().unwrap());
    let stream = world.owner.request(Method::GET, &path).send().await.unwrap();
    let stream_bytes = stream.text().await.unwrap().len();
    assert!(record_bytes < 4 * BYTES, "{record_bytes} bytes of record for {BYTES}");
    assert!(stream_bytes < 6 * BYTES, "{stream_bytes} bytes of events for {BYTES}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t78_what_is_printed_before_a_pause_is_heard_before_it_is_over() {
    const PAUSE: Duration = Duration::from_secs(3);
    let world = World::start().await;
    let code = "import time\nfor word in ('one', 'two'):\n    print(word, end='', flush=True)\n    time.sleep(3)";
    let request = world
        .owner
        .request(Method::POST, "/v1/execute")
        .header("content-type", "application/json")
        .header("accept", "text/event-stream")
        .body(json!({"code": code}).to_string());
    let mut answer = request.send().await.unwrap();
    let (mut heard, mut at) = (String::new(), [None; 2]);
    while let Some(piece) = answer.chunk().await.unwrap() {
        heard.push_str(std::str::from_utf8(&piece).unwrap());
        for (word, at) in ["one", "two"].into_iter().zip(&mut at) {
            if at.is_none() && heard.contains(&format!("\"text\":\"{word}\"")) {
                *at = Some(Instant::now());
            }
        }
    }
    let over = Instant::now();
    let [Some(one), Some(two)] = at else { panic!("{heard}") };
    // Each was heard while the code slept: the next thing came most of a pause later.
    assert!(two - one > PAUSE / 2, "{:?}", two - one);
    assert!(over - two > PAUSE / 2, "{:?}", over - two);
}

#[tokio::test(flavor = "multi_thread")]
async fn t79_one_workspace_cannot_take_all_of_the_memory_for_output() {
    let world = World::with(&["--max-output-bytes", "67108864", "--output-budget-mib", "64"]).await;
    let neighbour = workspace(&world, "neighbour").await;
    let flood = format!(
        "{}\nsys.stdout.flush()\nopen('/workspace/done', 'w')\nimport time\ntime.sleep(200)",
        prints(40_000_000)
    );
    let held = world
        .owner
        .request(Method::POST, "/v1/execute")
        .header("content-type", "application/json")
        .header("prefer", "respond-async")
        .body(json!({"code": flood, "limits": limits(64 * MIB)}).to_string());
    let held: Value =
        serde_json::from_slice(&held.send().await.unwrap().bytes().await.unwrap()).unwrap();
    let path = format!("/v1/executions/{}", held["id"].as_str().unwrap());
    // Once its share is used up, the flood is dropped, which the server says in its counters.
    let is_full = async || output_in_memory(&world).await >= 31 * MIB;
    wait::within(PATIENCE, "the budget is used up", is_full).await;
    let (_, same) = run(&world.owner, &prints(2_000_000), limits(16 * MIB)).await;
    assert!(dropped(&same) > 0 && says_budget(&same), "{:?}", same["warnings"]);
    assert!(!printed(&same).is_empty(), "the first of it is never refused");
    let ordinary = world.owner.execute("print('z' * 10_000)").await;
    assert_eq!((printed(&ordinary).len(), dropped(&ordinary)), (10_001, 0));
    let (_, other) = run(&neighbour, &prints(16_000_000), limits(16 * MIB)).await;
    assert_eq!(
        (printed(&other).len(), dropped(&other)),
        (16_000_000, 0),
        "{:?}",
        other["warnings"]
    );
    world.owner.post(&format!("{path}/cancel"), json!({})).await;
    let is_over = async || !world.owner.get(&path).await["ended_at"].is_null();
    wait::until("the flood has ended", is_over).await;
    let (_, after) = run(&world.owner, &prints(2_000_000), limits(16 * MIB)).await;
    assert_eq!((printed(&after).len(), dropped(&after)), (2_000_000, 0), "{:?}", after["warnings"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn t79_large_values_are_counted_and_small_ones_are_never_dropped() {
    let world = World::with(&["--max-output-bytes", "67108864", "--output-budget-mib", "32"]).await;
    let large = "'v' * 2_000_000";
    let wide = json!({"result_bytes": 6 * MIB});
    let (_, alone) = run(&world.owner, large, wide.clone()).await;
    assert_eq!(alone["value"].as_str().unwrap().len(), 2_000_000, "{:?}", alone["warnings"]);
    let session = world.owner.session().await;
    let flood = format!("{}\nsys.stdout.flush()\nimport time\ntime.sleep(200)", prints(20_000_000));
    let path = format!("/v1/sessions/{session}/execute");
    let held = world
        .owner
        .request(Method::POST, &path)
        .header("content-type", "application/json")
        .header("prefer", "respond-async")
        .body(json!({"code": flood, "limits": limits(64 * MIB)}).to_string());
    assert_eq!(held.send().await.unwrap().status(), 202);
    let is_full = async || output_in_memory(&world).await >= 15 * MIB;
    wait::within(PATIENCE, "the share is used up", is_full).await;
    let (_, beside) = run(&world.owner, large, wide).await;
    assert!(beside["value"].is_null() && says_budget(&beside), "{:?}", beside["warnings"]);
    assert_eq!(beside["status"], "succeeded");
    let (_, small) =
        run(&world.owner, &format!("{}\n'w' * 1000", prints(200_000)), limits(MIB)).await;
    assert_eq!(small["value"].as_str().unwrap().len(), 1000, "{:?}", small["warnings"]);
    // What is kept is not lost: there is no room for the answer now, and there is later.
    let path = format!("/v1/executions/{}", alone["id"].as_str().unwrap());
    let refused = world.owner.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), refused.headers().contains_key("retry-after")),
        (429, true)
    );
    world.owner.post(&format!("/v1/sessions/{session}/interrupt"), json!({})).await;
    let again = wait::until_some("there is room for the answer", async || {
        let (status, again) = world.owner.call("GET", &path, None).await;
        (status == 200).then_some(again)
    });
    assert_eq!(again.await["value"], alone["value"]);
}

/// As a tree in memory it takes some forty times its text.
const NUMBERS: &str = "[1] * 440_000";

/// Records of so many large values at once.
async fn values(world: &World, count: usize) -> Vec<Value> {
    let one = |api: Api| tokio::spawn(async move { run(&api, NUMBERS, limits(MIB)).await });
    let running: Vec<_> = (0..count).map(|_| one(world.owner.clone())).collect();
    let mut records = Vec::new();
    for ran in running {
        let (status, record) = ran.await.unwrap();
        assert_eq!((status, record["status"].as_str()), (200, Some("succeeded")), "{status}");
        records.push(record);
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn t132_large_values_of_many_sandboxes_have_one_budget_and_small_ones_are_never_dropped() {
    // One workspace has half of it, in which there is room for one of these values at a time.
    let world = World::with(&["--output-budget-mib", "256"]).await;
    world.owner.execute("print(1)").await;
    let before = memory(&world, "RssAnon");
    let records = values(&world, 12).await;
    let is_whole = |it: &&Value| it["value"].as_array().is_some_and(|it| it.len() == 440_000);
    let whole = records.iter().filter(is_whole).count();
    for record in &records {
        // The value and its result are counted separately: one can be there without the other.
        let has_all = !record["value"].is_null() && record["results"][0].is_object();
        assert_eq!(has_all, !says_budget(record), "{:?}", record["warnings"]);
    }
    assert!((1..12).contains(&whole), "{whole} of 12");
    let peak = memory(&world, "VmHWM");
    assert!(peak < before + 256 * MIB, "{} MiB, {whole} whole", peak / MIB);
    // The twin: what is ordinary is not left out, and a large value has its room again.
    let small = world.owner.execute("list(range(800))").await;
    assert_eq!(small["value"].as_array().unwrap().len(), 800);
    assert_eq!(values(&world, 1).await.iter().filter(is_whole).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn t220_output_of_one_caller_beyond_its_rate_waits_and_none_of_it_is_lost() {
    const BYTES: u64 = 15 * MIB;
    const RUNS: u64 = 4;
    let world = World::start().await;
    let started = Instant::now();
    let one =
        |api: Api| tokio::spawn(async move { run(&api, &prints(BYTES), limits(16 * MIB)).await.1 });
    let running: Vec<_> = (0..RUNS).map(|_| one(world.owner.clone())).collect();
    for ran in running {
        let record = ran.await.unwrap();
        assert_eq!(record["status"], "succeeded", "{}", record["error"]);
        assert_eq!(printed(&record).len() as u64, BYTES / 100_000 * 100_000);
        assert!(record["warnings"].as_array().unwrap().is_empty(), "{}", record["warnings"]);
    }
    // 60 MiB: 32 at once, and 32 a second. The pause after the last read is not waited for.
    let least = Duration::from_millis(700);
    assert!(started.elapsed() > least, "{:?}", started.elapsed());
}

/// Statuses of one request, sent several times at once.
async fn statuses_at_once(request: impl Fn() -> RequestBuilder, times: usize) -> Vec<u16> {
    let send = || {
        let sending = request().timeout(PATIENCE).send();
        tokio::spawn(async move {
            let response = sending.await.unwrap();
            let status = response.status().as_u16();
            response.bytes().await.unwrap();
            status
        })
    };
    let requests: Vec<_> = (0..times).map(|_| send()).collect();
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(request.await.unwrap());
    }
    statuses
}

#[tokio::test(flavor = "multi_thread")]
async fn t222_records_with_large_values_are_counted_before_they_are_built() {
    // One workspace has half of it: one of these records at a time.
    let world = World::with(&["--output-budget-mib", "256"]).await;
    let run = || {
        let request = world.owner.request(Method::POST, "/v1/execute");
        let request = request.header("content-type", "application/json");
        let body = json!({"code": NUMBERS, "limits": limits(MIB)});
        request.header("idempotency-key", "one").timeout(PATIENCE).body(body.to_string())
    };
    let record: Value = run().send().await.unwrap().json().await.unwrap();
    assert_eq!(record["status"], "succeeded", "{}", record["error"]);
    // A replay builds the record, which is as large as the first time.
    let (peak, statuses) = peak_during(&world, statuses_at_once(run, 24)).await;
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(peak < 160 * MIB, "{} MiB", peak / MIB);
    // The twin: one at a time always gets the whole record.
    let again: Value = run().send().await.unwrap().json().await.unwrap();
    assert_eq!((&again["id"], &again["value"]), (&record["id"], &record["value"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn t223_a_record_that_has_ended_is_sent_as_the_text_that_it_is() {
    let world = World::with(&["--output-budget-mib", "256"]).await;
    let record = values(&world, 1).await.remove(0);
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    let get = || world.owner.request(Method::GET, &path);
    let (peak, statuses) = peak_during(&world, statuses_at_once(get, 24)).await;
    assert_eq!(statuses, [200; 24]);
    // 0.9 MB as text, 44 MB as a tree.
    assert!(peak < 96 * MIB, "{} MiB", peak / MIB);
    let again = world.owner.get(&path).await;
    assert!(again == record, "the stored text is the record of the response");
}

#[tokio::test(flavor = "multi_thread")]
async fn t134_memory_of_large_values_is_given_back_after_each_round_of_them() {
    let world = World::start().await;
    // Threads, their arenas and what is loaded at the first use are no part of it.
    values(&world, 2).await;
    let before = memory(&world, "RssAnon");
    for _ in 0..3 {
        values(&world, 16).await;
        gives_back(&world, before, 64 * MIB).await;
    }
}

/// Bytes of output that the server holds, as it says itself.
async fn output_in_memory(world: &World) -> u64 {
    let metrics = world.owner.request(Method::GET, "/metrics").send().await.unwrap();
    let text = metrics.text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("belljar_output_bytes "));
    line.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
}
