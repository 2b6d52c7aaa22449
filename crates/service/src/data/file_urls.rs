//! URLs of documents and of files that executions produced.
//!
//! A plain URL is the address of the operation that reads the file, and needs a key. A signed URL
//! needs none: for a limited time it lets its holder read one file with the rights of the credential
//! that it was made for. These rights are checked when it is used, so it ends with the key, the
//! principal, the grant or the file. Records store plain paths; each answer is signed for the caller
//! who gets it.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use policy::{FileUrlCredential, FileUrlGrant, FileUrlKey, MacTag, mac_for_file_url, macs_equal};
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use types::{
    Error, ErrorCode, Event, Execution, ExecutionId, File, FileId, JsonMembers, KeyId, OutputFile,
    Principal, PrincipalId, WorkspaceId,
};
use url::{Url, form_urlencoded};

/// Default lifetime of a signed URL: a conversation with its images is read on the day of the
/// answer. Every later answer has new URLs.
pub const FILE_URL_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum lifetime of a signed URL: a week, as object stores have it. A URL can be copied to
/// places that no one remembers.
pub const FILE_URL_LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A URL ends at one of the moments that divide time into this part of the lifetime. So a file has the
/// same URL in all answers of an hour, and browsers need not load it again.
const LIFETIME_STEPS: u64 = 24;

const ASSETS: &str = "/v1/assets/";
const DOCUMENTS: &str = "/v1/documents/";
const CONTENT: &str = "/content";
const EXPIRES: &str = "expires";
const KEY: &str = "key";
const PRINCIPAL: &str = "principal";
const SIGNATURE: &str = "signature";
/// Characters that are not escaped in the path of a URL.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b'/');

/// The addresses of this server, and the lifetime of signed URLs.
#[derive(Debug, Clone)]
pub struct FileUrlConfig {
    /// Beginning of every URL that the server gives out. Without one, such as in a process that no
    /// client can connect to, URLs are paths.
    pub base: Option<Url>,
    /// Further addresses by which users of this machine name the server.
    pub aliases: Vec<Url>,
    pub lifetime: Duration,
}

impl Default for FileUrlConfig {
    fn default() -> Self {
        Self { base: None, aliases: Vec::new(), lifetime: FILE_URL_LIFETIME }
    }
}

/// A file that a URL of this server names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileRef {
    Document(FileId),
    Asset { execution: ExecutionId, name: String },
}

impl FileRef {
    /// The file at a path of the API.
    pub fn of_path(path: &str) -> Option<Self> {
        if let Some(rest) = path.strip_prefix(ASSETS) {
            let (execution, name) = rest.split_once('/')?;
            let name = percent_decode_str(name).decode_utf8().ok()?.into_owned();
            return Some(Self::Asset { execution: execution.parse().ok()?, name });
        }
        let id = path.strip_prefix(DOCUMENTS)?.strip_suffix(CONTENT)?;
        Some(Self::Document(id.parse().ok()?))
    }

    /// The path of the file in the API, without percent-encoding.
    fn path(&self) -> String {
        match self {
            Self::Document(id) => format!("{DOCUMENTS}{id}{CONTENT}"),
            Self::Asset { execution, name } => format!("{ASSETS}{execution}/{name}"),
        }
    }

    /// The path of the file in the API, as in a URL.
    pub(crate) fn encoded_path(&self) -> String {
        utf8_percent_encode(&self.path(), PATH).to_string()
    }
}

/// The credential whose rights a URL has.
#[derive(Debug, Clone)]
enum UrlCredential {
    Key(KeyId),
    Tokens { workspace: WorkspaceId, principal: Box<Principal> },
}

impl UrlCredential {
    fn as_signed(&self) -> FileUrlCredential<'_> {
        match self {
            Self::Key(id) => FileUrlCredential::Key(*id),
            Self::Tokens { principal, .. } => FileUrlCredential::Tokens {
                principal: principal.id,
                external_id: principal.external_id.as_deref().unwrap_or_default(),
            },
        }
    }
}

/// Signs the URLs of an answer to one caller.
#[derive(Debug, Clone)]
pub struct FileUrlSigner {
    key: FileUrlKey,
    base: Option<Arc<str>>,
    credential: UrlCredential,
    expires: u64,
}

impl FileUrlSigner {
    /// The absolute, signed URL of a file, or its path if the server has no address.
    pub fn url(&self, file: &FileRef) -> String {
        self.absolute_url(file).unwrap_or_else(|| file.encoded_path())
    }

