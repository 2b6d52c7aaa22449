//! Settings of operators that other products have as variables, and how they apply here.

use crate::harness;
use crate::test_server::{World, printed};
use serde_json::{Value, json};

const IMPORTS: &str = "PYTHON_PACKAGES_WHITELIST_IMPORT=idna";
const PACKAGES: &str = "PYTHON_PACKAGES_AUTO_INSTALL=six==1.16.0,python-dotenv >=1,<2";

// proves P-042
#[tokio::test(flavor = "multi_thread")]
async fn packages_of_the_operator_are_there_and_may_be_imported_by_their_own_names() {
    let environments = harness::own_data();
    let place = ["--data", environments.path().to_str().unwrap()];
    let mut world = World::under(&["env", IMPORTS, PACKAGES], &place).await;
    let code = "import six, dotenv\nsix.__version__";
    let ran = world.owner.execute(code).await;
    assert_eq!(ran["value"], "1.16.0", "{ran}");
    let listed = world.owner.get("/v1/environments").await;
    let made = listed["items"].as_array().unwrap().last().unwrap().clone();
    let names = |made: &Value| -> Vec<String> {
        let packages = made["packages"].as_array().unwrap().iter();
        packages.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&made), ["python-dotenv", "six"]);
    let others = world.owner.execute("import requests").await;
    assert_eq!(others["error"]["code"], "import.denied", "{others}");

    world.stop().await;
    world.again().await;
    assert_eq!(world.owner.execute(code).await["value"], "1.16.0");
    let again = world.owner.get("/v1/environments").await;
    assert_eq!(again["items"].as_array().unwrap().last().unwrap()["name"], made["name"]);
    assert_eq!(again["items"].as_array().unwrap().len(), listed["items"].as_array().unwrap().len());
}

#[test]
fn packages_that_cannot_be_had_keep_a_server_from_starting_and_are_named() {
    let environments = harness::own_data();
    for (packages, expected) in [
        ("no-such-package-of-belljar", "no-such-package-of-belljar"),
        ("six @ https://127.0.0.1/six.whl", "is a URL or a path"),
        ("six==1.16.0,six==1.17.0", "six"),
    ] {
        let output = std::process::Command::new(harness::binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--environment", "bare"])
            .env("BELLJAR_DATA", environments.path())
            .env("PYTHON_PACKAGES_AUTO_INSTALL", packages)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{packages}");
        let said = harness::stderr(&output);
        assert!(said.contains(expected), "{packages}: {said}");
    }
    let left =
        std::fs::read_dir(environments.path().join("definitions")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing is kept of what failed");
}

// proves P-042
#[tokio::test(flavor = "multi_thread")]
async fn no_code_runs_longer_than_the_operator_says() {
    let limit = "PYTHON_FUNCTIONS_RUN_TIMEOUT=700";
    let world = World::under(&["env", limit, "KERNEL_POOL_SIZE=3"], &[]).await;
    let ran = world.owner.execute("print(1)\nwhile True: pass").await;
    assert_eq!(ran["error"]["code"], "time.exceeded", "{ran}");
    assert_eq!((ran["limits"]["wall_ms"].as_u64(), printed(&ran)), (Some(700), "1\n".into()));
    let longer = json!({"code": "1", "limits": {"wall_ms": 701}});
    let (status, refused) = world.owner.call("POST", "/v1/execute", Some(longer)).await;
    assert_eq!(status, 400, "{refused}");
    assert!(refused.to_string().contains("the operator allows at most 700"), "{refused}");
    let shorter = json!({"code": "1", "limits": {"wall_ms": 600}});
    assert_eq!(world.owner.post("/v1/execute", shorter).await["value"], 1);
}
