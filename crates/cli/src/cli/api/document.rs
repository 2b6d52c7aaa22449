//! The OpenAPI document, operation by operation.

use crate::cli::CliError;
use serde_json::Value;

/// Minimum similarity of a misspelled name to a suggestion.
const SIMILARITY_MIN: f64 = 0.7;
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

#[derive(Debug)]
pub(super) struct OpenApiDocument {
    pub(super) json: Value,
}

/// One operation of the document.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApiOperation<'a> {
    pub(super) id: &'a str,
    /// Lower case, as in the document.
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) definition: &'a Value,
}

/// A parameter of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApiParameter<'a> {
    pub(super) name: &'a str,
    /// `path`, `query` or `header`.
    pub(super) location: &'a str,
    pub(super) required: bool,
    pub(super) definition: &'a Value,
}

impl OpenApiDocument {
    pub(super) fn embedded() -> Self {
        Self { json: serde_json::to_value(api::document()).unwrap_or_default() }
    }

    pub(super) fn operations(&self) -> Vec<ApiOperation<'_>> {
        let paths = self.json["paths"].as_object().into_iter().flatten();
        paths
            .flat_map(|(path, item)| {
                METHODS.into_iter().filter_map(move |method| {
                    let definition = item.get(method)?;
                    Some(ApiOperation {
                        id: definition["operationId"].as_str()?,
                        method,
                        path,
                        definition,
                    })
                })
            })
            .collect()
    }

    pub(super) fn find_operation(&self, id: &str) -> Result<ApiOperation<'_>, CliError> {
        let operations = self.operations();
        if let Some(operation) = operations.iter().find(|operation| operation.id == id) {
            return Ok(*operation);
        }
        let likeness =
            |known: &str| strsim::jaro_winkler(&known.to_lowercase(), &id.to_lowercase());
        let nearest = operations
            .iter()
            .map(|operation| (operation.id, likeness(operation.id)))
            .filter(|(_, likeness)| *likeness >= SIMILARITY_MIN)
            .max_by(|one, other| one.1.total_cmp(&other.1));
        let hint = match nearest {
            Some((known, _)) => format!("did you mean {known}?"),
            None => "`belljar api ls` lists all operations".to_owned(),
        };
        Err(CliError::usage(format!("unknown operation {id:?} ({hint})")))
    }

    /// Resolves a `$ref`.
    pub(super) fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|it| it.strip_prefix("#/components/schemas/"));
        match name {
            Some(name) => &self.json["components"]["schemas"][name],
            None => schema,
        }
    }
}

impl<'a> ApiOperation<'a> {
    pub(super) fn summary(&self) -> &'a str {
        self.definition["summary"].as_str().unwrap_or_default()
    }

    pub(super) fn description(&self) -> &'a str {
        self.definition["description"].as_str().unwrap_or_default()
    }

    pub(super) fn parameters(&self) -> Vec<ApiParameter<'a>> {
        let parameters = self.definition["parameters"].as_array().into_iter().flatten();
        parameters
            .filter_map(|definition| {
                Some(ApiParameter {
                    name: definition["name"].as_str()?,
                    location: definition["in"].as_str()?,
                    required: definition["required"].as_bool().unwrap_or_default(),
                    definition,
                })
            })
            .collect()
    }

    /// Returns the schemas of the body by content type.
    pub(super) fn bodies(&self) -> Vec<(&'a str, &'a Value)> {
        let content = self.definition["requestBody"]["content"].as_object().into_iter().flatten();
        content.map(|(kind, body)| (kind.as_str(), &body["schema"])).collect()
    }

    pub(super) fn body(&self, kind: &str) -> Option<&'a Value> {
        self.bodies().into_iter().find(|(known, _)| *known == kind).map(|(_, schema)| schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_operation_has_a_name_of_its_own_and_a_sentence() {
        let document = OpenApiDocument::embedded();
        let operations = document.operations();
        let names: BTreeSet<&str> = operations.iter().map(|operation| operation.id).collect();
        assert_eq!(names.len(), operations.len());
        for operation in &operations {
            assert!(!operation.summary().is_empty(), "{}", operation.id);
        }
    }

    #[test]
    fn a_slip_is_met_with_what_was_meant() {
        let document = OpenApiDocument::embedded();
        assert_eq!(document.find_operation("createAiTool").unwrap().path, "/v1/tools");
        let message = document.find_operation("createaitol").unwrap_err().to_string();
        assert_eq!(message, "unknown operation \"createaitol\" (did you mean createAiTool?)");
        let none = document.find_operation("zzz").unwrap_err().to_string();
        assert!(none.ends_with("(`belljar api ls` lists all operations)"), "{none}");
    }
}
