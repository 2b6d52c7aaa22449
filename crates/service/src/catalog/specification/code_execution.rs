//! The section `code_execution` of a specification: the access of an agent's code.

use super::specification_pointer;
use crate::error::{RequestError, invalid_field};
use crate::runs::{CONVERSATION_ROOT, SKILLS_ROOT};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Component, Path};
use types::{ApprovalAction, VolumeAccess, VolumeGrant};

pub(crate) const CODE_EXECUTION: &str = "code_execution";
const ENVIRONMENT: &str = "environment";
const APPROVAL_ACTION: &str = "approval_action";
const INTEGRATIONS: &str = "external_access_integrations";
const REPOSITORIES: &str = "artifact_repositories";
const VOLUMES: &str = "volumes";
const CONVERSATION: &str = "conversation";

/// The package index: its name on the platform of the vendor document, and its usual name.
const PYPI: [&str; 2] = ["SNOWFLAKE.SNOWPARK.PYPI_SHARED_REPOSITORY", "PYPI"];
/// The directory of volumes inside a sandbox.
const VOLUMES_ROOT: &str = "/mnt";
/// The directories below it in which code finds the skills of its agent, and the conversation.
const RESERVED: [&str; 2] = [SKILLS_ROOT, CONVERSATION_ROOT];
/// Each volume is a mount of every sandbox of the agent.
const VOLUMES_MAX: usize = 16;
/// Each integration is looked up for every connection.
const INTEGRATIONS_MAX: usize = 16;
/// The depth to which files are listed.
const PATH_PARTS_MAX: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CodeExecutionSection {
    pub(crate) environment: Option<String>,
    /// Whether a person is asked before code runs.
    pub(crate) approval_action: ApprovalAction,
    /// Whether code may install packages, if the principal that it runs as has INSTALL.
    pub(crate) installs: bool,
    pub(crate) volumes: Vec<VolumeGrant>,
    /// The names of the integrations that its code may use.
    pub(crate) integrations: Vec<String>,
    /// Whether its code is not shown the conversation.
    pub(crate) hides_conversation: bool,
}

impl CodeExecutionSection {
    /// Reads the section; `None` if there is none. Unsupported keys become warnings.
    pub(super) fn read(
        resources: Option<&Map<String, Value>>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, RequestError> {
        let path = specification_pointer("/tool_resources/code_execution");
        let keys = match resources.and_then(|resources| resources.get(CODE_EXECUTION)) {
            None => return Ok(None),
            Some(Value::Null) => return Ok(Some(Self::default())),
            Some(Value::Object(keys)) => keys,
            Some(_) => return Err(invalid_field(&path, "must be a mapping, or empty")),
        };
        let mut section = Self::default();
        for (key, value) in keys {
            let path = format!("{path}/{key}");
            match key.as_str() {
                APPROVAL_ACTION => section.approval_action = approval_action(&path, value)?,
                ENVIRONMENT => section.environment = Some(text(&path, value)?.to_owned()),
                REPOSITORIES => section.installs = repositories(&path, value, warnings)?,
                VOLUMES => section.volumes = volumes(&path, value)?,
                INTEGRATIONS => section.integrations = integrations(&path, value)?,
                CONVERSATION => section.hides_conversation = !boolean(&path, value)?,
                other => {
                    warnings.push(format!("unknown key tool_resources.code_execution.{other}"))
                }
            }
        }
        Ok(Some(section))
    }
}

/// Reads an approval action of a specification.
pub(super) fn approval_action(path: &str, value: &Value) -> Result<ApprovalAction, RequestError> {
    ApprovalAction::deserialize(value)
        .map_err(|_| invalid_field(path, "must be allow, confirm, review or deny"))
}

fn text<'a>(path: &str, value: &'a Value) -> Result<&'a str, RequestError> {
    value.as_str().ok_or_else(|| invalid_field(path, "must be a name (a string)"))
}

fn boolean(path: &str, value: &Value) -> Result<bool, RequestError> {
    value.as_bool().ok_or_else(|| invalid_field(path, "must be true or false"))
}

fn list<'a>(path: &str, value: &'a Value) -> Result<&'a Vec<Value>, RequestError> {
    value.as_array().ok_or_else(|| invalid_field(path, "must be a list"))
}

