//! The built-in skills: as prompts for users who select one, and as resources for clients that read
//! them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, Prompt, PromptMessage, Resource, ResourceContents, Role};
use skill::Skill;

const PREFIX: &str = "skill://";

fn built_in_skills() -> impl Iterator<Item = Skill> {
    Skill::built_in_names().filter_map(Skill::built_in)
}

pub(crate) fn prompts() -> Vec<Prompt> {
    let prompt =
        |skill: Skill| Prompt::new(skill.summary.name, Some(skill.summary.description), None);
    built_in_skills().map(prompt).collect()
}

pub(crate) fn get_prompt(name: &str) -> Result<GetPromptResult, ErrorData> {
    let missing = || ErrorData::invalid_params(format!("prompt {name:?} not found"), None);
    let skill = Skill::built_in(name).ok_or_else(missing)?;
    let body = skill.body().map_err(|_| missing())?;
    let message = PromptMessage::new_text(Role::User, body);
    Ok(GetPromptResult::new(vec![message]).with_description(skill.summary.description))
}

pub(crate) fn resources() -> Vec<Resource> {
    built_in_skills().flat_map(|skill| file_resources(&skill)).collect()
}

fn file_resources(skill: &Skill) -> Vec<Resource> {
    let name = &skill.summary.name;
    let listed = skill.files().map(|listing| listing.files).unwrap_or_default();
    let resource = |(path, size): (&String, &u64)| {
        let resource = Resource::new(format!("{PREFIX}{name}/{path}"), path.as_str());
        match path.as_str() {
            "SKILL.md" => resource.with_description(&skill.summary.description),
            _ => resource,
        }
        .with_mime_type(mime(path))
        .with_size(*size)
    };
    listed.iter().map(resource).collect()
}

/// Returns `None` if the URI is not a file of a skill.
pub(crate) fn read_file(uri: &str) -> Option<ResourceContents> {
    let (name, path) = uri.strip_prefix(PREFIX)?.split_once('/')?;
    let content = Skill::built_in(name)?.read(path).ok()?;
    let contents = match String::from_utf8(content) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.into_bytes()), uri),
    };
    Some(contents.with_mime_type(mime(path)))
}

fn mime(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("md") => "text/markdown",
        Some("py") => "text/x-python",
        Some("html") => "text/html",
        _ => "application/octet-stream",
    }
}