    /// The absolute, signed URL of a file, if the server has an address.
    pub fn absolute_url(&self, file: &FileRef) -> Option<String> {
        let (base, path) = (self.base.as_deref()?, file.encoded_path());
        let (field, id) = match &self.credential {
            UrlCredential::Key(id) => (KEY, id.to_string()),
            UrlCredential::Tokens { principal, .. } => (PRINCIPAL, principal.id.to_string()),
        };
        let signature = URL_SAFE_NO_PAD.encode(mac_for_file_url(
            &self.key,
            &FileUrlGrant {
                path: &file.path(),
                credential: self.credential.as_signed(),
                expires: self.expires,
            },
        ));
        let expires = self.expires;
        Some(format!("{base}{path}?{EXPIRES}={expires}&{field}={id}&{SIGNATURE}={signature}"))
    }

    pub fn sign_document(&self, document: &mut File) {
        document.url = Some(self.url(&FileRef::Document(document.id)));
    }

    pub fn sign_files(&self, files: &mut [OutputFile]) {
        for url in files.iter_mut().filter_map(|file| file.url.as_mut()) {
            // What is not a path is signed already.
            if let Some(file) = FileRef::of_path(url) {
                *url = self.url(&file);
            }
        }
    }

    pub fn sign_execution(&self, mut execution: Execution) -> Execution {
        self.sign_files(&mut execution.files_out);
        execution
    }

    pub fn sign_event(&self, event: Arc<Event>) -> Arc<Event> {
        match &*event {
            Event::File(file) => {
                let mut file = file.clone();
                self.sign_files(std::slice::from_mut(&mut file));
                Arc::new(Event::File(file))
            }
            _ => event,
        }
    }

    /// The same for a record that is text already. Everything but its files stays as it is.
    pub(crate) fn sign_record_json(&self, json: String) -> String {
        let members = JsonMembers::of(&json).flatten();
        let Some(value) = members.filter(|(name, _)| name == "files_out").map(|it| it.1).next()
        else {
            return json;
        };
        let Ok(mut files) = serde_json::from_str::<Vec<OutputFile>>(value) else { return json };
        if files.is_empty() {
            return json;
        }
        self.sign_files(&mut files);
        let Ok(signed) = serde_json::to_string(&files) else { return json };
        let begin = value.as_ptr() as usize - json.as_ptr() as usize;
        let (before, after) = (&json[..begin], &json[begin + value.len()..]);
        format!("{before}{signed}{after}")
    }
}

/// The query of a signed URL.
struct SignedQuery {
    expires: u64,
    key: Option<KeyId>,
    principal: Option<PrincipalId>,
    signature: MacTag,
}

impl SignedQuery {
    /// Each field exactly once, and nothing else.
    fn parse(query: &str) -> Option<Self> {
        let (mut expires, mut key, mut principal, mut signature) = (None, None, None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_repeated = match &*name {
                EXPIRES => expires.replace(value.parse().ok()?).is_some(),
                KEY => key.replace(value.parse().ok()?).is_some(),
                PRINCIPAL => principal.replace(value.parse().ok()?).is_some(),
                SIGNATURE => signature.replace(decode_signature(&value)?).is_some(),
                _ => true,
            };
            if is_repeated {
                return None;
            }
        }
        Some(Self { expires: expires?, key, principal, signature: signature? })
    }
}

fn decode_signature(text: &str) -> Option<MacTag> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// Whether a query claims to be that of a signed URL.
pub fn has_signature(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == SIGNATURE)
}

impl Service {
    /// Signs URLs for this caller, from now on.
    pub fn file_urls(&self, caller: &Caller) -> FileUrlSigner {
        let FileUrlConfig { base, lifetime, .. } = &self.config.file_urls;
        let now = u64::try_from(self.now().timestamp()).unwrap_or_default();
        let credential = match caller.key() {
            Some(key) => UrlCredential::Key(key),
            None => UrlCredential::Tokens {
                workspace: caller.workspace,
                principal: Box::new(caller.principal.clone()),
            },
        };
        FileUrlSigner {
            key: self.file_url_key.clone(),
            base: base.as_ref().map(|base| base.as_str().trim_end_matches('/').into()),
            credential,
            expires: end_of_url(now, (*lifetime).min(FILE_URL_LIFETIME_MAX).as_secs()),
        }
    }

    /// The beginning of every URL that the server gives out.
    pub fn base_url(&self) -> Option<&str> {
        self.config.file_urls.base.as_ref().map(|base| base.as_str().trim_end_matches('/'))
    }

