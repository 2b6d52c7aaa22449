//! Files: documents, inputs, results and volumes.

pub(crate) mod assets;
pub(crate) mod documents;
pub(crate) mod file_urls;
pub(crate) mod inputs;
pub(crate) mod staging;
pub(crate) mod volumes;
