//! `belljar skill ls`: lists skills with the descriptions that agents see: those of a server, or those
//! here.

use super::find::{self, FoundSkill};
use crate::cli::one_shot::print_record;
use crate::cli::remote::{ListArgs, RemoteArgs};
use crate::cli::resource_names::ResourceKind;
use crate::cli::{CliError, display, terminal};
use crate::client::ApiRequest;
use serde_json::{Value, json};
use skill::Skill;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(flatten)]
    list: ListArgs,
}

const COLUMNS: [display::Column; 3] =
    [("name", "/name"), ("where", "/location"), ("description", "/description")];

const UPLOADED_COLUMNS: &[display::Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("description", "/description"),
    ("changed", "/updated_at"),
];

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    if args.remote.is_named() {
        return args.remote.run(async |remote| {
            let call = ApiRequest::get(ResourceKind::Skill.path());
            remote.list(call, args.list, UPLOADED_COLUMNS).await
        });
    }
    list_local(args.remote.json)
}

/// Lists the built-in skills and those of this project. JSON includes invalid ones.
fn list_local(json: bool) -> Result<ExitCode, CliError> {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    for folder in find::installed_folders() {
        let location = folder.display().to_string();
        match Skill::open(&folder) {
            Ok(skill) => found.push(FoundSkill { skill, location }),
            Err(problem) => {
                skipped.push(json!({"location": location, "problem": problem.to_string()}));
            }
        }
    }
    for name in Skill::built_in_names() {
        if !found.iter().any(|own| own.skill.summary.name == name) {
            found.push(find::built_in(name)?);
        }
    }
    let items: Vec<Value> = found.iter().map(skill_json).collect();
    if json {
        let report = json!({"items": items, "skipped": skipped});
        print_record(&terminal::for_stdout(&report.to_string()))?;
    } else {
        found.iter().for_each(FoundSkill::print_warnings);
        for left_out in &skipped {
            let line = display::format_row(
                left_out,
                &[("location", "/location"), ("problem", "/problem")],
            );
            eprintln!("belljar: skipped {line}");
        }
        display::print_table(&items, &COLUMNS)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn skill_json(found: &FoundSkill) -> Value {
    let entry = &found.skill.summary;
    let warnings: Vec<String> = found.skill.warnings.iter().map(ToString::to_string).collect();
    json!({
        "name": entry.name,
        "description": entry.description,
        "location": found.location,
        "warnings": warnings,
    })
}