    /// The caller whose rights a signed URL has, and the file that it names. Nothing about the file
    /// is looked up, so that no error tells whether it exists.
    pub fn authenticate_file_url(
        &self,
        path: &str,
        query: &str,
    ) -> Result<(Caller, FileRef), RequestError> {
        let query = SignedQuery::parse(query).ok_or_else(invalid_url_error)?;
        let file = FileRef::of_path(path).ok_or_else(invalid_url_error)?;
        let credential = self.url_credential(&query)?.ok_or_else(invalid_url_error)?;
        let grant = FileUrlGrant {
            path: &file.path(),
            credential: credential.as_signed(),
            expires: query.expires,
        };
        if !macs_equal(&query.signature, &mac_for_file_url(&self.file_url_key, &grant)) {
            return Err(invalid_url_error().into());
        }
        let expires = i64::try_from(query.expires).ok();
        let expires = expires.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
        let expires = expires.ok_or_else(invalid_url_error)?;
        if expires <= self.now() {
            let end = expires.to_rfc3339_opts(SecondsFormat::Secs, true);
            return Err(ended_url_error(&format!("the URL expired at {end}")).into());
        }
        let caller = match credential {
            UrlCredential::Key(id) => self.caller_with_key(id)?,
            UrlCredential::Tokens { workspace, principal } => {
                Caller::of_tokens(workspace, *principal, expires, self.clock())
            }
        };
        let ended = || ended_url_error("the rights that the URL was made with have ended");
        Ok((caller.ok_or_else(ended)?, file))
    }

    /// The credential that a URL names. The key itself is looked up after the signature was
    /// checked; the external id of a principal is part of what was signed.
    fn url_credential(&self, query: &SignedQuery) -> Result<Option<UrlCredential>, RequestError> {
        match (query.key, query.principal) {
            (Some(key), None) => Ok(Some(UrlCredential::Key(key))),
            (None, Some(id)) => {
                let Some(workspace) = self.first_workspace()? else { return Ok(None) };
                let found = self.db.read(|rows| rows.principal(workspace, id))?;
                let principal = found.map(Box::new);
                Ok(principal.map(|principal| UrlCredential::Tokens { workspace, principal }))
            }
            _ => Ok(None),
        }
    }

    /// A file that a URL of this server names, with its content, for callers who may read it.
    pub async fn open_file(
        &self,
        caller: &Caller,
        file: &FileRef,
    ) -> Result<(File, fs::File), RequestError> {
        match file {
            FileRef::Document(id) => self.open_document(caller, *id),
            FileRef::Asset { execution, name } => self.asset(caller, *execution, name).await,
        }
    }

    /// The file of this server that a URL names, signed or not; `None` for a URL of another server.
    /// A signature is not looked at: the file is read with the rights of the caller.
    pub fn own_file(&self, url: &str) -> Result<Option<FileRef>, RequestError> {
        let Some(path) = self.own_path(url) else { return Ok(None) };
        let file = FileRef::of_path(&path).ok_or_else(|| {
            let message = format!("{url} is neither a document nor an asset of this server");
            Error::new(ErrorCode::FileFetchFailed, message)
                .hint("use the `url` of a document, or of a file of an execution")
        })?;
        Ok(Some(file))
    }

    /// The path after the base of this server.
    fn own_path(&self, url: &str) -> Option<String> {
        let url = Url::parse(url).ok()?;
        if !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let FileUrlConfig { base, aliases, .. } = &self.config.file_urls;
        base.iter().chain(aliases).find_map(|base| {
            let path = url.path().strip_prefix(base.path().trim_end_matches('/'))?;
            (url.origin() == base.origin() && path.starts_with('/')).then(|| path.to_owned())
        })
    }
}

fn invalid_url_error() -> Error {
    Error::new(ErrorCode::AuthMissing, "invalid signature of the URL")
        .hint("use the URL exactly as an answer has it, or send an API key with the plain URL")
}

fn ended_url_error(message: &str) -> Error {
    Error::new(ErrorCode::AuthMissing, message)
        .hint("request the record or the document again; each answer has a new URL")
}

