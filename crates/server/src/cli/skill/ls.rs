//! `belljar skill ls`: what an agent would be told of each skill.

use super::find::{self, Found};
use crate::cli::once::print_record;
use crate::cli::{Failure, listing, terminal};
use serde_json::{Value, json};
use skill::Skill;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object, with the skills that were skipped as well
    #[arg(long)]
    json: bool,
}

const COLUMNS: [listing::Column; 3] =
    [("name", "/name"), ("where", "/place"), ("description", "/description")];

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    for folder in find::installed() {
        let place = folder.display().to_string();
        match Skill::open(&folder) {
            Ok(skill) => found.push(Found { skill, place }),
            Err(problem) => {
                skipped.push(json!({"place": place, "problem": problem.to_string()}));
            }
        }
    }
    for name in Skill::built_in_names() {
        if !found.iter().any(|own| own.skill.entry.name == name) {
            found.push(find::built_in(name)?);
        }
    }
    let items: Vec<Value> = found.iter().map(described).collect();
    if args.json {
        let report = json!({"items": items, "skipped": skipped});
        print_record(&terminal::for_stdout(&report.to_string()))?;
    } else {
        found.iter().for_each(Found::warn);
        for left_out in &skipped {
            let line = listing::row(left_out, &[("place", "/place"), ("problem", "/problem")]);
            eprintln!("belljar: skipped {line}");
        }
        listing::table(&items, &COLUMNS)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn described(found: &Found) -> Value {
    let entry = &found.skill.entry;
    let warnings: Vec<String> = found.skill.warnings.iter().map(ToString::to_string).collect();
    json!({
        "name": entry.name,
        "description": entry.description,
        "place": found.place,
        "warnings": warnings,
    })
}
