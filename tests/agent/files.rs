//! Input documents, and images and data files of the result.

use crate::scripted_server::{CODE, Scene, code, download, plan, say, text, texts, upload};
use crate::test_server::Api;
use serde_json::{Value, json};

/// Pandas, matplotlib and what reads Excel are there.
const FULL: [&str; 2] = ["--environment", "default"];
const SALES: &[u8] = b"region,revenue\nNorth,10\nSouth,12\nNorth,20\n";

// proves U-004, U-012, U-013, U-014, U-015
#[tokio::test(flavor = "multi_thread")]
async fn documents_are_there_under_their_names_and_equal_names_stay_apart() {
    let list = "import os\nprint({name: open(name).read() for name in sorted(os.listdir('/home/uploaded_files'))})";
    let scene = Scene::play(json!([
        plan(&["Look"]),
        code(list),
        say("Seen."),
        plan(&["Look again"]),
        code(list),
        say("Seen again."),
    ]))
    .await;
    let owner = scene.owner();
    let one = upload(owner, "a.csv", b"one").await;
    let two = upload(owner, "a.csv", b"two").await;
    let other = upload(owner, "other.csv", b"not asked for").await;
    let later = upload(owner, "later.json", b"{}").await;
    let asked = json!({"request": "Look.", "document_ids": [one, two]});
    let first = scene.code(asked).await;
    let where_they_are = json!([
        {"document_id": one, "name": "a.csv"},
        {"document_id": two, "name": "a-1.csv"},
    ]);
    assert_eq!(first["uploaded_files"], where_they_are);
    assert_eq!(first["rounds"][0]["stdout"], "{'a-1.csv': 'two', 'a.csv': 'one'}\n", "{first}");
    assert_eq!((&first["generated_files"], &first["artifacts"]), (&json!([]), &json!([])));
    assert!(scene.messages(0).contains("a.csv, a-1.csv"), "{}", scene.messages(0));

    let again = json!({"request": "Look.", "document_ids": [later, two], "sandbox_id": first["sandbox_id"]});
    let again = scene.code(again).await;
    let seen = "{'a-1.csv': 'two', 'a.csv': 'one', 'later.json': '{}'}\n";
    assert_eq!(again["rounds"][0]["stdout"], seen);
    assert_eq!(again["uploaded_files"][1]["name"], "a-1.csv", "it is there already");
    assert!(!texts(&again).contains(&text(&other)));
}

// proves U-005, U-006
#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_is_unknown_or_of_another_principal_is_named_and_nothing_runs() {
    let scene = Scene::play(json!([plan(&["a"]), say("Read.")])).await;
    let (ann, bob) = (
        scene.world.principal("ann", &["USAGE"]).await,
        scene.world.principal("bob", &["USAGE"]).await,
    );
    let anns = upload(&ann, "a.csv", b"hers").await;
    let nowhere = "0198c0de-0000-7000-8000-000000000000";
    for (documents, expected) in [
        (json!([anns]), (404, "object.not_found")),
        (json!([nowhere]), (404, "object.not_found")),
        (json!(["no-uuid"]), (400, "args.invalid")),
        (json!([7]), (400, "args.invalid")),
        (json!("no list"), (400, "args.invalid")),
        (json!(vec![nowhere; 101]), (400, "args.invalid")),
    ] {
        let body = json!({"request": "Read it.", "document_ids": documents});
        let (status, problem) = bob.call("POST", CODE, Some(body)).await;
        assert_eq!((status, problem["code"].as_str().unwrap()), expected, "{problem}");
        if documents == json!(["no-uuid"]) {
            assert_eq!(problem["errors"][0]["path"], "/document_ids/0");
        }
        if expected.0 == 404 {
            assert!(problem.to_string().contains(&text(&documents[0])), "{problem}");
        }
    }
    assert_eq!(scene.asked().len(), 0);
    assert_eq!(bob.get("/v1/sessions").await["items"], json!([]));
    let hers = json!({"request": "Read it.", "document_ids": [anns]});
    assert_eq!(ann.post(CODE, hers).await["answer"], "Read.");
}

async fn read(api: &Api, file: &Value) -> (String, Vec<u8>) {
    let (status, kind, bytes) = download(api, &file["url"]).await;
    assert_eq!(status, 200, "{file}");
    (kind, bytes)
}

