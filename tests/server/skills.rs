//! Skills that are uploaded: whole or not at all, seen by those with grants, and never anything but files of
//! the skill.

use crate::principals::id;
use crate::test_server::{Api, World};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::process::Command;

const TEA: &str =
    "---\nname: tea\ndescription: How tea is made here.\n---\n\nWarm the pot first.\n";

/// A gigabyte that takes a megabyte in the archive.
const GIGABYTE_OF_ZEROS: &str = "add('SKILL.md', TEA)\nwith z.open('zeros', 'w') as zeros:\n    \
                                 for _ in range(1024): zeros.write(bytes(1 << 20))";

/// A ZIP archive that this Python makes: `add(name, text)` adds a file, `z` is the archive.
fn archive(code: &str) -> Vec<u8> {
    let script = format!(
        "import io, stat, sys, zipfile, warnings\nwarnings.simplefilter('ignore')\n\
         out = io.BytesIO()\nz = zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED)\n\
         TEA = {TEA:?}\n\
         def add(name, text='', mode=0o100644):\n    \
             info = zipfile.ZipInfo('x')\n    info.filename = name\n    \
             info.external_attr = mode << 16\n    info.compress_type = zipfile.ZIP_DEFLATED\n    \
             z.writestr(info, text)\n\
         {code}\nz.close()\nsys.stdout.buffer.write(out.getvalue())\n"
    );
    let made = Command::new("python3").args(["-c", &script]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}

async fn send_archive(who: &Api, method: Method, path: &str, archive: Vec<u8>) -> Response {
    let request = who.request(method, path).header("content-type", "application/zip");
    request.body(archive).send().await.unwrap()
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn add(who: &Api, archive: Vec<u8>) -> (u16, Value) {
    answer(send_archive(who, Method::POST, "/v1/skills", archive).await).await
}

/// The names of the skills that a principal sees.
async fn names(who: &Api) -> Vec<String> {
    let listed = who.get("/v1/skills").await;
    let items = listed["items"].as_array().unwrap();
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

fn form(files: &[(&str, &str)]) -> Form {
    files.iter().fold(Form::new(), |form, (name, text)| {
        form.part("file", Part::text((*text).to_owned()).file_name((*name).to_owned()))
    })
}

// proves K-13, K-14
#[tokio::test(flavor = "multi_thread")]
async fn a_skill_is_uploaded_as_an_archive_or_a_form_shown_replaced_and_deleted() {
    let world = World::start().await;
    let owner = &world.owner;
    let (status, tea) =
        add(owner, archive("add('tea/SKILL.md', TEA)\nadd('tea/scripts/brew.py', 'print(1)')"))
            .await;
    assert_eq!(
        (status, &tea["name"], &tea["file_count"]),
        (201, &json!("tea"), &json!(2)),
        "{tea}"
    );
    let path = format!("/v1/skills/{}", id(&tea));
    let shown = owner.get(&path).await;
    assert_eq!(shown["instructions"], "Warm the pot first.");
    assert_eq!(shown["files"][1], json!({"name": "scripts/brew.py", "size": 8}));
    let read = owner.request(Method::GET, &format!("{path}/files/scripts/brew.py")).send().await;
    assert_eq!(read.unwrap().text().await.unwrap(), "print(1)");
    for missing in ["scripts/none.py", "../tea", "%2e%2e/SKILL.md"] {
        let read = owner.request(Method::GET, &format!("{path}/files/{missing}")).send().await;
        assert_eq!(read.unwrap().status(), 404, "{missing}");
    }

    let again = answer(
        send_archive(owner, Method::POST, "/v1/skills", archive("add('SKILL.md', TEA)")).await,
    )
    .await;
    assert_eq!((again.0, &again.1["code"]), (409, &json!("name.taken")), "{}", again.1);
    let replaced =
        answer(send_archive(owner, Method::PUT, &path, archive("add('SKILL.md', TEA)")).await)
            .await;
    assert_eq!((replaced.0, &replaced.1["file_count"]), (200, &json!(1)), "{}", replaced.1);
    assert_ne!(replaced.1["sha256"], tea["sha256"]);
    let coffee = archive("add('SKILL.md', TEA.replace('name: tea', 'name: coffee'))");
    assert_eq!(answer(send_archive(owner, Method::PUT, &path, coffee).await).await.0, 400);

    let files =
        form(&[("SKILL.md", &TEA.replace("name: tea", "name: mate")), ("references/a.md", "a")]);
    let sent = owner.request(Method::POST, "/v1/skills").multipart(files).send().await.unwrap();
    assert_eq!(sent.status(), 201, "{}", sent.text().await.unwrap());
    assert_eq!(names(owner).await, ["mate", "tea"]);
    assert_eq!(owner.call("DELETE", &path, None).await.0, 204);
    assert_eq!(names(owner).await, ["mate"]);
    assert_eq!(owner.refused("GET", &path, None).await, (404, "object.not_found".into()));
    let built_in = TEA.replace("name: tea", "name: dataviz");
    let sent =
        owner.request(Method::POST, "/v1/skills").multipart(form(&[("SKILL.md", &built_in)]));
    assert_eq!(answer(sent.send().await.unwrap()).await.1["code"], "name.taken");
}

// proves K-15
#[tokio::test(flavor = "multi_thread")]
async fn t245_an_archive_that_is_no_skill_is_refused_with_its_reason_and_leaves_nothing() {
    let world = World::start().await;
    let owner = &world.owner;
    let staged =
        || std::fs::read_dir(world.data.path().join("db/staging")).map_or(0, Iterator::count);
    let cases = [
        ("add('SKILL.md', TEA)\nadd('passwd', '/etc/passwd', stat.S_IFLNK | 0o777)", "is a link"),
        ("add('SKILL.md', TEA)\nadd('/etc/cron.d/x')", "must be relative"),
        ("add('SKILL.md', TEA)\nadd('../../x')", "must not contain empty parts, . or .."),
        ("add('SKILL.md', TEA)\nadd('a\\\\..\\\\b')", "use / between directories"),
        (GIGABYTE_OF_ZEROS, "at most 8388608"),
        ("add('SKILL.md', TEA)\nfor n in range(60000): add(f'f{n}')", "60001 or more entries"),
        ("add('SKILL.md', TEA)\nfor n in range(100000): add(f'f{n}')", "entries"),
        ("add('SKILL.md', TEA)\nadd('report\\u202efdp.py')", "change the direction of text"),
        ("add('SKILL.md', TEA)\nadd('a\\nb')", "control characters"),
        ("add('SKILL.md', TEA)\nadd('SKILL.md', TEA)", "twice"),
        ("add('SKILL.md', TEA)\nadd('more/SKILL.md', TEA)", "more than one SKILL.md"),
        ("add('a.py', '1')", "Missing required file: SKILL.md"),
        ("add('SKILL.md', 'no frontmatter')", "must start with YAML frontmatter"),
        ("add('coffee/SKILL.md', TEA)", "Directory name 'coffee' must match skill name 'tea'"),
    ];
    for (code, reason) in cases {
        let (status, problem) = add(owner, archive(code)).await;
        assert!([400, 413].contains(&status), "{code}: {status} {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(reason), "{code}: {detail}");
        assert!(!detail.contains(['\u{202e}', '\n']), "{detail}");
        assert_eq!(names(owner).await, [""; 0], "{code}");
        assert_eq!(staged(), 0, "{code}");
    }
    for (bytes, reason) in [(&b"no archive"[..], "not a ZIP archive"), (b"", "not a ZIP archive")] {
        let (status, problem) = add(owner, bytes.to_vec()).await;
        assert_eq!(status, 400, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(reason), "{problem}");
    }
    let sent = owner.request(Method::POST, "/v1/skills").multipart(form(&[("../SKILL.md", TEA)]));
    assert_eq!(sent.send().await.unwrap().status(), 400);
    // The twins.
    let harmless = "add('SKILL.md', TEA)\nadd('.DS_Store')\nadd('__MACOSX/x')\nadd('d/', '', stat.S_IFDIR | 0o755)\n\
                    add('zeros', bytes(1 << 20))\nfor n in range(900): add(f'd/Zürich ☃ {n}')";
    let (status, tea) = add(owner, archive(harmless)).await;
    assert_eq!((status, &tea["file_count"]), (201, &json!(902)), "{tea}");
}

// proves K-16
#[tokio::test(flavor = "multi_thread")]
async fn t247_a_skill_is_seen_changed_and_deleted_with_grants_alone() {
    let world = World::start().await;
    let owner = &world.owner;
    let ann = world.principal("ann", &["USAGE"]).await;
    let tea = || archive("add('SKILL.md', TEA)");
    assert_eq!(add(&ann, tea()).await.0, 403, "MODIFY on the workspace is missing");
    let skill = id(&add(owner, tea()).await.1);
    let path = format!("/v1/skills/{skill}");
    assert_eq!(names(&ann).await, [""; 0]);
    assert_eq!(ann.refused("GET", &path, None).await.0, 404);
    let me = ann.get("/v1/principals/me").await["id"].clone();
    let object = json!({"kind": "skill", "id": skill});
    let grant =
        |privilege: &str| json!({"principal": me, "privilege": privilege, "object": object});
    owner.post("/v1/grants", grant("USAGE")).await;
    assert_eq!(names(&ann).await, ["tea"]);
    assert_eq!(ann.get(&path).await["instructions"], "Warm the pot first.");
    assert_eq!(send_archive(&ann, Method::PUT, &path, tea()).await.status(), 403);
    owner.post("/v1/grants", grant("MODIFY")).await;
    let changed = answer(send_archive(&ann, Method::PUT, &path, tea()).await).await;
    assert_eq!((changed.0, &changed.1["author"]), (200, &me), "{}", changed.1);
    assert_eq!(ann.refused("DELETE", &path, None).await.0, 403);

    // An agent that names it keeps it from being deleted, so that no other skill can take its name.
    let agent = json!({"name": "helper", "specification": "skills: [tea]\n"});
    let agent = id(&owner.post("/v1/agents", agent).await);
    assert_eq!(owner.refused("DELETE", &path, None).await, (409, "object.in_use".into()));
    let unknown = json!({"name": "other", "specification": "skills: [tea, juggling]\n"});
    let (status, problem) = owner.call("POST", "/v1/agents", Some(unknown)).await;
    assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/specification/skills/1")));
    owner.call("DELETE", &format!("/v1/agents/{agent}"), None).await;
    assert_eq!(owner.call("DELETE", &path, None).await.0, 204);
    assert_eq!(names(owner).await, [""; 0]);
}

// proves K-17
#[tokio::test(flavor = "multi_thread")]
async fn t248_a_kill_during_an_upload_leaves_no_half_skill() {
    let mut world = World::start().await;
    let kept = id(&add(&world.owner, archive("add('SKILL.md', TEA)")).await.1);
    for round in 0..4 {
        let name = format!("name: tea-{round}");
        let large = archive(&format!(
            "import random\nadd('SKILL.md', TEA.replace('name: tea', '{name}'))\n\
             add('data', random.Random(1).randbytes(6 << 20))\nadd('last.txt', 'last')"
        ));
        let owner = world.api(&world.owner.key);
        let upload = tokio::spawn(async move {
            let request = owner.request(Method::POST, "/v1/skills");
            request.header("content-type", "application/zip").body(large).send().await.is_ok()
        });
        // The kill comes at another moment of the upload each time.
        for _ in 0..round * 8 {
            world.owner.get("/v1/skills").await;
        }
        world.kill();
        let _ = upload.await;
        world.again().await;
        for item in world.owner.get("/v1/skills").await["items"].as_array().unwrap() {
            let path = format!("/v1/skills/{}", id(item));
            let shown = world.owner.get(&path).await;
            assert_eq!(shown["files"].as_array().unwrap().len(), item["file_count"], "{shown}");
            if item["id"] != kept.as_str() {
                assert_eq!(shown["files"][2], json!({"name": "last.txt", "size": 4}));
            }
        }
    }
    assert!(names(&world.owner).await.contains(&"tea".to_owned()));
    let staged = world.data.path().join("db/staging");
    assert_eq!(std::fs::read_dir(staged).unwrap().count(), 0);
}
