//! Documents: files that somebody has uploaded or had fetched, kept until they are deleted or over.

use crate::apart::to_the_end;
use crate::caller::Caller;
use crate::page::{Listed, page};
use crate::refused::{Refused, invalid, not_found};
use crate::service::Service;
use crate::staging::{Staged, cannot_keep};
use chrono::{TimeDelta, Utc};
use egress::Fetched;
use serde::Deserialize;
use std::fs;
use std::sync::Arc;
use store::{Reader, Tx};
use tokio::io::AsyncWriteExt;
use types::{Fault, File, FileId, FileSource};
use utoipa::ToSchema;
use uuid::Uuid;

const NAME_CHARS_MAX: usize = 255;
const URLS_MAX: usize = 20;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchRequest {
    /// `http` or `https`, fetched by the server.
    pub urls: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DocumentQuery {
    /// How many, from 1 to 200; 50 if absent.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

/// Bytes that are to be kept, and what is known of them.
#[derive(Debug)]
pub(crate) struct NewDocument {
    pub(crate) name: String,
    pub(crate) staged: Staged,
    pub(crate) source: FileSource,
    pub(crate) url: Option<String>,
}

impl Service {
    /// All of them, or none.
    pub async fn upload_documents(
        self: &Arc<Self>,
        caller: &Caller,
        uploads: Vec<(String, Staged)>,
    ) -> Result<Vec<File>, Refused> {
        self.require_usage(caller)?;
        let named = uploads.into_iter().map(|(name, staged)| {
            let name = document_name(&name)?;
            Ok(NewDocument { name, staged, source: FileSource::Upload, url: None })
        });
        self.keep_documents(caller, named.collect::<Result<_, Refused>>()?).await
    }

    /// All of them, or none.
    pub async fn fetch_documents(
        self: &Arc<Self>,
        caller: &Caller,
        request: FetchRequest,
    ) -> Result<Vec<File>, Refused> {
        self.require_usage(caller)?;
        if !(1..=URLS_MAX).contains(&request.urls.len()) {
            return Err(invalid("/urls", format!("has from 1 to {URLS_MAX} URLs")));
        }
        let mut fetched = Vec::with_capacity(request.urls.len());
        for url in request.urls {
            let (about, staged) = self.fetch(&url).await?;
            let name = document_name(&about.name)?;
            fetched.push(NewDocument { name, staged, source: FileSource::Url, url: Some(url) });
        }
        self.keep_documents(caller, fetched).await
    }

    /// What is at a URL, in a temporary file.
    pub(crate) async fn fetch(&self, url: &str) -> Result<(Fetched, Staged), Refused> {
        let mut staging = self.stage().await?;
        let fetched = self.fetcher.fetch(url, &mut staging.file).await.map_err(|error| {
            let fault = Fault::from(error);
            let message = format!("{url} was not fetched: {}", fault.message);
            Fault { message, ..fault }
        })?;
        staging.file.flush().await.map_err(|error| cannot_keep(&error))?;
        let staged =
            Staged { path: staging.path, size: fetched.size, sha256: fetched.sha256.clone() };
        Ok((fetched, staged))
    }

    /// Seen through when the caller goes away: bytes without a row would be in nobody's quota.
    pub(crate) async fn keep_documents(
        self: &Arc<Self>,
        caller: &Caller,
        new: Vec<NewDocument>,
    ) -> Result<Vec<File>, Refused> {
        let (service, caller) = (Arc::clone(self), caller.clone());
        to_the_end(async move { service.keep_all(&caller, new).await }).await
    }

    async fn keep_all(&self, caller: &Caller, new: Vec<NewDocument>) -> Result<Vec<File>, Refused> {
        let mut files = Vec::with_capacity(new.len());
        let mut kept = Ok(());
        for document in new {
            let file = self.document_row(caller, &document);
            let moved = self.store.keep_blob(document.staged.path.as_path().to_owned(), file.id);
            kept = kept.and(moved.await);
            files.push(file);
        }
        if kept.is_ok() {
            kept = self.write_documents(caller, files.clone()).await;
        }
        if let Err(refused) = kept {
            self.store.remove_blobs(files.iter().map(|file| file.id).collect()).await?;
            return Err(refused.into());
        }
        Ok(files)
    }

    fn document_row(&self, caller: &Caller, document: &NewDocument) -> File {
        let NewDocument { name, staged, source, url } = document;
        let now = Utc::now();
        let retention = TimeDelta::from_std(self.config.retention).ok();
        File {
            id: FileId::new(Uuid::now_v7()),
            mime: mime_guess::from_path(name).first_or_octet_stream().essence_str().to_owned(),
            name: name.clone(),
            owner: caller.id(),
            size: staged.size,
            sha256: staged.sha256.clone(),
            source: *source,
            url: url.clone(),
            sandbox_id: None,
            execution_id: None,
            created_at: now,
            expires_at: retention.and_then(|retention| now.checked_add_signed(retention)),
        }
    }

    async fn write_documents(
        &self,
        caller: &Caller,
        files: Vec<File>,
    ) -> Result<(), store::StoreError> {
        let (workspace, most) = (caller.workspace, self.config.workspace_bytes_max);
        let did = |file: &File| caller.did("document.create", file.id, &file.name);
        let entries: Vec<_> = files.iter().map(did).collect();
        let written = move |tx: &Tx<'_>| {
            tx.insert_files(workspace, &files, most)?;
            entries.iter().try_for_each(|entry| tx.audit(entry).map(drop))
        };
        self.store.write(written).await
    }

    pub fn document(&self, caller: &Caller, id: FileId) -> Result<File, Refused> {
        let found = self.store.read(|rows| rows.file(caller.workspace, id))?;
        match found {
            Some(file) if file.execution_id.is_none() && self.may_see(caller, file.owner)? => {
                Ok(file)
            }
            _ => Err(not_found("document", id)),
        }
    }

    /// A document and its bytes.
    pub fn open_document(&self, caller: &Caller, id: FileId) -> Result<(File, fs::File), Refused> {
        let document = self.document(caller, id)?;
        let bytes = self.store.blobs().open_file(id)?;
        Ok((document, bytes.ok_or_else(|| not_found("document", id))?))
    }

    /// Newest first.
    pub async fn documents(
        &self,
        caller: &Caller,
        query: DocumentQuery,
    ) -> Result<Listed<File>, Refused> {
        let page = page(query.limit, query.cursor.as_deref())?;
        let (workspace, owner) = (caller.workspace, self.only_own(caller)?);
        let read = move |rows: &Reader<'_>| rows.documents(workspace, owner, page);
        Ok(self.store.read_long(read).await?.into())
    }

    pub async fn delete_document(&self, caller: &Caller, id: FileId) -> Result<(), Refused> {
        let document = self.document(caller, id)?;
        let entry = caller.did("document.delete", id, &document.name);
        let (workspace, store) = (caller.workspace, Arc::clone(&self.store));
        to_the_end(async move {
            let delete = move |tx: &Tx<'_>| {
                tx.delete_file(workspace, id)?;
                tx.audit(&entry).map(drop)
            };
            store.write(delete).await?;
            Ok(store.remove_blobs(vec![id]).await?)
        })
        .await
    }
}

/// The last part of a path, as some browsers send one.
pub(crate) fn document_name(given: &str) -> Result<String, Refused> {
    let name = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let usable = !matches!(name, "" | "." | "..")
        && name.chars().count() <= NAME_CHARS_MAX
        && name.len() <= NAME_CHARS_MAX
        && !name.chars().any(char::is_control);
    if usable {
        Ok(name.to_owned())
    } else {
        Err(invalid("filename", format!("{given:?} is not a name that a file can have")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Code;

    #[test]
    fn t29_a_name_is_one_plain_part_or_refused() {
        for (given, name) in [
            ("a.csv", "a.csv"),
            ("../../etc/passwd", "passwd"),
            ("C:\\fakepath\\a.csv", "a.csv"),
            ("Zürich ☃.csv", "Zürich ☃.csv"),
            (".hidden", ".hidden"),
            ("...", "..."),
        ] {
            assert_eq!(document_name(given).unwrap(), name);
        }
        let long = "x".repeat(256);
        for given in ["", ".", "..", "a/", "a/..", "a\0b", "a\nb", "\u{7f}", &long] {
            let refused = document_name(given).unwrap_err();
            assert_eq!(refused.fault.code, Code::ArgsInvalid, "{given:?}");
        }
    }
}
