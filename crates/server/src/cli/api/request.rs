//! A request, made of what was said and of what the document says about it.
//!
//! Nothing is sent here: what comes out is a plan, or everything that is wrong with it.

use super::document::{Document, Operation, Parameter};
use crate::cli::Failure;
use crate::client::{Body, Call};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::path::PathBuf;

const JSON: &str = "application/json";
const FORM: &str = "multipart/form-data";
const BYTES: &str = "application/octet-stream";
/// The content types of files, by how their names end.
const BY_ENDING: [(&str, &str); 3] =
    [("py", "text/x-python"), ("yaml", "application/yaml"), ("yml", "application/yaml")];
/// What may stand in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What was said on the command line.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) params: Vec<(String, String)>,
    pub(super) fields: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<GivenBody>,
    pub(super) files: Vec<PathBuf>,
    /// Whether the document is to be obeyed.
    pub(super) validate: bool,
}

#[derive(Debug)]
pub(super) struct GivenBody {
    /// Of the file that it was in.
    pub(super) ending: Option<String>,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn plan(
    document: &Document,
    operation: &Operation<'_>,
    said: Said,
) -> Result<Call, Failure> {
    let mut plan = Plan { document, operation, validate: said.validate, wrongs: Vec::new() };
    let method = operation.method.to_uppercase().parse().unwrap_or(Method::GET);
    let mut call = Call::new(method, operation.path);
    plan.parameters(&mut call, &said.params)?;
    call.headers.extend(headers(&said.headers)?);
    call.body = plan.body(said.body, &said.fields, said.files)?;
    if plan.wrongs.is_empty() {
        return Ok(call);
    }
    let message = format!(
        "this is not what {} takes (`belljar api describe {}` says what it does, and --no-validate \
         sends it all the same)",
        operation.id, operation.id
    );
    Err(Failure { details: plan.wrongs, ..Failure::usage(message) })
}

struct Plan<'a> {
    document: &'a Document,
    operation: &'a Operation<'a>,
    validate: bool,
    /// Everything that the document does not allow.
    wrongs: Vec<String>,
}

