//! The members of a JSON object, each with the original text of its value.
//!
//! For foreign JSON of which a part is stored as text, or is measured before it is parsed into a
//! tree. The text is validated in one pass without recursion, and only escaped names are copied.
//! serde_json would do this with its feature `raw_value`, which gives one name of an object a
//! special meaning in the whole program (decision 0039).

use std::borrow::Cow;

/// Maximum nesting of a value: as much as serde_json reads, and one bit for each level.
const LEVELS_MAX: u32 = u128::BITS;

/// Why a text is not a valid object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    #[error("must be a JSON object: unexpected text at byte {0}")]
    Malformed(usize),
    #[error("JSON is nested deeper than {LEVELS_MAX} levels")]
    TooDeep,
}

/// Iterates over the name and the value text of each member, in order. A duplicate name is returned
/// twice. The text is one JSON object only if the last item is not an error.
#[derive(Debug, Clone)]
pub struct JsonMembers<'a> {
    text: &'a str,
    at: usize,
    is_begun: bool,
    is_done: bool,
}

impl<'a> JsonMembers<'a> {
    pub fn of(text: &'a str) -> Self {
        Self { text, at: 0, is_begun: false, is_done: false }
    }

    fn member(&mut self) -> Result<Option<(Cow<'a, str>, &'a str)>, MembersError> {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        if is_first {
            self.skip_space();
            self.expect(b'{')?;
        }
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            self.skip_space();
            return if self.peek().is_none() { Ok(None) } else { Err(self.malformed()) };
        }
        if !is_first {
            self.expect(b',')?;
        }
        let name = self.name()?;
        self.skip_space();
        Ok(Some((name, self.value()?)))
    }

    /// Reads a name and the colon after it.
    fn name(&mut self) -> Result<Cow<'a, str>, MembersError> {
        self.skip_space();
        let begin = self.at;
        self.skip_string()?;
        let quoted = self.since(begin);
        self.skip_space();
        self.expect(b':')?;
        if quoted.contains('\\') {
            let name = serde_json::from_str(quoted).map_err(|_| MembersError::Malformed(begin))?;
            return Ok(Cow::Owned(name));
        }
        Ok(Cow::Borrowed(quoted.get(1..quoted.len() - 1).unwrap_or_default()))
    }

    fn value(&mut self) -> Result<&'a str, MembersError> {
        let begin = self.at;
        let mut open = Open::default();
        loop {
            let is_whole = self.enter(&mut open)?;
            if is_whole && !self.leave(&mut open)? {
                return Ok(self.since(begin));
            }
        }
    }

    /// Skips a scalar or empty value, or enters a list or an object. Returns whether it skipped
    /// one. The end of an empty one is not consumed.
    fn enter(&mut self, open: &mut Open) -> Result<bool, MembersError> {
        self.skip_space();
        match self.peek() {
            Some(b'"') => self.skip_string()?,
            Some(b'-' | b'0'..=b'9') => self.skip_number()?,
            Some(b't') => self.skip_word("true")?,
            Some(b'f') => self.skip_word("false")?,
            Some(b'n') => self.skip_word("null")?,
            Some(bracket @ (b'[' | b'{')) => {
                self.at += 1;
                open.push(bracket == b'{')?;
                self.skip_space();
                let is_empty = self.peek() == Some(open.end());
                if !is_empty && open.is_object() {
                    self.skip_name()?;
                }
                return Ok(is_empty);
            }
            _ => return Err(self.malformed()),
        }
        Ok(true)
    }

    /// Advances from the end of a value to the next one inside the open containers. Returns whether
    /// there is one.
    fn leave(&mut self, open: &mut Open) -> Result<bool, MembersError> {
        while open.levels > 0 {
            self.skip_space();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    if open.is_object() {
                        self.skip_name()?;
                    }
                    return Ok(true);
                }
                Some(byte) if byte == open.end() => {
                    self.at += 1;
                    open.pop();
                }
                _ => return Err(self.malformed()),
            }
        }
        Ok(false)
    }

    fn skip_name(&mut self) -> Result<(), MembersError> {
        self.skip_space();
        self.skip_string()?;
        self.skip_space();
        self.expect(b':')
    }

    fn skip_string(&mut self) -> Result<(), MembersError> {
        self.expect(b'"')?;
        loop {
            let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1F);
            let rest = self.rest();
            self.at += rest.iter().position(ends).unwrap_or(rest.len());
            if self.peek() == Some(b'"') {
                self.at += 1;
                return Ok(());
            }
            self.expect(b'\\')?;
            match self.peek() {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                Some(b'u') => {
                    let digits = self.rest().get(1..5).unwrap_or_default();
                    if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                        return Err(self.malformed());
                    }
                    self.at += 5;
                }
                _ => return Err(self.malformed()),
            }
        }
    }

    fn skip_number(&mut self) -> Result<(), MembersError> {
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            // No digit may follow a leading zero.
            Some(b'0') => self.at += 1,
            _ => self.skip_digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.skip_digits()?;
        }
        Ok(())
    }

    fn skip_digits(&mut self) -> Result<(), MembersError> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        if digits == 0 { Err(self.malformed()) } else { Ok(()) }
    }

    fn skip_word(&mut self, word: &str) -> Result<(), MembersError> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.malformed());
        }
        self.at += word.len();
        Ok(())
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.rest().iter().take_while(is_space).count();
    }

    fn expect(&mut self, byte: u8) -> Result<(), MembersError> {
        if self.peek() != Some(byte) {
            return Err(self.malformed());
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Both ends are next to ASCII bytes.
    fn since(&self, begin: usize) -> &'a str {
        self.text.get(begin..self.at).unwrap_or_default()
    }

    fn malformed(&self) -> MembersError {
        MembersError::Malformed(self.at)
    }
}

