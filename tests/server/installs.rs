//! Packages that code installs into the session of an agent: who may, which ones, and for how long.
//! The packages come from the real index.

use crate::harness::{self, wait};
use crate::test_server::{Api, OrdinaryUser, World, printed};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::time::{Duration, Instant};

const PYPI: &str = "SNOWFLAKE.SNOWPARK.PYPI_SHARED_REPOSITORY";
/// What a session with the right to install is used in: it has packages, and an index.
const ENVIRONMENT: &str = "default";

/// A server, and the environment built: that takes longer than a request waits.
async fn world() -> World {
    world_with(&[]).await
}

pub(crate) async fn world_with(program: &[&str]) -> World {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let built = harness::exec(&["--env", ENVIRONMENT, "pass"]);
        assert!(built.status.success(), "{}", harness::stderr(&built));
    });
    World::under(program, &[]).await
}

async fn agent(api: &Api, name: &str, repositories: Value) -> Value {
    agent_in(api, name, ENVIRONMENT, repositories).await
}

pub(crate) async fn agent_in(
    api: &Api,
    name: &str,
    environment: &str,
    repositories: Value,
) -> Value {
    let entry = json!([{"tool_spec": {"type": "code_execution", "name": "code_execution"}}]);
    let section = json!({"environment": environment, "artifact_repositories": repositories});
    let specification = json!({"tools": entry, "tool_resources": {"code_execution": section}});
    api.post("/v1/agents", json!({"name": name, "specification": specification})).await
}

pub(crate) async fn session_of(api: &Api, agent: &Value) -> String {
    let session = api.post("/v1/sessions", json!({"agent_id": agent["id"]})).await;
    session["sandbox_id"].as_str().unwrap().to_owned()
}

/// A session in which packages can be installed.
pub(crate) async fn session(world: &World) -> String {
    let bot = agent(&world.owner, "bot", json!([PYPI])).await;
    session_of(&world.owner, &bot).await
}

/// Code, message and hint of the error.
pub(crate) fn error_of(execution: &Value) -> (String, String, String) {
    let error = &execution["error"];
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    assert!(error.is_object(), "it did not fail: {execution}");
    (text("code"), text("message"), text("hint"))
}

/// The package root of the server, which every sandbox sees.
fn package_root(world: &World) -> PathBuf {
    let held = std::fs::read_dir(format!("/proc/{}/fd", world.pid())).unwrap();
    let files = held.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let is_lock = |path: &PathBuf| path.parent().is_some_and(|it| it.ends_with("packages"));
    files.into_iter().find(is_lock).unwrap().with_extension("")
}

fn session_directories(root: &Path) -> usize {
    std::fs::read_dir(root).map_or(0, Iterator::count)
}

