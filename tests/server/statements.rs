//! Statements in SQL: they do what REST does, need the same rights, and stop at the first error.

use crate::installs;
use crate::principals::{Person, grant, id, role, workspace};
use crate::test_server::{Api, World};
use crate::web_server::{RESOLVED, Site};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const VALUE: &str = "Canary-4711-of-a-secret";

async fn send(who: &Api, text: &str) -> Response {
    let request = who.request(Method::POST, "/v1/statements");
    let request = request.header("content-type", "application/sql").body(text.to_owned());
    request.send().await.unwrap()
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

/// The results of statements that all have to succeed.
async fn run(who: &Api, text: &str) -> Vec<Value> {
    let (status, answer) = answer(send(who, text).await).await;
    assert_eq!(status, 200, "{text}: {answer}");
    answer["statements"].as_array().unwrap().clone()
}

/// The problem of statements that have to fail with this status and code.
async fn refused(who: &Api, text: &str, status: u16, code: &str) -> Value {
    let (found, problem) = answer(send(who, text).await).await;
    assert_eq!((found, problem["code"].as_str()), (status, Some(code)), "{text}: {problem}");
    problem
}

fn actions(results: &[Value]) -> Vec<&str> {
    results.iter().map(|result| result["action"].as_str().unwrap()).collect()
}

async fn named(owner: &Api, path: &str, name: &str) -> Value {
    let listed = owner.get(path).await;
    let found = listed["items"].as_array().unwrap().iter().find(|item| item["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {listed}")).clone()
}

/// The audit entries, oldest first, without their times and ids: action and detail.
async fn audit(owner: &Api) -> Vec<(String, String)> {
    let entries = owner.get("/v1/audit?limit=200").await;
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let items = entries["items"].as_array().unwrap().iter().rev();
    items.map(|entry| (text(entry, "action"), text(entry, "detail"))).collect()
}

// proves S-072
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_example_opens_the_hosts_of_its_rule_and_no_others() {
    let (world, site) = (World::with(&RESOLVED).await, Site::start());
    let (owner, port) = (&world.owner, site.port);
    let text = format!(
        "CREATE OR REPLACE NETWORK RULE github_access_rule MODE = EGRESS TYPE = HOST_PORT\n\
         VALUE_LIST = ('site.test:{port}', '127.0.0.1:{port}');\n\
         CREATE OR REPLACE EXTERNAL ACCESS INTEGRATION github_integration\n\
         ALLOWED_NETWORK_RULES = (GITHUB_ACCESS_RULE) ENABLED = TRUE;\n\
         CREATE OR REPLACE AGENT octo FROM SPECIFICATION $$\n\
         tools:\n  - tool_spec: {{type: code_execution, name: code_execution}}\n\
         tool_resources:\n  code_execution:\n    environment: bare\n    \
         external_access_integrations: [github_integration]\n$$;"
    );
    let results = run(owner, &text).await;
    assert_eq!(actions(&results), ["created", "created", "created"]);
    let agent = results[2]["object"]["id"].as_str().unwrap();
    let session = owner.post("/v1/sessions", json!({"agent_id": agent})).await;
    let session = session["sandbox_id"].as_str().unwrap();
    let reached = owner.run(session, &site.read("site.test")).await;
    assert_eq!(reached["value"], "here", "{reached}");
    let other = owner.run(session, &site.read("other.test")).await;
    assert!(other["error"].to_string().contains("other.test"), "{other}");
    // Again: everything is replaced, and keeps its id.
    let again = run(owner, &text).await;
    assert_eq!(actions(&again), ["replaced", "replaced", "replaced"]);
    assert_eq!(again[2]["object"]["id"], agent);
    let closed = "CREATE OR REPLACE EXTERNAL ACCESS INTEGRATION github_integration \
                  ALLOWED_NETWORK_RULES = (github_access_rule) ENABLED = FALSE";
    run(owner, closed).await;
    let disabled = owner.run(session, &site.read("site.test")).await;
    assert!(disabled["error"].to_string().contains("disabled"), "{disabled}");
}

// proves S-073
#[tokio::test(flavor = "multi_thread")]
async fn grants_and_roles_are_those_of_rest() {
    let world = World::start().await;
    let owner = &world.owner;
    let (ann, analysts) = (Person::new(&world, "ann").await, role(owner, "Analysts").await);
    run(owner, "CREATE AGENT sales FROM SPECIFICATION $$instructions: help$$").await;
    let agent = named(owner, "/v1/agents", "sales").await;
    let path = format!("/v1/agents/{}", id(&agent));
    let sees = async |who: &Api| who.call("GET", &path, None).await.0 == 200;
    assert!(!sees(&ann).await);
    let text = "GRANT USAGE ON AGENT sales TO ROLE analysts; GRANT ROLE analysts TO USER ann";
    assert_eq!(actions(&run(owner, text).await), ["granted", "granted"]);
    assert!(sees(&ann).await, "by the role");
    assert_eq!(owner.get(&ann.path()).await["roles"], json!(["Analysts"]));
    let grants = run(owner, "SHOW GRANTS TO ROLE analysts").await;
    let rows = grants[0]["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["privilege"], &rows[0]["object"]["id"]), (&json!("USAGE"), &agent["id"]));
    assert_eq!(rows[0]["principal_name"], "Analysts");
    let again = "GRANT ROLE analysts TO USER ann; REVOKE ROLE Analysts FROM ann";
    assert_eq!(actions(&run(owner, again).await), ["unchanged", "revoked"]);
    assert!(!sees(&ann).await);
    refused(owner, "REVOKE ROLE analysts FROM ann", 404, "object.not_found").await;

    run(owner, "GRANT USAGE, MODIFY ON AGENT sales TO USER ann").await;
    let changed = json!({"specification": "instructions: help more"});
    assert_eq!(ann.call("PUT", &path, Some(changed)).await.0, 200);
    run(owner, "REVOKE USAGE, MODIFY ON AGENT sales FROM USER ann").await;
    assert!(!sees(&ann).await);
    let missing = "REVOKE USAGE ON AGENT sales FROM USER ann";
    refused(owner, missing, 404, "object.not_found").await;

    // As the role of the vendor document, in each of its spellings.
    let install = async || {
        let grants = owner.get(&format!("/v1/grants?principal={}", id(&analysts))).await;
        let items = grants["items"].as_array().unwrap().clone();
        items.iter().any(|it| it["privilege"] == "INSTALL" && it["object"]["kind"] == "workspace")
    };
    for role in ["SNOWFLAKE.PYPI_REPOSITORY_USER", "snowflake.snowpark.pypi_repository_user"] {
        run(owner, &format!("GRANT DATABASE ROLE {role} TO ROLE analysts")).await;
        assert!(install().await, "{role}");
        run(owner, &format!("REVOKE ROLE {role} FROM ROLE analysts")).await;
        assert!(!install().await, "{role}");
    }
    refused(owner, "GRANT ROLE analysts TO ROLE analysts", 400, "args.invalid").await;
    refused(owner, "GRANT USAGE ON AGENT sales TO ROLE ann", 400, "args.invalid").await;

    // Ownership moves, and is not revoked.
    refused(owner, "REVOKE OWNERSHIP ON AGENT sales FROM ann", 404, "object.not_found").await;
    run(owner, "GRANT OWNERSHIP ON AGENT sales TO USER ann REVOKE CURRENT GRANTS").await;
    assert_eq!(owner.get(&path).await["owner"], json!(ann.id));
    refused(owner, "REVOKE OWNERSHIP ON AGENT sales FROM ann", 409, "owner.needed").await;
}

// proves S-048
#[tokio::test(flavor = "multi_thread")]
async fn the_role_of_the_vendor_document_lets_the_owner_of_an_agent_install_packages() {
    let world = installs::world_with(&[]).await;
    let owner = &world.owner;
    let bob = Person::new(&world, "bob").await;
    let space = workspace(owner).await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &bob.id, privilege, &space).await;
    }
    let agent = installs::agent_in(
        &bob,
        "bot",
        "default",
        json!(["SNOWFLAKE.SNOWPARK.PYPI_SHARED_REPOSITORY"]),
    )
    .await;
    let session = installs::session_of(&bob, &agent).await;
    let denied = bob.run(&session, "%pip install six").await;
    let (code, message, hint) = installs::error_of(&denied);
    assert_eq!(code, "package.denied", "{denied}");
    let said = format!("{message} {hint}");
    assert!(said.contains("bob") && said.contains("PYPI_REPOSITORY_USER"), "{said}");
    run(owner, "GRANT ROLE SNOWFLAKE.PYPI_REPOSITORY_USER TO USER bob").await;
    let installed = bob.run(&session, "%pip install six\nimport six\nsix.__name__").await;
    assert_eq!(installed["value"], "six", "{installed}");
}

