//! Input files of `execute_python`, given by URL, and data in the code itself.

use crate::approvals::ran;
use crate::test_server::World;
use crate::wire::{asked, called};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;

/// A web server with a table, a workbook, a file that is larger than can be, and one that never comes.
fn file_server(workbook: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let workbook = workbook.clone();
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let length = connection.read(&mut request).unwrap_or_default();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let mut headers = String::new();
                let (status, length, body) = match path {
                    "/a/same.csv"
                    | "/b/same.csv"
                    | "/my%20t%C3%A4ble.csv?token=1"
                    | "/x/..%2f..%2fetc%2fpasswd" => ("200 OK", path.len(), path.into()),
                    "/download?id=1" => {
                        headers =
                            "content-disposition: attachment; filename=\"../sales.csv\"\r\n".into();
                        ("200 OK", 4, b"a,b\n".to_vec())
                    }
                    "/report.csv" => ("200 OK", 9, b"%PDF-1.7\n".to_vec()),
                    "/report.pdf" => ("200 OK", 4, b"a,b\n".to_vec()),
                    "/table.csv" => ("200 OK", 7, b"x,y\n1,2".to_vec()),
                    "/book.xlsx" => ("200 OK", workbook.len(), workbook),
                    "/huge.csv" => ("200 OK", 1 << 40, Vec::new()),
                    "/silent.csv" => {
                        // Says nothing until the client has left.
                        let _ = connection.read(&mut [0; 1]);
                        return;
                    }
                    _ => ("404 Not Found", 0, Vec::new()),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
                );
                let _ = connection.write_all(head.as_bytes());
                let _ = connection.write_all(&body);
            });
        }
    });
    address
}

fn structured(result: &Value) -> &Value {
    &result["structuredContent"]
}

// proves P-009, P-011
#[tokio::test(flavor = "multi_thread")]
async fn code_is_needed_and_is_a_whole_script_and_files_are_addresses_that_may_be_left_out() {
    let world = World::start().await;
    let tools = asked(&world.owner, "tools/list", json!({})).await;
    let tools = tools["result"]["tools"].as_array().unwrap();
    let schema =
        &tools.iter().find(|tool| tool["name"] == "execute_python").unwrap()["inputSchema"];
    assert_eq!(schema["required"], json!(["code"]));
    assert_eq!(schema["properties"]["code"]["type"], "string");
    let files = &schema["properties"]["files"];
    assert_eq!((&files["type"], &files["items"]["type"]), (&json!("array"), &json!("string")));
    let script = "#!/usr/bin/env python3\n\"\"\"Adds.\"\"\"\nimport sys\n\ndef main():\n    print(sum(map(int, '1 2'.split())))\n\n\
                  if __name__ == '__main__':\n    main()\n    sys.exit(0)\n";
    let done = called(&world.owner, "execute_python", json!({"code": script})).await;
    assert_eq!(
        (&done["isError"], &structured(&done)["result"]),
        (&json!(false), &json!("3")),
        "{done}"
    );
    let without = called(&world.owner, "execute_python", json!({"files": []})).await;
    assert_eq!(structured(&without)["error"]["code"], "args.missing", "{without}");
}

// proves P-025, P-026
#[tokio::test(flavor = "multi_thread")]
async fn files_are_fetched_for_the_sandbox_and_nothing_runs_without_them() {
    let address = file_server(Vec::new());
    let world = World::with(&["--fetch-from", &address]).await;
    let url = |name: &str| format!("http://{address}/{name}");
    let code = format!(
        "import urllib.request\ntry:\n    urllib.request.urlopen('{}')\n    reached = True\n\
         except OSError:\n    reached = False\n[open('table.csv').read(), reached]",
        url("table.csv")
    );
    let given = json!({"code": code, "files": [url("table.csv")]});
    let done = called(&world.owner, "execute_python", given).await;
    assert_eq!(structured(&done)["result"], json!(["x,y\n1,2", false]), "{done}");
    assert_eq!(ran(&world).await, 1);
    for name in ["missing.csv", "huge.csv", "silent.csv"] {
        let given = json!({"code": "print(1)", "files": [url("table.csv"), url(name)]});
        let refused = called(&world.owner, "execute_python", given).await;
        assert_eq!(refused["isError"], true, "{refused}");
        let message = structured(&refused)["error"]["message"].as_str().unwrap();
        assert!(message.contains(&url(name)), "{message}");
    }
    assert_eq!(ran(&world).await, 1, "no script has run without its files");
}

