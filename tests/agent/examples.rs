//! The built-in example agents, each from its request to its files, without a key.

use crate::harness::{self, stderr, stdout};
use crate::notebook::valid_cells;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

struct Played {
    result: Value,
    out: TempDir,
}

impl Played {
    fn answer(&self) -> &str {
        self.result["answer"].as_str().unwrap()
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.out.path().join(name)).unwrap()
    }

    fn rounds(&self) -> Vec<&str> {
        let rounds = self.result["rounds"].as_array().unwrap();
        rounds.iter().map(|round| round["status"].as_str().unwrap()).collect()
    }

    fn assert_says(&self, expected: &str) {
        let answer = self.answer();
        assert!(answer.contains(expected), "{expected:?} is not in {answer:?}");
    }
}

fn play(name: &str) -> Played {
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    let played = harness::belljar(&["demo", name, "--json", "--out", place]).output().unwrap();
    assert!(played.status.success(), "{}", stderr(&played));
    let result: Value = serde_json::from_str(&stdout(&played)).unwrap();
    assert_eq!(result["status"], "succeeded", "{result:#}");
    Played { result, out }
}

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file)
}

/// What this code prints of that file, line by line.
fn computed(file: &str, code: &str) -> Vec<String> {
    let ran = harness::exec(&["--file", example(file).to_str().unwrap(), code]);
    assert!(ran.status.success(), "{}", stderr(&ran));
    stdout(&ran).lines().map(str::to_owned).collect()
}

// proves S-014
#[test]
fn the_sales_analyst_answers_with_the_numbers_of_the_data_and_draws_them() {
    let played = play("sales-analyst");
    let code = "
import pandas as pd
sales = pd.read_csv('sales.csv')
revenue = sales.units * sales.price
print(f'revenue was {revenue.sum():,.0f}.')
for kind in ('region', 'product'):
    best = revenue.groupby(sales[kind]).sum().nlargest(1)
    print(best.index[0])
    print(f'the best {kind} with {best.iloc[0]:,.0f}')
";
    computed("sales-analyst/sales.csv", code).iter().for_each(|line| played.assert_says(line));
    assert_eq!(played.result["artifacts"][0]["asset_filename"], "plot_0.png");
    assert!(played.file("revenue_by_month.png").starts_with(PNG));
    let table = String::from_utf8(played.file("revenue_by_region.csv")).unwrap();
    assert_eq!(table.lines().next(), Some("region,Chair,Desk,Lamp,Shelf"));
    let first = played.result["rounds"][0]["code"].as_str().unwrap();
    assert!(first.contains("pd.read_csv(\"sales.csv\""), "the code can be looked at: {first}");
    let rounds = ["succeeded", "failed", "succeeded", "succeeded", "succeeded"];
    assert_eq!(played.rounds(), rounds, "one fails, and is mended");
}

#[test]
fn the_csv_cleaner_mends_what_can_be_mended_and_invents_nothing() {
    let played = play("csv-cleaner");
    let code = "
import csv
rows = {row['id']: row for row in csv.DictReader(open('customers.csv'))}
amounts = [row['Spent'].replace(',', '.') for row in rows.values()]
print(f'{len(rows)} customers')
print(f'{sum(float(amount) for amount in amounts if amount):.2f} in total')
";
    computed("csv-cleaner/customers.csv", code).iter().for_each(|line| played.assert_says(line));
    let clean = String::from_utf8(played.file("customers_clean.csv")).unwrap();
    let lines: Vec<&str> = clean.lines().collect();
    assert_eq!(lines[0], "id,name,email,country,joined,spent");
    assert_eq!(lines[3], "3,Chloe,chloe@example.com,Spain,2025-07-05,250.1");
    assert!(
        clean.contains("\n10,Jon,,France,2025-11-22,375.4\n"),
        "no address is made up: {clean}"
    );
    assert_eq!(lines.len(), 13);
}

#[test]
fn the_unit_converter_answers_with_what_its_tool_has_computed() {
    let played = play("unit-converter");
    played.assert_says(&format!("{:.3} km", 26.2 * 1.609_344));
    played.assert_says(&format!("{:.3} °C", (350.0 - 32.0) / 1.8));
    let steps = played.result["trace"]["steps"].as_array().unwrap();
    let tools: Vec<&Value> = steps.iter().filter(|step| step["step"] == "called").collect();
    let failed: Vec<bool> = tools.iter().map(|step| step["tool"]["failed"] == true).collect();
    assert_eq!(failed, [false, false, true], "{steps:#?}");
    assert_eq!(played.result["actions"], serde_json::json!([]), "nobody has to be asked");
}

