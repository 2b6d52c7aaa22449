//! Builds a request from the arguments and the OpenAPI document.
//!
//! Nothing is sent here: the result is a request, or all problems with it.

use super::document::{ApiOperation, ApiParameter, OpenApiDocument};
use super::schema::mismatch_text;
use crate::cli::CliError;
use crate::client::{ApiRequest, ApiRequestBody};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::path::PathBuf;

const JSON: &str = "application/json";
const FORM: &str = "multipart/form-data";
const BYTES: &str = "application/octet-stream";
/// Content types by file extension.
const CONTENT_TYPES: [(&str, &str); 3] =
    [("py", "text/x-python"), ("yaml", "application/yaml"), ("yml", "application/yaml")];
/// Characters that are percent-encoded in a path.
const PATH_ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The arguments of the command line.
#[derive(Debug, Default)]
pub(super) struct RequestInput {
    pub(super) params: Vec<(String, String)>,
    pub(super) fields: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<InputBody>,
    pub(super) files: Vec<PathBuf>,
    /// Whether to validate the request against the document.
    pub(super) validate: bool,
}

#[derive(Debug)]
pub(super) struct InputBody {
    /// Extension of the file that contained the body.
    pub(super) extension: Option<String>,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn build_request(
    document: &OpenApiDocument,
    operation: &ApiOperation<'_>,
    input: RequestInput,
) -> Result<ApiRequest, CliError> {
    let mut plan =
        ApiRequestBuilder { document, operation, validate: input.validate, problems: Vec::new() };
    let method = operation.method.to_uppercase().parse().unwrap_or(Method::GET);
    let mut call = ApiRequest::new(method, operation.path);
    plan.parameters(&mut call, &input.params)?;
    call.headers.extend(parse_headers(&input.headers)?);
    call.body = plan.body(input.body, &input.fields, input.files)?;
    if plan.problems.is_empty() {
        return Ok(call);
    }
    let message = format!(
        "invalid request for {} (see `belljar api describe {}`, or send it anyway with --no-validate)",
        operation.id, operation.id
    );
    Err(CliError { details: plan.problems, ..CliError::usage(message) })
}

struct ApiRequestBuilder<'a> {
    document: &'a OpenApiDocument,
    operation: &'a ApiOperation<'a>,
    validate: bool,
    /// Everything that the document does not allow.
    problems: Vec<String>,
}