const WORKBOOK: &str = "import base64, io, pandas\nbook = io.BytesIO()\n\
                        pandas.DataFrame({'amount': [10.5, 4.5]}).to_excel(book, index=False)\n\
                        base64.b64encode(book.getvalue()).decode()";

// proves P-030, P-032
#[tokio::test(flavor = "multi_thread")]
async fn a_workbook_is_read_where_there_is_a_reader_and_its_content_stays_in_the_sandbox() {
    let world = World::with(&["--environment", "default"]).await;
    let made = called(&world.owner, "execute_python", json!({"code": WORKBOOK})).await;
    let made = structured(&made)["result"].as_str().unwrap().to_owned();
    let address = file_server(STANDARD.decode(made).unwrap());
    let files = json!([format!("http://{address}/book.xlsx")]);
    let total = "import pandas\nfloat(pandas.read_excel('book.xlsx')['amount'].sum())";
    let with = World::with(&["--environment", "default", "--fetch-from", &address]).await;
    let done = called(&with.owner, "execute_python", json!({"code": total, "files": files})).await;
    assert_eq!(structured(&done)["result"], 15.0, "{done}");
    assert!(!done.to_string().contains("10.5"), "only what the code gives back is told: {done}");

    let without = World::under(
        &["env", "PYTHON_PACKAGES_WHITELIST_IMPORT=pandas"],
        &["--environment", "default", "--fetch-from", &address],
    )
    .await;
    let code = "import openpyxl";
    let refused =
        called(&without.owner, "execute_python", json!({"code": code, "files": files})).await;
    let error = &structured(&refused)["error"];
    let message = "openpyxl not allowed by PYTHON_PACKAGES_WHITELIST_IMPORT";
    assert_eq!(error["message"], message, "{refused}");
    let tools = asked(&with.owner, "tools/list", json!({})).await["result"].to_string();
    assert!(tools.contains("never paste their content into the code"), "{tools}");
}

// proves P-068
#[tokio::test(flavor = "multi_thread")]
async fn large_data_is_aggregated_in_the_code_and_too_large_is_said_with_the_size() {
    let world = World::start().await;
    let rows = (0..100_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let code = format!("rows = [{rows}]\nsum(rows)");
    let done = called(&world.owner, "execute_python", json!({"code": code})).await;
    assert_eq!(structured(&done)["result"], 4_999_950_000_u64, "{}", structured(&done)["error"]);
    let code = format!("data = '{}'\nlen(data)", "x".repeat(4 << 20));
    let refused = called(&world.owner, "execute_python", json!({"code": code})).await;
    let message = structured(&refused)["error"]["message"].as_str().unwrap();
    assert!(message.contains("the maximum is 4194304"), "{message}");
    let tools = asked(&world.owner, "tools/list", json!({})).await["result"].to_string();
    assert!(tools.contains("up to 4 MiB"), "{tools}");
}

// proves P-024, P-081
#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_the_name_that_its_url_or_its_server_gives_it_and_a_second_one_is_reported() {
    let address = file_server(Vec::new());
    let world = World::with(&["--fetch-from", &address]).await;
    let paths = [
        "my%20t%C3%A4ble.csv?token=1",
        "download?id=1",
        "x/..%2f..%2fetc%2fpasswd",
        "a/same.csv",
        "b/same.csv",
    ];
    let files = paths.map(|path| format!("http://{address}/{path}"));
    let code = "import os\n[sorted(os.listdir()), open('same-1.csv').read()]";
    let done = called(&world.owner, "execute_python", json!({"code": code, "files": files})).await;
    let names = ["my täble.csv", "passwd", "sales.csv", "same-1.csv", "same.csv"];
    assert_eq!(structured(&done)["result"], json!([names, "/b/same.csv"]), "{done}");
    let told = r#"warning: files[4] is in the working directory as "same-1.csv", because another file has the name "same.csv""#;
    assert_eq!(structured(&done)["logs"], json!([told]), "{done}");
    let one = json!({"code": "import os\nos.listdir()", "files": [files[3]]});
    let one = called(&world.owner, "execute_python", one).await;
    assert_eq!(structured(&one), &json!({"result": ["same.csv"], "logs": []}), "{one}");
}

