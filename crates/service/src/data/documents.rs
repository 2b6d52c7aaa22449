//! Documents: files that a caller has uploaded or let the server fetch, stored until they are
//! deleted or expire.

use crate::data::inputs::last_segment;
use crate::data::staging::{StagedFile, file_write_error};
use crate::error::{RequestError, invalid_field, not_found};
use crate::identity::caller::Caller;
use crate::page::{Page, page_request};
use crate::service::Service;
use crate::tasks::run_to_completion;
use chrono::TimeDelta;
use db::{Reader, Tx};
use egress::FetchedFile;
use serde::Deserialize;
use std::fs;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use types::{Error, File, FileId, FileSource};
use utoipa::ToSchema;
use uuid::Uuid;

const NAME_CHARS_MAX: usize = 255;
const URLS_MAX: usize = 20;
/// Part of a file that is copied at once.
const COPY_BYTES: usize = 64 * 1024;

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
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

/// A document that is to be stored.
#[derive(Debug)]
pub(crate) struct NewDocument {
    pub(crate) name: String,
    pub(crate) staged: StagedFile,
    pub(crate) source: FileSource,
    pub(crate) url: Option<String>,
}

impl Service {
    /// Stores all documents, or none.
    pub async fn upload_documents(
        self: &Arc<Self>,
        caller: &Caller,
        uploads: Vec<(String, StagedFile)>,
    ) -> Result<Vec<File>, RequestError> {
        self.require_usage(caller)?;
        let documents = uploads.into_iter().map(|(name, staged)| {
            let name = document_name(&name)?;
            Ok(NewDocument { name, staged, source: FileSource::Upload, url: None })
        });
        self.persist_documents(caller, documents.collect::<Result<_, RequestError>>()?).await
    }

    /// Fetches and stores all documents, or none.
    pub async fn fetch_documents(
        self: &Arc<Self>,
        caller: &Caller,
        request: FetchRequest,
    ) -> Result<Vec<File>, RequestError> {
        self.require_usage(caller)?;
        if !(1..=URLS_MAX).contains(&request.urls.len()) {
            return Err(invalid_field("/urls", format!("must have 1 to {URLS_MAX} URLs")));
        }
        let mut fetched = Vec::with_capacity(request.urls.len());
        for url in request.urls {
            let (name, staged) = self.fetch_or_copy(caller, &url).await?;
            let name = document_name(&name)?;
            fetched.push(NewDocument { name, staged, source: FileSource::Url, url: Some(url) });
        }
        self.persist_documents(caller, fetched).await
    }

