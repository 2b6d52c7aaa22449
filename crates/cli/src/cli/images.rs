//! Images among the results: announced on the terminal, and held in memory until they are saved.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::fmt;
use std::path::{Path, PathBuf};
use types::Event;

const PNG: &str = "image/png";
const SVG: &str = "image/svg+xml";
const JPEG: &str = "image/jpeg";

#[derive(Debug)]
pub(super) struct Image {
    mime: &'static str,
    pub(super) content: Vec<u8>,
}

/// The first representation of a result that is a supported image.
pub(super) fn image_of(event: &Event) -> Option<Image> {
    let Event::Result(result) = event else {
        return None;
    };
    [PNG, JPEG, SVG].into_iter().find_map(|mime| {
        let text = result.data.get(mime)?.as_str()?;
        // Images are base64-encoded, except SVG, which is text.
        let content = match mime {
            SVG => text.as_bytes().to_vec(),
            _ => BASE64_STANDARD.decode(text.trim()).ok()?,
        };
        Some(Image { mime, content })
    })
}

impl Image {
    /// The first unused file name for an image in a directory.
    pub(super) fn free_name_in(&self, directory: &Path) -> PathBuf {
        let ending = match self.mime {
            JPEG => "jpg",
            SVG => "svg",
            _ => "png",
        };
        let mut names = (0..).map(|number| directory.join(format!("plot_{number}.{ending}")));
        names.find(|name| !name.exists()).unwrap_or_default()
    }

    /// Width and height from the header of a PNG. For display only, because code controls them.
    fn size(&self) -> Option<(u32, u32)> {
        let header = self.content.strip_prefix(b"\x89PNG\r\n\x1a\n")?.get(8..16)?;
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
        Some((number(&header[..4])?, number(&header[4..])?))
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size() {
            Some((width, height)) => write!(f, "{}, {width}x{height}", self.mime),
            None => write!(f, "{}, {} bytes", self.mime, self.content.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::DisplayData;

    fn image(mime: &str, text: &str) -> Option<Image> {
        let data = [(mime.to_owned(), text.into())].into();
        image_of(&Event::Result(DisplayData { data, main: true }))
    }

    #[test]
    fn an_image_is_described_by_its_size() {
        // The first 24 bytes of a PNG of 640 by 480.
        let png = image(PNG, "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHg").unwrap();
        assert_eq!(png.to_string(), "image/png, 640x480");
        let svg = image(SVG, "<svg/>").unwrap();
        assert_eq!(svg.to_string(), "image/svg+xml, 6 bytes");
    }

    #[test]
    fn what_is_no_image_is_none() {
        assert!(image("text/plain", "x").is_none());
        assert!(image(PNG, "not base64!").is_none());
        assert_eq!(image(PNG, "iVBORw0K").unwrap().to_string(), "image/png, 6 bytes");
    }
}