// proves P-031, P-082
#[tokio::test(flavor = "multi_thread")]
async fn a_pdf_is_refused_by_its_content_and_not_by_its_name() {
    let address = file_server(Vec::new());
    let world = World::with(&["--fetch-from", &address]).await;
    let run = async |name: &str| {
        let files = json!([format!("http://{address}/{name}")]);
        let arguments = json!({"code": "import os\nos.listdir()", "files": files});
        called(&world.owner, "execute_python", arguments).await
    };
    let refused = run("report.csv").await;
    let error = &structured(&refused)["error"];
    assert_eq!((&refused["isError"], &error["code"]), (&json!(true), &json!("file.unsupported")));
    let message = error["message"].as_str().unwrap();
    for part in ["/report.csv is a PDF", "PDF is not supported", "CSV and Excel files are"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(ran(&world).await, 0);
    assert_eq!(structured(&run("report.pdf").await)["result"], json!(["report.pdf"]));
}

// proves P-027
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_code_made_is_given_to_the_next_call_by_its_url() {
    let world = World::start().await;
    let ann = world.principal("ann", &["USAGE"]).await;
    let bob = world.principal("bob", &["USAGE"]).await;
    let made = json!({"code": "open('a b.csv', 'w').write('1,2')"});
    let made = called(&ann, "execute_python", made).await;
    let link =
        made["content"].as_array().unwrap().iter().find(|one| one["type"] == "resource_link");
    let link = link.unwrap_or_else(|| panic!("no link: {made}"));
    let url = link["uri"].as_str().unwrap().to_owned();
    assert!(url.starts_with(&format!("{}/v1/assets/", world.address())), "{url}");
    // Anyone who has it can load it, and the client can read it as a resource.
    let loaded = world.api("").request(reqwest::Method::GET, &url).send().await.unwrap();
    assert_eq!((loaded.status().as_u16(), loaded.text().await.unwrap()), (200, "1,2".to_owned()));
    let plain = url.split('?').next().unwrap().to_owned();
    for url in [&url, &plain] {
        let read = asked(&ann, "resources/read", json!({"uri": url})).await;
        assert_eq!(read["result"]["contents"][0]["text"], "1,2", "{read}");
        let hidden = asked(&bob, "resources/read", json!({"uri": url})).await;
        assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
        let given = json!({"code": "open('a b.csv').read()", "files": [url]});
        let done = called(&ann, "execute_python", given.clone()).await;
        assert_eq!(structured(&done)["result"], "1,2", "{done}");
        let refused = called(&bob, "execute_python", given).await;
        assert_eq!(structured(&refused)["error"]["code"], "object.not_found", "{refused}");
    }
    // Other addresses of this machine and its network stay closed.
    for url in [
        "http://127.0.0.1:9/a.csv",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/a.csv",
        "http://[::1]:9/a.csv",
    ] {
        let refused = called(&ann, "execute_python", json!({"code": "1", "files": [url]})).await;
        assert_eq!(structured(&refused)["error"]["code"], "file.fetch_failed", "{refused}");
    }
    let address = file_server(Vec::new());
    let with = World::with(&["--fetch-from", &address]).await;
    let given = json!({"code": "open('table.csv').read()", "files": [format!("http://{address}/table.csv")]});
    assert_eq!(
        structured(&called(&with.owner, "execute_python", given).await)["result"],
        "x,y\n1,2"
    );
}
