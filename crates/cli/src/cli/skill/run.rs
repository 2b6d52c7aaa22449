//! `belljar skill run`: runs a script of a skill in a fresh sandbox.
//!
//! The sandbox sees a read-only copy of the regular files of the skill, without links and sockets.
//! The script starts in the root of the skill without standard input; its input and output files
//! are in `/workspace`.

use super::find;
use crate::cli::CliError;
use crate::cli::engine_args::{DEFAULT_ENVIRONMENT, EngineArgs};
use crate::cli::one_shot::{self, OutcomeArgs, StdoutUse};
use crate::cli::progress;
use crate::cli::request_args::RequestArgs;
use engine::{
    BuildRequest, Code, Command, Config, Engine, EntryPoint, Header, InstalledVersions, Mount,
    Name, SourceKind, UnlockedDefinition, UnmetRequirement,
};
use skill::SkillContents;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::sync::Arc;
use tempfile::TempDir;

/// The path of the skill in the sandbox.
const ROOT: &str = "/skill";
/// Name of the copy in a temporary directory.
const COPY: &str = "skill";
/// Readable and executable for all users. The read-only mount prevents writing.
const MODE: u32 = 0o755;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    outcome: OutcomeArgs,

    /// Name of a skill of this project or of a built-in one, or a directory
    #[arg(value_name = "NAME | DIR")]
    skill: String,

    /// Path of a Python script relative to the skill, and its arguments
    #[arg(
        value_name = "SCRIPT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    script: Vec<String>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let found = find::find_skill(&args.skill)?;
    let failed = |reason: String| CliError::rejected(format!("{}: {reason}", found.location));
    let contents = found.contents()?;
    let argv = argv(args);
    let (code, header) = find_script(&contents, &argv).map_err(failed)?;
    let copy = copy_files(&contents.files)
        .map_err(|error| CliError::internal(format!("cannot copy the skill: {error}")))?;
    let mount = Mount { host: copy.path().join(COPY), inside: ROOT.into() };
    let config = Config { mounts: vec![mount], ..args.engine.single_config()? };
    let environment = args.engine.environment();
    let entry = EntryPoint::ScriptIn { directory: ROOT.to_owned(), code, argv };
    let command = Command {
        files: args.request.files()?,
        limits: args.request.limits()?,
        collect_files: args.outcome.file_collection(),
        ..Command::new(environment, entry)
    };
    let source = command.entry.code().to_owned();
    let other = async |engine: &Arc<Engine>, installed: &InstalledVersions| {
        let unmet = header.unmet(installed.python, &installed.packages);
        match unmet.is_empty() {
            true => Ok(None),
            false if environment == DEFAULT_ENVIRONMENT => {
                environment_for(engine, &header, &source).await.map(Some)
            }
            false => Err(missing_packages_error(environment, &unmet)),
        }
    };
    one_shot::run_with_config(command, config, &args.outcome, StdoutUse::Output, other)
}

/// Builds the command; the script has its path in the skill.
fn argv(args: &Args) -> Vec<String> {
    let mut argv = args.script.clone();
    if let Some(script) = argv.first_mut() {
        *script = script.trim_start_matches("./").to_owned();
    }
    argv
}

/// Finds the script and its declared requirements.
fn find_script(contents: &SkillContents, argv: &[String]) -> Result<(Code, Header), String> {
    let name = argv.first().map_or("", String::as_str);
    let Some(source) = contents.files.get(name).filter(|_| name.ends_with(".py")) else {
        let scripts = contents.files.keys().filter(|path| path.ends_with(".py"));
        let scripts = scripts.map(String::as_str).collect::<Vec<_>>().join(", ");
        let has = if scripts.is_empty() { "none" } else { &scripts };
        return Err(format!("no Python script {name:?} in the skill; scripts: {has}"));
    };
    let code = Code::new(source.clone()).map_err(|error| format!("{name}: {error}"))?;
    let header = Header::of(code.as_str()).map_err(|error| format!("{name}: {error}"))?;
    Ok((code, header))
}

/// Copies the files so that the user of the sandbox can read them with any umask, into a directory
/// that no other user of this machine can enter.
fn copy_files(files: &BTreeMap<String, Vec<u8>>) -> io::Result<TempDir> {
    let copy = tempfile::tempdir()?;
    for (path, content) in files {
        let target = copy.path().join(COPY).join(path);
        target.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&target, content)?;
        let own = target.ancestors().take_while(|part| *part != copy.path());
        own.into_iter()
            .try_for_each(|part| fs::set_permissions(part, Permissions::from_mode(MODE)))?;
    }
    Ok(copy)
}

/// Builds an environment with the requirements of a script, once for all scripts with the same
/// requirements.
async fn environment_for(
    engine: &Arc<Engine>,
    header: &Header,
    source: &str,
) -> Result<String, CliError> {
    let name = Name::for_script(header);
    if engine.check_environment(name.as_str()).is_err() {
        let draft = UnlockedDefinition::parse(SourceKind::Script, source, Some(&name));
        let draft = draft.map_err(|error| CliError::rejected(error.to_string()))?;
        let mut show = progress::progress_printer();
        let order = BuildRequest { draft, lock: None, python: None };
        engine.add_environment(order, move |event| show(event.clone())).await?;
    }
    Ok(name.to_string())
}

/// Reports missing packages before the script runs and fails with an ImportError.
fn missing_packages_error(environment: &str, unmet: &[UnmetRequirement]) -> CliError {
    let unmet = unmet.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    CliError::rejected(format!(
        "environment `{environment}` does not meet the requirements of the script: {unmet}; without --env, Belljar builds one that does"
    ))
}
