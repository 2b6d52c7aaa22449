//! The conversation that the code of an agent can read, and nothing of another one.

use crate::scripted_server::{RUNS_CODE, Scene, agent_code, call, chat, say, say_to, upload};
use serde_json::{Value, json};

const PROBE: &str = "def handle(of: str) -> dict:\n    \"\"\"Measures.\n\n    Args:\n        of: what\n    \"\"\"\n    return {'values': [10, 32]}\n";
/// The same section without the conversation.
const HIDDEN: &str = "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\n\
                      tool_resources:\n  code_execution: {conversation: false}\n";

fn measuring() -> Value {
    json!({
        "tools": [
            {"type": "runPythonCode", "name": "probe", "description": "Measures something.",
             "approval_action": "allow", "configuration": {"pythonCode": PROBE}},
            {"tool_spec": {"type": "code_execution", "name": "code_execution"}},
        ],
        "tool_resources": {"code_execution": {}},
    })
}

// proves S-026, S-100
#[tokio::test(flavor = "multi_thread")]
async fn code_reads_the_messages_the_files_and_the_results_of_tools() {
    let read = "import json\nfrom pathlib import Path\n\
        messages, results, files = [json.loads(Path('/mnt/conversation', name + '.json').read_text()) for name in ('messages', 'tool_results', 'files')]\n\
        print(messages[0]['text'].splitlines()[0], '|', results[0]['tool'], results[0]['arguments'], sum(json.loads(results[0]['result'])['values']), '|', [file['path'] for file in files])";
    let scene = Scene::play(json!([
        call("probe", json!({"of": "tea"})),
        agent_code(read),
        agent_code(
            "import json\nprint(len(json.load(open('/mnt/conversation/tool_results.json'))))"
        ),
        say("The sum is 42."),
    ]))
    .await;
    let agent = scene.agent(measuring()).await;
    let document = upload(scene.owner(), "a.csv", b"1,2").await;
    let asked = json!({"message": "How much tea?", "document_ids": [document]});
    let done = chat(scene.owner(), &agent, asked).await;
    assert_eq!(
        done["rounds"][0]["stdout"],
        "How much tea? | probe {'of': 'tea'} 42 | ['/workspace/a.csv']\n",
        "{done}"
    );
    assert_eq!(done["rounds"][1]["stdout"], "2\n", "it is refreshed before each run: {done}");
}

// proves S-027, S-101
#[tokio::test(flavor = "multi_thread")]
async fn t252_code_changes_nothing_of_it_and_sees_nothing_of_other_conversations() {
    let look = "import os\nfound = []\nfor base, _, names in os.walk('/mnt'):\n    found += [os.path.join(base, name) for name in names]\n\
        print(sorted(found), 'of tea' in open('/mnt/conversation/messages.json').read())";
    let attack = "import os\ntried = []\nfor act in [\n    \
        lambda: open('/mnt/conversation/messages.json', 'w'), lambda: os.remove('/mnt/conversation/messages.json'),\n    \
        lambda: open('/mnt/conversation/new', 'w'), lambda: os.rmdir('/mnt/conversation'),\n    \
        lambda: open('/run/volumes/.database'), lambda: os.listdir('/run/volumes/.shared'),\n]:\n    \
        try:\n        act()\n        tried.append('done')\n    except OSError:\n        tried.append('refused')\n\
        print(sorted(set(tried)), os.listdir('/run/volumes'))";
    let scene = Scene::play(json!([
        agent_code(look),
        say("Looked."),
        agent_code(look),
        say("Looked."),
        agent_code(attack),
        say("Tried."),
        agent_code("import os\nprint(os.path.exists('/mnt/conversation'))"),
        say("Looked."),
    ]))
    .await;
    let owner = scene.owner();
    let agent = scene.agent(RUNS_CODE).await;
    let (own, other) = ("/mnt/conversation/", "of coffee");
    let files: Vec<String> =
        ["files", "messages", "tool_results"].map(|name| format!("'{own}{name}.json'")).into();
    for (message, is_tea) in [("It is of tea.", "True"), (other, "False")] {
        let done = say_to(owner, &agent, message).await;
        let expected = format!("[{}] {is_tea}\n", files.join(", "));
        assert_eq!(done["rounds"][0]["stdout"], expected, "{done}");
    }
    let done = say_to(owner, &agent, "Attack.").await;
    assert_eq!(done["rounds"][0]["stdout"], "['refused'] []\n", "{done}");
    // A specification can keep the conversation from code.
    let hidden = crate::scripted_server::agent(owner, "hidden", HIDDEN).await;
    let done = say_to(owner, &hidden, "Look.").await;
    assert_eq!(done["rounds"][0]["stdout"], "False\n", "{done}");
    assert!(!scene.messages(6).contains("/mnt/conversation in"), "nor is the model told of it");
}