impl ApiRequestBuilder<'_> {
    fn add_problem(&mut self, message: String) {
        if self.validate {
            self.problems.push(message);
        }
    }

    fn parameters(
        &mut self,
        call: &mut ApiRequest,
        parameters: &[(String, String)],
    ) -> Result<(), CliError> {
        let known = self.operation.parameters();
        for (name, value) in parameters {
            let parameter = known.iter().find(|parameter| parameter.name == name);
            match parameter.map(|parameter| parameter.location) {
                Some("path") => call.path = fill_path(&call.path, name, value)?,
                Some("header") => {
                    call.headers.extend(parse_headers(&[(name.clone(), value.clone())])?)
                }
                Some(_) => call.query.push((name.clone(), value.clone())),
                None => {
                    self.add_problem(unknown_parameter(name, &known));
                    call.query.push((name.clone(), value.clone()));
                }
            }
            if let Some(parameter) = parameter {
                self.check(parameter, value);
            }
        }
        for parameter in known.iter().filter(|parameter| parameter.required) {
            if parameters.iter().any(|(name, _)| name == parameter.name) {
                continue;
            }
            let message = format!("--param {}=VALUE is required", parameter.name);
            if parameter.location == "path" {
                return Err(CliError::usage(message));
            }
            self.add_problem(message);
        }
        Ok(())
    }

    fn check(&mut self, parameter: &ApiParameter<'_>, text: &str) {
        let schema = &parameter.definition["schema"];
        let value = self.document.parse_value(text, schema);
        match self.document.validate(&value, schema) {
            Ok(mismatches) => mismatches.iter().for_each(|mismatch| {
                self.add_problem(format!("--param {}: {}", parameter.name, mismatch.message()));
            }),
            Err(error) => self.add_problem(format!("--param {}: {error}", parameter.name)),
        }
    }

    fn body(
        &mut self,
        body: Option<InputBody>,
        fields: &[(String, String)],
        files: Vec<PathBuf>,
    ) -> Result<ApiRequestBody, CliError> {
        if !files.is_empty() {
            return self.form(body.is_some() || !fields.is_empty(), files);
        }
        if body.is_none() && fields.is_empty() {
            let needed = self.operation.definition["requestBody"]["required"] == true;
            if needed {
                self.add_problem(
                    "the request needs a body: use --body, --field or --file".to_owned(),
                );
            }
            return Ok(ApiRequestBody::Empty);
        }
        let kind = self.content_type(body.as_ref());
        if kind != JSON {
            let bytes = body.map(|body| body.bytes).unwrap_or_default();
            return Ok(ApiRequestBody::Bytes { kind: kind.to_owned(), bytes });
        }
        self.json(body.map(|body| body.bytes), fields)
    }

    fn form(&mut self, more: bool, files: Vec<PathBuf>) -> Result<ApiRequestBody, CliError> {
        if more {
            return Err(CliError::usage("--file cannot be combined with --body or --field"));
        }
        if self.operation.body(FORM).is_none() {
            let hint = "to send the bytes of a file, use --body @PATH";
            self.add_problem(format!("{} does not accept --file ({hint})", self.operation.id));
        }
        Ok(ApiRequestBody::Files(files))
    }

    /// The content type that the operation accepts and that the file most likely has.
    fn content_type(&self, body: Option<&InputBody>) -> &'static str {
        let ending = body.and_then(|body| body.extension.as_deref());
        let by_ending = CONTENT_TYPES.into_iter().find(|(known, _)| Some(*known) == ending);
        match by_ending {
            Some((_, kind)) if self.operation.body(kind).is_some() => kind,
            _ if self.operation.body(BYTES).is_some() => BYTES,
            _ => JSON,
        }
    }

    /// The body unchanged, byte for byte, unless fields are added to it.
    fn json(
        &mut self,
        body: Option<Vec<u8>>,
        fields: &[(String, String)],
    ) -> Result<ApiRequestBody, CliError> {
        let mut bytes = body.unwrap_or_else(|| b"{}".to_vec());
        let parsed = serde_json::from_slice::<Value>(&bytes);
        let schema = self.operation.body(JSON);
        let mut value = match parsed {
            Ok(value) => value,
            Err(error) if self.validate || !fields.is_empty() => {
                let hint = "to read a file, use @PATH";
                return Err(CliError::usage(format!("the body is not JSON: {error} ({hint})")));
            }
            Err(_) => return Ok(ApiRequestBody::Bytes { kind: JSON.to_owned(), bytes }),
        };
        if !fields.is_empty() {
            let Value::Object(object) = &mut value else {
                return Err(CliError::usage("--field requires a JSON object as the body"));
            };
            self.set_fields(object, fields, schema.unwrap_or(&Value::Null));
            bytes = value.to_string().into_bytes();
        }
        match schema {
            Some(schema) => match self.document.validate(&value, schema) {
                Ok(mismatches) => {
                    mismatches.iter().for_each(|mismatch| self.add_problem(mismatch_text(mismatch)))
                }
                Err(error) => self.add_problem(format!("the body: {error}")),
            },
            None => self.add_problem(format!("{} does not accept JSON", self.operation.id)),
        }
        Ok(ApiRequestBody::Bytes { kind: JSON.to_owned(), bytes })
    }

    fn set_fields(
        &self,
        body: &mut Map<String, Value>,
        fields: &[(String, String)],
        schema: &Value,
    ) {
        let properties = &self.document.resolve(schema)["properties"];
        for (name, text) in fields {
            let value = self.document.parse_value(text, &properties[name]);
            body.insert(name.clone(), value);
        }
    }
}

