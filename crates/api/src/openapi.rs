//! The OpenAPI document: generated from the handlers, plus what all of them have in common.

use super::problem::Problem;
use super::routes;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{
    Components, Content, OpenApi, Ref, RefOr, Required, ResponseBuilder, Schema,
};
use utoipa::{PartialSchema, ToSchema};

/// The document that the server serves and `docs/reference/openapi.json` contains.
pub fn document() -> OpenApi {
    complete_document(routes::all().into_openapi())
}

pub(crate) fn complete_document(mut document: OpenApi) -> OpenApi {
    let paths = std::mem::take(&mut document.paths.paths);
    let components = document.components.get_or_insert_default();
    for (path, mut item) in paths {
        if let Some(post) = &mut item.post {
            make_body_optional(post, components);
        }
        operations(&mut item).for_each(add_problem_response);
        // `{*` is the router's syntax for a path parameter with slashes.
        document.paths.paths.insert(path.replace("{*", "{"), item);
    }
    let mut schemas = Vec::new();
    Problem::schemas(&mut schemas);
    schemas.push((Problem::name().into_owned(), Problem::schema()));
    components.schemas.extend(schemas);
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete]
        .into_iter()
        .filter_map(Option::as_mut)
}

fn add_problem_response(operation: &mut Operation) {
    let problem = Content::new(Some(RefOr::Ref(Ref::from_schema_name(Problem::name()))));
    let error_response = ResponseBuilder::new()
        .description("Error: `code` is the reason, and `hint` says what to do")
        .content("application/problem+json", problem)
        .build();
    operation.responses.responses.insert("default".to_owned(), RefOr::T(error_response));
}

/// A body without required fields may be absent, which means an empty object.
fn make_body_optional(post: &mut Operation, components: &Components) {
    let needs_nothing = |content: &RefOr<Content>| {
        let RefOr::T(Content { schema: Some(RefOr::Ref(named)), .. }) = content else {
            return false;
        };
        let name = named.ref_location.rsplit('/').next().unwrap_or_default();
        let schema = components.schemas.get(name);
        matches!(schema, Some(RefOr::T(Schema::Object(object))) if object.required.is_empty())
    };
    if let Some(RefOr::T(body)) = &mut post.request_body
        && body.content.keys().eq(["application/json"])
        && body.content.values().all(needs_nothing)
    {
        body.required = Some(Required::False);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A difference in `docs/reference/openapi.json` is a change for every client.
    #[test]
    fn the_reference_of_the_api_is_current() {
        let written = document().to_pretty_json().unwrap();
        crate::reference::assert_current("openapi.json", &format!("{written}\n"));
    }
}
