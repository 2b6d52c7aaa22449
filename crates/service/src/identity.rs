//! Callers: principals, API keys, tokens, workspaces, grants and ownership.

pub(crate) mod api_key;
pub(crate) mod caller;
pub(crate) mod caller_tokens;
pub(crate) mod code_authors;
pub(crate) mod grants;
pub(crate) mod keys;
pub(crate) mod ownership;
pub(crate) mod ownership_offers;
pub(crate) mod principals;
pub(crate) mod self_service_rate;
pub(crate) mod tokens;
pub(crate) mod workspace_owners;
pub(crate) mod workspaces;

pub(crate) use caller_tokens::{CallerToken, CallerTokens, MissingToken};
pub use caller_tokens::{CallerTokenService, CallerTokenServiceError};