// proves S-074
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_shown_described_and_dropped() {
    let world = World::start().await;
    let owner = &world.owner;
    let specification = "\ninstructions: 'it''s; stored'\n# as written\n";
    let text = format!(
        "CREATE NETWORK RULE a_rule TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('a.example', 'b.example') COMMENT = 'c';\n\
         CREATE NETWORK RULE b_rule TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('b.example');\n\
         CREATE EXTERNAL ACCESS INTEGRATION way ALLOWED_NETWORK_RULES = (a_rule, b_rule)\n\
         ALLOWED_AUTHENTICATION_SECRETS = (TOKEN) ENABLED = TRUE;\n\
         CREATE AGENT sales PROFILE = '{{}}' FROM SPECIFICATION $${specification}$$;"
    );
    let token = format!("CREATE SECRET TOKEN TYPE = GENERIC_STRING SECRET_STRING = '{VALUE}';");
    let made = run(owner, &format!("{token}{text}")).await;
    let warned = |result: &Value, code: &str| {
        let warnings = result["warnings"].as_array().unwrap().clone();
        assert!(warnings.iter().any(|warning| warning["code"] == code), "{result}");
    };
    warned(&made[0], "secret.not_allowed");
    warned(&made[4], "statement.option_ignored");

    let shown = run(
        owner,
        "SHOW NETWORK RULES LIKE 'A\\\\_%'; SHOW NETWORK RULES LIMIT 1; SHOW INTEGRATIONS LIKE 'w_y'; \
         SHOW SECRETS LIKE 'nothing'; SHOW AGENTS;",
    )
    .await;
    let names = |result: &Value| -> Vec<String> {
        let rows = result["rows"].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&shown[0]), ["a_rule"]);
    let first = &shown[0]["rows"][0];
    assert_eq!((&first["entries_in_value_list"], &first["value_list"]), (&json!(2), &Value::Null));
    assert_eq!(names(&shown[1]).len(), 1);
    assert_eq!(names(&shown[2]), ["way"]);
    assert_eq!(names(&shown[3]), Vec::<String>::new());
    assert_eq!(names(&shown[4]), ["sales"]);
    assert_eq!(shown[4]["rows"][0]["specification"], Value::Null);

    let described = run(
        owner,
        "DESCRIBE NETWORK RULE a_rule; DESC INTEGRATION way; DESCRIBE SECRET TOKEN; DESCRIBE AGENT sales",
    )
    .await;
    let row = |index: usize| &described[index]["rows"][0];
    assert_eq!(row(0)["value_list"], json!(["a.example", "b.example"]), "{}", row(0));
    assert_eq!(row(0)["comment"], "c");
    assert_eq!(row(1)["allowed_secrets"], json!(["TOKEN"]));
    assert_eq!((&row(2)["exposed"], &row(2)["value"]), (&json!(true), &Value::Null));
    assert_eq!(row(3)["specification"], specification);

    let in_use = refused(owner, "DROP NETWORK RULE a_rule", 409, "object.in_use").await;
    assert!(in_use["detail"].as_str().unwrap().contains("way"), "{in_use}");
    let dropped = run(
        owner,
        "DROP INTEGRATION way; DROP NETWORK RULE a_rule; DROP NETWORK RULE b_rule; DROP SECRET TOKEN; \
         DROP AGENT sales; DROP AGENT IF EXISTS sales; DROP SECRET IF EXISTS TOKEN",
    )
    .await;
    assert_eq!(actions(&dropped)[..5], ["dropped"; 5]);
    assert_eq!(actions(&dropped)[5..], ["unchanged"; 2]);
    refused(owner, "DROP AGENT sales", 404, "object.not_found").await;
}