#[test]
fn the_media_probe_says_what_is_in_the_files() {
    let played = play("media-probe");
    let audio = std::fs::read(example("media-probe/tone.wav")).unwrap();
    let rate = u32::from_le_bytes(audio[24..28].try_into().unwrap());
    let seconds =
        f64::from(u32::from_le_bytes(audio[40..44].try_into().unwrap())) / f64::from(rate);
    played.assert_says(&format!("{seconds} seconds, {} channel, {rate} Hz", audio[22]));
    let picture = std::fs::read(example("media-probe/cover.png")).unwrap();
    let side = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    played.assert_says(&format!("{} x {} pixels", side(16), side(20)));
}

#[test]
fn the_chart_maker_reads_its_skill_and_shows_a_chart() {
    let played = play("chart-maker");
    let code = "
import pandas as pd
data = pd.read_csv('temperatures.csv').drop(columns='month')
print(f'{max(data[place].max() - data[place].min() for place in data):.1f} degrees')
";
    computed("chart-maker/temperatures.csv", code).iter().for_each(|line| played.assert_says(line));
    assert!(played.file("plot_0.png").starts_with(PNG));
    let steps = played.result["trace"]["steps"].as_array().unwrap();
    let skill = steps.iter().find(|step| step["tool"]["name"] == "load_skill").unwrap();
    assert_eq!(skill["tool"]["failed"], false);
}

// proves U-028, U-038, U-039, U-040, U-041, U-042, U-043, U-044, U-048, U-086
#[test]
fn the_request_of_the_guide_returns_its_whole_object() {
    let played = play("code-execution");
    let result = &played.result;
    let code = "
import pandas as pd
sales = pd.read_csv('sales_report.csv', sep=';', decimal=',')
for region, total in sales.groupby('region')['revenue'].sum().items():
    print(f'{region}: {total:.2f}')
";
    let logs = result["logs"].as_str().unwrap();
    let totals = computed("code-execution/sales_report.csv", code);
    assert_eq!(totals.len(), 4);
    for line in &totals {
        assert!(logs.contains(line), "{line}: {logs}");
    }
    let id = result["sandbox_id"].as_str().unwrap();
    let plan: Vec<&str> =
        result["plan"].as_array().unwrap().iter().map(|step| step.as_str().unwrap()).collect();
    assert_eq!(plan.len(), 3);
    let head = format!(
        "INFO: Started sandbox session: {id}\nINFO: Development plan: {}\n\n--- Round 1/6: {}",
        serde_json::to_string(&plan).unwrap().replace("\",\"", "\", \""),
        plan[0].trim_end_matches('.')
    );
    assert!(logs.starts_with(&head), "{head}\n{logs}");
    for marker in [
        "GENERATED CODE:\nimport pandas as pd\n",
        "\nSTDOUT:\nFirst few rows of the dataset:\n",
        "\n\nSTATUS: Execution successful\n",
        "\n\nSTATUS: Execution failed: ValueError: could not convert string to float",
        "\n--- Round 4/6: ",
    ] {
        assert!(logs.contains(marker), "{marker:?}: {logs}");
    }
    assert_eq!(result["total_rounds"], 4);
    assert_eq!(result["generated_files"][0]["name"], "revenue_per_region.csv");
    assert_eq!(result["artifacts"][0]["type"], "media_reference");
    assert_eq!(result["artifacts"][0]["asset_filename"], "plot_0.png");
    assert!(result["artifacts"][0]["url"].as_str().unwrap().contains("/v1/assets/"));
    assert!(!result["execution_id"].as_str().unwrap().is_empty());
    assert!(played.file("revenue_per_region.png").starts_with(PNG));
}

#[test]
fn a_demo_leaves_a_page_and_a_notebook_with_its_chart_in_them() {
    let played = play("sales-analyst");
    let page = String::from_utf8(played.file("report.html")).unwrap();
    assert_eq!(
        page.matches("<img alt=\"revenue_by_month.png\" src=\"data:image/png;base64,").count(),
        1
    );
    assert!(page.contains("KeyError") && page.contains("162,179"), "{page}");
    // The request and the answer, a heading and code for each of 5 rounds, what the model was asked
    // 9 times, and the tool that it has called.
    assert_eq!(valid_cells(&played.out.path().join("run.ipynb")), 2 + 2 * 5 + 9 + 1);
}

#[test]
fn a_newcomer_sees_plan_rounds_and_files_and_where_they_are() {
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    let played = harness::belljar(&["demo", "--out", place]).output().unwrap();
    let (said, progress) = (stdout(&played), stderr(&played));
    assert!(played.status.success(), "{progress}");
    let all = format!("{said}{progress}");
    for seen in ["Load sales.csv", "by_region", "162,179", "month.png", "report.html", place] {
        assert!(all.contains(seen), "{seen}: {all}");
    }
}

#[test]
fn an_example_that_is_not_there_is_refused_with_those_that_are() {
    let played = harness::belljar(&["demo", "rocket"]).output().unwrap();
    assert_eq!(played.status.code(), Some(2));
    let text = stderr(&played);
    assert!(text.contains("sales-analyst") && text.contains("chart-maker"), "{text}");
}