fn unknown_parameter(name: &str, known: &[ApiParameter<'_>]) -> String {
    let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
    match names.as_slice() {
        [] => format!("--param {name}: the operation has no parameters"),
        names => format!("--param {name}: unknown parameter; use one of {}", names.join(", ")),
    }
}

/// Rejects values that are not one path segment: an empty value, `.` and `..` would change the
/// path.
fn fill_path(path: &str, name: &str, value: &str) -> Result<String, CliError> {
    if matches!(value, "" | "." | "..") {
        return Err(CliError::usage(format!(
            "--param {name}: {value:?} is not a valid path segment"
        )));
    }
    let encoded = encode_path_segment(value);
    Ok(path.replace(&format!("{{{name}}}"), &encoded))
}

/// Returns a name in the form that it has in a path.
pub(in crate::cli) fn encode_path_segment(name: &str) -> String {
    utf8_percent_encode(name, PATH_ENCODED).to_string()
}

fn parse_headers(headers_given: &[(String, String)]) -> Result<HeaderMap, CliError> {
    let mut headers = HeaderMap::new();
    for (name, value) in headers_given {
        let mismatch = || CliError::usage(format!("invalid header {name:?}"));
        let header = name.parse::<HeaderName>().map_err(|_| mismatch())?;
        let value = value.parse::<HeaderValue>().map_err(|_| mismatch())?;
        if header == reqwest::header::AUTHORIZATION {
            let hint = "set BELLJAR_API_KEY, or use --key-file";
            return Err(CliError::usage(format!("API keys are not accepted as arguments: {hint}")));
        }
        headers.insert(header, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0198c0de-0000-7000-8000-000000000000";

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    fn body(text: &str) -> Option<InputBody> {
        Some(InputBody { extension: None, bytes: text.as_bytes().to_vec() })
    }

    fn planned(operation: &str, input: RequestInput) -> Result<ApiRequest, CliError> {
        let document = OpenApiDocument::embedded();
        let operation = document.find_operation(operation)?;
        build_request(&document, &operation, RequestInput { validate: true, ..input })
    }

    fn problems(operation: &str, input: RequestInput) -> Vec<String> {
        let failure = planned(operation, input).unwrap_err();
        assert_eq!(failure.exit, crate::cli::EXIT_USAGE);
        failure.details
    }

    #[test]
    fn parameters_go_where_the_document_has_them() {
        let params = vec![pair("agent_id", ID), pair("tool_id", ID)];
        let call = planned("attachToolToAgent", RequestInput { params, ..RequestInput::default() })
            .unwrap();
        assert_eq!(call.method, Method::POST);
        assert_eq!(call.path, format!("/v1/agents/{ID}/tools/{ID}"));
        let params = vec![pair("limit", "5")];
        let call =
            planned("listAiTools", RequestInput { params, ..RequestInput::default() }).unwrap();
        assert_eq!(call.query, [pair("limit", "5")]);
        let params = vec![pair("id", ID), pair("Last-Event-ID", "3")];
        let call =
            planned("streamExecution", RequestInput { params, ..RequestInput::default() }).unwrap();
        assert_eq!(call.headers["last-event-id"], "3");
    }

    #[test]
    fn a_file_in_a_folder_is_one_part_of_the_path() {
        let params = vec![pair("sandbox_id", ID), pair("path", "a b/../c.csv")];
        let call =
            planned("readSessionFile", RequestInput { params, ..RequestInput::default() }).unwrap();
        assert_eq!(call.path, format!("/v1/sessions/{ID}/files/a%20b%2F..%2Fc.csv"));
        for outside in ["", ".", ".."] {
            let params = vec![pair("sandbox_id", ID), pair("path", outside)];
            assert!(
                planned("readSessionFile", RequestInput { params, ..RequestInput::default() })
                    .is_err()
            );
        }
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let params = vec![pair("limit", "many"), pair("colour", "red")];
        let problems = problems("listAiTools", RequestInput { params, ..RequestInput::default() });
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("--param limit: must be integer"), "{problems:?}");
        assert!(problems[1].starts_with("--param colour: unknown parameter"), "{problems:?}");
    }

    #[test]
    fn a_body_is_sent_as_it_was_written() {
        let text = "{\"code\":  \"1\"}";
        let call = planned("execute", RequestInput { body: body(text), ..RequestInput::default() })
            .unwrap();
        let bytes = text.as_bytes().to_vec();
        assert_eq!(call.body, ApiRequestBody::Bytes { kind: JSON.to_owned(), bytes });
    }

    #[test]
    fn fields_are_put_into_the_body_as_what_the_schema_wants() {
        let fields = vec![pair("code", "12"), pair("limits", "{\"wall_ms\": 5}")];
        let input =
            RequestInput { fields, body: body("{\"entry\": \"cell\"}"), ..RequestInput::default() };
        let ApiRequestBody::Bytes { bytes, .. } = planned("execute", input).unwrap().body else {
            panic!("no body");
        };
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let expected = serde_json::json!(
            {"entry": "cell", "code": "12", "limits": {"wall_ms": 5}}
        );
        assert_eq!(body, expected);
    }

    #[test]
    fn a_wrong_body_is_refused_with_the_place_named() {
        for (text, place) in [
            ("{}", "/code: "),
            ("{\"code\": 1}", "/code: "),
            ("{\"code\": \"1\", \"cod\": 1}", "/cod: "),
            ("{\"code\": \"1\", \"limits\": {\"wall_ms\": \"5\"}}", "/limits/wall_ms: "),
            ("[]", "the body: "),
        ] {
            let problems =
                problems("execute", RequestInput { body: body(text), ..RequestInput::default() });
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            assert!(problems[0].starts_with(place), "{text}: {problems:?}");
        }
        assert_eq!(problems("execute", RequestInput::default()).len(), 1);
        assert!(
            planned("execute", RequestInput { body: body("{"), ..RequestInput::default() })
                .is_err()
        );
    }

    #[test]
    fn who_does_not_want_to_be_held_up_is_not() {
        let document = OpenApiDocument::embedded();
        let operation = document.find_operation("execute").unwrap();
        let input = RequestInput { body: body("{\"code\": 1}"), ..RequestInput::default() };
        assert!(build_request(&document, &operation, input).is_ok());
    }

    #[test]
    fn a_python_file_is_sent_as_one() {
        let body = InputBody { extension: Some("py".to_owned()), bytes: b"def".to_vec() };
        let input = RequestInput { body: Some(body), ..RequestInput::default() };
        let call = planned("createAiTool", input).unwrap();
        let bytes = b"def".to_vec();
        assert_eq!(call.body, ApiRequestBody::Bytes { kind: "text/x-python".to_owned(), bytes });
    }

    #[test]
    fn a_key_is_never_an_argument() {
        let headers = vec![pair("Authorization", "Bearer bj_x")];
        assert!(
            planned("listAiTools", RequestInput { headers, ..RequestInput::default() }).is_err()
        );
    }
}
