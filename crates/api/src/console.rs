//! The web console: the start page and the reference of every operation.
//!
//! The pages are compiled into the binary, load nothing from other hosts, and call the same public
//! API as any other client.

use super::AppState;
use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                   connect-src 'self'; base-uri 'none'; form-action 'none'; \
                   frame-ancestors 'none'; require-trusted-types-for 'script'; \
                   trusted-types 'none'";

macro_rules! page {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../../console/", $name)).as_slice())
    };
}

/// All static files of the console. Any other path is 404.
const PAGES: &[(&str, &[u8])] = &[
    page!("index.html"),
    page!("docs.html"),
    page!("docs.js"),
    page!("dom.js"),
    page!("example.js"),
    page!("icon.svg"),
    page!("openapi.js"),
    page!("operation.js"),
    page!("origin.js"),
    page!("schema.js"),
    page!("shape.js"),
    page!("style.css"),
];

pub(crate) fn router(document: &OpenApi) -> Router<Arc<AppState>> {
    let json: Bytes = serde_json::to_vec(document).unwrap_or_default().into();
    let openapi = move || async move { ([(CONTENT_TYPE, "application/json")], json.clone()) };
    Router::new()
        .route("/", get(|| async { page("index.html") }))
        .route("/docs", get(|| async { page("docs.html") }))
        .route("/docs/{name}", get(|Path(name): Path<String>| async move { page(&name) }))
        .route("/openapi.json", get(openapi))
}

fn page(name: &str) -> Response {
    let Some((name, content)) = PAGES.iter().find(|(page, _)| *page == name) else {
        return super::not_found(&format!("/docs/{name}")).into_response();
    };
    let mime = mime_guess::from_path(name).first_or_octet_stream();
    let kind = format!("{}; charset=utf-8", mime.essence_str());
    let csp = HeaderValue::from_static(CSP);
    ([(CONTENT_SECURITY_POLICY, csp)], [(CONTENT_TYPE, kind)], *content).into_response()
}
