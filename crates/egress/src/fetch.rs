//! Fetches a URL on the server for a user.
//!
//! Each redirect is checked again and connects only to the addresses of its [`FetchRoute`]. A fetch
//! uses no cookie, credential, proxy, referrer or decompression. The body is written unchanged and
//! counted as it arrives; the caller discards it after an error.

use crate::error::FetchError;
use crate::file_name::file_name;
use crate::resolve::Resolver;
use policy::{FetchException, FetchRoute, FetchTarget};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
};
use reqwest::{Client, Response, StatusCode};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use url::Host;

/// Maximum size of a fetched file: larger than the tables and documents that people use. The working
/// directory must hold it.
const BYTES_MAX: u64 = 100 * 1024 * 1024;
/// A user waits for it.
const TIME_MAX: Duration = Duration::from_secs(60);
/// A working server responds sooner.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// A short link to an object store takes three.
const REDIRECTS_MAX: usize = 5;
/// Ten times what servers send. hyper's buffer limits their bytes to 400 KiB.
const HEADERS_MAX: usize = 100;
/// Maximum length of a MIME type: longer than any registered one.
const MIME_BYTES_MAX: usize = 127;
const UNKNOWN_MIME: &str = "application/octet-stream";
const USER_AGENT: &str = concat!("belljar/", env!("CARGO_PKG_VERSION"));

/// Settings of the operator for fetching.
#[derive(Debug, Clone)]
pub struct FetchConfig {
    /// Hosts of the operator's own network that are allowed.
    pub exceptions: Vec<FetchException>,
    pub resolver: Resolver,
    pub bytes_max: u64,
    /// For the whole fetch: name lookup, redirects and body.
    pub time_max: Duration,
    /// For a response to begin, and between two parts of it.
    pub idle_max: Duration,
    pub redirects_max: usize,
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self {
            exceptions: Vec::new(),
            resolver: Resolver::System,
            bytes_max: BYTES_MAX,
            time_max: TIME_MAX,
            idle_max: IDLE_MAX,
            redirects_max: REDIRECTS_MAX,
        }
    }
}

/// A fetched file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedFile {
    /// A file name, never a path.
    pub name: String,
    /// The `Content-Type` of the server, without parameters.
    pub mime: String,
    pub size: u64,
    /// The URL after all redirects.
    pub final_url: String,
    pub sha256: String,
}

/// Fetches files for users.
#[derive(Debug, Clone)]
pub struct Fetcher {
    config: FetchConfig,
}

impl Fetcher {
    pub fn new(config: FetchConfig) -> Self {
        Self { config }
    }

    /// Writes the file at `url` to `into`. After an error, the caller must discard what was
    /// written.
    pub async fn fetch<W>(&self, url: &str, into: &mut W) -> Result<FetchedFile, FetchError>
    where
        W: AsyncWrite + Unpin,
    {
        let max = self.config.time_max;
        let download = async {
            let target = FetchTarget::new(url, &self.config.exceptions).map_err(FetchError::Url)?;
            let (route, mut answer) = self.follow_redirects(target).await?;
            let (size, sha256) = self.write_body(&mut answer, into).await?;
            let disposition = header(&answer, CONTENT_DISPOSITION);
            Ok(FetchedFile {
                name: file_name(disposition.map(HeaderValue::as_bytes), route.url()),
                mime: mime(&answer),
                size,
                final_url: route.url().to_string(),
                sha256,
            })
        };
        timeout(max, download).await.unwrap_or(Err(FetchError::Timeout { max }))
    }

