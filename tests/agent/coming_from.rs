//! The snippets of `docs/coming-from.md`, each as it stands, in a shell or as the body of a request.

use crate::harness::{self, binary, stderr, stdout};
use crate::scripted_server::{
    CODE, RUNS_CODE, Scene, call, chat, code, plan, say, say_to, text, upload,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use tempfile::TempDir;

const PAGE: &str = include_str!("../../docs/coming-from.md");
const SALES: &str = include_str!("../../examples/code-execution/sales_report.csv");
const SCRIPT: &str = include_str!("../../examples/code-execution/script.yaml");
/// Blocks of the whole page. A new one needs a test that runs it.
const BLOCKS: usize = 12;

struct Block {
    language: &'static str,
    /// Of the file that it is the content of; empty for commands.
    file: &'static str,
    content: &'static str,
}

fn blocks(text: &'static str) -> Vec<Block> {
    let parts: Vec<&str> = text.split("\n```").collect();
    let inside = parts.iter().skip(1).step_by(2);
    let read = |part: &&'static str| {
        let (info, content) = part.split_once('\n').unwrap();
        let (language, file) = info.split_once(' ').unwrap_or((info, ""));
        Block { language, file, content }
    };
    inside.map(read).collect()
}

/// One section of the page in a directory: its files, and its commands in their order.
struct Section {
    folder: TempDir,
    blocks: Vec<Block>,
}

impl Section {
    fn of(title: &str) -> Self {
        let text = PAGE.split(&format!("\n## {title}\n")).nth(1).unwrap();
        let blocks = blocks(text.split("\n## ").next().unwrap());
        let folder = tempfile::tempdir().unwrap();
        for block in blocks.iter().filter(|block| !block.file.is_empty()) {
            fs::write(folder.path().join(block.file), block.content).unwrap();
        }
        symlink(binary(), folder.path().join("belljar")).unwrap();
        Self { folder, blocks }
    }

    fn file(&self, name: &str) -> &'static str {
        self.blocks.iter().find(|block| block.file == name).unwrap().content
    }

    fn shell(&self, number: usize) -> Command {
        let mut commands = self.blocks.iter().filter(|block| block.language == "sh");
        let folder = self.folder.path();
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", commands.nth(number).unwrap().content]).current_dir(folder);
        let path = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}:{path}", folder.display()));
        for variable in ["BELLJAR_PYTHON", "BELLJAR_URL", "BELLJAR_API_KEY"] {
            shell.env_remove(variable);
        }
        shell.env("BELLJAR_DATA", harness::data());
        shell
    }

    fn run(&self, number: usize) -> String {
        succeed(&mut self.shell(number))
    }

    /// On this server.
    fn run_on(&self, number: usize, scene: &Scene, variables: &[(&str, &str)]) -> String {
        let api = scene.owner();
        let mut shell = self.shell(number);
        shell.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
        succeed(shell.envs(variables.iter().copied()))
    }
}

