//! Grants and ownership, and why a call is or is not allowed.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use service::{
    ExplainQuery, Explanation, GrantQuery, GrantRequest, OfferQuery, OfferRequest, Page,
    RequestCaller,
};
use std::sync::Arc;
use types::{Grant, GrantId, OfferId, OwnershipOffer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(delete))
        .routes(routes!(offer, offers))
        .routes(routes!(end_offer))
        .routes(routes!(accept))
        .routes(routes!(explain))
}

/// Grant a privilege on an object that you own
///
/// OWNERSHIP of the workspace can be shared. Every other object has one owner: an owner of the
/// workspace transfers it with a grant, any other owner offers it (`offerOwnership`). A new owner
/// ends the other grants on the object and sets an agent to `run_as: caller`. If the grant already
/// exists, the response is that grant.
#[utoipa::path(
    post,
    path = "/grants",
    operation_id = "createGrant",
    tag = "identity",
    request_body = GrantRequest,
    responses((status = 201, description = "Granted from the next request on", body = Grant))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<GrantRequest>,
) -> Result<(StatusCode, Json<Grant>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.create_grant(&caller, request).await?)))
}

/// List grants, newest first: your own, and all on objects that you own
#[utoipa::path(
    get,
    path = "/grants",
    operation_id = "listGrants",
    tag = "identity",
    params(GrantQuery),
    responses((status = 200, description = "One page of the list", body = Page<Grant>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<GrantQuery>,
) -> Result<Json<Page<Grant>>, Problem> {
    Ok(Json(app.service.grants(&caller, query).await?))
}

/// Revoke a grant
#[utoipa::path(
    delete,
    path = "/grants/{grant_id}",
    operation_id = "deleteGrant",
    tag = "identity",
    params(("grant_id" = GrantId, Path)),
    responses((status = 204, description = "Revoked from the next request on"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<GrantId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_grant(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Offer ownership of an object that you own
///
/// The recipient becomes the owner by accepting. An object has one offer at a time: a new offer
/// replaces the previous one.
#[utoipa::path(
    post,
    path = "/ownership-offers",
    operation_id = "offerOwnership",
    tag = "identity",
    request_body = OfferRequest,
    responses((status = 201, description = "Offered to the recipient", body = OwnershipOffer))
)]
async fn offer(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<OfferRequest>,
) -> Result<(StatusCode, Json<OwnershipOffer>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.offer_ownership(&caller, request).await?)))
}

/// List offers of ownership, newest first: those to you and those by you
#[utoipa::path(
    get,
    path = "/ownership-offers",
    operation_id = "listOwnershipOffers",
    tag = "identity",
    params(OfferQuery),
    responses((status = 200, description = "One page of the list", body = Page<OwnershipOffer>))
)]
async fn offers(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<OfferQuery>,
) -> Result<Json<Page<OwnershipOffer>>, Problem> {
    Ok(Json(app.service.ownership_offers(&caller, query).await?))
}

/// Decline an offer of ownership to you, or withdraw one for an object that you own
#[utoipa::path(
    delete,
    path = "/ownership-offers/{offer_id}",
    operation_id = "endOwnershipOffer",
    tag = "identity",
    params(("offer_id" = OfferId, Path)),
    responses((status = 204, description = "Withdrawn or declined"))
)]
async fn end_offer(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<OfferId>,
) -> Result<StatusCode, Problem> {
    app.service.end_offer(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Accept an offer of ownership
///
/// The other grants on the object end. An agent becomes `run_as: caller`, and the code of agents,
/// tools and functions keeps its author until you confirm or replace it.
#[utoipa::path(
    post,
    path = "/ownership-offers/{offer_id}/accept",
    operation_id = "acceptOwnership",
    tag = "identity",
    params(("offer_id" = OfferId, Path)),
    responses((status = 200, description = "Accepted: you are the owner from the next request on", body = Grant))
)]
async fn accept(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<OfferId>,
) -> Result<Json<Grant>, Problem> {
    Ok(Json(app.service.accept_ownership(&caller, id).await?))
}

/// Explain what a call could access, and why it is or is not allowed
///
/// For yourself, or for other principals if you own the tool and the agent, or the workspace.
#[utoipa::path(
    get,
    path = "/explain",
    operation_id = "explain",
    tag = "identity",
    params(ExplainQuery),
    responses((status = 200, description = "The access of a call at this moment", body = Explanation))
)]
async fn explain(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<Explanation>, Problem> {
    Ok(Json(app.service.explain(&caller, &query).await?))
}
