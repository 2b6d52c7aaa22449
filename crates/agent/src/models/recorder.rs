//! Records a provider's responses as a script, one file per run. It writes responses only, and
//! never a key, even if a provider echoes one.

use super::endpoint::ProviderKey;
use super::provider::ProviderModel;
use super::script::ScriptTurn;
use crate::model::{Model, ModelError, ModelRequest, ModelResponse, TextListener};
use futures_util::future::BoxFuture;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

pub(super) fn prepare_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[derive(Debug)]
pub(super) struct RecordingModel {
    provider: ProviderModel,
    file: PathBuf,
    key: Option<ProviderKey>,
}

impl RecordingModel {
    pub(super) fn new(
        provider: ProviderModel,
        directory: PathBuf,
        key: Option<ProviderKey>,
    ) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = provider.name().chars().map(plain).collect();
        // The id starts with the time, so that a listing is sorted by it.
        let file = directory.join(format!("{}-{name}.yaml", Uuid::now_v7()));
        Self { provider, file, key }
    }

    fn append_response(&self, answer: &ModelResponse) -> io::Result<()> {
        let turn =
            serde_saphyr::to_string(&[ScriptTurn::from(answer)]).map_err(io::Error::other)?;
        let turn = match &self.key {
            Some(key) => key.redact_in(&turn),
            None => turn,
        };
        self.open_file()?.write_all(turn.as_bytes())
    }

    fn open_file(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(&self.file)
    }
}

impl Model for RecordingModel {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn respond<'a>(
        &'a self,
        ask: &'a ModelRequest,
        on_text: TextListener<'a>,
    ) -> BoxFuture<'a, Result<ModelResponse, ModelError>> {
        Box::pin(async move {
            let answer = self.provider.respond(ask, on_text).await?;
            // The caller still gets the response if writing fails, for example on a full disk.
            if let Err(error) = self.append_response(&answer) {
                let file = self.file.display();
                tracing::warn!(%error, %file, "the response of a model could not be recorded");
            }
            Ok(answer)
        })
    }
}
