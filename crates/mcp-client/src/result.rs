//! The result of a call, bounded, in the parts that a record has.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// Limit of the text of a result, in bytes. A model reads less than a tenth of it.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Limit of a structured result, in bytes of JSON.
const STRUCTURED_BYTES_MAX: usize = 256 * 1024;
/// Limit of the images of a result.
const IMAGES_MAX: usize = 8;
/// The types of images that are stored as files.
const IMAGES: [&str; 3] = ["image/png", "image/jpeg", "image/gif"];

#[derive(Debug, Clone, PartialEq)]
pub struct RemoteImage {
    pub mime: &'static str,
    pub base64: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RemoteResult {
    pub text: String,
    pub structured: Option<Value>,
    pub images: Vec<RemoteImage>,
    /// What was left out, in sentences.
    pub warnings: Vec<String>,
    /// Whether the tool says that it has failed.
    pub is_error: bool,
}

impl RemoteResult {
    pub(crate) fn new(result: CallToolResult) -> Self {
        let mut read = Self { is_error: result.is_error == Some(true), ..Self::default() };
        read.structured = result.structured_content;
        for block in result.content {
            read.add(block);
        }
        read.bound();
        read
    }

    fn add(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.add_text(&text.text),
            ContentBlock::Image(image) => {
                let known = IMAGES.into_iter().find(|mime| *mime == image.mime_type);
                match known.filter(|_| self.images.len() < IMAGES_MAX) {
                    Some(mime) => self.images.push(RemoteImage { mime, base64: image.data }),
                    None => self.leave_out("an image", &image.mime_type),
                }
            }
            ContentBlock::Audio(audio) => self.leave_out("audio", &audio.mime_type),
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { text, .. } => self.add_text(&text),
                ResourceContents::BlobResourceContents { uri, .. } => {
                    self.leave_out("a resource", &uri);
                }
                _ => self.leave_out("a resource", "of an unknown form"),
            },
            ContentBlock::ResourceLink(link) => {
                self.add_text(&format!("resource: {}", link.uri));
            }
            _ => self.leave_out("content", "of an unknown kind"),
        }
    }

    fn add_text(&mut self, text: &str) {
        // Servers repeat a structured result as text for older clients.
        let repeats = |structured: &Value| {
            text.len() <= STRUCTURED_BYTES_MAX
                && serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured)
        };
        if self.structured.as_ref().is_some_and(repeats) {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    fn leave_out(&mut self, what: &str, kind: &str) {
        if self.warnings.len() < IMAGES_MAX {
            let kind = crate::error::printable(kind);
            self.warnings.push(format!("{what} ({kind}) in the result is left out"));
        }
    }

    fn bound(&mut self) {
        if self.text.len() > TEXT_BYTES_MAX {
            let end = self.text.floor_char_boundary(TEXT_BYTES_MAX);
            let left_out = self.text.len() - end;
            self.text.truncate(end);
            self.text.push_str(&format!("\n[{left_out} bytes are left out here]"));
            self.warnings.push(format!("the last {left_out} bytes of the text are left out"));
        }
        let bytes = self.structured.as_ref().map_or(0, |value| value.to_string().len());
        if bytes > STRUCTURED_BYTES_MAX {
            self.structured = None;
            self.warnings.push(format!("the structured result of {bytes} bytes is left out"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(result: Value) -> RemoteResult {
        RemoteResult::new(serde_json::from_value(result).unwrap_or_default())
    }

    #[test]
    fn a_result_keeps_its_text_its_value_and_its_images() {
        let result = read(json!({
            "content": [
                {"type": "text", "text": "one"},
                {"type": "text", "text": "{\"a\": 1}"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "image", "data": "AAAA", "mimeType": "image/svg+xml"},
                {"type": "resource_link", "uri": "file:///a", "name": "a"},
                {"type": "resource", "resource": {"uri": "x:y", "text": "two"}},
            ],
            "structuredContent": {"a": 1},
        }));
        assert_eq!(result.text, "one\nresource: file:///a\ntwo");
        assert_eq!(result.structured, Some(json!({"a": 1})));
        assert_eq!(result.images.len(), 1);
        assert_eq!(result.warnings, ["an image (image/svg+xml) in the result is left out"]);
        assert!(!result.is_error);
    }

    #[test]
    fn what_is_long_is_cut_with_a_note() {
        let text = "é".repeat(TEXT_BYTES_MAX);
        let result = read(json!({
            "content": [{"type": "text", "text": text}], "structuredContent": {"a": text},
            "isError": true,
        }));
        assert!(result.text.ends_with("bytes are left out here]"));
        assert!(result.text.len() < TEXT_BYTES_MAX + 100);
        assert_eq!((result.structured, result.warnings.len()), (None, 2));
        assert!(result.is_error);
    }
}