impl Plan<'_> {
    fn wrong(&mut self, message: String) {
        if self.validate {
            self.wrongs.push(message);
        }
    }

    fn parameters(&mut self, call: &mut Call, given: &[(String, String)]) -> Result<(), Failure> {
        let known = self.operation.parameters();
        for (name, value) in given {
            let parameter = known.iter().find(|parameter| parameter.name == name);
            match parameter.map(|parameter| parameter.place) {
                Some("path") => call.path = filled(&call.path, name, value)?,
                Some("header") => call.headers.extend(headers(&[(name.clone(), value.clone())])?),
                Some(_) => call.query.push((name.clone(), value.clone())),
                None => {
                    self.wrong(unknown(name, &known));
                    call.query.push((name.clone(), value.clone()));
                }
            }
            if let Some(parameter) = parameter {
                self.check(parameter, value);
            }
        }
        for parameter in known.iter().filter(|parameter| parameter.required) {
            if given.iter().any(|(name, _)| name == parameter.name) {
                continue;
            }
            let message = format!("--param {}=… is missing", parameter.name);
            if parameter.place == "path" {
                return Err(Failure::usage(message));
            }
            self.wrong(message);
        }
        Ok(())
    }

    fn check(&mut self, parameter: &Parameter<'_>, text: &str) {
        let schema = &parameter.said["schema"];
        let value = self.document.value_of(text, schema);
        for wrong in self.document.wrongs(&value, schema) {
            self.wrong(format!("--param {}: {}", parameter.name, wrong.message()));
        }
    }

    fn body(
        &mut self,
        given: Option<GivenBody>,
        fields: &[(String, String)],
        files: Vec<PathBuf>,
    ) -> Result<Body, Failure> {
        if !files.is_empty() {
            return self.form(given.is_some() || !fields.is_empty(), files);
        }
        if given.is_none() && fields.is_empty() {
            let needed = self.operation.said["requestBody"]["required"] == true;
            if needed {
                self.wrong("a body is missing: --body, --field or --file".to_owned());
            }
            return Ok(Body::Empty);
        }
        let kind = self.kind(given.as_ref());
        if kind != JSON {
            let bytes = given.map(|given| given.bytes).unwrap_or_default();
            return Ok(Body::Bytes { kind: kind.to_owned(), bytes });
        }
        self.json(given.map(|given| given.bytes), fields)
    }

    fn form(&mut self, more: bool, files: Vec<PathBuf>) -> Result<Body, Failure> {
        if more {
            return Err(Failure::usage("--file is the whole body; there is no --body beside it"));
        }
        if self.operation.body(FORM).is_none() {
            let hint = "a file as it is: --body @PATH";
            self.wrong(format!("{} takes no --file ({hint})", self.operation.id));
        }
        Ok(Body::Files(files))
    }

    /// The content type that the operation takes, and that the file is likely to have.
    fn kind(&self, given: Option<&GivenBody>) -> &'static str {
        let ending = given.and_then(|given| given.ending.as_deref());
        let by_ending = BY_ENDING.into_iter().find(|(known, _)| Some(*known) == ending);
        match by_ending {
            Some((_, kind)) if self.operation.body(kind).is_some() => kind,
            _ if self.operation.body(BYTES).is_some() => BYTES,
            _ => JSON,
        }
    }

    /// The body as it was given, byte for byte, unless there are fields to put into it.
    fn json(
        &mut self,
        given: Option<Vec<u8>>,
        fields: &[(String, String)],
    ) -> Result<Body, Failure> {
        let mut bytes = given.unwrap_or_else(|| b"{}".to_vec());
        let parsed = serde_json::from_slice::<Value>(&bytes);
        let schema = self.operation.body(JSON);
        let mut value = match parsed {
            Ok(value) => value,
            Err(error) if self.validate || !fields.is_empty() => {
                let hint = "a file is named by @PATH";
                return Err(Failure::usage(format!("the body is not JSON: {error} ({hint})")));
            }
            Err(_) => return Ok(Body::Bytes { kind: JSON.to_owned(), bytes }),
        };
        if !fields.is_empty() {
            let Value::Object(object) = &mut value else {
                return Err(Failure::usage("--field needs a body that is an object"));
            };
            self.put(object, fields, schema.unwrap_or(&Value::Null));
            bytes = value.to_string().into_bytes();
        }
        match schema {
            Some(schema) => {
                let wrongs = self.document.wrongs(&value, schema);
                wrongs.iter().for_each(|wrong| self.wrong(wrong.to_string()));
            }
            None => self.wrong(format!("{} takes no JSON", self.operation.id)),
        }
        Ok(Body::Bytes { kind: JSON.to_owned(), bytes })
    }

    fn put(&self, body: &mut Map<String, Value>, fields: &[(String, String)], schema: &Value) {
        let properties = &self.document.resolve(schema)["properties"];
        for (name, text) in fields {
            let value = self.document.value_of(text, &properties[name]);
            body.insert(name.clone(), value);
        }
    }
}