// proves S-046, S-050
#[tokio::test(flavor = "multi_thread")]
async fn what_is_installed_is_there_from_the_next_statement_on_in_this_session_alone() {
    let world = world().await;
    let session = session(&world).await;
    let at_once = "%pip install six\nimport six\nsix.__name__";
    let first = world.owner.run(&session, at_once).await;
    assert_eq!((&first["error"], &first["value"]), (&json!(null), &json!("six")), "{first}");
    let output = printed(&first);
    assert!(output.starts_with("installed six 1."), "{output}");
    let warned = &first["warnings"][0];
    assert_eq!(warned["code"], "package.installed");
    assert_eq!(warned["message"].as_str().unwrap(), output.trim());

    let function = "import belljar\nbelljar.install('idna>=3', 'iniconfig')\nimport idna, iniconfig\n\
                    idna.encode('bücher.example').decode()";
    let second = world.owner.run(&session, function).await;
    assert_eq!(second["value"], "xn--bcher-kva.example", "{second}");
    let later = world.owner.run(&session, "import six, idna\nidna.__file__[:14]").await;
    assert_eq!(later["value"], "/opt/packages/", "{later}");
    let script = json!({"code": "import iniconfig\nprint('there')", "entry": "script"});
    let script = world.owner.post(&format!("/v1/sessions/{session}/execute"), script).await;
    assert_eq!(printed(&script), "there\n", "{script}");
    let again = world.owner.run(&session, "!pip install six").await;
    assert_eq!(printed(&again), "all requested packages are already installed\n", "{again}");

    let other = world.owner.post("/v1/sessions", json!({"environment": ENVIRONMENT})).await;
    let other = other["sandbox_id"].as_str().unwrap();
    let missing = world.owner.run(other, "import iniconfig").await;
    assert_eq!(error_of(&missing).0, "python.ModuleNotFoundError");

    let root = package_root(&world);
    assert_eq!(session_directories(&root), 2);
    world.owner.post(&format!("/v1/sessions/{session}/reset"), json!({})).await;
    let gone = world.owner.run(&session, "import iniconfig").await;
    assert_eq!(error_of(&gone).0, "python.ModuleNotFoundError", "a reset takes packages along");
    assert!(harness::soon(Duration::from_secs(5), || session_directories(&root) == 0));
    world.owner.run(&session, "%pip install iniconfig").await;
    world.owner.delete(&format!("/v1/sessions/{session}")).await;
    assert!(harness::soon(Duration::from_secs(5), || session_directories(&root) == 0));

    let audit = world.owner.get("/v1/audit").await.to_string();
    assert!(audit.contains("package.install") && audit.contains("iniconfig"), "{audit}");
}

// proves S-047, S-048
#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_with_what_to_do() {
    let world = world().await;
    let without = agent(&world.owner, "closed", json!([])).await;
    let closed = session_of(&world.owner, &without).await;
    let (code, message, hint) = error_of(&world.owner.run(&closed, "%pip install six").await);
    assert_eq!(code, "package.denied");
    assert!(
        message.contains("artifact_repositories in tool_resources.code_execution"),
        "{message}"
    );
    assert!(hint.contains(PYPI), "{hint}");

    let maker = world.principal("maker", &["USAGE", "MODIFY"]).await;
    let open = agent(&maker, "open", json!(["pypi"])).await;
    let session = session_of(&maker, &open).await;
    let install = "import belljar\nbelljar.install('six')";
    let (code, message, hint) = error_of(&maker.run(&session, install).await);
    assert_eq!(code, "package.denied");
    for named in ["SNOWFLAKE.PYPI_REPOSITORY_USER", "\"maker\"", "INSTALL on the workspace"] {
        assert!(message.contains(named), "{message}");
    }
    assert!(hint.contains("grant INSTALL"), "{hint}");

    let me = maker.get("/v1/principals/me").await;
    let object = json!({"kind": "workspace", "id": me["workspace"]});
    let grant = json!({"principal": me["id"], "privilege": "INSTALL", "object": object});
    let grant = world.owner.post("/v1/grants", grant).await;
    assert_eq!(maker.run(&session, install).await["error"], json!(null));
    world.owner.delete(&format!("/v1/grants/{}", grant["id"].as_str().unwrap())).await;
    let (code, ..) = error_of(&maker.run(&session, "%pip install idna").await);
    assert_eq!(code, "package.denied", "a right that was taken away is missed at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_without_an_agent_and_an_environment_without_an_index_have_no_packages() {
    let world = world().await;
    let plain = world.owner.post("/v1/sessions", json!({"environment": ENVIRONMENT})).await;
    let plain = plain["sandbox_id"].as_str().unwrap();
    let fresh = json!({"code": "%pip install six", "environment": ENVIRONMENT});
    for execution in [
        world.owner.run(plain, "%pip install six").await,
        world.owner.post("/v1/execute", fresh).await,
    ] {
        let (code, message, hint) = error_of(&execution);
        assert_eq!(code, "package.denied");
        assert!(
            message.contains("artifact_repositories") && hint.contains("agent_id"),
            "{message}"
        );
    }
    let line = harness::exec(&["--env", ENVIRONMENT, "%pip install six"]);
    assert!(harness::stderr(&line).contains("artifact_repositories"), "{line:?}");

    let bot = agent(&world.owner, "bot", json!([PYPI])).await;
    let bare = json!({"agent_id": bot["id"], "environment": "bare"});
    let bare = world.owner.post("/v1/sessions", bare).await;
    let bare = bare["sandbox_id"].as_str().unwrap();
    let (code, message, _) = error_of(&world.owner.run(bare, "%pip install six").await);
    assert_eq!(code, "package.denied");
    assert!(message.starts_with("packages cannot be installed in environment `bare`"), "{message}");
}

