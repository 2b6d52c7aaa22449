//! The name of a fetched file: from `Content-Disposition` (RFC 6266), else from the URL.
//!
//! Both are untrusted. The result is a single name and never a path, has no misleading characters,
//! and is short enough for any file system.

use percent_encoding::percent_decode_str;
use url::Url;

/// File systems accept 255; callers need the rest to make names unique.
const BYTES_MAX: usize = 200;
const EXTENSION_BYTES_MAX: usize = 16;
const DEFAULT_FILE_NAME: &str = "download";

/// The file name of a response to `url` with the header `disposition`.
pub(crate) fn file_name(disposition: Option<&[u8]>, url: &Url) -> String {
    let header = disposition.map(String::from_utf8_lossy).unwrap_or_default();
    let parameters = parameters(&header);
    let named = |name| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let extended = || decode_extended_value(named("filename*")?);
    let plain = || sanitize_file_name(named("filename")?);
    let path = || {
        let segment = url.path_segments()?.next_back()?;
        sanitize_file_name(&percent_decode_str(segment).decode_utf8_lossy())
    };
    extended().or_else(plain).or_else(path).unwrap_or_else(|| DEFAULT_FILE_NAME.to_owned())
}

/// The parameters of a disposition: names in lower case, values unquoted.
fn parameters(header: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = header;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.rsplit(';').next().unwrap_or(name).trim().to_ascii_lowercase();
        let after = after.trim_start();
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (value, left) = after.split_at(after.find(';').unwrap_or(after.len()));
                (value.trim().to_owned(), left)
            }
        };
        found.push((name, value));
        rest = left;
    }
    found
}

/// Unescapes a quoted string; also returns the text after its closing quote.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => value.extend(characters.next()),
            other => value.push(other),
        }
    }
    (value, characters.as_str())
}

/// Decodes `filename*`: charset, language and percent-encoded bytes (RFC 8187). UTF-8 is the only
/// charset that the standard requires.
fn decode_extended_value(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, escaped) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    sanitize_file_name(&percent_decode_str(escaped).decode_utf8().ok()?)
}

/// The last path component, if not empty. Strips leading dots, so that no name is hidden or a
/// directory.
fn sanitize_file_name(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next()?;
    let name: String = last
        .chars()
        .filter(|character| !is_invisible(*character))
        .map(|character| if "<>:\"|?*".contains(character) { '_' } else { character })
        .collect();
    let name = name.trim_matches(|character: char| character == '.' || character.is_whitespace());
    (!name.is_empty()).then(|| truncate_file_name(name))
}

/// Control characters, and characters that reorder or hide the text around them.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Shortens the stem, since the extension tells the type.
fn truncate_file_name(name: &str) -> String {
    let extension = match name.rfind('.') {
        Some(dot) if name.len() - dot <= EXTENSION_BYTES_MAX => &name[dot..],
        _ => "",
    };
    let stem = &name[..name.len() - extension.len()];
    let end = stem.floor_char_boundary(BYTES_MAX - extension.len());
    format!("{}{extension}", &stem[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(disposition: &str) -> String {
        let url = Url::parse("http://example.com/a/data.csv?x=y.zip").unwrap();
        file_name(Some(disposition.as_bytes()), &url)
    }

    fn of_path(path: &str) -> String {
        file_name(None, &Url::parse(&format!("http://example.com{path}")).unwrap())
    }

    #[test]
    fn the_server_names_its_file() {
        let named_so = [
            ("attachment; filename=report.pdf", "report.pdf"),
            ("attachment; filename=\"my report.pdf\"", "my report.pdf"),
            ("inline;FileName = \"a;b=c.pdf\" ; x=y", "a;b=c.pdf"),
            ("attachment; x; filename=report.pdf", "report.pdf"),
            ("attachment; filename=\"a\\\"b.pdf\"", "a_b.pdf"),
            ("attachment; filename=b.txt; filename*=UTF-8''%e2%82%ac.txt", "€.txt"),
            ("attachment; filename*=utf-8'en'%E2%82%AC.txt; filename=b.txt", "€.txt"),
            ("attachment; filename*=utf-7''x; filename=b.txt", "b.txt"),
            ("attachment; filename*=UTF-8''%ff; filename=b.txt", "b.txt"),
            ("attachment; filename=\"größe.csv\"", "größe.csv"),
        ];
        for (disposition, name) in named_so {
            assert_eq!(named(disposition), name, "{disposition}");
        }
    }

    #[test]
    fn without_a_name_from_the_server_the_url_has_one() {
        for disposition in ["", "attachment", "attachment; filename=", "=;=;=", "\"", "a;b=\"\\"] {
            assert_eq!(named(disposition), "data.csv", "{disposition}");
        }
        assert_eq!(of_path("/a/gr%C3%B6%C3%9Fe.csv"), "größe.csv");
        assert_eq!(of_path("/a/"), "download");
        assert_eq!(of_path(""), "download");
    }

    #[test]
    fn a_name_is_never_a_path() {
        let hostile = [
            ("attachment; filename=\"../../etc/passwd\"", "passwd"),
            ("attachment; filename=/etc/passwd", "passwd"),
            ("attachment; filename*=UTF-8''..%2f..%2fetc%2fpasswd", "passwd"),
            ("attachment; filename*=UTF-8''..%5c..%5cboot.ini", "boot.ini"),
            ("attachment; filename=\"..\"", "data.csv"),
            ("attachment; filename=.bashrc", "bashrc"),
            ("attachment; filename*=UTF-8''a%00b%0a.txt", "ab.txt"),
            ("attachment; filename*=UTF-8''x%E2%80%AEfdp.exe", "xfdp.exe"),
            ("attachment; filename=\"c:evil|x?.txt \"", "c_evil_x_.txt"),
        ];
        for (disposition, name) in hostile {
            assert_eq!(named(disposition), name, "{disposition}");
        }
        assert_eq!(of_path("/..%2f..%2fetc%2fpasswd"), "passwd");
        assert_eq!(of_path("/%2e%2e%5c"), "download");
    }

    #[test]
    fn a_long_name_is_cut_and_keeps_its_extension() {
        let cut = of_path(&format!("/{}.csv", "é".repeat(200)));
        assert_eq!(cut, format!("{}.csv", "é".repeat(98)));
        assert_eq!(of_path(&format!("/a.{}", "b".repeat(300))).len(), BYTES_MAX);
        assert_eq!(of_path(&format!("/{}.csv", "a".repeat(196))).len(), BYTES_MAX);
    }
}
