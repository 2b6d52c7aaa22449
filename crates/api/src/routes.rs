//! All operations, one file per resource. A handler that is added to its file's router is part of
//! the OpenAPI document too.

mod agents;
mod approvals;
mod audit;
mod calls;
mod capabilities;
mod catalog;
mod documents;
mod environments;
mod executions;
mod functions;
mod grants;
mod keys;
mod models;
mod network;
pub(crate) mod operation;
mod packages;
mod permissions;
mod principals;
mod runs;
mod secrets;
mod sessions;
mod skills;
mod statements;
mod tools;
mod volumes;
mod workspaces;

use super::AppState;
use std::sync::Arc;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Info, InfoBuilder, OpenApi, OpenApiBuilder, SecurityRequirement};
use utoipa_axum::router::OpenApiRouter;

pub(crate) use runs::settled_response;

pub(crate) type Routes = OpenApiRouter<Arc<AppState>>;

pub(crate) fn all() -> Routes {
    let v1 = sessions::routes()
        .merge(executions::routes())
        .merge(documents::routes())
        .merge(environments::routes())
        .merge(tools::routes())
        .merge(agents::routes())
        .merge(capabilities::routes())
        .merge(runs::routes())
        .merge(network::routes())
        .merge(volumes::routes())
        .merge(secrets::routes())
        .merge(skills::routes())
        .merge(statements::routes())
        .merge(functions::routes())
        .merge(calls::routes())
        .merge(approvals::routes())
        .merge(permissions::routes())
        .merge(packages::routes())
        .merge(principals::routes())
        .merge(keys::routes())
        .merge(grants::routes())
        .merge(workspaces::routes())
        .merge(audit::routes())
        .merge(catalog::routes())
        .merge(models::routes());
    let mut routes = OpenApiRouter::with_openapi(outline()).nest("/v1", v1);
    routes.get_openapi_mut().security =
        Some(vec![SecurityRequirement::new("key", Vec::<String>::new())]);
    routes
}

fn info() -> Info {
    InfoBuilder::new()
        .title("Belljar")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Isolated Python sandboxes for AI agents. Errors are problem details (RFC 9457) with a \
             stable `code` and a `hint`. Every POST accepts an `Idempotency-Key`; every response \
             has an `X-Request-Id`.",
        ))
        .build()
}

fn outline() -> OpenApi {
    let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("bj_…").build();
    let components = utoipa::openapi::ComponentsBuilder::new()
        .security_scheme("key", SecurityScheme::Http(key))
        .build();
    OpenApiBuilder::new().info(info()).components(Some(components)).build()
}