fn repositories(
    path: &str,
    value: &Value,
    warnings: &mut Vec<String>,
) -> Result<bool, RequestError> {
    let names = list(path, value)?;
    for (index, name) in names.iter().enumerate() {
        let path = format!("{path}/{index}");
        let name = text(&path, name)?;
        if !PYPI.contains(&identifier(name).as_str()) {
            let message = format!("unknown repository {name:?}; use {}", PYPI[0]);
            return Err(invalid_field(&path, message));
        }
    }
    if !names.is_empty() {
        warnings.push(format!(
            "{REPOSITORIES}: code of this agent can install every package of this repository"
        ));
    }
    Ok(!names.is_empty())
}

/// Normalizes an identifier as the platform does: upper case, unless quoted.
fn identifier(name: &str) -> String {
    let part = |part: &str| match part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
        Some(quoted) => quoted.to_owned(),
        None => part.to_ascii_uppercase(),
    };
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

fn integrations(path: &str, value: &Value) -> Result<Vec<String>, RequestError> {
    let list = list(path, value)?;
    if list.len() > INTEGRATIONS_MAX {
        return Err(invalid_field(
            path,
            format!("can have at most {INTEGRATIONS_MAX} integrations"),
        ));
    }
    let names = list.iter().enumerate();
    names.map(|(index, name)| text(&format!("{path}/{index}"), name).map(str::to_owned)).collect()
}

/// The path of an integration in the specification.
pub(super) fn integration_path(index: usize) -> String {
    specification_pointer(&format!("/tool_resources/{CODE_EXECUTION}/{INTEGRATIONS}/{index}"))
}

/// The path of a volume in the specification.
pub(super) fn volume_path(index: usize) -> String {
    specification_pointer(&format!("/tool_resources/{CODE_EXECUTION}/{VOLUMES}/{index}"))
}

fn volumes(path: &str, value: &Value) -> Result<Vec<VolumeGrant>, RequestError> {
    let list = list(path, value)?;
    if list.len() > VOLUMES_MAX {
        return Err(invalid_field(path, format!("can have at most {VOLUMES_MAX} volumes")));
    }
    let mut volumes: Vec<VolumeGrant> = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let path = format!("{path}/{index}");
        let volume = volume(&path, value)?;
        let one = Path::new(&volume.path);
        let clash = volumes.iter().find(|other| {
            let other = Path::new(&other.path);
            one.starts_with(other) || other.starts_with(one)
        });
        if let Some(other) = clash {
            let message = format!("paths {} and {} overlap", volume.path, other.path);
            return Err(invalid_field(&path, message));
        }
        if volumes.iter().any(|other| other.name == volume.name) {
            return Err(invalid_field(&path, format!("volume {:?} is listed twice", volume.name)));
        }
        volumes.push(volume);
    }
    Ok(volumes)
}

fn volume(path: &str, value: &Value) -> Result<VolumeGrant, RequestError> {
    let Value::Object(keys) = value else {
        return Err(invalid_field(path, "must be a mapping with name and access"));
    };
    if let Some(unknown) =
        keys.keys().find(|key| !["name", "access", "path"].contains(&key.as_str()))
    {
        return Err(invalid_field(
            &format!("{path}/{unknown}"),
            "allowed keys of a volume are name, access and path",
        ));
    }
    let field = |key: &str| keys.get(key).map(|value| text(&format!("{path}/{key}"), value));
    let name = field("name").unwrap_or_else(|| Err(invalid_field(path, "requires a name")))?;
    let access =
        match field("access").unwrap_or_else(|| Err(invalid_field(path, "requires an access")))? {
            "read" => VolumeAccess::Read,
            "write" => VolumeAccess::Write,
            _ => return Err(invalid_field(&format!("{path}/access"), "must be read or write")),
        };
    let mount_path = field("path").transpose()?.map(str::to_owned);
    let mount_path = mount_path.unwrap_or_else(|| format!("{VOLUMES_ROOT}/{name}"));
    if !is_mount_path(&mount_path) {
        let message = format!(
            "must be below {VOLUMES_ROOT}, such as {VOLUMES_ROOT}/data, and not in {}",
            RESERVED.join(" or ")
        );
        return Err(invalid_field(&format!("{path}/path"), message));
    }
    Ok(VolumeGrant { name: name.to_owned(), access, path: mount_path })
}