fn unknown(name: &str, known: &[Parameter<'_>]) -> String {
    let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
    match names.as_slice() {
        [] => format!("--param {name}: there are no parameters"),
        names => format!("--param {name}: is not known here; there are {}", names.join(", ")),
    }
}

/// A value cannot be anything but one part of a path: nothing, `.` and `..` would be more or less.
fn filled(path: &str, name: &str, value: &str) -> Result<String, Failure> {
    if matches!(value, "" | "." | "..") {
        return Err(Failure::usage(format!("--param {name}: {value:?} is not a part of a path")));
    }
    let encoded = utf8_percent_encode(value, PLAIN).to_string();
    Ok(path.replace(&format!("{{{name}}}"), &encoded))
}

fn headers(given: &[(String, String)]) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let wrong = || Failure::usage(format!("{name:?} with this value is not a header"));
        let header = name.parse::<HeaderName>().map_err(|_| wrong())?;
        let value = value.parse::<HeaderValue>().map_err(|_| wrong())?;
        if header == reqwest::header::AUTHORIZATION {
            let hint = "set BELLJAR_API_KEY, or use --key-file";
            return Err(Failure::usage(format!("a key is not an argument: {hint}")));
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

    fn body(text: &str) -> Option<GivenBody> {
        Some(GivenBody { ending: None, bytes: text.as_bytes().to_vec() })
    }

    fn planned(operation: &str, said: Said) -> Result<Call, Failure> {
        let document = Document::ours();
        let operation = document.operation(operation)?;
        plan(&document, &operation, Said { validate: true, ..said })
    }

    fn wrongs(operation: &str, said: Said) -> Vec<String> {
        let failure = planned(operation, said).unwrap_err();
        assert_eq!(failure.exit, crate::cli::EXIT_USAGE);
        failure.details
    }

    #[test]
    fn parameters_go_where_the_document_has_them() {
        let params = vec![pair("agent_id", ID), pair("tool_id", ID)];
        let call = planned("attachToolToAgent", Said { params, ..Said::default() }).unwrap();
        assert_eq!(call.method, Method::POST);
        assert_eq!(call.path, format!("/v1/agents/{ID}/tools/{ID}"));
        let params = vec![pair("limit", "5")];
        let call = planned("listAiTools", Said { params, ..Said::default() }).unwrap();
        assert_eq!(call.query, [pair("limit", "5")]);
        let params = vec![pair("id", ID), pair("Last-Event-ID", "3")];
        let call = planned("streamExecution", Said { params, ..Said::default() }).unwrap();
        assert_eq!(call.headers["last-event-id"], "3");
    }

    #[test]
    fn a_file_in_a_folder_is_one_part_of_the_path() {
        let params = vec![pair("sandbox_id", ID), pair("path", "a b/../c.csv")];
        let call = planned("readSessionFile", Said { params, ..Said::default() }).unwrap();
        assert_eq!(call.path, format!("/v1/sessions/{ID}/files/a%20b%2F..%2Fc.csv"));
        for outside in ["", ".", ".."] {
            let params = vec![pair("sandbox_id", ID), pair("path", outside)];
            assert!(planned("readSessionFile", Said { params, ..Said::default() }).is_err());
        }
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let params = vec![pair("limit", "many"), pair("colour", "red")];
        let wrongs = wrongs("listAiTools", Said { params, ..Said::default() });
        assert_eq!(wrongs.len(), 2, "{wrongs:?}");
        assert!(wrongs[0].starts_with("--param limit: must be integer"), "{wrongs:?}");
        assert!(wrongs[1].starts_with("--param colour: is not known here"), "{wrongs:?}");
    }

    #[test]
    fn a_body_is_sent_as_it_was_written() {
        let text = "{\"code\":  \"1\"}";
        let call = planned("execute", Said { body: body(text), ..Said::default() }).unwrap();
        let bytes = text.as_bytes().to_vec();
        assert_eq!(call.body, Body::Bytes { kind: JSON.to_owned(), bytes });
    }

    #[test]
    fn fields_are_put_into_the_body_as_what_the_schema_wants() {
        let fields = vec![pair("code", "12"), pair("limits", "{\"wall_ms\": 5}")];
        let said = Said { fields, body: body("{\"entry\": \"cell\"}"), ..Said::default() };
        let Body::Bytes { bytes, .. } = planned("execute", said).unwrap().body else {
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
            let wrongs = wrongs("execute", Said { body: body(text), ..Said::default() });
            assert_eq!(wrongs.len(), 1, "{text}: {wrongs:?}");
            assert!(wrongs[0].starts_with(place), "{text}: {wrongs:?}");
        }
        assert_eq!(wrongs("execute", Said::default()).len(), 1);
        assert!(planned("execute", Said { body: body("{"), ..Said::default() }).is_err());
    }

    #[test]
    fn who_does_not_want_to_be_held_up_is_not() {
        let document = Document::ours();
        let operation = document.operation("execute").unwrap();
        let said = Said { body: body("{\"code\": 1}"), ..Said::default() };
        assert!(plan(&document, &operation, said).is_ok());
    }

    #[test]
    fn a_python_file_is_sent_as_one() {
        let given = GivenBody { ending: Some("py".to_owned()), bytes: b"def".to_vec() };
        let said = Said { body: Some(given), ..Said::default() };
        let call = planned("createAiTool", said).unwrap();
        let bytes = b"def".to_vec();
        assert_eq!(call.body, Body::Bytes { kind: "text/x-python".to_owned(), bytes });
    }

    #[test]
    fn a_key_is_never_an_argument() {
        let headers = vec![pair("Authorization", "Bearer bj_x")];
        assert!(planned("listAiTools", Said { headers, ..Said::default() }).is_err());
    }
}
