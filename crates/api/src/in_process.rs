//! The API for callers inside this process: requests reach the router without a socket.

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use std::convert::Infallible;
use tower::ServiceExt;

/// The router, with the same checks, limits and responses as behind a listener.
#[derive(Debug, Clone)]
pub struct InProcessApi(Router);

impl InProcessApi {
    pub fn new(router: Router) -> Self {
        Self(router)
    }

    /// Sends a request. Dropping the body of the response has the effect of a closed connection.
    pub async fn send<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let response: Result<_, Infallible> = self.0.clone().oneshot(request).await;
        match response {
            Ok(response) => response,
        }
    }
}