// proves U-017, U-024, U-031, U-032, U-033, U-034, U-035, U-036, U-037, U-048
#[tokio::test(flavor = "multi_thread")]
async fn a_table_becomes_numbers_a_file_and_charts_that_only_its_owner_can_load() {
    let scene = Scene::with(
        json!([
            plan(&["Load the CSV file", "Total revenue per region", "Plot it"]),
            code("import pandas as pd\ndf = pd.read_csv('/home/uploaded_files/sales.csv')\nprint(df.head())"),
            code("totals = df.groupby('region')['revenue'].sum()\ntotals.to_csv('totals.csv')\nprint(totals)"),
            code("import matplotlib.pyplot as plt\ntotals.plot.bar()\nplt.show()"),
            code("import seaborn, numpy\nfigure, axes = plt.subplots()\nseaborn.barplot(x=totals.index, y=totals.values, ax=axes)\nfigure.savefig('bars.png')"),
            say("North has 30 and South has 12."),
        ]),
        &FULL,
    )
    .await;
    let ann = scene.world.principal("ann", &["USAGE"]).await;
    let sales = upload(&ann, "sales.csv", SALES).await;
    let done = ann.post(CODE, json!({"request": "Total revenue per region, with a bar chart", "document_ids": [sales]})).await;
    assert_eq!((&done["complete"], &done["total_rounds"]), (&json!(true), &json!(4)), "{done}");
    let logs = text(&done["logs"]);
    assert!(logs.contains("North    30\nSouth    12"), "{logs}");
    assert!(logs.contains("--- Round 4/6: Plot it... ---"), "{logs}");

    let files = done["generated_files"].as_array().unwrap();
    let names: Vec<&Value> = files.iter().map(|file| &file["name"]).collect();
    assert_eq!(names, ["totals.csv"], "the input is not listed");
    let (kind, bytes) = read(&ann, &files[0]).await;
    assert_eq!(bytes, b"region,revenue\nNorth,30\nSouth,12\n");
    assert!(kind.starts_with("text/csv"), "{kind}");

    let artifacts = done["artifacts"].as_array().unwrap();
    let names: Vec<&Value> = artifacts.iter().map(|one| &one["asset_filename"]).collect();
    assert_eq!(names, ["plot_0.png", "plot_1.png"], "{done}");
    let bob = scene.world.principal("bob", &["USAGE"]).await;
    let nobody = scene.world.api("");
    for artifact in artifacts {
        assert_eq!(artifact["type"], "media_reference");
        assert!(text(&artifact["url"]).contains("/v1/assets/"), "{artifact}");
        let (kind, bytes) = read(&ann, artifact).await;
        assert_eq!((kind.as_str(), &bytes[..4]), ("image/png", &b"\x89PNG"[..]));
        assert_eq!(download(&bob, &artifact["url"]).await.0, 404);
        // Without a key the URL has the rights of the caller that it was made for.
        assert_eq!(download(&nobody, &artifact["url"]).await, (200, kind, bytes));
        let plain = json!(text(&artifact["url"]).split('?').next());
        assert_eq!(download(&nobody, &plain).await.0, 401);
    }
}

// proves U-016, U-064
#[tokio::test(flavor = "multi_thread")]
async fn tables_records_and_pictures_of_every_kind_are_read_and_converted() {
    let make = "import pandas as pd\nfrom PIL import Image\npd.DataFrame({'n': [1, 2]}).to_excel('book.xlsx', index=False)\nImage.new('RGB', (3, 2), 'red').save('dot.png')";
    let convert = "import json\nimport pandas as pd\nfrom PIL import Image\nprint(pd.read_excel('/home/uploaded_files/book.xlsx').n.sum(), Image.open('/home/uploaded_files/dot.png').size, len(json.load(open('rows.json'))), len(pd.read_csv('table.csv')))\npd.read_json('rows.json').to_csv('rows.csv', index=False)";
    let scene = Scene::with(
        json!([
            plan(&["Make files"]),
            code(make),
            say("Made."),
            plan(&["Read them"]),
            code(convert),
            say("Converted.")
        ]),
        &FULL,
    )
    .await;
    let owner = scene.owner();
    let made = scene.request("Make a workbook and a picture.").await;
    let book =
        made["generated_files"].as_array().unwrap().iter().find(|file| file["name"] == "book.xlsx");
    assert!(text(&book.unwrap()["mime"]).contains("spreadsheetml"), "{book:?}");
    let (_, book) = read(owner, book.unwrap()).await;
    let (_, dot) = read(owner, &made["artifacts"][0]).await;
    let documents = json!([
        upload(owner, "book.xlsx", &book).await,
        upload(owner, "dot.png", &dot).await,
        upload(owner, "rows.json", br#"[{"a": 1}, {"a": 2}]"#).await,
        upload(owner, "table.csv", SALES).await,
    ]);
    let asked = json!({"request": "Read all and convert the rows.", "document_ids": documents});
    let asked = scene.code(asked).await;
    assert_eq!(asked["rounds"][0]["stdout"], "3 (3, 2) 2 3\n", "{asked}");
    let files = asked["generated_files"].as_array().unwrap();
    let names: Vec<&Value> = files.iter().map(|file| &file["name"]).collect();
    assert_eq!(names, ["rows.csv"]);
    assert_eq!(read(owner, &files[0]).await.1, b"a\n1\n2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_the_code_changes_is_a_new_file_and_the_document_stays() {
    let scene = Scene::play(json!([
        plan(&["Clean it"]),
        code("rows = open('data.csv').read().splitlines()\nopen('data.csv', 'w').write('\\n'.join(row for row in rows if row))"),
        code("open('data.csv', 'a').write('\\nend')"),
        say("Cleaned."),
    ]))
    .await;
    let owner = scene.owner();
    let document = upload(owner, "data.csv", b"a\n\nb\n").await;
    let done = scene.code(json!({"request": "Clean it.", "document_ids": [document]})).await;
    let files = done["generated_files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "changed twice, listed once: {done}");
    assert_eq!(read(owner, &files[0]).await.1, b"a\nb\nend");
    let path = format!("{}/v1/documents/{}/content", owner.address, text(&document));
    assert_eq!(download(owner, &json!(path)).await.2, b"a\n\nb\n");
}

// proves U-065
#[tokio::test(flavor = "multi_thread")]
async fn equations_and_money_are_computed() {
    let scene = Scene::with(
        json!([
            plan(&["Solve", "Compound"]),
            code("import sympy\nx = sympy.symbols('x')\nprint(sympy.solve(x**2 - 5*x + 6, x))"),
            code("from decimal import Decimal\nprint(round(Decimal('1000') * Decimal('1.05') ** 10, 2))"),
            say("x is 2 or 3, and 1628.89 remain."),
        ]),
        &FULL,
    )
    .await;
    let done = scene.request("Solve it, and compound 1000 at 5 percent for 10 years.").await;
    assert_eq!(done["rounds"][0]["stdout"], "[2, 3]\n", "{done}");
    assert_eq!(done["rounds"][1]["stdout"], "1628.89\n");
    assert_eq!(done["answer"], "x is 2 or 3, and 1628.89 remain.");
}
