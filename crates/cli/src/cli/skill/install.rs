//! `belljar skill install`: copies a skill into the directory where agents look for it.
//!
//! Existing files are compared first. Nothing is overwritten, and no link below the directory of
//! the skill is followed. If any file is in the way, nothing is written.

use super::find::{self, FoundSkill, INSTALL_DIRECTORY};
use crate::cli::one_shot::print_record;
use crate::cli::{CliError, terminal};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory of skills; the skill becomes a subdirectory with its name
    #[arg(long, value_name = "DIR", default_value = INSTALL_DIRECTORY)]
    to: PathBuf,

    /// Print one JSON object with the written files
    #[arg(long)]
    json: bool,

    /// Name of a built-in skill, or a directory
    #[arg(value_name = "NAME | DIR")]
    skill: String,
}

/// The files to write for the installation.
#[derive(Debug, Default)]
struct InstallPlan {
    new: Vec<(String, Vec<u8>)>,
    unchanged: Vec<String>,
    /// Existing files that differ.
    conflicting: Vec<String>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let found = find::find_original(&args.skill)?;
    if !found.skill.warnings.is_empty() {
        // The name becomes the name of a directory.
        let message = "the skill is invalid; `belljar skill validate` lists the errors";
        return Err(CliError::rejected(format!("{}: {message}", found.location)));
    }
    let target = args.to.join(&found.skill.summary.name);
    let plan = plan_install(&found, &target)?;
    if !plan.conflicting.is_empty() {
        let message = format!(
            "{} contains different files, and nothing was written; move them, or choose another directory with --to",
            target.display()
        );
        return Err(CliError { details: plan.conflicting, ..CliError::rejected(message) });
    }
    apply_plan(&plan, &target)?;
    print_result(args, &found, &plan, &target)?;
    Ok(ExitCode::SUCCESS)
}

fn plan_install(found: &FoundSkill, target: &Path) -> Result<InstallPlan, CliError> {
    let contents = found.contents()?;
    let mut plan = InstallPlan::default();
    for (path, content) in contents.files {
        if crosses_symlink(target, &path) {
            plan.conflicting.push(path);
            continue;
        }
        match fs::read(target.join(&path)) {
            Ok(present) if present == content => plan.unchanged.push(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => plan.new.push((path, content)),
            Ok(_) | Err(_) => plan.conflicting.push(path),
        }
    }
    Ok(plan)
}

/// Returns whether the directory of the skill, or a part of the path below it, is a link.
fn crosses_symlink(target: &Path, path: &str) -> bool {
    let inner = Path::new(path).ancestors().filter(|part| !part.as_os_str().is_empty());
    // Not joined with nothing: that would end in a slash, which follows the link.
    target.is_symlink() || inner.into_iter().any(|part| target.join(part).is_symlink())
}

fn apply_plan(plan: &InstallPlan, target: &Path) -> Result<(), CliError> {
    for (path, content) in &plan.new {
        let place = target.join(path);
        let result = place.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            // `create_new` fails if the file was created since the comparison.
            let file = OpenOptions::new().write(true).create_new(true).open(&place);
            file?.write_all(content)
        });
        result.map_err(|error| CliError::rejected(format!("{}: {error}", place.display())))?;
    }
    Ok(())
}

fn print_result(
    args: &Args,
    found: &FoundSkill,
    plan: &InstallPlan,
    target: &Path,
) -> Result<(), CliError> {
    let paths: Vec<&str> = plan.new.iter().map(|(path, _)| path.as_str()).collect();
    let (name, place) = (&found.skill.summary.name, target.display().to_string());
    let text = if args.json {
        json!({"name": name, "folder": place, "written": paths, "unchanged": plan.unchanged})
            .to_string()
    } else if paths.is_empty() {
        format!("{name} is already installed in {place}")
    } else {
        let paths = paths.iter().map(|path| format!("wrote {place}/{path}"));
        paths.collect::<Vec<_>>().join("\n")
    };
    print_record(&terminal::for_stdout(&text))
}