fn is_mount_path(mount_path: &str) -> bool {
    let Ok(below) = Path::new(mount_path).strip_prefix(VOLUMES_ROOT) else { return false };
    let parts = below.components().count();
    if RESERVED.iter().any(|reserved| Path::new(mount_path).starts_with(reserved)) {
        return false;
    }
    (1..=PATH_PARTS_MAX).contains(&parts)
        && below.components().all(|part| matches!(part, Component::Normal(_)))
        && !mount_path.split('/').skip(1).any(|part| part.is_empty() || part == ".")
        && !mount_path.chars().any(char::is_control)
        && mount_path.len() <= 255
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(section: &str) -> Result<CodeExecutionSection, RequestError> {
        let value: Value = serde_json::from_str(section).unwrap();
        let resources = Map::from_iter([(CODE_EXECUTION.to_owned(), value)]);
        CodeExecutionSection::read(Some(&resources), &mut Vec::new()).map(Option::unwrap)
    }

    #[test]
    fn the_package_index_is_known_by_its_names_in_any_case_and_nothing_else_is() {
        for name in [
            "SNOWFLAKE.SNOWPARK.PYPI_SHARED_REPOSITORY",
            "pypi",
            "snowflake.Snowpark.pypi_shared_repository",
        ] {
            let section = format!("{{\"artifact_repositories\": [{name:?}]}}");
            assert!(read(&section).unwrap().installs, "{name}");
        }
        for name in ["conda", "\\\"pypi\\\"", ""] {
            let section = format!("{{\"artifact_repositories\": [\"{name}\"]}}");
            assert!(read(&section).is_err(), "{name}");
        }
        assert!(!read("{\"artifact_repositories\": []}").unwrap().installs);
    }

    #[test]
    fn a_volume_is_seen_where_it_is_said_or_by_its_name() {
        let section = r#"{"volumes": [{"name": "a", "access": "read"}, {"name": "b", "access": "write", "path": "/mnt/x/y"}]}"#;
        let volumes = read(section).unwrap().volumes;
        assert_eq!((volumes[0].path.as_str(), volumes[0].access), ("/mnt/a", VolumeAccess::Read));
        assert_eq!(
            (volumes[1].path.as_str(), volumes[1].access),
            ("/mnt/x/y", VolumeAccess::Write)
        );
    }

    #[test]
    fn the_conversation_is_shown_to_code_unless_its_section_says_otherwise() {
        assert!(!read("{}").unwrap().hides_conversation);
        assert!(!read(r#"{"conversation": true}"#).unwrap().hides_conversation);
        assert!(read(r#"{"conversation": false}"#).unwrap().hides_conversation);
        assert!(read(r#"{"conversation": "no"}"#).is_err());
        assert!(read(r#"{"volumes": [{"name": "skills2", "access": "read"}]}"#).is_ok());
    }

    #[test]
    fn a_volume_at_an_odd_place_or_with_an_odd_access_is_refused() {
        for path in [
            "/",
            "/mnt",
            "/etc/x",
            "mnt/x",
            "/mnt/../etc",
            "/mnt//x",
            "/mnt/./x",
            "/mnt/x/",
            "/mntx",
            "/mnt/skills",
            "/mnt/skills/tea",
            "/mnt/conversation/a",
        ] {
            let section =
                format!(r#"{{"volumes": [{{"name": "a", "access": "read", "path": {path:?}}}]}}"#);
            assert!(read(&section).is_err(), "{path}");
        }
        for volume in [
            r#"{"name": "a"}"#,
            r#"{"access": "read"}"#,
            r#"{"name": "a", "access": "own"}"#,
            r#"{"name": "a", "access": "read", "mode": 1}"#,
            "1",
        ] {
            assert!(read(&format!("{{\"volumes\": [{volume}]}}")).is_err(), "{volume}");
        }
        for two in [
            r#"{"name": "a", "access": "read", "path": "/mnt/x"}, {"name": "b", "access": "read", "path": "/mnt/x/y"}"#,
            r#"{"name": "a", "access": "read", "path": "/mnt/x"}, {"name": "a", "access": "write", "path": "/mnt/y"}"#,
        ] {
            assert!(read(&format!("{{\"volumes\": [{two}]}}")).is_err(), "{two}");
        }
    }
}
