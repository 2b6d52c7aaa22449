//! Scripts of uploaded skills, run by an agent: in a directory that no code can change, with what they declare.

use crate::scripted_server::{RUNS_CODE, Scene, agent_code, call, chat, say, say_to};
use crate::test_server::Api;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};

const TEA: &str =
    "---\nname: tea\ndescription: How tea is made here.\n---\n\nWarm the pot first.\n";
/// Says where it runs, and tries what it must not do.
const WHERE: &str = "import os, pathlib, sys\nimport beside\nname = 'of the script'\n\
    print(os.getcwd(), sys.argv, open('references/a.md').read(), beside.NUMBER, repr(sys.stdin.read()))\n\
    for path in ['new.txt', 'SKILL.md', 'scripts/where.py']:\n    \
        try:\n        open(path, 'w')\n        print('written', path)\n    \
        except OSError as error:\n        print('refused', path)\n";

/// Uploads or replaces a skill, and returns its path.
async fn upload(who: &Api, method: Method, path: &str, files: &[(&str, &str)]) -> String {
    let form = files.iter().fold(Form::new(), |form, (name, text)| {
        form.part("file", Part::text((*text).to_owned()).file_name((*name).to_owned()))
    });
    let sent = who.request(method, path).multipart(form).send().await.unwrap();
    let status = sent.status().as_u16();
    let skill: Value = serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap();
    assert!([200, 201].contains(&status), "{skill}");
    format!("/v1/skills/{}", skill["id"].as_str().unwrap())
}

async fn upload_tea(who: &Api, script: &str) -> String {
    let files = [
        ("SKILL.md", TEA),
        ("scripts/where.py", script),
        ("scripts/beside.py", "NUMBER = 7\n"),
        ("references/a.md", "a reference"),
    ];
    upload(who, Method::POST, "/v1/skills", &files).await
}

fn run(arguments: &[&str]) -> Value {
    let script = "scripts/where.py";
    call("run_skill_script", json!({"skill": "tea", "script": script, "arguments": arguments}))
}

fn with_tea() -> String {
    format!("{RUNS_CODE}skills: [tea]\n")
}

// proves K-09, K-12, K-18
#[tokio::test(flavor = "multi_thread")]
async fn t249_a_script_starts_in_the_directory_of_its_skill_which_no_code_can_change() {
    let attack = "import os, shutil\ntried = []\nfor act in [\n    \
        lambda: open('/mnt/skills/tea/SKILL.md', 'a'), lambda: os.remove('/mnt/skills/tea/SKILL.md'),\n    \
        lambda: os.rename('/mnt/skills/tea', '/mnt/skills/x'), lambda: os.mkdir('/mnt/skills/x'),\n    \
        lambda: os.chmod('/mnt/skills/tea/SKILL.md', 0o777), lambda: shutil.rmtree('/mnt/skills/tea'),\n]:\n    \
        try:\n        act()\n        tried.append('done')\n    except OSError:\n        tried.append('refused')\n\
        print(tried, os.getcwd(), name, os.listdir('/mnt/skills'))";
    let scene = Scene::play(json!([
        agent_code("name = 'of the session'"),
        run(&["one", "two three"]),
        agent_code(attack),
        say("Done."),
    ]))
    .await;
    upload_tea(scene.owner(), WHERE).await;
    let agent = scene.agent(with_tea()).await;
    let done = say_to(scene.owner(), &agent, "Make tea.").await;
    let printed = done["rounds"][1]["stdout"].as_str().unwrap();
    let first = "/mnt/skills/tea ['scripts/where.py', 'one', 'two three'] a reference 7 ''";
    assert!(printed.starts_with(first), "{done}");
    assert_eq!(printed.matches("refused").count(), 3, "{printed}");
    let after = done["rounds"][2]["stdout"].as_str().unwrap();
    assert!(!after.contains("done"), "{after}");
    assert!(after.ends_with("/workspace of the session ['tea']\n"), "{after}");
    assert_eq!(done["generated_files"], json!([]), "its files are not what code made: {done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_gets_what_it_declares_from_the_policy_of_the_session_or_does_not_run() {
    let header = |python: &str, packages: &str| {
        format!(
            "# /// script\n# requires-python = \"{python}\"\n# dependencies = [{packages}]\n# ///\nprint('ran')\n"
        )
    };
    let scene = Scene::play(json!([
        run(&[]),
        say("It ran."),
        run(&[]),
        say("It did not."),
        run(&[]),
        say("It did not."),
    ]))
    .await;
    let owner = scene.owner();
    let path = upload_tea(owner, &header(">=3.11", "")).await;
    let agent = scene.agent(with_tea()).await;
    let done = say_to(owner, &agent, "Make tea.").await;
    assert_eq!(done["rounds"][0]["stdout"], "ran\n", "{done}");
    for (script, reason) in [
        (header(">=99", ""), "the script needs Python >=99"),
        (header(">=3.11", "\"six==1.16.0\""), "packages cannot be installed in environment"),
    ] {
        let files = [("SKILL.md", TEA), ("scripts/where.py", &*script)];
        upload(owner, Method::PUT, &path, &files).await;
        say_to(owner, &agent, "Make tea.").await;
        let seen = scene.messages(scene.asked().len() - 1);
        assert!(seen.contains(reason), "{reason}: {seen}");
        assert!(!seen.contains("stdout:\nran"), "{seen}");
    }
}

// proves K-19
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_whose_skill_was_replaced_is_told_to_reset_its_session() {
    let scene =
        Scene::play(json!([run(&[]), say("It ran."), run(&[]), say("It ran again.")])).await;
    let owner = scene.owner();
    let path = upload_tea(owner, "print('old')\n").await;
    let agent = scene.agent(with_tea()).await;
    let message = json!({"message": "Go.", "key": "mine"});
    let first = chat(owner, &agent, message.clone()).await;
    assert_eq!(first["rounds"][0]["stdout"], "old\n", "{first}");
    let files = [("SKILL.md", TEA), ("scripts/where.py", "print('new')\n")];
    upload(owner, Method::PUT, &path, &files).await;
    let (status, problem) =
        owner.call("POST", &format!("{agent}/run"), Some(message.clone())).await;
    assert_eq!((status, &problem["code"]), (410, &json!("session.lost")), "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("reset the session"), "{problem}");
    let session = format!("/v1/sessions/{}/reset", first["sandbox_id"].as_str().unwrap());
    owner.post(&session, json!({})).await;
    let second = chat(owner, &agent, message).await;
    assert_eq!(second["rounds"][0]["stdout"], "new\n", "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t246_the_skills_of_one_agent_have_a_size_that_a_run_can_have_in_memory() {
    let scene = Scene::play(json!([say("Hello.")])).await;
    let owner = scene.owner();
    let data = "x".repeat(7 << 20);
    for number in 0..5 {
        let text = TEA.replace("name: tea", &format!("name: tea-{number}"));
        upload(owner, Method::POST, "/v1/skills", &[("SKILL.md", &*text), ("data", &*data)]).await;
    }
    let skills = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("tea-{number}")).collect();
        json!({ "skills": names })
    };
    let five = crate::scripted_server::agent(owner, "five", skills(5)).await;
    let message = Some(json!({"message": "Hi"}));
    let (status, problem) = owner.call("POST", &format!("{five}/run"), message).await;
    assert_eq!((status, &problem["code"]), (403, &json!("tool.unavailable")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("at most 33554432 bytes"), "{problem}");
    let four = crate::scripted_server::agent(owner, "four", skills(4)).await;
    assert_eq!(say_to(owner, &four, "Hi").await["answer"], "Hello.");
}