// proves S-052
#[tokio::test(flavor = "multi_thread")]
async fn installing_opens_no_network() {
    let world = world().await;
    let session = session(&world).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reach = format!(
        "import socket\nerrors = []\nfor address in [('127.0.0.1', {}), ('pypi.org', 443), ('1.1.1.1', 443)]:\n    \
         try: socket.create_connection(address, 2)\n    except OSError as error: errors.append(1)\nlen(errors)",
        listener.local_addr().unwrap().port()
    );
    assert_eq!(world.owner.run(&session, &reach).await["value"], 3);
    let after = world.owner.run(&session, &format!("%pip install six\n{reach}")).await;
    assert_eq!(after["value"], 3, "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_is_told_clearly_and_nothing_is_half_installed() {
    let world = world().await;
    let session = session(&world).await;
    let root = package_root(&world);
    for (line, code, words) in [
        ("no-such-package-1f9c2", "package.unavailable", "was not found"),
        ("six==99", "package.unavailable", "no version of six==99"),
        ("urllib3==2.0.0", "package.unavailable", "is yanked"),
        ("docopt", "package.unavailable", "no usable wheels"),
        ("'numpy<2'", "package.unavailable", "numpy<2 and numpy=="),
        ("six no-such-package-1f9c2", "package.unavailable", "was not found"),
        ("'six @ https://example.org/six.whl'", "package.unavailable", "is a URL or a path"),
        ("https://example.org/six.whl", "package.unavailable", "is a URL or a path"),
        ("/etc/passwd", "package.unavailable", "is a URL or a path"),
        ("./six", "package.unavailable", "is a URL or a path"),
        ("--index-url=https://example.org six", "package.unavailable", "--index-url"),
        ("-r requirements.txt", "package.unavailable", "the option -r"),
        ("'six>>1'", "package.unavailable", "six>>1"),
    ] {
        let execution = world.owner.run(&session, &format!("%pip install {line}")).await;
        let (found, message, hint) = error_of(&execution);
        assert_eq!(found, code, "{line}: {execution}");
        assert!(message.contains(words), "{line}: {message}");
        assert!(!hint.is_empty() && !message.contains("/tmp/"), "{line}: {message} {hint}");
    }
    assert_eq!(session_directories(&root), 0);
    let still = world.owner.run(&session, "%pip install six\nimport six\n1").await;
    assert_eq!(still["value"], 1, "{still}");
}

// proves S-079
#[tokio::test(flavor = "multi_thread")]
async fn a_package_without_a_wheel_is_refused_with_the_reason_and_one_with_a_wheel_is_installed() {
    let world = world().await;
    let session = session(&world).await;
    let (code, message, hint) = error_of(&world.owner.run(&session, "%pip install docopt").await);
    assert_eq!(code, "package.unavailable");
    assert!(message.contains("docopt") && message.contains("no usable wheels"), "{message}");
    assert!(hint.contains("builds nothing from source"), "{hint}");
    assert!(hint.contains("would run code of its author outside of any sandbox"), "{hint}");
    assert_eq!(session_directories(&package_root(&world)), 0, "nothing of it was left");
    let twin = world.owner.run(&session, "%pip install six\nimport six\nsix.__name__").await;
    assert_eq!(twin["value"], "six", "{twin}");
}

// proves S-080
#[tokio::test(flavor = "multi_thread")]
async fn each_form_of_the_command_in_a_cell_installs_with_the_same_right_and_is_refused_without_it()
{
    let world = world().await;
    let session = session(&world).await;
    let closed = agent(&world.owner, "closed", json!([])).await;
    let closed = session_of(&world.owner, &closed).await;
    let forms = [
        "%pip install six",
        "!pip install six",
        "!python -m pip install six",
        "!{sys.executable} -m pip install six",
        "!uv pip install six",
    ];
    let first = world.owner.run(&closed, forms[0]).await;
    assert_eq!(error_of(&first).0, "package.denied");
    for form in forms {
        let installed = world.owner.run(&session, form).await;
        assert_eq!(installed["error"], json!(null), "{form}: {installed}");
        let denied = world.owner.run(&closed, form).await;
        assert_eq!(error_of(&denied), error_of(&first), "{form}");
    }
    let imported = world.owner.run(&session, "import six\nsix.__name__").await;
    assert_eq!(imported["value"], "six", "{imported}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_allows_denies_and_pins() {
    let world = world().await;
    let session = session(&world).await;
    let set =
        async |policy: Value| world.owner.call("PUT", "/v1/packages/policy", Some(policy)).await;
    let any = json!({"allow": null, "deny": [], "pins": {}});
    assert_eq!(world.owner.get("/v1/packages/policy").await, any);

    let (status, kept) = set(json!({"allow": ["Six", "Jinja2"], "pins": {"six": "1.16.0"}})).await;
    let expected = json!({"allow": ["jinja2", "six"], "deny": [], "pins": {"six": "1.16.0"}});
    assert_eq!((status, kept), (200, expected));
    let pinned = world.owner.run(&session, "%pip install six").await;
    assert_eq!(printed(&pinned), "installed six 1.16.0\n", "{pinned}");
    let (code, message, _) = error_of(&world.owner.run(&session, "%pip install idna").await);
    assert_eq!(code, "package.denied");
    assert_eq!(message, "package idna is not on the allow list of this workspace");
    let (_, message, _) = error_of(&world.owner.run(&session, "%pip install jinja2").await);
    assert_eq!(message, "package markupsafe is not on the allow list of this workspace");

    set(json!({"deny": ["markupsafe"]})).await;
    let (_, message, hint) = error_of(&world.owner.run(&session, "%pip install jinja2").await);
    assert_eq!(message, "package markupsafe is denied by the package policy of this workspace");
    assert!(hint.contains("belljar package policy"), "{hint}");
    assert_eq!(session_directories(&package_root(&world)), 1, "only what was allowed is there");

    for (policy, at) in [
        (json!({"allow": ["six>=1"]}), "/allow/0"),
        (json!({"deny": ["../x"]}), "/deny/0"),
        (json!({"pins": {"six": ">=1"}}), "/pins/six"),
        (json!({"pins": {"six": "1.*"}}), "/pins/six"),
        (json!({"colour": 1}), "/colour"),
    ] {
        let (status, problem) = set(policy.clone()).await;
        assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!(at)), "{policy}");
    }
    let user = world.principal("user", &["USAGE"]).await;
    let error = user.refused("PUT", "/v1/packages/policy", Some(any)).await;
    assert_eq!(error, (403, "grant.missing".into()));
    assert_eq!(user.get("/v1/packages/policy").await["deny"], json!(["markupsafe"]));
}

