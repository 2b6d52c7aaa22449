//! The skills that ship, followed to the end by an agent: with the tools that their texts name, in a real sandbox.

use crate::scripted_server::{
    RUNS_CODE, Scene, call, chat, download, offered, say, say_to, text, upload,
};
use crate::web_server::Site;
use serde_json::{Value, json};

/// Only the text of the skill says so.
const FILES_BY_URL: &str = "Pass the URL of a file in `files`";
const SALES: &[u8] = b"month,amount\nJan,10\nFeb,5\nJan,7\n";
const TOTALS: &str = "import csv\ntotals = {}\nfor row in csv.DictReader(open('sales.csv', newline='')):\n    \
                      totals[row['month']] = totals.get(row['month'], 0) + int(row['amount'])\nprint(totals)";

fn with_skill(name: &str) -> String {
    format!("{RUNS_CODE}skills: [{name}]\n")
}

fn script(code: &str, files: &[&str]) -> Value {
    call("execute_python", json!({"code": code, "files": files}))
}

// proves P-005, P-069
#[tokio::test(flavor = "multi_thread")]
async fn the_code_interpreter_skill_is_followed_to_the_end() {
    let scene = Scene::play(json!([
        script("print(undefined)", &["sales.csv"]),
        script(TOTALS, &["/home/uploaded_files/sales.csv"]),
        say("January has 17 and February has 5."),
        say("Hello."),
    ]))
    .await;
    let owner = scene.owner();
    let agent = scene.agent(with_skill("code-interpreter")).await;
    let document = upload(owner, "sales.csv", SALES).await;
    let asked = json!({"message": "What are the totals?", "document_ids": [document]});
    let done = chat(owner, &agent, asked).await;
    assert_eq!(done["answer"], "January has 17 and February has 5.", "{done}");
    assert_eq!(offered(&scene.asked()[0]), ["code_execution", "execute_python"]);
    let instructions = text(&scene.asked()[0]["messages"][0]["content"]);
    assert!(instructions.contains(FILES_BY_URL), "{instructions}");
    assert!(instructions.contains("at most two retries"), "{instructions}");
    assert!(scene.messages(1).contains("NameError"), "{}", scene.messages(1));
    assert_eq!(done["rounds"][1]["stdout"], "{'Jan': 17, 'Feb': 5}\n", "{done}");

    // Without the skill, there is neither its text nor its tool.
    let alone = crate::scripted_server::agent(owner, "alone", RUNS_CODE).await;
    say_to(owner, &alone, "Hi").await;
    assert_eq!(offered(&scene.asked()[3]), ["code_execution"]);
    assert!(!scene.messages(3).contains(FILES_BY_URL));
}

// proves P-035, P-070
#[tokio::test(flavor = "multi_thread")]
async fn t250_the_model_decides_on_files_and_code_and_fetches_only_what_the_user_named() {
    let site = Site::start();
    let url = format!("http://127.0.0.1:{}/notes.txt", site.port);
    let composed = format!("{url}?secret=42");
    let document = "0198c0de-0000-7000-8000-000000000000";
    let turns = json!([
        script("print(6 * 7)", &[]),
        say("It is 42."),
        script("print(open('notes.txt').read())", &[&url]),
        say("It says: here."),
        script("print('never')", &[&composed]),
        script("print('never')", &["report.csv"]),
        say("I cannot read it."),
        script("print('never')", &[document]),
        say("I cannot read it."),
    ]);
    let from = format!("127.0.0.1:{}", site.port);
    let scene = Scene::with(turns, &["--fetch-from", &from]).await;
    let owner = scene.owner();
    let agent = scene.agent(with_skill("code-interpreter")).await;
    let computed = say_to(owner, &agent, "Six times seven?").await;
    assert_eq!((&computed["rounds"][0]["stdout"], site.asked()), (&json!("42\n"), 0));
    let read = say_to(owner, &agent, &format!("What does {url} say?")).await;
    assert_eq!(read["rounds"][0]["stdout"], "here\n", "{read}");
    assert_eq!(site.asked(), 1);
    let refused = say_to(owner, &agent, &format!("And {url} once more?")).await;
    assert_eq!(refused["rounds"], json!([]), "nothing ran: {refused}");
    let refused = say_to(owner, &agent, "And the document?").await;
    assert_eq!(refused["rounds"], json!([]), "nothing ran: {refused}");
    assert!(scene.messages(5).contains("is in no message of the user"), "{}", scene.messages(5));
    assert!(scene.messages(6).contains("nor a file of this conversation"), "{}", scene.messages(6));
    assert!(scene.messages(8).contains("not found"), "{}", scene.messages(8));
    assert_eq!(site.asked(), 1);
}