fn succeed(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{command:?}: {}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

#[test]
fn every_snippet_of_the_page_is_one_that_a_test_here_runs() {
    assert_eq!(blocks(PAGE).len(), BLOCKS);
}

// proves P-067
#[test]
fn the_guides_recommend_to_ask_first_where_code_is_sensitive() {
    let guide = include_str!("../../docs/mcp.md");
    let advice = "Where code can reach sensitive data, files or hosts, let it ask first.";
    let after = guide.split(advice).nth(1).unwrap();
    assert!(after.split("\n\n").next().unwrap().contains("`belljar permission set ask`"));
    assert!(PAGE.contains("[asking first is recommended](mcp.md) in sensitive contexts"));
}

// proves C-186
#[test]
fn a_tool_of_atlas_is_checked_tested_and_called() {
    let printed = Section::of("Atlas").run(0);
    assert!(printed.contains("\"param1\""), "the contract: {printed}");
    assert!(printed.contains("1 passed"), "{printed}");
    assert!(printed.ends_with("\"Processed test with value 42\"\n"), "{printed}");
}

// proves C-186
#[tokio::test(flavor = "multi_thread")]
async fn the_reply_of_atlas_lets_the_confirmed_call_run() {
    let section = Section::of("Atlas");
    let tool = json!({
        "type": "runPythonCode", "name": "process", "description": "Processes a text.",
        "configuration": {"pythonCode": section.file("process.py")},
    });
    let arguments = json!({"param1": "it", "param2": 7});
    let scene = Scene::play(json!([call("process", arguments), say("Done.")])).await;
    let agent = scene.agent(json!({"tools": [tool]})).await;
    let asked = say_to(scene.owner(), &agent, "Process it.").await;
    let reply = section
        .file("reply.json")
        .replace("CURSOR", &text(&asked["cursor"]))
        .replace("ACTION_ID", &text(&asked["actions"][0]["actionId"]));
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!(chat(scene.owner(), &agent, reply).await["answer"], "Done.");
    assert!(scene.messages(1).contains("Processed it with value 7"));
}

// proves S-105
#[tokio::test(flavor = "multi_thread")]
async fn a_specification_of_cortex_is_added_with_its_rule_and_integration() {
    let scene = Scene::play(json!([say("Hello.")])).await;
    let section = Section::of("Cortex");
    section.run_on(0, &scene, &[]);
    let agents = scene.owner().get("/v1/agents").await;
    assert_eq!(agents["items"][0]["name"], "analyst", "{agents}");
    let agent = format!("/v1/agents/{}", text(&agents["items"][0]["id"]));
    assert_eq!(scene.owner().get(&agent).await["specification"], section.file("analyst.yaml"));
    let id = text(&agents["items"][0]["id"]);
    let explained = scene.owner().get(&format!("/v1/explain?agent={id}")).await;
    let network = explained["network"].to_string();
    for host in ["github.com:80", "github.com:443", "api.github.com", "*.github.com"] {
        assert!(network.contains(host), "{host}: {explained}");
    }
}

// proves P-120
#[test]
fn code_of_prisme_reads_the_file_that_it_is_given() {
    let section = Section::of("Prisme");
    let table = "mois,montant\njanvier,10.5\nfévrier,31.5\n";
    fs::write(section.folder.path().join("ventes.csv"), table).unwrap();
    assert_eq!(section.run(0), "{'lignes': 2, 'total': 42.0}\n");
}

// proves W-070
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_wacht_is_created_attached_and_asks_first() {
    let scene = Scene::play(json!([say("Hello.")])).await;
    let section = Section::of("Wacht");
    let tool: Value = serde_json::from_str(&section.run_on(0, &scene, &[])).unwrap();
    let agent = scene.agent(RUNS_CODE).await;
    let (agent_id, tool_id) = (agent.rsplit('/').next().unwrap(), text(&tool["id"]));
    section.run_on(1, &scene, &[("agent_id", agent_id), ("tool_id", &tool_id)]);
    let attached = scene.owner().get(&agent).await["tools"][0].clone();
    assert_eq!(attached["tool_id"], tool_id, "{attached}");
    assert_eq!(attached["approval_action"], "review", "{attached}");
}

// proves U-085
#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_ubik_is_answered_with_its_object() {
    let reads =
        "import csv\nprint(len(list(csv.reader(open('/home/uploaded_files/sales_report.csv')))))";
    let scene = Scene::play(json!([plan(&["Load"]), code(reads), say("25 lines.")])).await;
    let document = upload(scene.owner(), "sales_report.csv", SALES.as_bytes()).await;
    let request = Section::of("Ubik").file("request.json");
    let mut request: Value = serde_json::from_str(request).unwrap();
    let (status, problem) = scene.owner().call("POST", CODE, Some(request.clone())).await;
    assert_eq!(status, 404, "the id of the guide is no document here: {problem}");
    request["document_ids"][0] = document;
    let done = scene.code(request).await;
    assert!(text(&done["logs"]).contains("STDOUT:\n25\n"), "{done}");
    assert!(scene.messages(0).contains("total revenue per region"));
}

// proves U-085
#[test]
fn the_command_of_ubik_returns_the_whole_object_and_the_chart() {
    let section = Section::of("Ubik");
    let folder = section.folder.path();
    fs::write(folder.join("sales_report.csv"), SALES).unwrap();
    fs::write(folder.join("script.yaml"), SCRIPT).unwrap();
    let script = format!("script:{}", folder.join("script.yaml").display());
    let printed = succeed(section.shell(0).env("BELLJAR_MODEL", script));
    let done: Value = serde_json::from_str(&printed).unwrap();
    for field in [
        "sandbox_id",
        "generated_files",
        "logs",
        "artifacts",
        "plan",
        "total_rounds",
        "execution_id",
    ] {
        assert!(!done[field].is_null(), "{field}: {done}");
    }
    assert!(folder.join("charts/revenue_per_region.png").exists());
}