// proves S-075
#[tokio::test(flavor = "multi_thread")]
async fn names_without_quotes_have_any_case_and_those_in_quotes_are_exact() {
    let world = World::start().await;
    let owner = &world.owner;
    let rule = |name: &str| {
        format!(
            "create Network rule {name} type = host_port mode = egress value_list = ($$a.example$$)"
        )
    };
    let results = run(
        owner,
        &format!(
            "{}; -- one\n{}; /* two */ {} // three",
            rule("MyRule"),
            rule("\"my other\""),
            rule("db.public.third")
        ),
    )
    .await;
    let names: Vec<&str> =
        results.iter().map(|result| result["object"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["MyRule", "my other", "third"], "as they are written");
    assert_eq!(results[2]["warnings"][0]["code"], "statement.qualifier_ignored");
    let described = run(owner, "DESC NETWORK RULE myrule; DESC NETWORK RULE \"MyRule\"").await;
    assert_eq!(described[0]["object"], described[1]["object"]);
    refused(owner, "DESC NETWORK RULE \"myrule\"", 404, "object.not_found").await;
    refused(owner, &rule("MYRULE"), 409, "name.taken").await;
    // With quotes it is another name; without, it is the exact one, and a third is neither.
    run(owner, &rule("\"MYRULE\"")).await;
    let exact = run(owner, "DESC NETWORK RULE MYRULE").await;
    assert_eq!(exact[0]["object"]["name"], "MYRULE");
    let problem =
        refused(owner, "SHOW AGENTS;\nDROP NETWORK RULE\n  mYrULE", 400, "args.invalid").await;
    assert!(problem["detail"].as_str().unwrap().contains("\"MyRule\", \"MYRULE\""), "{problem}");
    let place = &problem["errors"][0];
    assert_eq!((&place["line"], &place["column"]), (&json!(3), &json!(3)));
}

// proves S-076
#[tokio::test(flavor = "multi_thread")]
async fn t268_a_statement_needs_the_rights_of_its_operation_and_leaves_the_same_audit_entries() {
    let world = World::start().await;
    let owner = &world.owner;
    let (ann, bob) = (Person::new(&world, "ann").await, Person::new(&world, "bob").await);
    let rule = "CREATE NETWORK RULE r TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('a.example')";
    let integration =
        "CREATE EXTERNAL ACCESS INTEGRATION i ALLOWED_NETWORK_RULES = (r) ENABLED = TRUE";
    let secret = format!("CREATE SECRET S TYPE = GENERIC_STRING SECRET_STRING = '{VALUE}'");
    let agent = "CREATE AGENT a FROM SPECIFICATION $$instructions: help$$";
    // Without MODIFY on the workspace nothing is created.
    for text in [rule, &secret, agent] {
        refused(&ann, text, 403, "grant.missing").await;
    }
    let before = audit(owner).await.len();
    run(owner, &format!("{rule}; {integration}; {secret}; {agent}")).await;
    let by_sql = audit(owner).await.split_off(before);
    assert_eq!(run(&ann, "SHOW NETWORK RULES; SHOW AGENTS").await[1]["rows"], json!([]));

    // What one cannot see is not there, also with IF EXISTS and OR REPLACE.
    for text in [
        "DESCRIBE AGENT a",
        "DROP AGENT a",
        "DROP NETWORK RULE r",
        "DROP INTEGRATION i",
        "DROP SECRET S",
        "GRANT USAGE ON AGENT a TO ann",
        "REVOKE OWNERSHIP ON AGENT a FROM ann",
        "SHOW GRANTS ON AGENT a",
    ] {
        refused(&ann, text, 404, "object.not_found").await;
    }
    assert_eq!(actions(&run(&ann, "DROP AGENT IF EXISTS a").await), ["unchanged"]);
    run(owner, "DESCRIBE AGENT a").await;

    // USAGE is for use, MODIFY for changes, OWNERSHIP for grants and DROP.
    let replace = "CREATE OR REPLACE AGENT a FROM SPECIFICATION $$instructions: change$$";
    run(owner, "GRANT USAGE ON AGENT a TO USER ann").await;
    run(&ann, "DESCRIBE AGENT a").await;
    for text in [replace, "DROP AGENT a", "GRANT MODIFY ON AGENT a TO USER ann"] {
        refused(&ann, text, 403, "grant.missing").await;
    }
    run(owner, "GRANT MODIFY ON AGENT a TO USER ann").await;
    assert_eq!(actions(&run(&ann, replace).await), ["replaced"]);
    for text in ["DROP AGENT a", "GRANT USAGE ON AGENT a TO USER ann"] {
        refused(&ann, text, 403, "grant.missing").await;
    }

    // An owner of an agent, who does not own the workspace, offers it and knows others by their ids.
    grant(owner, &bob.id, "MODIFY", &workspace(owner).await).await;
    run(&bob, "CREATE AGENT b FROM SPECIFICATION $$instructions: help$$").await;
    refused(&bob, "GRANT USAGE ON AGENT b TO USER ann", 403, "grant.missing").await;
    run(&bob, &format!("GRANT USAGE ON AGENT b TO USER \"{}\"", ann.id)).await;
    run(&ann, "DESCRIBE AGENT b").await;
    let transfer = format!("GRANT OWNERSHIP ON AGENT b TO USER \"{}\"", ann.id);
    let problem = refused(&bob, &transfer, 403, "grant.missing").await;
    assert!(problem["detail"].as_str().unwrap().contains("accepted by its recipient"), "{problem}");
    // Roles, the right to install, broad rules and all secrets are for owners of the workspace.
    for text in [
        "GRANT ROLE SNOWFLAKE.PYPI_REPOSITORY_USER TO USER bob",
        "GRANT ROLE anything TO USER bob",
        "CREATE NETWORK RULE all_hosts TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('0.0.0.0')",
        "CREATE NETWORK RULE inside TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('127.0.0.1:80')",
        "CREATE EXTERNAL ACCESS INTEGRATION every ALLOWED_NETWORK_RULES = () \
         ALLOWED_AUTHENTICATION_SECRETS = (ALL) ENABLED = TRUE",
    ] {
        refused(&bob, text, 403, "grant.missing").await;
    }

    // The twin over REST has the same entries.
    let before = audit(owner).await.len();
    let rest = async |path: &str, body: Value| drop(owner.post(path, body).await);
    rest("/v1/network-rules", json!({"name": "r2", "value_list": ["a.example"]})).await;
    rest("/v1/integrations", json!({"name": "i2", "allowed_network_rules": ["r2"]})).await;
    rest("/v1/secrets", json!({"name": "S2", "value": VALUE})).await;
    rest("/v1/agents", json!({"name": "a2", "specification": "instructions: help"})).await;
    let by_rest = audit(owner).await.split_off(before);
    let without_number = |(action, detail): &(String, String)| {
        (action.clone(), detail.trim_end_matches('2').to_owned())
    };
    assert_eq!(
        by_sql.iter().map(without_number).collect::<Vec<_>>(),
        by_rest.iter().map(without_number).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn t268_the_rights_are_those_of_the_moment_of_each_statement() {
    let world = World::start().await;
    let owner = &world.owner;
    let bob = Person::new(&world, "bob").await;
    role(owner, "admins").await;
    let space = workspace(owner).await;
    let admins = named(owner, "/v1/principals", "admins").await;
    grant(owner, &id(&admins), "OWNERSHIP", &space).await;
    run(owner, "GRANT ROLE admins TO USER bob").await;
    let rule = "CREATE NETWORK RULE r TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('a.example')";
    let text = format!("SHOW AGENTS; REVOKE ROLE admins FROM USER bob; {rule}");
    let problem = refused(&bob, &text, 403, "grant.missing").await;
    assert_eq!(problem["statements"].as_array().unwrap().len(), 2, "{problem}");
    assert_eq!(run(owner, "SHOW NETWORK RULES").await[0]["rows"], json!([]));
}

// proves S-077
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_cannot_be_read_executes_nothing_and_the_first_error_stops() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent =
        |name: &str| format!("CREATE AGENT {name} FROM SPECIFICATION $$instructions: help$$");
    let text = format!("{};\n{};\n  DROP TABLE t", agent("a"), agent("b"));
    let problem = refused(owner, &text, 400, "args.invalid").await;
    let place = &problem["errors"][0];
    assert_eq!((&place["line"], &place["column"]), (&json!(3), &json!(8)), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("line 3, column 8"), "{problem}");
    assert_eq!(run(owner, "SHOW AGENTS").await[0]["rows"], json!([]), "nothing was executed");

    let text = format!("{};\nSHOW AGENTS;\n\n  {};\n{}", agent("a"), agent("a"), agent("b"));
    let problem = refused(owner, &text, 409, "name.taken").await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("statement 3, CREATE AGENT: "), "{detail}");
    assert!(detail.ends_with("; statements 1 to 2 were executed"), "{detail}");
    let results = problem["statements"].as_array().unwrap();
    assert_eq!(actions(results), ["created", "shown"]);
    assert_eq!((&results[1]["line"], &results[1]["rows"][0]["name"]), (&json!(2), &json!("a")));
    let place = &problem["errors"][0];
    assert_eq!((&place["line"], &place["column"]), (&json!(4), &json!(3)), "{problem}");
    let left = run(owner, "SHOW AGENTS").await;
    assert_eq!(left[0]["rows"].as_array().unwrap().len(), 1, "the third and the fourth were not");

    // An error of a field keeps its words, and a text in JSON is the same.
    let wrong = "CREATE NETWORK RULE r TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('https://a', 'b', 'c:x')";
    let (status, problem) =
        owner.call("POST", "/v1/statements", Some(json!({"statements": wrong}))).await;
    assert_eq!((status, problem["errors"].as_array().unwrap().len()), (400, 2), "{problem}");
    assert_eq!(problem["errors"][0]["path"], "/statements");
    assert!(problem["errors"][1]["message"].as_str().unwrap().starts_with("/value_list/2: "));
    let (status, _) =
        owner.call("POST", "/v1/statements", Some(json!({"statements": [wrong]}))).await;
    assert_eq!(status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn t269_a_repeated_request_does_not_run_statements_again_that_ran_before_an_error() {
    let world = World::start().await;
    let owner = &world.owner;
    let keyed = async |text: &str| {
        let request = owner.request(Method::POST, "/v1/statements");
        let request = request.header("content-type", "application/sql");
        let request = request.header("idempotency-key", "one").body(text.to_owned());
        let response = request.send().await.unwrap();
        let replayed = response.headers().contains_key("idempotency-replayed");
        let (status, answer) = answer(response).await;
        (status, replayed, answer)
    };
    let nothing = "DROP AGENT missing";
    assert_eq!(keyed(nothing).await.0, 404);
    // The key of a request without an effect is free again, also for another text.
    let text = "CREATE AGENT a FROM SPECIFICATION $$instructions: help$$; DROP AGENT missing";
    let first = keyed(text).await;
    assert_eq!((first.0, first.1), (404, false), "{}", first.2);
    run(owner, "DROP AGENT a").await;
    let second = keyed(text).await;
    assert_eq!((second.0, second.1, &second.2), (404, true, &first.2));
    assert_eq!(run(owner, "SHOW AGENTS").await[0]["rows"], json!([]));
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

// proves S-078
#[tokio::test(flavor = "multi_thread")]
async fn t266_the_value_of_a_secret_is_in_no_response_and_no_file() {
    let world = World::start().await;
    let owner = &world.owner;
    let send_keyed = async |key: &str, kind: &str, body: String| {
        let request = owner.request(Method::POST, "/v1/statements");
        let request = request.header("content-type", kind).header("idempotency-key", key);
        let response = request.body(body).send().await.unwrap();
        let text = response.text().await.unwrap();
        assert!(!text.contains(VALUE), "{text}");
        text
    };
    let create = |value: &str| {
        format!("CREATE OR REPLACE SECRET TOKEN TYPE = GENERIC_STRING SECRET_STRING = {value}")
    };
    let quoted = format!("'{VALUE}'");
    let sql = "application/sql";
    assert!(send_keyed("1", sql, create(&quoted)).await.contains("created"));
    assert!(send_keyed("2", sql, create(&quoted)).await.contains("replaced"));
    assert!(send_keyed("1", sql, create(&quoted)).await.contains("created"), "replayed");
    let shown = send_keyed("3", sql, format!("{};DESC SECRET TOKEN", create(&quoted))).await;
    assert!(shown.contains("TOKEN"), "{shown}");
    let as_json = json!({"statements": create(&quoted)}).to_string();
    send_keyed("4", "application/json", as_json).await;
    // Wrong in ways that people write it, and after it a statement that fails.
    for (number, text) in [
        create(VALUE),
        create(&format!("\"{VALUE}\"")),
        create(&format!("'{VALUE}")),
        create(&format!("'a'{VALUE}'b'")),
        format!("{};{VALUE}", create("'a value'")),
        format!("{}; DROP AGENT missing", create(&quoted)),
        format!("{} COMMENT = 4", create(&quoted)),
        create(&quoted).replace("TOKEN", "\"not a variable\""),
        create(&format!("'{}'", VALUE.repeat(4_000))),
    ]
    .into_iter()
    .enumerate()
    {
        send_keyed(&format!("wrong-{number}"), sql, text.clone()).await;
        send_keyed(
            &format!("json-{number}"),
            "application/json",
            format!("{{\"statement\": {}}}", json!(text)),
        )
        .await;
        send_keyed(
            &format!("list-{number}"),
            "application/json",
            json!({"statements": [text]}).to_string(),
        )
        .await;
    }
    // Code reads the value, so that it was stored.
    let way = "CREATE EXTERNAL ACCESS INTEGRATION way ALLOWED_NETWORK_RULES = () \
               ALLOWED_AUTHENTICATION_SECRETS = (TOKEN) ENABLED = TRUE";
    run(owner, &format!("{};{way}", create(&quoted))).await;
    let code = json!({"code": "import os\nos.environ['TOKEN'][::-1]", "integrations": ["way"]});
    let read = owner.post("/v1/execute", code).await;
    assert_eq!(read["value"], VALUE.chars().rev().collect::<String>(), "{read}");
    let mut files = Vec::new();
    files_below(world.data.path(), &mut files);
    assert!(files.contains(&world.database()) && world.log().contains("/v1/statements"));
    for file in files {
        let bytes = fs::read(&file).unwrap_or_default();
        let has = bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
        assert!(!has, "{}", file.display());
    }
}

/// The statements in the code blocks of a page, one text for each block.
fn snippets(page: &str) -> Vec<&str> {
    let blocks = page.split("```sql\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_of_the_guide_runs() {
    let world = World::start().await;
    let owner = &world.owner;
    Person::new(&world, "ann").await;
    role(owner, "analysts").await;
    let page = snippets(include_str!("../../docs/sql.md"));
    assert!(page.len() > 5, "the snippets are not found");
    for text in page {
        for result in run(owner, text).await {
            assert_ne!(result["statement"], Value::Null, "{result}");
        }
    }
    for other in
        ["ALTER AGENT a SET COMMENT = 'c'", "USE ROLE accountadmin", "SHOW AGENTS IN ACCOUNT"]
    {
        refused(owner, other, 400, "args.invalid").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t312_a_list_of_names_is_bounded_and_so_are_names_that_differ_in_the_case_of_letters() {
    let world = World::start().await;
    let owner = &world.owner;
    for letters in 0..20 {
        // Twenty names of one word: a different letter of each is a capital one.
        let name = |at| if at == letters { 'A' } else { 'a' };
        let name: String = (0..20).map(name).collect();
        let rule = json!({"name": name, "value_list": ["example.org"], "mode": "EGRESS", "type": "HOST_PORT"});
        owner.post("/v1/network-rules", rule).await;
    }
    let listed = |name: &str, count: usize| {
        let names = vec![name; count].join(", ");
        format!(
            "CREATE OR REPLACE EXTERNAL ACCESS INTEGRATION i ALLOWED_NETWORK_RULES = ({names}) ENABLED = TRUE"
        )
    };
    let last = format!("\"{}A\"", "a".repeat(19));
    let problem = refused(owner, &listed(&last, 101), 400, "args.invalid").await;
    assert!(problem.to_string().contains("at most 100 names"), "{problem}");
    // Twins: the longest list is looked up, and the exact name is found among all of them.
    run(owner, &listed(&last, 1)).await;
    let (status, answer) = answer(send(owner, &listed(&last, 100)).await).await;
    assert!(!answer.to_string().contains("at most 100 names"), "{status}: {answer}");
    let made = named(owner, "/v1/integrations", "i").await;
    assert_eq!(made["allowed_network_rules"][0], last.trim_matches('"'));
    let shown = refused(owner, &listed(&"a".repeat(20), 1), 400, "args.invalid").await;
    assert!(shown.to_string().contains("is one of"), "{shown}");
}