impl<'a> Iterator for JsonMembers<'a> {
    type Item = Result<(Cow<'a, str>, &'a str), MembersError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let member = self.member().transpose();
        self.is_done = !matches!(member, Some(Ok(_)));
        member
    }
}

/// The lists and objects around a position, the innermost in the lowest bit: 1 for an object.
#[derive(Debug, Default)]
struct Open {
    levels: u32,
    objects: u128,
}

impl Open {
    fn push(&mut self, is_object: bool) -> Result<(), MembersError> {
        if self.levels == LEVELS_MAX {
            return Err(MembersError::TooDeep);
        }
        self.levels += 1;
        self.objects = self.objects << 1 | u128::from(is_object);
        Ok(())
    }

    fn pop(&mut self) {
        self.levels -= 1;
        self.objects >>= 1;
    }

    fn is_object(&self) -> bool {
        self.objects & 1 == 1
    }

    fn end(&self) -> u8 {
        if self.is_object() { b'}' } else { b']' }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IgnoredAny;
    use serde_json::{Map, Value};
    use std::collections::BTreeMap;

    fn members(text: &str) -> Result<Vec<(String, &str)>, MembersError> {
        JsonMembers::of(text)
            .map(|member| member.map(|(name, value)| (name.into(), value)))
            .collect()
    }

    #[test]
    fn values_come_as_they_were_written() {
        let text = " {\"a\" : [1.0, {\"b\":\"}\\\"]\"} ] ,\n\"\\u0062\": 1E+2,\"\":null , \"a\":\"é\\\\\"}\t";
        let expected = [
            ("a".to_owned(), "[1.0, {\"b\":\"}\\\"]\"} ]"),
            ("b".to_owned(), "1E+2"),
            (String::new(), "null"),
            ("a".to_owned(), "\"é\\\\\""),
        ];
        assert_eq!(members(text).unwrap(), expected);
        assert_eq!(members("{ }").unwrap(), []);
    }

    #[test]
    fn t128_text_that_is_not_one_json_object_is_refused() {
        for text in [
            "",
            " ",
            "[]",
            "1",
            "{",
            "}",
            "{}{}",
            "{} x",
            "{},",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "{a:1}",
            "{'a':1}",
            "{\"a\":[1,]}",
            "{\"a\":[,1]}",
            "{\"a\":[1 2]}",
            "{\"a\":[}",
            "{\"a\":[1}]",
            "{\"a\":{]}",
            "{\"a\":{1}}",
            "{\"a\":{\"b\"}}",
            "{\"a\":{\"b\":1,}}",
            "{\"a\":01}",
            "{\"a\":-}",
            "{\"a\":1.}",
            "{\"a\":.5}",
            "{\"a\":1e}",
            "{\"a\":+1}",
            "{\"a\":0x1}",
            "{\"a\":nul}",
            "{\"a\":nulls}",
            "{\"a\":True}",
            "{\"a\":NaN}",
            "{\"a\":\"}",
            "{\"a\":\"\\\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12g4\"}",
            "{\"a\":\"\\u12",
            "{\"a\":\"\n\"}",
            "{\"\\ud800\":1}",
            "{\"a\":1}\u{a0}",
            "\u{feff}{}",
            "{\"a\":1/**/}",
        ] {
            assert!(matches!(members(text), Err(MembersError::Malformed(_))), "{text:?}");
        }
    }

    #[test]
    fn t128_depth_is_bounded_and_costs_no_stack() {
        let nested = |levels: usize| {
            let (begin, end) = ("[{\"a\":".repeat(levels / 2), "}]".repeat(levels / 2));
            format!("{{\"v\":{begin}1{end}}}")
        };
        assert_eq!(members(&nested(128)).unwrap().len(), 1);
        assert_eq!(members(&nested(130)), Err(MembersError::TooDeep));
        assert_eq!(members(&nested(2_000_000)), Err(MembersError::TooDeep));
        assert_eq!(
            members(&format!("{{\"v\":{}", "[".repeat(5_000_000))),
            Err(MembersError::TooDeep)
        );
        // Siblings do not count as depth.
        let wide = format!("{{\"v\":[{}[]]}}", "[[{}]],".repeat(100_000));
        assert_eq!(members(&wide).unwrap().len(), 1);
    }

    /// A seeded random generator, so that a failure can be reproduced.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 >> 16).unwrap() % sides
        }

        fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
            of[self.below(of.len())]
        }

        fn space(&mut self) -> &'static str {
            self.one(&["", "", "", " ", "\n\t", "\r "])
        }

        fn string(&mut self) -> String {
            let parts = [
                "a",
                "é",
                "𝄞",
                "{",
                "}",
                "[",
                "]",
                ",",
                ":",
                "\\\"",
                "\\\\",
                "\\/",
                "\\n",
                "\\u0041",
                "\\ud834\\udd1e",
                "\\ud834",
                "\u{7f}",
            ];
            let count = self.below(5);
            let inner: String = (0..count).map(|_| self.one(&parts)).collect();
            format!("\"{inner}\"")
        }

        fn value(&mut self, depth: usize) -> String {
            match self.below(if depth == 0 { 3 } else { 5 }) {
                0 => self.string(),
                1 => self.one(&["true", "false", "null"]).to_owned(),
                2 => {
                    let numbers =
                        ["0", "-0", "12", "-3.50", "1e9", "2E-7", "0.1e+1", "1e999", "01"];
                    self.one(&numbers).to_owned()
                }
                3 => {
                    let items: Vec<String> =
                        (0..self.below(4)).map(|_| self.spaced(depth - 1)).collect();
                    format!("[{}{}]", self.space(), items.join(","))
                }
                _ => self.object(depth - 1),
            }
        }

        fn spaced(&mut self, depth: usize) -> String {
            format!("{}{}{}", self.space(), self.value(depth), self.space())
        }

        fn object(&mut self, depth: usize) -> String {
            let member = |dice: &mut Self| {
                format!("{}{}{}:{}", dice.space(), dice.string(), dice.space(), dice.spaced(depth))
            };
            let members: Vec<String> = (0..self.below(4)).map(|_| member(self)).collect();
            format!("{{{}{}}}", self.space(), members.join(","))
        }

        /// An object in which sometimes a character is missing, doubled or replaced.
        fn document(&mut self) -> String {
            let mut text: Vec<char> = self.object(5).chars().collect();
            let at = self.below(text.len());
            match self.below(8) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, text[at]),
                2 => {
                    text[at] = self
                        .one(&["\"", "\\", "{", "}", "[", "]", ",", ":", "0", "e", "\u{1}"])
                        .chars()
                        .next()
                        .unwrap()
                }
                3 => text.truncate(at),
                _ => {}
            }
            text.into_iter().collect()
        }
    }

    #[test]
    fn t128_an_object_is_split_where_serde_json_reads_one_and_into_the_same_values() {
        let (mut accepted, mut rejected, mut compared) = (0, 0, 0);
        for seed in 1..=20_000 {
            let text = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed)).document();
            let read = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(&text);
            let Ok(split) = members(&text) else {
                assert!(read.is_err(), "seed {seed}: {text}");
                rejected += 1;
                continue;
            };
            assert!(read.is_ok(), "seed {seed}: {text}");
            accepted += 1;
            // Half of a surrogate pair and 1e999 are valid JSON, but not values of serde_json.
            let Ok(whole) = serde_json::from_str::<Map<String, Value>>(&text) else { continue };
            let value = |json: &str| serde_json::from_str::<Value>(json).unwrap();
            let split: Map<String, Value> =
                split.into_iter().map(|(name, json)| (name, value(json))).collect();
            assert_eq!(split, whole, "seed {seed}: {text}");
            compared += 1;
        }
        assert!(
            accepted > 5_000 && rejected > 5_000 && compared > 2_000,
            "{accepted} {rejected} {compared}"
        );
    }
}