/// The second at which a URL of this second ends: at most its lifetime later.
fn end_of_url(now: u64, lifetime: u64) -> u64 {
    let (end, step) = (now.saturating_add(lifetime), (lifetime / LIFETIME_STEPS).max(1));
    end - end % step
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::Utc;
    use types::{FileKind, Limits};
    use uuid::Uuid;

    #[test]
    fn t255_urls_of_an_hour_are_the_same_and_none_lives_longer_than_its_lifetime() {
        let (day, start) = (24 * 3_600, 1_800_000_000);
        assert_eq!(start % 3_600, 0);
        let end = end_of_url(start, day);
        assert_eq!(end, start + day);
        assert_eq!(end_of_url(start + 3_599, day), end);
        assert_eq!(end_of_url(start + 3_600, day), end + 3_600);
        for lifetime in [1, 23, 60] {
            let left = end_of_url(start + 7, lifetime) - (start + 7);
            assert!((1..=lifetime).contains(&left), "{lifetime}: {left}");
        }
    }

    fn signer() -> FileUrlSigner {
        FileUrlSigner {
            key: FileUrlKey::new([1; FileUrlKey::BYTES]),
            base: Some("https://belljar.example".into()),
            credential: UrlCredential::Key(KeyId::new(Uuid::from_u128(7))),
            expires: 1_800_000_000,
        }
    }

    fn output(name: &str, url: Option<&str>) -> OutputFile {
        let (mime, sha256) = ("text/csv".to_owned(), String::new());
        let url = url.map(str::to_owned);
        OutputFile { name: name.to_owned(), mime, size: 1, sha256, kind: FileKind::Data, url }
    }

    #[test]
    fn a_path_names_one_file_and_every_spelling_of_it_the_same_one() {
        let id = Uuid::from_u128(5);
        let asset = |name: &str| FileRef::of_path(&format!("/v1/assets/{id}/{name}"));
        let named = |name: &str| {
            Some(FileRef::Asset { execution: ExecutionId::new(id), name: name.to_owned() })
        };
        assert_eq!(asset("a%20b.csv"), named("a b.csv"));
        assert_eq!(asset("out/%61.csv"), named("out/a.csv"));
        assert_eq!(asset("..%2fa"), named("../a"), "a name of no file, and never a path");
        assert_eq!(asset("%ff"), None);
        let document = FileRef::of_path(&format!("/v1/documents/{id}/content"));
        assert_eq!(document, Some(FileRef::Document(FileId::new(id))));
        for other in ["/v1/assets/x/a", "/v1/documents/x/content", "/v1/keys", "", "/v1/assets/"] {
            assert_eq!(FileRef::of_path(other), None, "{other}");
        }
        let file = named("größe 1/ä?.csv").unwrap();
        assert_eq!(FileRef::of_path(&file.encoded_path()), Some(file));
    }

    #[test]
    fn t255_a_query_has_each_field_once_and_nothing_else() {
        let (url, id) = (signer().url(&FileRef::Document(FileId::new(Uuid::nil()))), 7);
        let query = url.split_once('?').unwrap().1.to_owned();
        let read = SignedQuery::parse(&query).unwrap();
        assert_eq!(
            (read.expires, read.key),
            (1_800_000_000, Some(KeyId::new(Uuid::from_u128(id))))
        );
        for wrong in [
            String::new(),
            format!("{query}&expires=1"),
            format!("{query}&x=1"),
            query.replace("expires", "Expires"),
            query.replace("1800000000", "-1"),
            query.replace("1800000000", "99999999999999999999999"),
            query.replace("signature=", "signature=A"),
            query[..query.len() - 1].to_owned(),
        ] {
            assert!(SignedQuery::parse(&wrong).is_none(), "{wrong}");
        }
        assert!(has_signature("a=1&%73ignature="), "the name in any spelling");
        assert!(!has_signature("a=signature"));
    }

    #[test]
    fn a_record_that_is_text_has_the_same_urls_as_one_that_is_not() {
        let id = ExecutionId::new(Uuid::from_u128(5));
        let mut record = Execution::new(id, Limits::DEFAULT, Utc::now());
        record.code = r#"{"files_out":[{"url":"/v1/assets/x"}]}"#.to_owned();
        let json = |record: &Execution| serde_json::to_string(record).unwrap();
        assert_eq!(signer().sign_record_json(json(&record)), json(&record), "no files");
        let path = format!("/v1/assets/{id}/a.csv");
        record.files_out = vec![output("a.csv", Some(&path)), output("b.csv", None)];
        let signed = signer().sign_execution(record.clone());
        let url = signed.files_out[0].url.clone().unwrap();
        assert!(url.starts_with(&format!("https://belljar.example{path}?expires=1800000000&")));
        assert_eq!(signed.files_out[1].url, None);
        assert_eq!(signer().sign_record_json(json(&record)), json(&signed));
        assert_eq!(signer().sign_execution(signed.clone()), signed, "once is enough");
    }
}