    /// The name and the content of the file at a URL, in a temporary file. A file of this server is
    /// copied, with the rights of the caller; any other is fetched.
    pub(crate) async fn fetch_or_copy(
        &self,
        caller: &Caller,
        url: &str,
    ) -> Result<(String, StagedFile), RequestError> {
        let Some(own) = self.own_file(url)? else {
            let (fetched, staged) = self.fetch_url(url).await?;
            return Ok((fetched.name, staged));
        };
        let (file, bytes) = self.open_file(caller, &own).await?;
        let (mut bytes, mut staging) = (tokio::fs::File::from_std(bytes), self.stage().await?);
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            match bytes.read(&mut buffer).await.map_err(|error| file_write_error(&error))? {
                0 => return Ok((last_segment(&file.name).to_owned(), staging.finish().await?)),
                count => staging.write(&buffer[..count]).await?,
            }
        }
    }

    /// Fetches a URL into a temporary file.
    #[boxed::future]
    pub(crate) async fn fetch_url(
        &self,
        url: &str,
    ) -> Result<(FetchedFile, StagedFile), RequestError> {
        let mut staging = self.stage().await?;
        let fetched = self.fetcher.fetch(url, &mut staging.file).await.map_err(|error| {
            let error = Error::from(error);
            let message = format!("{url} was not fetched: {}", error.message);
            Error { message, ..error }
        })?;
        staging.file.flush().await.map_err(|error| file_write_error(&error))?;
        let staged =
            StagedFile { path: staging.path, size: fetched.size, sha256: fetched.sha256.clone() };
        Ok((fetched, staged))
    }

    /// Stores documents to the end even if the client disconnects: bytes without a row would not
    /// count against a quota.
    #[boxed::future]
    pub(crate) async fn persist_documents(
        self: &Arc<Self>,
        caller: &Caller,
        new: Vec<NewDocument>,
    ) -> Result<Vec<File>, RequestError> {
        let (service, caller) = (Arc::clone(self), caller.clone());
        run_to_completion(async move { service.persist_all(&caller, new).await }).await
    }

    async fn persist_all(
        &self,
        caller: &Caller,
        new: Vec<NewDocument>,
    ) -> Result<Vec<File>, RequestError> {
        let mut files = Vec::with_capacity(new.len());
        let mut result = Ok(());
        for document in new {
            let file = self.document_row(caller, &document);
            let persisted =
                self.db.persist_blob(document.staged.path.as_path().to_owned(), file.id);
            result = result.and(persisted.await);
            files.push(file);
        }
        if result.is_ok() {
            result = self.write_documents(caller, files.clone()).await;
        }
        if let Err(error) = result {
            self.db.remove_blobs(files.iter().map(|file| file.id).collect()).await?;
            return Err(error.into());
        }
        Ok(files)
    }

    fn document_row(&self, caller: &Caller, document: &NewDocument) -> File {
        let NewDocument { name, staged, source, url } = document;
        let now = self.now();
        let retention = TimeDelta::from_std(self.config.retention).ok();
        File {
            id: FileId::new(Uuid::now_v7()),
            mime: mime_guess::from_path(name).first_or_octet_stream().essence_str().to_owned(),
            name: name.clone(),
            owner: caller.id(),
            size: staged.size,
            sha256: staged.sha256.clone(),
            source: *source,
            url: None,
            source_url: url.clone(),
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
    ) -> Result<(), db::DatabaseError> {
        let (workspace, most) = (caller.workspace, self.config.workspace_bytes_max);
        let create_entry = |file: &File| caller.audit_entry("document.create", file.id, &file.name);
        let entries: Vec<_> = files.iter().map(create_entry).collect();
        let write = move |tx: &Tx<'_>| {
            tx.insert_files(workspace, &files, most)?;
            entries.iter().try_for_each(|entry| tx.append_audit_entry(entry).map(drop))
        };
        self.db.write(write).await
    }

    pub fn document(&self, caller: &Caller, id: FileId) -> Result<File, RequestError> {
        let found = self.db.read(|rows| rows.file(caller.workspace, id))?;
        match found {
            Some(file)
                if file.execution_id.is_none() && self.may_see_owned_by(caller, file.owner)? =>
            {
                Ok(file)
            }
            _ => Err(not_found("document", id)),
        }
    }

    /// A document, and its open file.
    pub fn open_document(
        &self,
        caller: &Caller,
        id: FileId,
    ) -> Result<(File, fs::File), RequestError> {
        let document = self.document(caller, id)?;
        let bytes = self.db.blobs().open_file(id)?;
        Ok((document, bytes.ok_or_else(|| not_found("document", id))?))
    }

    /// Documents of the caller, newest first; of all principals for an owner of the workspace.
    pub async fn documents(
        &self,
        caller: &Caller,
        query: DocumentQuery,
    ) -> Result<Page<File>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let (workspace, owner) = (caller.workspace, self.owner_filter(caller)?);
        let read = move |rows: &Reader<'_>| rows.documents(workspace, owner, page);
        Ok(self.db.read_off_thread(read).await?.into())
    }

    pub async fn delete_document(&self, caller: &Caller, id: FileId) -> Result<(), RequestError> {
        let document = self.document(caller, id)?;
        let entry = caller.audit_entry("document.delete", id, &document.name);
        let (workspace, db) = (caller.workspace, Arc::clone(&self.db));
        run_to_completion(async move {
            let delete = move |tx: &Tx<'_>| {
                tx.delete_file(workspace, id)?;
                tx.append_audit_entry(&entry).map(drop)
            };
            db.write(delete).await?;
            Ok(db.remove_blobs(vec![id]).await?)
        })
        .await
    }
}

/// The last part of a path, because some browsers send one.
pub(crate) fn document_name(path: &str) -> Result<String, RequestError> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_valid = !matches!(name, "" | "." | "..")
        && name.chars().count() <= NAME_CHARS_MAX
        && name.len() <= NAME_CHARS_MAX
        && !name.chars().any(char::is_control);
    if is_valid {
        Ok(name.to_owned())
    } else {
        Err(invalid_field("filename", format!("{path:?} is not a valid file name")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ErrorCode;

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
            let error = document_name(given).unwrap_err();
            assert_eq!(error.error.code, ErrorCode::ArgsInvalid, "{given:?}");
        }
    }
}
