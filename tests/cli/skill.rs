//! `belljar skill`, as its users run it.

use crate::harness::{belljar, browser, stderr, stdout};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

const GOOD: &str = "---\nname: pdf\ndescription: Reads PDF files.\n---\n# How\n\nRead it.\n";

/// A project with these files.
fn project(files: &[(&str, &str)]) -> TempDir {
    let project = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = project.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    project
}

/// A project with a skill in `./pdf` that has this script.
fn scripted(script: &str) -> TempDir {
    project(&[
        ("pdf/SKILL.md", GOOD),
        ("pdf/scripts/run.py", script),
        ("pdf/references/note.txt", "from the skill"),
    ])
}

fn skill(project: &TempDir, args: &[&str]) -> Output {
    belljar(&[&["skill"], args].concat()).current_dir(project.path()).output().unwrap()
}

/// Runs the script of [`scripted`] in the environment without packages.
fn run(project: &TempDir, args: &[&str]) -> Output {
    skill(project, &[&["run", "--env", "bare"], args].concat())
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {output:?}")).unwrap()
}

fn refused(output: &Output) -> String {
    assert_eq!((output.status.code(), stdout(output)), (Some(1), String::new()), "{output:?}");
    stderr(output)
}

#[test]
fn validate_says_everything_that_is_wrong() {
    let here = project(&[("pdf/SKILL.md", GOOD), ("Bad/SKILL.md", "---\nname: Bad\nx: 1\n---\n")]);
    assert_eq!(stdout(&skill(&here, &["validate", "pdf"])), "pdf is a valid skill\n");
    let expected = "belljar: Bad is not a valid skill\n  \
        Unexpected fields in frontmatter: x. Only ['allowed-tools', 'compatibility', 'description', \
        'license', 'metadata', 'name'] are allowed.\n  \
        Skill name 'Bad' must be lowercase\n  \
        Missing required field in frontmatter: description\n";
    assert_eq!(refused(&skill(&here, &["validate", "Bad"])), expected);
    let report = skill(&here, &["validate", "--json", "absent"]);
    assert_eq!(report.status.code(), Some(1));
    let errors = ["Path does not exist: absent"];
    assert_eq!(parsed(&report), json!({"folder": "absent", "valid": false, "errors": errors}));
}

// proves K-07, K-08
#[test]
fn ls_tells_names_and_descriptions_and_what_was_skipped() {
    let here = project(&[
        (".claude/skills/pdf/SKILL.md", GOOD),
        (".claude/skills/odd/SKILL.md", "---\nname: Odd\ndescription: Works.\n---\nSECRET BODY\n"),
        (".claude/skills/broken/SKILL.md", "---\nname: broken\n---\n"),
        (".claude/skills/README.md", "not a skill"),
    ]);
    let listed = skill(&here, &["ls"]);
    let said = stderr(&listed);
    assert!(
        said.contains("warning: .claude/skills/odd: Skill name 'Odd' must be lowercase"),
        "{said}"
    );
    let broken =
        "skipped .claude/skills/broken  Missing required field in frontmatter: description";
    assert!(said.contains(broken), "{said}");
    let table = stdout(&listed);
    let names: Vec<&str> = table.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["NAME", "Odd", "pdf", "code-interpreter", "dataviz"]);
    assert!(!table.contains("SECRET BODY"));
    let report = parsed(&skill(&here, &["ls", "--json"]));
    assert_eq!(report["items"][1]["description"], "Reads PDF files.");
    assert_eq!(report["items"][1]["location"], ".claude/skills/pdf");
    assert_eq!(report["items"][0]["warnings"].as_array().unwrap().len(), 2);
    assert_eq!(report["skipped"][0]["location"], ".claude/skills/broken");
}

