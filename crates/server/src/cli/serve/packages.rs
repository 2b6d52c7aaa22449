//! Packages that the operator wants besides those of the usual environment. An environment that has
//! both is made at the first start that asks for it, and found at the next.

use super::config::Resolved;
use super::logs;
use crate::cli::Failure;
use crate::cli::env::failed;
use engine::{BuildError, Draft, Environments, Name, Order, PackageName, Requirement};
use serde::Deserialize;
use std::str::FromStr;

/// As pip takes them, several in one text: `tabulate dateparser>=1,<2`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Packages(Vec<Requirement>);

impl FromStr for Packages {
    type Err = <Requirement as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        split(text).iter().map(|package| package.parse()).collect::<Result<_, _>>().map(Self)
    }
}

/// A comma stands between packages, and also between the versions or the extras of one.
fn split(text: &str) -> Vec<String> {
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

/// What holds, with an environment that has these packages in the place of the usual one, and with
/// their modules among what may be imported.
pub(super) fn widen(mut resolved: Resolved) -> Result<Resolved, Failure> {
    let Some(Packages(packages)) = resolved.packages.take().filter(|it| !it.0.is_empty()) else {
        return Ok(resolved);
    };
    let environments = Environments::open(&resolved.engine.data).map_err(failed)?;
    let mut base = environments.find(&resolved.service.environment).map_err(failed)?;
    base.python = base.python.or_else(|| resolved.engine.python.clone());
    let name = Name::wider(&base, &packages);
    let mut show = logs::progress();
    let built = match environments.find(name.as_str()) {
        Ok(known) => environments.ensure(&known.definition, known.python.as_ref(), &mut show),
        Err(BuildError::Unknown { .. }) => {
            let draft = Draft::wider(&base, &packages)
                .map_err(|error| Failure::usage(format!("--packages: {error}")))?;
            let order = Order { draft, lock: None, python: base.python };
            environments.prepare(&order, &mut show).and_then(|prepared| {
                environments.keep(&prepared.recipe)?;
                Ok(prepared.built)
            })
        }
        Err(error) => Err(error),
    };
    let built = built.map_err(failed)?;
    let names: Vec<PackageName> = packages.into_iter().map(|package| package.name).collect();
    let modules = built.modules_of(&names).map_err(|error| {
        let place = built.site_packages();
        Failure::belljar(format!("{} cannot be read: {error}", place.display()))
    })?;
    if let Some(imports) = &mut resolved.engine.imports {
        imports.extend(modules);
    }
    resolved.service.environment = name.to_string();
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_told_apart_from_their_versions_and_extras() {
        let read = |text: &str| -> Vec<String> {
            let Packages(packages) = text.parse().unwrap();
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
            assert!(wrong.parse::<Packages>().is_err(), "{wrong}");
        }
    }
}