// proves P-071, K-18
#[tokio::test(flavor = "multi_thread")]
async fn the_dataviz_skill_is_followed_to_the_end() {
    let rows = "import json\njson.dump([{'month': 'Jan', 'total': 17}, {'month': 'Feb', 'total': 5}], open('/workspace/totals.json', 'w'))\nprint('written')";
    // As the text of the skill has it.
    let arguments = [
        "--type",
        "bar",
        "--title",
        "Sales by month (EUR)",
        "--out",
        "/workspace/chart.html",
        "/workspace/totals.json",
    ];
    let scene = Scene::play(json!([
        call("load_skill", json!({"name": "dataviz"})),
        script(rows, &[]),
        call(
            "run_skill_script",
            json!({"skill": "dataviz", "script": "scripts/chart.py",
            "arguments": arguments})
        ),
        say("The chart is ready."),
    ]))
    .await;
    let agent = scene.agent(with_skill("dataviz")).await;
    let done = say_to(scene.owner(), &agent, "Draw the sales of each month.").await;
    assert_eq!(
        (&done["answer"], &done["status"]),
        (&json!("The chart is ready."), &json!("succeeded")),
        "{done}"
    );
    let skill = scene.messages(1);
    assert!(skill.contains(&json!(arguments).to_string().replace("\",\"", "\", \"")), "{skill}");
    assert_eq!(
        offered(&scene.asked()[0]),
        ["code_execution", "execute_python", "load_skill", "run_skill_script"]
    );
    let files = done["generated_files"].as_array().unwrap();
    let page = files.iter().find(|file| file["name"] == "chart.html").unwrap();
    let (status, _, page) = download(scene.owner(), &page["url"]).await;
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, 200);
    assert!(page.contains("Sales by month (EUR)") && page.contains("[17, 5]"), "{page}");
}

// proves P-072
#[tokio::test(flavor = "multi_thread")]
async fn a_skill_is_loaded_when_the_specification_or_the_skill_says_so() {
    let scene = Scene::play(json!(vec![say("Hello."); 3])).await;
    let owner = scene.owner();
    let drawn = "Never draw a number that no code has produced";
    for (name, skills, texts) in [
        ("default", "[code-interpreter, dataviz]", [true, false]),
        (
            "swapped",
            "[{name: code-interpreter, load: on_demand}, {name: dataviz, load: always}]",
            [false, true],
        ),
        ("neither", "[{name: code-interpreter, load: on_demand}, dataviz]", [false, false]),
    ] {
        let specification = format!("{RUNS_CODE}skills: {skills}\n");
        let agent = crate::scripted_server::agent(owner, name, specification).await;
        say_to(owner, &agent, "Hi").await;
        let asked = scene.asked().pop().unwrap();
        let instructions = text(&asked["messages"][0]["content"]);
        let found = [FILES_BY_URL, drawn].map(|part| instructions.contains(part));
        assert_eq!(found, texts, "{name}: {instructions}");
        let listed = ["- code-interpreter:", "- dataviz:"].map(|part| instructions.contains(part));
        assert_eq!(listed, texts.map(|loaded| !loaded), "{name}: {instructions}");
    }
}
