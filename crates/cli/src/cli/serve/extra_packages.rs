//! Additional packages of the default environment. The first start with them builds an environment
//! with both; later starts reuse it.

use super::config::ServeConfig;
use super::telemetry;
use crate::cli::CliError;
use crate::cli::env::build_error;
use engine::{
    BuildError, BuildRequest, Environments, Name, PackageName, Requirement, UnlockedDefinition,
};
use serde::Deserialize;
use std::str::FromStr;

/// Package requirements in the syntax of pip, several in one text: `tabulate dateparser>=1,<2`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct ExtraPackages(Vec<Requirement>);

impl FromStr for ExtraPackages {
    type Err = <Requirement as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        split_requirements(text)
            .iter()
            .map(|package| package.parse())
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Splits at commas between packages, but not at commas between versions or extras of one package.
fn split_requirements(text: &str) -> Vec<String> {
    let operator = |c: char| "<>=!~".contains(c);
    let mut packages: Vec<String> = Vec::new();
    for piece in text.split(|c: char| c == ',' || c.is_whitespace()).filter(|it| !it.is_empty()) {
        match packages.last_mut() {
            Some(package) if piece.starts_with(operator) && !package.contains(operator) => {
                package.push_str(piece);
            }
            Some(package)
                if piece.starts_with(operator)
                    || (package.contains('[') && !package.contains(']')) =>
            {
                package.push(',');
                package.push_str(piece);
            }
            _ => packages.push(piece.to_owned()),
        }
    }
    packages
}

/// Replaces the default environment by one that also has these packages, and allows their modules
/// to be imported.
pub(super) fn add_extra_packages(mut config: ServeConfig) -> Result<ServeConfig, CliError> {
    let Some(ExtraPackages(packages)) = config.packages.take().filter(|it| !it.0.is_empty()) else {
        return Ok(config);
    };
    let environments = Environments::open(&config.engine.data).map_err(build_error)?;
    let mut base = environments.find(&config.service.environment).map_err(build_error)?;
    base.python = base.python.or_else(|| config.engine.python.clone());
    let name = Name::for_extended(&base, &packages);
    let mut show = telemetry::log_progress();
    let built = match environments.find(name.as_str()) {
        Ok(known) => environments.ensure(&known.definition, known.python.as_ref(), &mut show),
        Err(BuildError::Unknown { .. }) => {
            let draft = UnlockedDefinition::extend(&base, &packages)
                .map_err(|error| CliError::usage(format!("--packages: {error}")))?;
            let order = BuildRequest { draft, lock: None, python: base.python };
            environments.prepare(&order, &mut show).and_then(|prepared| {
                environments.save_definition(&prepared.recipe)?;
                Ok(prepared.built)
            })
        }
        Err(error) => Err(error),
    };
    let built = built.map_err(build_error)?;
    let names: Vec<PackageName> = packages.into_iter().map(|package| package.name).collect();
    let modules = built.modules_of(&names).map_err(|error| {
        let place = built.site_packages();
        CliError::internal(format!("cannot read {}: {error}", place.display()))
    })?;
    if let Some(imports) = &mut config.engine.imports {
        imports.extend(modules);
    }
    config.service.environment = name.to_string();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_told_apart_from_their_versions_and_extras() {
        let read = |text: &str| -> Vec<String> {
            let ExtraPackages(packages) = text.parse().unwrap();
            packages.iter().map(ToString::to_string).collect()
        };
        assert_eq!(read("tabulate,dateparser"), ["tabulate", "dateparser"]);
        assert_eq!(
            read("six==1.17.0\nidna >=3, <4  tabulate"),
            ["six==1.17.0", "idna>=3, <4", "tabulate"]
        );
        assert_eq!(
            read("requests[socks,security]>=2,idna"),
            ["requests[socks,security]>=2", "idna"]
        );
        assert_eq!(read(" "), [""; 0]);
        for wrong in ["https://example.org/a.whl", "./a.whl", "--index-url x", "six==x"] {
            assert!(wrong.parse::<ExtraPackages>().is_err(), "{wrong}");
        }
    }
}