    /// Follows redirects until a server returns the file.
    async fn follow_redirects(
        &self,
        mut target: FetchTarget,
    ) -> Result<(FetchRoute, Response), FetchError> {
        let max = self.config.redirects_max;
        for _ in 0..=max {
            let route = self.route(target).await?;
            let answer = self.send_request(&route).await?;
            let status = answer.status();
            if status == StatusCode::OK {
                return Ok((route, answer));
            }
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Err(FetchError::Status { status: status.as_u16() });
            }
            let location = header(&answer, LOCATION).ok_or(FetchError::MissingLocation)?;
            let location =
                str::from_utf8(location.as_bytes()).map_err(|_| FetchError::MissingLocation)?;
            target = route
                .target()
                .follow_redirect(location, &self.config.exceptions)
                .map_err(FetchError::Redirect)?;
        }
        Err(FetchError::TooManyRedirects { max })
    }

    async fn route(&self, target: FetchTarget) -> Result<FetchRoute, FetchError> {
        let host = target.host().to_string();
        let answers: Vec<IpAddr> = match *target.host() {
            Host::Ipv4(address) => vec![address.into()],
            Host::Ipv6(address) => vec![address.into()],
            Host::Domain(ref name) => {
                match self.config.resolver.lookup_addresses(name, Vec::new()).await {
                    Ok(answers) => answers,
                    Err(source) => return Err(FetchError::Unresolved { host, source }),
                }
            }
        };
        target.resolve_with(&answers).map_err(|source| FetchError::Route { host, source })
    }

    async fn send_request(&self, route: &FetchRoute) -> Result<Response, FetchError> {
        let client = pinned_client(route.addresses()).map_err(FetchError::Client)?;
        let request = client.get(route.url().clone()).header(ACCEPT_ENCODING, "identity");
        self.with_idle_timeout(request.send()).await?.map_err(|error| {
            if error.is_connect() {
                FetchError::Connect(error)
            } else {
                FetchError::InvalidResponse(error)
            }
        })
    }

    /// Writes the body as it arrives; returns its size and hash.
    async fn write_body<W>(
        &self,
        answer: &mut Response,
        into: &mut W,
    ) -> Result<(u64, String), FetchError>
    where
        W: AsyncWrite + Unpin,
    {
        let max = self.config.bytes_max;
        if answer.content_length().is_some_and(|length| length > max) {
            return Err(FetchError::TooLarge { max });
        }
        let mut size = 0;
        let mut hash = Sha256::new();
        while let Some(part) =
            self.with_idle_timeout(answer.chunk()).await?.map_err(FetchError::Incomplete)?
        {
            size += part.len() as u64;
            if size > max {
                return Err(FetchError::TooLarge { max });
            }
            hash.update(&part);
            into.write_all(&part).await.map_err(FetchError::Write)?;
        }
        into.flush().await.map_err(FetchError::Write)?;
        Ok((size, hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    async fn with_idle_timeout<T>(
        &self,
        waiting: impl Future<Output = T>,
    ) -> Result<T, FetchError> {
        let max = self.config.idle_max;
        timeout(max, waiting).await.map_err(|_| FetchError::IdleTimeout { max })
    }
}

/// A client that can connect only to these addresses.
pub(crate) fn pinned_client(addresses: &[SocketAddr]) -> reqwest::Result<Client> {
    Client::builder()
        // Keep the bytes as they are. Another crate may have enabled the features that would
        // decompress them.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .dns_resolver(PinnedResolver(addresses.into()))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .http1_only()
        .http1_max_headers(HEADERS_MAX)
        .pool_max_idle_per_host(0)
        .user_agent(USER_AGENT)
        .build()
}

/// Resolves every name to the checked addresses, so that another spelling of the name further down
/// cannot cause a second lookup.
struct PinnedResolver(Arc<[SocketAddr]>);

impl Resolve for PinnedResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses = self.0.to_vec();
        Box::pin(async { Ok(Box::new(addresses.into_iter()) as Box<_>) })
    }
}

fn header(answer: &Response, name: HeaderName) -> Option<&HeaderValue> {
    answer.headers().get(name)
}

fn mime(answer: &Response) -> String {
    let content_type =
        header(answer, CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let token = |part: &str| {
        let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !part.is_empty() && part.bytes().all(is_token_byte)
    };
    let known = essence.len() <= MIME_BYTES_MAX
        && essence.split_once('/').is_some_and(|(kind, name)| token(kind) && token(name));
    if known { essence } else { UNKNOWN_MIME.to_owned() }
}
