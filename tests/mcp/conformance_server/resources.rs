//! Resources for the suite.

use super::content::PNG;
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";

pub(super) fn list_resources() -> impl Iterator<Item = Resource> {
    let kinds = [(TEXT, "text/plain"), (BINARY, "image/png"), (WATCHED, "text/plain")];
    kinds.into_iter().map(|(uri, mime)| {
        let name = uri.trim_start_matches("test://");
        Resource::new(uri, name).with_description("Of the conformance suite.").with_mime_type(mime)
    })
}

pub(super) fn template() -> ResourceTemplate {
    ResourceTemplate::new("test://template/{id}/data", "template")
        .with_description("Of the conformance suite.")
        .with_mime_type("application/json")
}

pub(super) fn read_resource(uri: &str) -> Option<ResourceContents> {
    let contents = match uri {
        TEXT | WATCHED => ResourceContents::text("some text", uri).with_mime_type("text/plain"),
        BINARY => ResourceContents::blob(PNG, uri).with_mime_type("image/png"),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({"id": id}).to_string();
            ResourceContents::text(data, uri).with_mime_type("application/json")
        }
    };
    Some(contents)
}
