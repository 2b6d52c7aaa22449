//! The files of a multipart form, each streamed into a temporary file.

use crate::files::{stage, with_idle_timeout};
use crate::multipart;
use crate::problem::Problem;
use axum::extract::{FromRequest, Multipart, Request};
use futures_util::TryStreamExt;
use service::{Service, StagedFile};
use types::{Error, ErrorCode};

/// Files in one form. All of them are on disk before the first is persisted.
const FILES_MAX: usize = 100;

/// The names and contents of the files in a form. `kind` is its Content-Type.
pub(crate) async fn read(
    service: &Service,
    request: Request,
    kind: Option<&str>,
    hint: &str,
) -> Result<Vec<(String, StagedFile)>, Problem> {
    let invalid = |message: String| Error::new(ErrorCode::ArgsInvalid, message).hint(hint);
    let boundary = kind.and_then(multipart::boundary).ok_or_else(|| {
        invalid("Content-Type must be multipart/form-data with one boundary".to_owned())
    })?;
    let request = request.map(|body| multipart::limit_body(body, &boundary));
    let form = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|rejection| invalid(rejection.body_text()))?;
    let broken = |error: axum::extract::multipart::MultipartError| {
        Error::new(
            ErrorCode::ArgsInvalid,
            format!("invalid multipart form: {}", root_cause(&error)),
        )
    };
    let mut uploads = Vec::new();
    while let Some(field) = with_idle_timeout(form.next_field()).await?.map_err(broken)? {
        if uploads.len() == FILES_MAX {
            let message = format!("a form can have at most {FILES_MAX} files");
            return Err(Error::new(ErrorCode::RequestTooLarge, message).into());
        }
        let Some(name) = field.file_name().map(str::to_owned) else {
            let error = Error::new(ErrorCode::ArgsInvalid, "a part of the form is not a file");
            return Err(error.hint("give every part a filename").into());
        };
        uploads.push((name, stage(service, field.map_err(|error| root_cause(&error))).await?));
    }
    if uploads.is_empty() {
        return Err(Error::new(ErrorCode::ArgsMissing, "the form has no file").into());
    }
    Ok(uploads)
}

/// The root cause of an error: the multipart parser reports only that it could not read.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(inner) = last.source() {
        last = inner;
    }
    last.to_string()
}
