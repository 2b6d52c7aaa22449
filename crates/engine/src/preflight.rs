//! Checks, before anything runs, what a tool lacks in an environment: modules that it imports and
//! programs that it starts.

use crate::config::Config;
use crate::engine::Engine;
use crate::environment_cache::{build_error, imports};
use contract::{CodeTool, Diagnostic, Import, is_standard};
use environment::{
    BuiltEnvironment, Definition, Environments, PackageName, ProcessesSetting, PythonChoice, Recipe,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use types::{Error, ErrorCode};

/// Every sandbox sees the host's directory.
const SYSTEM_PROGRAMS: &str = "/usr/bin";
/// Minor versions of Python 3 that an environment without a build could have.
const MINORS: std::ops::RangeInclusive<u8> = 11..=15;

const MISSING_MODULE: &str = "ModuleNotFoundError";

/// The contents of an environment, as far as known without starting it.
#[derive(Debug)]
pub struct EnvironmentContents {
    recipe: Recipe,
    built: Option<BuiltEnvironment>,
    /// Top-level names of modules.
    modules: BTreeSet<String>,
    /// Modules that may be imported besides the standard library.
    allowed: Option<Vec<String>>,
}

impl EnvironmentContents {
    /// `operator` lists the imports that the operator allows; all if absent.
    pub fn load(
        environments: &Environments,
        python: Option<&PythonChoice>,
        operator: Option<&[String]>,
        name: &str,
    ) -> Result<Self, Error> {
        let recipe = environments.find(name).map_err(|error| build_error(&error))?;
        let built = environments.built(&recipe, python).map(|(built, _)| built);
        let modules = match &built {
            Some(built) => installed_modules(&built.site_packages()),
            None => expected_modules(&recipe.definition),
        };
        let allowed = imports(operator, &recipe.definition.imports);
        Ok(Self { recipe, built, modules, allowed })
    }

    /// Everything that the tool lacks in this environment.
    pub fn check_tool(&self, tool: &CodeTool) -> Vec<Diagnostic> {
        let other_imports =
            tool.source.imports().into_iter().filter(|it| !self.is_standard(&it.module));
        let other_imports: Vec<Import> = other_imports.collect();
        let is_guessed = self.built.is_none() && !other_imports.is_empty();
        let mut missing: Vec<Diagnostic> =
            other_imports.into_iter().filter_map(|import| self.check_import(import)).collect();
        missing.extend(is_guessed.then(|| self.not_built_problem()));
        let programs = self.missing_programs(&tool.requires_binaries);
        missing.extend((!programs.is_empty()).then(|| self.missing_programs_problem(&programs)));
        missing
    }

    /// The given programs that code could not start.
    pub fn missing_programs(&self, programs: &[String]) -> Vec<String> {
        let places = self.program_directories();
        let is_installed = |name: &String| places.iter().any(|place| is_program(&place.join(name)));
        programs.iter().filter(|name| !is_installed(name)).cloned().collect()
    }

    fn name(&self) -> &str {
        self.recipe.definition.name.as_str()
    }

    fn is_standard(&self, module: &str) -> bool {
        match &self.built {
            Some(built) => {
                u8::try_from(built.python.version.minor).is_ok_and(|it| is_standard(it, module))
            }
            None => MINORS.into_iter().any(|minor| is_standard(minor, module)),
        }
    }

    fn check_import(&self, Import { module, location: place }: Import) -> Option<Diagnostic> {
        let environment = self.name();
        let problem = |code, message, hint: &str| Diagnostic {
            code,
            message,
            place: Some(place),
            path: None,
            hint: Some(hint.to_owned()),
        };
        if !self.modules.contains(&module) {
            let alternatives = match Definition::built_in_with_module(&module).as_slice() {
                [] => String::new(),
                [one] => format!("; {one} has"),
                several => format!("; {} have", several.join(", ")),
            };
            let message = format!(
                "import {module}: the environment {environment} has no {module}{alternatives}"
            );
            let hint = "use an environment that has it, or deploy the tool as a function with its \
                        own requirements.txt (`belljar tool deploy DIR`)";
            return Some(problem(ErrorCode::Python(MISSING_MODULE.to_owned()), message, hint));
        }
        let is_listed = |allowed: &Vec<String>| allowed.contains(&module);
        if self.allowed.as_ref().is_none_or(is_listed) {
            return None;
        }
        let message = format!("import {module}: this module is not in the list of allowed imports");
        Some(problem(ErrorCode::ImportDenied, message, "use the standard library instead"))
    }

    fn not_built_problem(&self) -> Diagnostic {
        let message = format!(
            "the environment {} is not built yet; imports were compared with the names of its \
             packages",
            self.name()
        );
        let hint = Some("build the environment for a complete check".to_owned());
        Diagnostic {
            code: ErrorCode::Python(MISSING_MODULE.to_owned()),
            message,
            place: None,
            path: None,
            hint,
        }
    }

    fn missing_programs_problem(&self, programs: &[String]) -> Diagnostic {
        let Error { code, message, hint, .. } = missing_programs_error(self.name(), programs);
        Diagnostic { code, message, place: None, path: None, hint }
    }

    fn program_directories(&self) -> Vec<PathBuf> {
        if self.recipe.definition.processes == ProcessesSetting::Deny {
            return Vec::new();
        }
        let own = self
            .built
            .iter()
            .flat_map(|built| [built.directory.join("bin"), built.python.prefix.join("bin")]);
        own.chain([PathBuf::from(SYSTEM_PROGRAMS)]).collect()
    }
}

/// The error for a tool that starts missing programs.
pub fn missing_programs_error(environment: &str, programs: &[String]) -> Error {
    let names = programs.join(", ");
    let message = format!("the tool needs {names}, which environment {environment} does not have");
    Error::new(ErrorCode::ToolUnavailable, message).hint(
        "install it in /usr/bin of the machine that runs sandboxes, or use another environment",
    )
}

impl Engine {
    /// The contents of an environment, limited to what the operator allows.
    pub fn environment_contents(&self, environment: &str) -> Result<EnvironmentContents, Error> {
        let environments = self.environment_cache.environments(&self.config)?;
        let Config { python, imports, .. } = &self.config;
        EnvironmentContents::load(&environments, python.as_ref(), imports.as_deref(), environment)
    }

    /// The packages of an environment that code cannot import, since none of their modules is on
    /// the list of allowed imports.
    pub fn unimportable_packages(&self, environment: &str) -> Result<Vec<PackageName>, Error> {
        let environments = self.environment_cache.environments(&self.config)?;
        let recipe = environments.find(environment).map_err(|error| build_error(&error))?;
        let Config { python, imports: operator, .. } = &self.config;
        let allowed = imports(operator.as_deref(), &recipe.definition.imports);
        let built = environments.built(&recipe, python.as_ref());
        let (Some(allowed), Some((built, _))) = (allowed, built) else { return Ok(Vec::new()) };
        let is_unlisted = |name: &PackageName| {
            let modules = built.modules_of(std::slice::from_ref(name)).unwrap_or_default();
            !modules.is_empty() && !modules.iter().any(|module| allowed.contains(module))
        };
        let names = recipe.definition.packages.into_iter().map(|package| package.name);
        Ok(names.filter(is_unlisted).collect())
    }
}

/// The modules that a directory of packages contains.
fn installed_modules(site_packages: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(site_packages).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let top = |name: String| name.split('.').next().unwrap_or_default().to_owned();
    names.filter(|name| !name.ends_with(".dist-info")).map(top).collect()
}

/// The modules that the packages of a lock most likely contain.
fn expected_modules(definition: &Definition) -> BTreeSet<String> {
    let packages = definition.locked_names().map(|name| name.replace('-', "_"));
    let preloaded = definition.preload.iter();
    let top = |module: &str| module.split('.').next().unwrap_or_default().to_owned();
    packages.chain(preloaded.map(|module| top(module.as_str()))).collect()
}

fn is_program(path: &Path) -> bool {
    let is_executable = |it: fs::Metadata| it.is_file() && it.permissions().mode() & 0o111 != 0;
    fs::metadata(path).is_ok_and(is_executable)
}