/// What two sessions of an agent can see of what one of them has installed.
async fn kept_apart(api: &Api, bot: &Value) {
    let (one, other) = (session_of(api, bot).await, session_of(api, bot).await);
    let installed = api.run(&one, "%pip install six\nimport six\nsix.__file__").await;
    let file = installed["value"].as_str().unwrap_or_else(|| panic!("{installed}"));
    assert_eq!(file.len(), "/opt/packages/".len() + 32 + "/six.py".len(), "{file}");
    let look = "import os\ndef fails(act, *arguments):\n    try: act(*arguments)\n    \
                except OSError as error: return error.strerror\n\
                [fails(os.listdir, '/opt/packages'), fails(os.chmod, '/opt/packages', 0o777) is None,\n \
                 fails(os.mkdir, '/opt/packages/x') is None]";
    for session in [&one, &other] {
        let seen = api.run(session, look).await["value"].clone();
        assert_eq!(seen, json!(["Permission denied", false, false]));
    }
    let write = format!("try: open({file:?}, 'a')\nexcept OSError as error: print('refused')");
    assert_eq!(printed(&api.run(&one, &write).await), "refused\n");
    let import = error_of(&api.run(&other, "import six").await);
    assert_eq!(import.0, "python.ModuleNotFoundError");
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_of_another_session_cannot_be_seen_or_listed() {
    let world = world().await;
    let bot = agent_in(&world.owner, "bot", ENVIRONMENT, json!([PYPI])).await;
    kept_apart(&world.owner, &bot).await;
}

/// Where sandbox and server are the same user, only the mode of the directory keeps them apart.
#[tokio::test(flavor = "multi_thread")]
// For an ordinary user, the test above is about one.
#[cfg_attr(not(test_as_root), ignore = "only root can become one")]
async fn nor_where_the_server_is_started_by_an_ordinary_user() {
    let user = OrdinaryUser::new();
    let definition = user.home.path().join("open.toml");
    std::fs::write(&definition, "name = \"open\"\nindex = \"pypi\"\n").unwrap();
    let mut build = Command::new(&user.program[0]);
    build.args(&user.program[1..]).arg(harness::binary()).args(["env", "build"]).arg(&definition);
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", harness::stderr(&built));
    let world = user.world(&[]).await;
    let bot = agent_in(&world.owner, "bot", "open", json!([PYPI])).await;
    kept_apart(&world.owner, &bot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_run_stands_still_while_the_server_installs() {
    let world = world().await;
    let session = session(&world).await;
    world.owner.run(&session, "import belljar").await;
    let at = format!("/v1/sessions/{session}/execute");
    let code = "belljar.install('iniconfig')\nimport iniconfig\n1";
    let run = json!({"code": code, "limits": {"wall_ms": 100}});
    let execution = world.owner.post(&at, run).await;
    assert_eq!(execution["value"], 1, "{execution}");
    assert!(execution["usage"]["wall_ms"].as_u64().unwrap() > 100, "it took longer than its limit");
    let run = json!({"code": "while True: pass", "limits": {"wall_ms": 100}});
    assert_eq!(world.owner.post(&at, run).await["status"], "timed_out");
}

/// An index that takes connections and never answers.
pub(crate) fn silent_index() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("UV_DEFAULT_INDEX=http://{}/simple", listener.local_addr().unwrap());
    (listener, url)
}

/// The uvs that a server has started.
pub(crate) fn programs_of(world: &World) -> Vec<u32> {
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let is_uv = |pid: &u32| name(pid).is_some_and(|name| name.trim() == "uv");
    harness::descendants_of(world.pid()).into_iter().filter(is_uv).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_install_that_hangs_can_be_interrupted_and_the_session_goes_on() {
    let (_listener, index) = silent_index();
    let world = world_with(&["env", &index]).await;
    let session = session(&world).await;
    world.owner.run(&session, "x = 1").await;
    let (api, id) = (world.owner.clone(), session.clone());
    let hangs = tokio::spawn(async move { api.run(&id, "%pip install six").await });
    wait::until("it installs", async || !programs_of(&world).is_empty()).await;
    let asked = Instant::now();
    world.owner.post(&format!("/v1/sessions/{session}/interrupt"), json!({})).await;
    let interrupted = hangs.await.unwrap();
    assert_eq!(interrupted["status"], "cancelled", "{interrupted}");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(world.owner.run(&session, "x").await["value"], 1, "its memory is kept");
    assert!(harness::soon(Duration::from_secs(5), || programs_of(&world).is_empty()));
    assert_eq!(session_directories(&package_root(&world)), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_leaves_packages_that_the_next_one_removes() {
    let mut world = world().await;
    let session = session(&world).await;
    world.owner.run(&session, "%pip install six").await;
    let left = package_root(&world);
    assert_eq!(session_directories(&left), 1);
    world.kill();
    assert_eq!(session_directories(&left), 1);
    world.again().await;
    assert!(!left.exists());
    let own = package_root(&world);
    world.owner.execute("1").await;
    assert_eq!(world.stop().await, Some(0));
    assert!(!own.exists(), "and one that stops leaves none");
}

/// Python that sends these frames on the control channel, as the runner would.
fn forging(frames: &str) -> String {
    format!(
        "import os\ndef say(text):\n    body = text.encode()\n    os.write(3, len(body).to_bytes(4, 'little') + body)\n{frames}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_install_requests_end_only_their_own_sandbox() {
    let world = world().await;
    let bot = agent(&world.owner, "bot", json!([PYPI])).await;
    let root = package_root(&world);
    let ask = "'{\"ev\":\"install\",\"requirements\":[\"six\"]}'";
    let flood = forging(&format!("for _ in range(1000): say({ask})"));
    let large =
        forging("say('{\"ev\":\"install\",\"requirements\":[\"' + 'x' * 10_000_000 + '\"]}')");
    let wrong =
        forging("say('{\"ev\":\"install\",\"requirements\":[1]}')\nimport time; time.sleep(5)");
    for code in [flood, large, wrong] {
        let session = session_of(&world.owner, &bot).await;
        let execution = world.owner.run(&session, &code).await;
        assert_eq!(error_of(&execution).0, "sandbox.crashed", "{execution}");
        assert_eq!(world.owner.run(&session, "1 + 1").await["value"], 2, "a new interpreter");
    }
    assert!(harness::soon(Duration::from_secs(20), || session_directories(&root) == 0));

    let session = session_of(&world.owner, &bot).await;
    let often = "import belljar\nrefused = 0\nfor _ in range(1000):\n    try: belljar.install('/etc/passwd')\n    \
                 except RuntimeError as error: refused += 1; last = str(error)\n[refused, last]";
    let execution = world.owner.run(&session, often).await;
    assert_eq!(
        execution["value"],
        json!([1000, "an execution can install packages at most 16 times"]),
        "{execution}"
    );
    for list in ["['six'] * 33", "['six' * 2000]", "['a\\nb']", "['six; --index-url x']", "['']"] {
        let code = format!("import belljar\nbelljar.install(*{list})");
        assert_eq!(
            error_of(&world.owner.run(&session, &code).await).0,
            "package.unavailable",
            "{list}"
        );
    }
    assert_eq!(session_directories(&root), 0);
}

// proves S-049, S-051
#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_a_list_of_known_names_and_allowing_one_gives_a_warning() {
    let world = World::start().await;
    let specification = |repositories: Value| {
        let entry = json!([{"tool_spec": {"type": "code_execution", "name": "code_execution"}}]);
        let section = json!({"environment": "bare", "artifact_repositories": repositories});
        json!({"tools": entry, "tool_resources": {"code_execution": section}})
    };
    for (repositories, path) in [
        (json!(PYPI), ""),
        (json!({"pypi": true}), ""),
        (json!(["conda"]), "/0"),
        (json!([PYPI, "SNOWFLAKE.SNOWPARK.OTHER"]), "/1"),
        (json!(["\"pypi\""]), "/0"),
    ] {
        let wrong = json!({"name": "wrong", "specification": specification(repositories.clone())});
        let (status, problem) = world.owner.call("POST", "/v1/agents", Some(wrong)).await;
        let place = "/specification/tool_resources/code_execution/artifact_repositories";
        assert_eq!(status, 400, "{repositories}: {problem}");
        assert_eq!(problem["errors"][0]["path"], format!("{place}{path}"), "{problem}");
    }
    for (index, name) in
        [PYPI, "snowflake.snowpark.pypi_shared_repository", "PyPI", "\"PYPI\""].iter().enumerate()
    {
        let agent = agent_in(&world.owner, &format!("a{index}"), "bare", json!([name])).await;
        let warnings = agent["warnings"].to_string();
        assert!(warnings.contains("can install every package of this repository"), "{agent}");
    }
    let closed = agent_in(&world.owner, "closed", "bare", json!([])).await;
    assert_eq!(closed["warnings"], json!([]), "{closed}");
}
