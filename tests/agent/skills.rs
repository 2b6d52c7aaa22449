//! Skills: the model gets their names first, their text when it loads one, and runs scripts in the same session.

use crate::harness::browser;
use crate::scripted_server::{
    RUNS_CODE, Scene, agent_code, call, chat, offered, say, say_to, text,
};
use serde_json::{Value, json};

fn with_dataviz() -> String {
    format!("{RUNS_CODE}skills: [dataviz]\n")
}

/// Only the body of the skill says so.
const BODY: &str = "Never draw a number that no code has produced";

// proves S-013, S-015, P-061, P-062
#[tokio::test(flavor = "multi_thread")]
async fn monthly_totals_are_computed_and_drawn_by_the_script_of_a_skill() {
    let totals = "import json\nsales = [('Jan', 10), ('Feb', 5), ('Jan', 7)]\ntotals = {}\nfor month, amount in sales:\n    totals[month] = totals.get(month, 0) + amount\njson.dump([{'month': m, 'total': t} for m, t in totals.items()], open('totals.json', 'w'))\nprint(totals)";
    let scene = Scene::play(json!([
        call("load_skill", json!({"name": "dataviz"})),
        agent_code(totals),
        call("run_skill_script", json!({"skill": "dataviz", "script": "scripts/chart.py",
            "arguments": ["--type", "bar", "--title", "Sales by month", "--out", "/workspace/chart.html", "/workspace/totals.json"]})),
        agent_code("import sys\nprint(totals, sys.argv[0].count('chart'))"),
        say("January has 17 and February 5."),
    ]))
    .await;
    let agent = scene.agent(with_dataviz()).await;
    let done = say_to(scene.owner(), &agent, "Draw the totals of each month.").await;
    assert_eq!(done["answer"], "January has 17 and February 5.", "{done}");
    assert_eq!(
        offered(&scene.asked()[0]),
        ["code_execution", "execute_python", "load_skill", "run_skill_script"]
    );
    let first = scene.messages(0);
    assert!(
        first.contains("- dataviz: Turns computed numbers") && !first.contains(BODY),
        "{first}"
    );
    assert!(scene.messages(1).contains(BODY) && scene.messages(1).contains("scripts/chart.py"));
    let rounds = done["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 3, "{done}");
    assert_eq!(
        rounds[2]["stdout"], "{'Jan': 17, 'Feb': 5} 0\n",
        "the session is as it was: {done}"
    );
    let names: Vec<&Value> =
        done["generated_files"].as_array().unwrap().iter().map(|file| &file["name"]).collect();
    assert!(names.contains(&&json!("chart.html")), "{names:?}");
    let page = done["generated_files"]
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["name"] == "chart.html");
    let (status, _, page) =
        crate::scripted_server::download(scene.owner(), &page.unwrap()["url"]).await;
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, 200);
    let data = page.split(r#"id="data">"#).nth(1).unwrap().split("</script>").next().unwrap();
    let series = json!([{"name": "total", "values": [17, 5]}]);
    let expected = json!({"type": "bar", "labels": ["Jan", "Feb"], "series": series});
    assert_eq!(serde_json::from_str::<Value>(data).unwrap(), expected);
    let file = tempfile::Builder::new().suffix(".html").tempfile().unwrap();
    std::fs::write(file.path(), &page).unwrap();
    let picture = browser::picture_of(file.path());
    let bars = picture.bars("4c78a8");
    let [january, february] = bars[..] else { panic!("{bars:?}") };
    assert!(february.height.abs_diff(january.height * 5 / 17) <= 2, "{bars:?}");
    assert!(
        !names.iter().any(|name| text(name).contains("skills/")),
        "its own files are not what it made: {names:?}"
    );
}

