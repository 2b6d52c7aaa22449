//! Keeps what a provider answers as a script, one file for each run. Only answers are kept, and no
//! key, not even one that a provider has repeated.

use super::endpoint::Key;
use super::provider::Provider;
use super::script::Turn;
use crate::model::{Answer, Ask, Listener, Model, ModelError};
use futures_util::future::BoxFuture;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

pub(super) fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[derive(Debug)]
pub(super) struct Recorded {
    provider: Provider,
    file: PathBuf,
    key: Option<Key>,
}

impl Recorded {
    pub(super) fn new(provider: Provider, directory: PathBuf, key: Option<Key>) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = provider.name().chars().map(plain).collect();
        // The time stands first in the id, so that a listing is in order.
        let file = directory.join(format!("{}-{name}.yaml", Uuid::now_v7()));
        Self { provider, file, key }
    }

    fn keep(&self, answer: &Answer) -> io::Result<()> {
        let turn = serde_saphyr::to_string(&[Turn::from(answer)]).map_err(io::Error::other)?;
        let turn = match &self.key {
            Some(key) => key.hidden_in(&turn),
            None => turn,
        };
        self.open()?.write_all(turn.as_bytes())
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(&self.file)
    }
}

impl Model for Recorded {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn answer<'a>(
        &'a self,
        ask: &'a Ask,
        said: Listener<'a>,
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(async move {
            let answer = self.provider.answer(ask, said).await?;
            // The answer is what was asked for; a full disk does not take it away.
            if let Err(error) = self.keep(&answer) {
                let file = self.file.display();
                tracing::warn!(%error, %file, "an answer of a model could not be recorded");
            }
            Ok(answer)
        })
    }
}
