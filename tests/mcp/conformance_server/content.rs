//! Content types that no Python run returns.

use rmcp::model::{AudioContent, CallToolResult, ContentBlock, ResourceContents};

const AUDIO: &str = "test_audio_content";
const EMBEDDED: &str = "test_embedded_resource";
const MIXED: &str = "test_multiple_content_types";
pub(super) const NAMES: &[&str] = &[AUDIO, EMBEDDED, MIXED];

/// A PNG of one red pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// A WAV of one silent sample.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==";

pub(super) fn content_result(name: &str) -> Option<CallToolResult> {
    let blocks = match name {
        AUDIO => vec![ContentBlock::Audio(AudioContent::new(WAV, "audio/wav"))],
        EMBEDDED => vec![embedded_resource("test://embedded-resource", "text/plain", "embedded")],
        MIXED => vec![
            ContentBlock::text("several kinds of content"),
            ContentBlock::image(PNG, "image/png"),
            embedded_resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"value":123}"#,
            ),
        ],
        _ => return None,
    };
    Some(CallToolResult::success(blocks))
}

pub(super) fn embedded_resource(uri: &str, mime: &str, text: &str) -> ContentBlock {
    ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(mime))
}