// proves P-084
#[tokio::test(flavor = "multi_thread")]
async fn a_greeting_stays_a_greeting_although_there_is_code_and_a_skill_for_charts() {
    let scene = Scene::play(json!([say("Hello! How can I help?")])).await;
    let both = format!("{RUNS_CODE}skills: [code-interpreter, dataviz]\n");
    let agent = scene.agent(both).await;
    let done = say_to(scene.owner(), &agent, "Hello!").await;
    assert_eq!(
        (&done["status"], &done["answer"]),
        (&json!("succeeded"), &json!("Hello! How can I help?"))
    );
    for made in ["rounds", "artifacts", "generated_files", "actions"] {
        assert_eq!(done[made], json!([]), "{made}: {done}");
    }
    // The model was asked once, was free to answer, and was told what needs no code.
    let asked = scene.asked();
    assert_eq!(asked.len(), 1);
    let tools = ["code_execution", "execute_python", "load_skill", "run_skill_script"];
    assert_eq!(offered(&asked[0]), tools);
    assert!(matches!(&asked[0]["tool_choice"], Value::Null) || asked[0]["tool_choice"] == "auto");
    for word in ["Never draw a number", "new Chart("] {
        assert!(!scene.messages(0).contains(word), "the skill for charts is not loaded: {word}");
    }
    let executions = scene.owner().get("/v1/executions").await["items"].clone();
    assert_eq!(
        executions.as_array().unwrap().len(),
        1,
        "the run itself, and no code: {executions}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_or_a_script_that_is_not_there_is_told_as_such() {
    let scene = Scene::play(json!([
        call("load_skill", json!({"name": "../../etc"})),
        call("run_skill_script", json!({"skill": "dataviz", "script": "../SKILL.md"})),
        call("load_skill", json!({"name": "dataviz"})),
        call(
            "run_skill_script",
            json!({"skill": "dataviz", "script": "scripts/chart.py", "arguments": ["--nonsense"]})
        ),
        say("I could not draw it."),
    ]))
    .await;
    let agent = scene.agent(with_dataviz()).await;
    let done = say_to(scene.owner(), &agent, "Draw.").await;
    assert_eq!(done["answer"], "I could not draw it.", "{done}");
    assert!(
        scene.messages(1).contains("There is no skill \"../../etc\". The skills are: dataviz.")
    );
    assert!(
        scene.messages(2).contains("There is no such script. The scripts are: scripts/chart.py.")
    );
    assert_eq!(done["rounds"].as_array().unwrap().len(), 1, "{done}");
}

// proves S-016
#[tokio::test(flavor = "multi_thread")]
async fn a_skill_with_scripts_needs_code() {
    let scene = Scene::play(json!([say("Hello."), say("Hello.")])).await;
    let agent = scene.agent("skills: [dataviz]\n").await;
    let hi = Some(json!({"message": "Hi"}));
    let (status, problem) = scene.owner().call("POST", &format!("{agent}/run"), hi.clone()).await;
    assert_eq!((status, &problem["code"]), (403, &json!("tool.unavailable")), "{problem}");
    assert_eq!(
        problem["detail"],
        "the skill \"dataviz\" has scripts, and to use it you must enable the code execution tool"
    );
    let unknown = json!({"name": "unknown", "specification": "skills: [juggling]\n"});
    let (status, problem) = scene.owner().call("POST", "/v1/agents", Some(unknown)).await;
    assert_eq!((status, &problem["code"]), (400, &json!("args.invalid")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("juggling"), "{problem}");
    assert_eq!(scene.asked().len(), 0);
    // One without scripts needs none.
    let plain =
        crate::scripted_server::agent(scene.owner(), "plain", "skills: [code-interpreter]\n").await;
    assert_eq!(say_to(scene.owner(), &plain, "Hi").await["answer"], "Hello.");
    let both = crate::scripted_server::agent(scene.owner(), "both", with_dataviz()).await;
    assert_eq!(chat(scene.owner(), &both, json!({"message": "Hi"})).await["answer"], "Hello.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_of_the_operator_is_found_in_its_folder_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let skill = folder.path().join("tea");
    std::fs::create_dir(&skill).unwrap();
    std::fs::write(
        skill.join("SKILL.md"),
        "---\nname: tea\ndescription: How tea is made here.\n---\n\nWarm the pot first.\n",
    )
    .unwrap();
    let turns = json!([call("load_skill", json!({"name": "tea"})), say("Warm the pot.")]);
    let scene = Scene::with(turns, &["--skills", folder.path().to_str().unwrap()]).await;
    let agent = scene.agent("skills: [tea]\n").await;
    assert_eq!(say_to(scene.owner(), &agent, "How?").await["answer"], "Warm the pot.");
    assert!(
        !scene.messages(0).contains("Warm the pot first.")
            && scene.messages(1).contains("Warm the pot first.")
    );
    for name in ["../tea", "/etc", "."] {
        let bad = json!({"name": "bad", "specification": {"skills": [name]}});
        let error = scene.owner().refused("POST", "/v1/agents", Some(bad)).await;
        assert_eq!(error, (400, "args.invalid".into()), "{name}");
    }
}

// proves P-004, P-006
#[tokio::test(flavor = "multi_thread")]
async fn the_tool_and_its_skill_are_added_and_removed_one_without_the_other() {
    let skill = "skills: [code-interpreter]\n";
    let prints = json!([agent_code("print(6 * 7)"), say("It is 42.")]);
    let scene = Scene::play(json!([
        prints[0],
        prints[1],
        prints[0],
        prints[1],
        say("I have no tool for that.")
    ]))
    .await;
    let named = "# Code interpreter";
    let alone = scene.agent(RUNS_CODE).await;
    let done = say_to(scene.owner(), &alone, "Compute it.").await;
    assert_eq!(done["answer"], "It is 42.", "{done}");
    assert!(!scene.messages(0).contains(named), "{}", scene.messages(0));
    assert_eq!(offered(&scene.asked()[0]), ["code_execution"]);

    let both =
        crate::scripted_server::agent(scene.owner(), "both", format!("{RUNS_CODE}{skill}")).await;
    let done = say_to(scene.owner(), &both, "Compute it.").await;
    assert_eq!(done["answer"], "It is 42.", "{done}");
    assert!(scene.messages(2).contains(named), "{}", scene.messages(2));
    assert_eq!(offered(&scene.asked()[2]), ["code_execution", "execute_python"]);

    let unskilled = crate::scripted_server::agent(
        scene.owner(),
        "told",
        format!("instructions: You answer.\n{skill}"),
    )
    .await;
    let done = say_to(scene.owner(), &unskilled, "Compute it.").await;
    assert_eq!(done["answer"], "I have no tool for that.", "{done}");
    assert!(scene.messages(4).contains(named), "{}", scene.messages(4));
    assert_eq!(offered(&scene.asked()[4]), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_skill_is_named_when_it_is_loaded_and_read_when_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let skill = folder.path().join("tax");
    std::fs::create_dir_all(skill.join("references")).unwrap();
    let instructions = "---\nname: tax\ndescription: How tax is found.\n---\n\nRead the tariffs.\n";
    std::fs::write(skill.join("SKILL.md"), instructions).unwrap();
    std::fs::write(skill.join("references/tariffs.md"), "Tea has 7 percent.\n").unwrap();
    std::fs::write(skill.join("references/long.md"), "x".repeat(64 * 1024 + 1)).unwrap();
    std::fs::write(skill.join("logo.bin"), b"\x00\xff").unwrap();
    std::fs::write(folder.path().join("secret.txt"), "a secret").unwrap();
    let load = |path: &str| call("load_skill", json!({"name": "tax", "path": path}));
    let turns = json!([
        call("load_skill", json!({"name": "tax"})),
        load("references/tariffs.md"),
        say("It is 7 percent."),
        load("../secret.txt"),
        load("references/long.md"),
        say("I cannot."),
        load("logo.bin"),
        say("I cannot."),
    ]);
    let scene = Scene::with(turns, &["--skills", folder.path().to_str().unwrap()]).await;
    let agent = scene.agent("skills: [tax]\n").await;
    let done = say_to(scene.owner(), &agent, "How much has tea?").await;
    assert_eq!(done["answer"], "It is 7 percent.", "{done}");
    let files = "references/long.md, references/tariffs.md";
    assert!(scene.messages(1).contains(files), "{}", scene.messages(1));
    assert!(!scene.messages(1).contains("Tea has 7 percent."));
    assert!(scene.messages(2).contains("Tea has 7 percent."), "{}", scene.messages(2));
    say_to(scene.owner(), &agent, "Read on.").await;
    say_to(scene.owner(), &agent, "Read on.").await;
    for (request, refusal) in [
        (4, "There is no file \"../secret.txt\" in it. Its files are: logo.bin"),
        (5, "references/long.md has 65537 bytes, and at most 65536 can be read"),
        (7, "logo.bin is not text"),
    ] {
        assert!(scene.messages(request).contains(refusal), "{}", scene.messages(request));
    }
    assert!(!scene.messages(4).contains("a secret"));
}