// proves K-08
#[test]
fn show_prints_the_body_of_a_skill_that_ships_of_the_project_or_of_a_folder() {
    let here = project(&[("pdf/SKILL.md", GOOD), ("pdf/assets/a.bin", "123")]);
    assert!(
        stdout(&skill(&here, &["show", "code-interpreter"])).starts_with("# Code interpreter\n")
    );
    assert_eq!(stdout(&skill(&here, &["show", "./pdf"])), "# How\n\nRead it.\n");
    let report = parsed(&skill(&here, &["show", "--json", "./pdf"]));
    assert_eq!(report["files"], json!({"SKILL.md": GOOD.len(), "assets/a.bin": 3}));
    let unknown = skill(&here, &["show", "pdf"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("for a directory, use a path with a slash, such as ./pdf"));
    // A copy that was changed is what its owner means.
    assert!(skill(&here, &["install", "dataviz"]).status.success());
    let copy = here.path().join(".claude/skills/dataviz/SKILL.md");
    fs::write(copy, "---\nname: dataviz\ndescription: d\n---\nMine.\n").unwrap();
    assert_eq!(stdout(&skill(&here, &["show", "dataviz"])), "Mine.\n");
}

#[test]
fn install_copies_a_skill_and_says_what_it_wrote() {
    let here = project(&[]);
    let installed = skill(&here, &["install", "dataviz"]);
    let assets = [
        "assets/SHA256SUMS",
        "assets/chart.html",
        "assets/chart.umd.min.js",
        "assets/chart.umd.min.js.LICENSE.md",
    ];
    let others: Vec<&str> = ["SKILL.md"].into_iter().chain(assets).collect();
    let wrote = |path: &&str| format!("wrote .claude/skills/dataviz/{path}\n");
    let expected: String = others.iter().chain(&["scripts/chart.py"]).map(wrote).collect();
    assert_eq!(stdout(&installed), expected);
    let valid = skill(&here, &["validate", ".claude/skills/dataviz"]);
    assert!(valid.status.success(), "{}", stderr(&valid));
    let again = skill(&here, &["install", "dataviz"]);
    assert_eq!(stdout(&again), "dataviz is already installed in .claude/skills/dataviz\n");
    fs::remove_file(here.path().join(".claude/skills/dataviz/scripts/chart.py")).unwrap();
    let mended = parsed(&skill(&here, &["install", "--json", "dataviz"]));
    assert_eq!(mended["written"], json!(["scripts/chart.py"]));
    assert_eq!(mended["unchanged"], json!(others));
    let elsewhere = parsed(&skill(&here, &["install", "--to", "other", "--json", "dataviz"]));
    assert_eq!(elsewhere["folder"], "other/dataviz");
}

#[test]
fn install_overwrites_nothing_and_follows_no_link() {
    let here = project(&[("pdf/SKILL.md", GOOD), ("pdf/a.txt", "theirs"), ("pdf/b.txt", "b")]);
    let kept = here.path().join(".claude/skills/pdf/a.txt");
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::write(&kept, "mine").unwrap();
    let said = refused(&skill(&here, &["install", "./pdf"]));
    assert!(said.contains(".claude/skills/pdf contains different files"), "{said}");
    assert!(said.ends_with("\n  a.txt\n"), "{said}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "mine");
    assert!(!kept.with_file_name("b.txt").exists(), "nothing was written");

    let outside = here.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir_all(here.path().join("linked")).unwrap();
    symlink(&outside, here.path().join("linked/pdf")).unwrap();
    refused(&skill(&here, &["install", "--to", "linked", "./pdf"]));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(skill(&here, &["install", "--to", "fresh", "./pdf"]).status.success());
}

#[test]
fn only_a_valid_skill_is_installed() {
    let text = "---\nname: ../../up\ndescription: d\n---\n";
    let here = project(&[("pdf/SKILL.md", text)]);
    let said = refused(&skill(&here, &["install", "./pdf"]));
    assert!(said.contains("the skill is invalid"), "{said}");
    assert!(!here.path().join(".claude").exists());
}

/// Tries to change the skill in every way, and says what it was told each time.
const VANDAL: &str = r#"
import os, shutil, subprocess, sys

attempts = {
    "write": lambda: open("references/note.txt", "w"),
    "append": lambda: open("/skill/references/note.txt", "a"),
    "create": lambda: open("new.txt", "w"),
    "remove": lambda: os.remove("references/note.txt"),
    "rename": lambda: os.rename("references", "gone"),
    "make": lambda: os.mkdir("made"),
    "mode": lambda: os.chmod("SKILL.md", 0o777),
    "time": lambda: os.utime("SKILL.md", (0, 0)),
    "link": lambda: os.symlink("/workspace", "linked"),
    "own script": lambda: open(__file__, "w"),
    "tree": lambda: shutil.rmtree("scripts"),
    "shell": lambda: subprocess.run("echo x > new.txt", shell=True, check=True, stderr=subprocess.DEVNULL),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except (OSError, subprocess.CalledProcessError):
        print("refused", name)
    else:
        print("ALLOWED", name)
print(sorted(os.listdir(".")), open("references/note.txt").read())
"#;

// proves K-12
#[test]
fn a_script_cannot_change_its_skill_and_can_read_it() {
    let here = scripted(VANDAL);
    let output = run(&here, &["./pdf", "scripts/run.py"]);
    let said = stdout(&output);
    assert!(!said.contains("ALLOWED"), "{said}{}", stderr(&output));
    assert_eq!(said.matches("refused ").count(), 12, "{said}");
    assert!(said.ends_with("['SKILL.md', 'references', 'scripts'] from the skill\n"), "{said}");
    assert_eq!(
        fs::read_to_string(here.path().join("pdf/references/note.txt")).unwrap(),
        "from the skill"
    );
}

// proves K-09
#[test]
fn a_script_starts_at_the_root_of_its_skill_and_works_in_the_workspace() {
    let here = scripted(
        "import os, sys, pathlib, helper\n\
         print(os.getcwd(), __file__, sys.argv, helper.NAME)\n\
         print(open('references/note.txt').read(), open('/workspace/in.txt').read())\n\
         pathlib.Path('/workspace/out.txt').write_text('made')\n",
    );
    fs::write(here.path().join("pdf/scripts/helper.py"), "NAME = 'beside'\n").unwrap();
    fs::write(here.path().join("in.txt"), "brought").unwrap();
    let args =
        ["--file", "in.txt", "--out", "got", "./pdf", "./scripts/run.py", "--out", "x", "-v"];
    let output = run(&here, &args);
    let expected = "/skill /skill/scripts/run.py ['scripts/run.py', '--out', 'x', '-v'] beside\n\
                    from the skill brought\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    assert_eq!(fs::read_to_string(here.path().join("got/out.txt")).unwrap(), "made");
    assert!(!here.path().join("got/in.txt").exists());
}

// proves K-11
#[test]
fn a_script_has_no_standard_input() {
    let here = scripted(
        "import sys\nprint(repr(sys.stdin.read()))\ntry:\n    input('name? ')\n\
         except EOFError:\n    print('end')\n",
    );
    let mut child = belljar(&["skill", "run", "--env", "bare", "./pdf", "scripts/run.py"])
        .current_dir(here.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it was written to, since no process reads it.
    let _ = child.stdin.take().unwrap().write_all(b"typed by somebody\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "''\nname? end\n");
}

// proves K-10
#[test]
fn a_script_runs_where_its_dependencies_are_and_is_refused_elsewhere_by_name() {
    let here = scripted(
        "# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\"NumPy>=2\", \"pandas\"]\n# ///\n\
         import numpy\nprint(numpy.arange(4).sum())\n",
    );
    let said = refused(&run(&here, &["./pdf", "scripts/run.py"]));
    assert_eq!(
        said,
        "belljar: environment `bare` does not meet the requirements of the script: NumPy>=2, pandas; \
         without --env, Belljar builds one that does\n"
    );
    let output = skill(&here, &["run", "./pdf", "scripts/run.py"]);
    assert_eq!(stdout(&output), "6\n", "{}", stderr(&output));
}

#[test]
fn an_environment_is_made_for_what_a_script_needs_once() {
    let here = scripted(
        "# /// script\n# dependencies = [\"iniconfig>=2\"]\n# ///\n\
         import iniconfig\nprint(iniconfig.__name__)\n",
    );
    let run = || skill(&here, &["run", "./pdf", "scripts/run.py"]);
    let first = run();
    assert_eq!(stdout(&first), "iniconfig\n", "{}", stderr(&first));
    let again = run();
    assert_eq!((stdout(&again).as_str(), stderr(&again).as_str()), ("iniconfig\n", ""));
    let script = here.path().join("pdf/scripts/run.py");
    fs::write(&script, "# /// script\n# dependencies = [\"belljar-has-no-such-package\"]\n# ///\n")
        .unwrap();
    let output = run();
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains("belljar-has-no-such-package"), "{said}");
}

#[test]
fn links_and_pipes_of_a_folder_do_not_come_along() {
    let here = scripted("import os\nprint(sorted(os.listdir('.')))\n");
    fs::write(here.path().join("secret.txt"), "secret").unwrap();
    symlink("../secret.txt", here.path().join("pdf/linked.txt")).unwrap();
    symlink("/etc", here.path().join("pdf/etc")).unwrap();
    let pipe = here.path().join("pdf/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = run(&here, &["./pdf", "scripts/run.py"]);
    assert_eq!(stdout(&output), "['SKILL.md', 'references', 'scripts']\n");
    let said = stderr(&output);
    for line in
        ["skipped etc: a symbolic link", "skipped linked.txt", "skipped pipe: not a regular file"]
    {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn a_script_that_is_not_there_is_refused_with_those_that_are() {
    let here = scripted("print(1)\n");
    for name in ["run.py", "../secret.py", "SKILL.md", "/etc/passwd", "scripts"] {
        let said = refused(&run(&here, &["./pdf", name]));
        assert!(said.ends_with("in the skill; scripts: scripts/run.py\n"), "{said}");
    }
}

#[test]
fn a_record_of_a_script_is_for_programs() {
    let here = scripted("print(1)\nraise SystemExit(3)\n");
    let output = run(&here, &["--json", "./pdf", "scripts/run.py"]);
    assert_eq!(output.status.code(), Some(3));
    let record = parsed(&output);
    assert_eq!((&record["entry"], &record["exit_code"]), (&json!("script"), &json!(3)));
    assert_eq!(record["output"][0]["text"], "1\n");
}

/// The colour of the first series, which nothing else of a page has.
const BAR_COLOUR: &str = "4c78a8";

/// The box of a number, over white.
const BOX_COLOUR: &str = "333333";
/// Moves a pointer over the first of two bars.
const POINTER: &str = "<script>{
  const target = document.getElementById('chart'), box = target.getBoundingClientRect();
  const at = { clientX: box.left + box.width * 0.25, clientY: box.bottom - 60, bubbles: true };
  target.dispatchEvent(new MouseEvent('mousemove', at));
}</script>";

/// The data that a page was given.
fn data_of(page: &Path) -> Value {
    let page = fs::read_to_string(page).unwrap();
    let data = page.split(r#"id="data">"#).nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(data).unwrap()
}

// proves P-061
#[test]
fn totals_that_code_has_computed_become_a_chart() {
    let here =
        project(&[("sales.csv", "day,amount\n2024-01-05,10\n2024-01-20,2.5\n2024-02-01,30\n")]);
    let code = "import csv, collections, json\n\
                totals = collections.Counter()\n\
                for row in csv.DictReader(open('sales.csv')):\n    \
                    totals[row['day'][:7]] += float(row['amount'])\n\
                json.dump([{'month': m, 'total': t} for m, t in totals.items()], open('totals.json', 'w'))";
    let computed = belljar(&["exec", "--env", "bare", "--file", "sales.csv", "--out", ".", code])
        .current_dir(here.path())
        .output()
        .unwrap();
    assert!(computed.status.success(), "{}", stderr(&computed));
    let output = run(
        &here,
        &[
            "--file",
            "totals.json",
            "--out",
            ".",
            "dataviz",
            "scripts/chart.py",
            "--title",
            "<Sales>",
            "--out",
            "/workspace/chart.html",
            "/workspace/totals.json",
        ],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let page = here.path().join("chart.html");
    let series = json!([{"name": "total", "values": [12.5, 30.0]}]);
    let labels = json!(["2024-01", "2024-02"]);
    assert_eq!(data_of(&page), json!({"type": "bar", "labels": labels, "series": series}));
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<h1>&lt;Sales&gt;</h1>") && !text.contains("{{"));
    // A browser that has nothing but the page draws the numbers.
    let bars = browser::picture_of(&page).bars(BAR_COLOUR);
    let [january, february] = bars[..] else { panic!("{bars:?}") };
    assert!(january.width().abs_diff(february.width()) <= 1, "{bars:?}");
    assert!(january.width() > 200 && february.height > 200, "{bars:?}");
    // To a pixel, because edges are blended.
    let expected = february.height * 125 / 300;
    assert!(january.height.abs_diff(expected) <= 2, "{bars:?}");
    // The chart answers a pointer: the bar below it is lit, and a box with its number is open.
    let hovered = here.path().join("hovered.html");
    fs::write(&hovered, text.replace("Content-Security-Policy", "x") + POINTER).unwrap();
    let shown = browser::picture_of(&hovered);
    let still_dark = shown.bars(BAR_COLOUR).into_iter().filter(|bar| bar.width() > 200).count();
    assert_eq!(still_dark, 1, "{:?}", shown.bars(BAR_COLOUR));
    let is_box = |bar: &browser::Bar| bar.width() > 30 && bar.height > 10;
    assert!(shown.bars(BOX_COLOUR).iter().any(is_box), "{:?}", shown.bars(BOX_COLOUR));
    assert!(!browser::picture_of(&page).bars(BOX_COLOUR).iter().any(is_box));
}

/// What a page could do that is not the page of the skill: run a script, have a style, load an image.
fn with_additions(page: &str, address: &str) -> String {
    let additions = format!(
        "<script>document.body.appendChild(document.createElement('hr')).style.cssText = \
         'border: 0; height: 30px; background: #ff0000'</script>\
         <style>h1 {{ background: #00ff00 }}</style><img src=\"http://{address}/x.png\"></body>"
    );
    page.replace("</body>", &additions)
}

/// A server that closes every connection, its address, and how many there were.
fn counting_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let visits: Arc<AtomicUsize> = Arc::default();
    let (address, counted) = (listener.local_addr().unwrap().to_string(), Arc::clone(&visits));
    std::thread::spawn(move || {
        for _ in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (address, visits)
}

// proves P-083
#[test]
fn t260_a_chart_page_runs_its_own_scripts_and_loads_nothing() {
    let here = project(&[("n.json", r#"[{"m": "Jan", "t": 17}, {"m": "Feb", "t": 5}]"#)]);
    let chart = ["--file", "n.json", "dataviz", "scripts/chart.py", "/workspace/n.json"];
    let page = stdout(&run(&here, &chart));
    assert!(!page.contains("src=") && !page.contains("href="), "the page names another file");
    let rules = page.split("Content-Security-Policy\" content=\"").nth(1).unwrap();
    let rules = rules.split('"').next().unwrap();
    assert!(rules.starts_with("default-src 'none'; script-src 'sha256-"), "{rules}");
    assert!(
        !rules.contains("unsafe") && !rules.contains("http") && !rules.contains('*'),
        "{rules}"
    );
    let (address, visits) = counting_server();
    let show = |name: &str, text: &str| {
        let path = here.path().join(name);
        fs::write(&path, text).unwrap();
        browser::picture_of(&path)
    };
    let altered = with_additions(&page, &address);
    let shown = show("altered.html", &altered);
    assert_eq!((shown.bars("ff0000"), shown.bars("00ff00")), (Vec::new(), Vec::new()));
    assert_eq!(shown.bars(BAR_COLOUR).len(), 2, "its own scripts run");
    assert_eq!(visits.load(Ordering::Relaxed), 0, "nothing was loaded");
    // The same page without its policy does all of this.
    let shown = show("open.html", &altered.replace("Content-Security-Policy", "x"));
    assert!(!shown.bars("ff0000").is_empty() && !shown.bars("00ff00").is_empty());
    assert!(visits.load(Ordering::Relaxed) > 0, "the image was requested");
}

#[test]
fn chart_js_is_the_file_of_its_package_with_its_licence() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../skills/dataviz/assets");
    let check = std::process::Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&assets)
        .output()
        .unwrap();
    assert_eq!(stdout(&check), "chart.umd.min.js: OK\n", "{}", stderr(&check));
    let read = |name: &str| fs::read_to_string(assets.join(name)).unwrap();
    assert!(read("chart.umd.min.js").contains("Chart.js v4.5.1"));
    let licence = read("chart.umd.min.js.LICENSE.md");
    for part in
        ["chart.js 4.5.1", "Chart.js Contributors", "Jukka Kurkela", "The MIT License (MIT)"]
    {
        assert!(licence.contains(part), "{part}");
    }
    let shown = belljar(&["skill", "show", "dataviz"]).output().unwrap();
    assert!(stdout(&shown).contains("Chart.js 4.5.1"), "{}", stderr(&shown));
}

#[test]
fn rows_that_are_no_numbers_are_an_error_and_a_hostile_label_is_a_text() {
    let hostile =
        r#"[{"label": "</script><script>alert(1)", "n": 1}, {"label": "{{title}}", "n": 2}]"#;
    let here = project(&[("bad.csv", "a,b\nx,many\n"), ("hostile.json", hostile)]);
    let chart =
        |file: &str, path: &str| run(&here, &["--file", file, "dataviz", "scripts/chart.py", path]);
    let bad = chart("bad.csv", "/workspace/bad.csv");
    assert_eq!(bad.status.code(), Some(1));
    let said = stderr(&bad);
    assert!(said.contains("chart.py: row 1 has 'many' in 'b', which is not a number"), "{said}");
    let page = stdout(&chart("hostile.json", "/workspace/hostile.json"));
    assert_eq!(page.matches("<script").count(), 3, "its own, and none more");
    assert!(page.contains(r#""{{title}}""#));
}
