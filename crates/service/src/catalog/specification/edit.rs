//! Changes one part of the text of a specification, and keeps the rest byte for byte: its comments,
//! order and formatting belong to its author.
//!
//! A change is made only if it can be proven: the new text must parse to the old value with exactly
//! that change. Everything else, such as a list that an alias repeats, is refused.

use super::{parse_yaml, specification_pointer};
use crate::error::{RequestError, invalid_field};
use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};
use serde_json::{Map, Value};
use std::ops::Range;

/// A change of a list or of a mapping at the top level of a specification.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SpecificationEdit {
    /// Adds an item at the end of a list, which is created if it is absent.
    AppendItem { list: &'static str, item: Value },
    /// Removes an item, and the list with its last one.
    RemoveItem { list: &'static str, index: usize },
    /// Adds a member to a mapping, which is created if it is absent.
    InsertMember { mapping: &'static str, member: String, value: Value },
    /// Removes a member, and the mapping with its last one.
    RemoveMember { mapping: &'static str, member: String },
}

/// The text with one change.
pub(crate) fn edit_specification(
    text: &str,
    edit: &SpecificationEdit,
) -> Result<String, RequestError> {
    let mut expected = parse_yaml(text)?;
    let refused = || {
        let message = format!(
            "cannot be changed in place at {:?}; send the complete specification instead",
            edit.container()
        );
        invalid_field(&specification_pointer(""), message)
    };
    edit.apply(&mut expected).ok_or_else(refused)?;
    let edited = match expected.is_empty() {
        true => "{}\n".to_owned(),
        false => TextEdit::of(text, edit).ok_or_else(refused)?.apply(text),
    };
    // A text that is too large has an error of its own.
    match parse_yaml(&edited) {
        Ok(found) if found == expected => Ok(edited),
        Err(error) if edited.len() > super::BYTES_MAX => Err(error),
        _ => Err(refused()),
    }
}

impl SpecificationEdit {
    fn container(&self) -> &'static str {
        match self {
            Self::AppendItem { list, .. } | Self::RemoveItem { list, .. } => list,
            Self::InsertMember { mapping, .. } | Self::RemoveMember { mapping, .. } => mapping,
        }
    }

    /// Makes the change in the parsed specification; `None` if it does not fit.
    fn apply(&self, root: &mut Map<String, Value>) -> Option<()> {
        let found = root.entry(self.container()).or_insert(Value::Null);
        let is_empty = match (self, found) {
            (Self::AppendItem { item, .. }, found @ (Value::Null | Value::Array(_))) => {
                let mut items = found.as_array().cloned().unwrap_or_default();
                items.push(item.clone());
                *found = Value::Array(items);
                false
            }
            (Self::InsertMember { member, value, .. }, found) => {
                let mut members = match found {
                    Value::Null => Map::new(),
                    Value::Object(members) => members.clone(),
                    _ => return None,
                };
                if members.insert(member.clone(), value.clone()).is_some() {
                    return None;
                }
                *found = Value::Object(members);
                false
            }
            (Self::RemoveItem { index, .. }, Value::Array(items)) if *index < items.len() => {
                items.remove(*index);
                items.is_empty()
            }
            (Self::RemoveMember { member, .. }, Value::Object(members)) => {
                members.shift_remove(member)?;
                members.is_empty()
            }
            _ => return None,
        };
        if is_empty {
            root.shift_remove(self.container());
        }
        Some(())
    }
}

/// A node of the text. Aliases are leaves, so nothing is larger than the text.
#[derive(Debug)]
struct TextNode {
    /// Without the space and the comments around it.
    range: Range<usize>,
    kind: TextNodeKind,
    /// Items, or keys and values in turn.
    children: Vec<TextNode>,
}

#[derive(Debug, Clone, PartialEq)]
enum TextNodeKind {
    Scalar(String),
    Alias,
    Sequence(StructureStyle),
    Mapping(StructureStyle),
}

impl TextNode {
    /// The root of a text with one document.
    fn read(text: &str) -> Option<Self> {
        let (mut open, mut root): (Vec<Self>, Option<Self>) = (Vec::new(), None);
        for event in Parser::new_from_str(text) {
            let (event, span) = event.ok()?;
            let mut range = span.byte_range()?;
            let node = match event {
                Event::Scalar(value, style, ..) => {
                    if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
                        // Up to the indentation of what follows.
                        range.end = range.start + text.get(range.clone())?.trim_end().len();
                    }
                    Self::new(range, TextNodeKind::Scalar(value.into_owned()))
                }
                Event::Alias(_) => Self::new(range, TextNodeKind::Alias),
                Event::SequenceStart(style, ..) => {
                    open.push(Self::new(range, TextNodeKind::Sequence(style)));
                    continue;
                }
                Event::MappingStart(style, ..) => {
                    open.push(Self::new(range, TextNodeKind::Mapping(style)));
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    let mut node = open.pop()?;
                    // The end of a block is that of its last part; the event is at what follows.
                    node.range.end = match (node.is_flow(), node.children.last()) {
                        (false, Some(last)) => last.range.end,
                        _ => range.end,
                    };
                    node
                }
                _ => continue,
            };
            match open.last_mut() {
                Some(parent) => parent.push(node),
                None => root = Some(node),
            }
        }
        root
    }

    fn new(range: Range<usize>, kind: TextNodeKind) -> Self {
        Self { range, kind, children: Vec::new() }
    }

    fn push(&mut self, mut child: Self) {
        // An absent value is reported where the next thing begins.
        if child.range.is_empty()
            && let Some(last) = self.children.last()
        {
            child.range = last.range.end..last.range.end;
        }
        self.children.push(child);
    }

    fn is_flow(&self) -> bool {
        use TextNodeKind::{Mapping, Sequence};
        matches!(self.kind, Sequence(StructureStyle::Flow) | Mapping(StructureStyle::Flow))
    }

    /// The keys and values of a mapping.
    fn members(&self) -> impl Iterator<Item = (&Self, &Self)> {
        self.children.chunks_exact(2).filter_map(|pair| Some((pair.first()?, pair.get(1)?)))
    }

    fn position_of(&self, name: &str) -> Option<usize> {
        let is_key = |key: &Self| matches!(&key.kind, TextNodeKind::Scalar(text) if text == name);
        self.members().position(|(key, _)| is_key(key))
    }

    /// The text of each entry: an item, or a member from its key to its value.
    fn entries(&self) -> Vec<Range<usize>> {
        match self.kind {
            TextNodeKind::Mapping(_) => self
                .members()
                .map(|(key, value)| key.range.start..value.range.end.max(key.range.end))
                .collect(),
            _ => self.children.iter().map(|item| item.range.clone()).collect(),
        }
    }
}

/// Replaces a part of a text.
#[derive(Debug)]
struct TextEdit {
    range: Range<usize>,
    replacement: String,
}

impl TextEdit {
    fn of(text: &str, edit: &SpecificationEdit) -> Option<Self> {
        let root = TextNode::read(text)?;
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let found = root.position_of(edit.container());
        let container = found.and_then(|found| root.members().nth(found));
        match (edit, container) {
            (SpecificationEdit::AppendItem { item, .. }, container) => {
                let entry = NewEntry::item(item, is_json);
                Self::add(text, &root, container, edit.container(), &entry)
            }
            (SpecificationEdit::InsertMember { member, value, .. }, container) => {
                let entry = NewEntry::member(member, value, is_json);
                Self::add(text, &root, container, edit.container(), &entry)
            }
            (SpecificationEdit::RemoveItem { index, .. }, Some((_, list))) => {
                Self::remove_or_all(text, &root, found?, list, *index)
            }
            (SpecificationEdit::RemoveMember { member, .. }, Some((_, mapping))) => {
                Self::remove_or_all(text, &root, found?, mapping, mapping.position_of(member)?)
            }
            _ => None,
        }
    }

    fn apply(self, text: &str) -> String {
        let (before, after) =
            (text.get(..self.range.start), text.get(self.range.end..).unwrap_or_default());
        [before.unwrap_or_default(), &self.replacement, after].concat()
    }

    /// Adds an entry to a container, or to the root a container that has only this entry.
    fn add(
        text: &str,
        root: &TextNode,
        container: Option<(&TextNode, &TextNode)>,
        name: &str,
        entry: &NewEntry,
    ) -> Option<Self> {
        let Some((key, value)) = container else {
            return Self::add_to(text, root, &entry.container(name, root.is_flow()));
        };
        match &value.kind {
            TextNodeKind::Sequence(_) | TextNodeKind::Mapping(_) => {
                Self::add_to(text, value, &entry.text(value.is_flow()))
            }
            TextNodeKind::Scalar(_) if value.range.is_empty() => {
                let colon = key.range.end + text.get(key.range.end..)?.find(':')? + 1;
                Some(Self { range: colon..colon, replacement: format!(" {}", entry.flow()) })
            }
            TextNodeKind::Scalar(_) => {
                Some(Self { range: value.range.clone(), replacement: entry.flow() })
            }
            TextNodeKind::Alias => None,
        }
    }

    /// Adds an entry at the end of a list or a mapping.
    fn add_to(text: &str, container: &TextNode, entry: &str) -> Option<Self> {
        let last = container.entries().pop();
        if container.is_flow() {
            let (at, separator) = match last {
                Some(last) => (last.end, ", "),
                None => (container.range.start + 1, ""),
            };
            return Some(Self { range: at..at, replacement: format!("{separator}{entry}") });
        }
        let indent = " ".repeat(column(text, container)?);
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let at = end_of_line(text, last?.end);
        let before = if text.get(..at)?.ends_with('\n') { "" } else { newline };
        let lines = entry.lines().map(|line| format!("{indent}{line}{newline}"));
        let lines: String = lines.collect();
        Some(Self { range: at..at, replacement: format!("{before}{lines}") })
    }

    /// Removes an entry, or all of the container if it is the only one.
    fn remove_or_all(
        text: &str,
        root: &TextNode,
        position: usize,
        container: &TextNode,
        index: usize,
    ) -> Option<Self> {
        match container.entries().len() {
            1 => Self::remove(text, root, position),
            _ => Self::remove(text, container, index),
        }
    }

    fn remove(text: &str, container: &TextNode, index: usize) -> Option<Self> {
        let entries = container.entries();
        let entry = entries.get(index)?.clone();
        let range = if !container.is_flow() {
            let start = entry_line(text, container, entry.start)?;
            start..end_of_line(text, entry.end.max(start))
        } else if let Some(next) = entries.get(index + 1) {
            entry.start..next.start
        } else {
            entries.get(index.checked_sub(1)?)?.end..entry.end
        };
        Some(Self { range, replacement: String::new() })
    }
}

/// An entry of a list or a mapping, written on one line.
#[derive(Debug)]
struct NewEntry {
    key: Option<String>,
    value: String,
    is_json: bool,
}

impl NewEntry {
    fn item(value: &Value, is_json: bool) -> Self {
        Self { key: None, value: inline(value, is_json), is_json }
    }

    fn member(name: &str, value: &Value, is_json: bool) -> Self {
        Self { key: Some(inline_text(name, is_json)), value: inline(value, is_json), is_json }
    }

    fn text(&self, in_flow: bool) -> String {
        match &self.key {
            Some(key) => format!("{key}: {}", self.value),
            None if in_flow => self.value.clone(),
            None => format!("- {}", self.value),
        }
    }

    /// A list or a mapping with this entry, in flow style.
    fn flow(&self) -> String {
        let (open, close) = if self.key.is_some() { ('{', '}') } else { ('[', ']') };
        format!("{open}{}{close}", self.text(true))
    }

    /// A member of the root with this entry alone.
    fn container(&self, name: &str, in_flow: bool) -> String {
        let name = inline_text(name, self.is_json);
        match in_flow {
            true => format!("{name}: {}", self.flow()),
            false => format!("{name}:\n  {}", self.text(false)),
        }
    }
}

/// A value on one line, as JSON or in the flow style of YAML.
fn inline(value: &Value, is_json: bool) -> String {
    let list = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::String(text) => inline_text(text, is_json),
        Value::Array(items) => {
            let items = items.iter().map(|item| inline(item, is_json)).collect();
            format!("[{}]", list(items))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", inline_text(name, is_json), inline(value, is_json))
            };
            format!("{{{}}}", list(members.iter().map(member).collect()))
        }
        other => other.to_string(),
    }
}

/// A text in quotes, unless YAML reads it as the same text without them.
fn inline_text(text: &str, is_json: bool) -> String {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    let is_word = text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(is_plain)
        && !["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&text);
    if is_word && !is_json { text.to_owned() } else { Value::from(text).to_string() }
}

fn start_of_line(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

/// The position after the line.
fn end_of_line(text: &str, at: usize) -> usize {
    let newline = text.get(at..).and_then(|rest| rest.find('\n'));
    newline.map_or(text.len(), |newline| at + newline + 1)
}

/// The column of the keys or the dashes of a block, which only spaces precede in their lines.
fn column(text: &str, block: &TextNode) -> Option<usize> {
    let start = start_of_line(text, block.range.start);
    let line = text.get(start..)?;
    let column = line.len() - line.trim_start_matches(' ').len();
    let begins_there = match block.kind {
        // The parser reports one that is not indented behind its first dash.
        TextNodeKind::Sequence(_) => line.get(column..)?.starts_with('-'),
        _ => block.range.start == start + column,
    };
    begins_there.then_some(column)
}

/// The start of the first line of an entry of a block: that of its key, or of its dash, which can be
/// on a line before its item.
fn entry_line(text: &str, container: &TextNode, entry: usize) -> Option<usize> {
    let column = column(text, container)?;
    let mut line = start_of_line(text, entry);
    if matches!(container.kind, TextNodeKind::Mapping(_)) {
        return (entry - line == column).then_some(line);
    }
    loop {
        let (indent, rest) = text.get(line..)?.split_at_checked(column)?;
        if indent.bytes().all(|byte| byte == b' ') && rest.starts_with('-') {
            return Some(line);
        }
        if line <= start_of_line(text, container.range.start) {
            return None;
        }
        line = start_of_line(text, line.checked_sub(1)?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn append(list: &'static str, item: &str) -> SpecificationEdit {
        SpecificationEdit::AppendItem { list, item: json!(item) }
    }

    fn remove(list: &'static str, index: usize) -> SpecificationEdit {
        SpecificationEdit::RemoveItem { list, index }
    }

    fn insert(mapping: &'static str, member: &str) -> SpecificationEdit {
        SpecificationEdit::InsertMember { mapping, member: member.to_owned(), value: json!({}) }
    }

    fn remove_member(mapping: &'static str, member: &str) -> SpecificationEdit {
        SpecificationEdit::RemoveMember { mapping, member: member.to_owned() }
    }

    fn edited(text: &str, edit: &SpecificationEdit) -> String {
        edit_specification(text, edit).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    #[test]
    fn an_item_is_added_in_the_style_of_its_list() {
        for (before, after) in [
            ("name: x # end\n", "name: x # end\nskills:\n  - dataviz\n"),
            ("name: x", "name: x\nskills:\n  - dataviz\n"),
            ("skills: [a, b] # s\nname: x\n", "skills: [a, b, dataviz] # s\nname: x\n"),
            ("skills: [\n  a, # one\n]\n", "skills: [\n  a, dataviz, # one\n]\n"),
            ("skills: []\n", "skills: [dataviz]\n"),
            ("skills:\nname: x\n", "skills: [dataviz]\nname: x\n"),
            ("skills: ~ # none\n", "skills: [dataviz] # none\n"),
            (
                "skills:\n- a # one\n\n# x\nname: x\n",
                "skills:\n- a # one\n- dataviz\n\n# x\nname: x\n",
            ),
            ("skills:\n  -\n    a\n...\n", "skills:\n  -\n    a\n  - dataviz\n...\n"),
            ("skills:\r\n  - a\r\n", "skills:\r\n  - a\r\n  - dataviz\r\n"),
            ("{\"a\": 1.50}", "{\"a\": 1.50, \"skills\": [\"dataviz\"]}"),
            ("{\"skills\": [\"a\"]}\n", "{\"skills\": [\"a\", \"dataviz\"]}\n"),
            ("{}", "{\"skills\": [\"dataviz\"]}"),
            ("{a: b}", "{a: b, skills: [dataviz]}"),
        ] {
            assert_eq!(edited(before, &append("skills", "dataviz")), after);
        }
    }

    #[test]
    fn what_yaml_would_read_as_something_else_is_quoted() {
        for name in ["true", "null", "1", "-", "", "a: b", "# c", "é", "a\nb", "*x", "no"] {
            let text = edited("name: x\n", &append("skills", name));
            assert_eq!(Value::from(parse_yaml(&text).unwrap())["skills"], json!([name]), "{text}");
        }
    }

    #[test]
    fn a_member_is_added_beside_the_others() {
        for (before, after) in [
            ("name: x\n", "name: x\ntool_resources:\n  code: {}\n"),
            (
                "tool_resources:\n  a: |\n    text\n\nname: x\n",
                "tool_resources:\n  a: |\n    text\n  code: {}\n\nname: x\n",
            ),
            ("tool_resources: {a: 1}\n", "tool_resources: {a: 1, code: {}}\n"),
            ("tool_resources:\n", "tool_resources: {code: {}}\n"),
        ] {
            assert_eq!(edited(before, &insert("tool_resources", "code")), after);
        }
        assert!(
            edit_specification("tool_resources: {code: 1}", &insert("tool_resources", "code"))
                .is_err()
        );
    }

    #[test]
    fn what_is_removed_takes_only_its_own_lines() {
        let text = "# top\ntools:\n- type: x\n  name: a\n  code: |\n    one\n\n    two\n# about b\n- b # end\nname: x\n";
        assert_eq!(
            edited(text, &remove("tools", 0)),
            "# top\ntools:\n# about b\n- b # end\nname: x\n"
        );
        assert_eq!(
            edited(text, &remove("tools", 1)),
            "# top\ntools:\n- type: x\n  name: a\n  code: |\n    one\n\n    two\n# about b\nname: x\n"
        );
        assert_eq!(edited("skills: [a, b, c]\n", &remove("skills", 1)), "skills: [a, c]\n");
        assert_eq!(edited("skills: [a, b]\n", &remove("skills", 1)), "skills: [a]\n");
        assert_eq!(edited("skills: [a]\nname: x\n", &remove("skills", 0)), "name: x\n");
        assert_eq!(edited("skills: [a]", &remove("skills", 0)), "{}\n");
        assert_eq!(edited("{\"a\": 1, \"skills\": [\"b\"]}", &remove("skills", 0)), "{\"a\": 1}");
        let text = "tool_resources:\n  a:\n    b: 1\n  c:\nname: x\n";
        assert_eq!(
            edited(text, &remove_member("tool_resources", "a")),
            "tool_resources:\n  c:\nname: x\n"
        );
        assert_eq!(
            edited(text, &remove_member("tool_resources", "c")),
            "tool_resources:\n  a:\n    b: 1\nname: x\n"
        );
    }

    #[test]
    fn t275_what_cannot_be_changed_alone_is_not_changed() {
        for (text, edit) in [
            ("a: &x [b]\nskills: *x\n", append("skills", "c")),
            ("a: &x {skills: [b]}\n<<: *x\n", append("skills", "c")),
            ("skills: [&x a, b]\nname: *x\n", remove("skills", 0)),
            ("? skills\n: - a\n  - b\n", remove("skills", 0)),
            ("skills: text\n", append("skills", "c")),
            ("skills: [a]\n", remove("skills", 1)),
            ("skills: [a]\n", remove_member("skills", "a")),
            ("a: 1\n", remove("skills", 0)),
        ] {
            let error = edit_specification(text, &edit).unwrap_err();
            assert_eq!(error.details[0].path.as_deref(), Some("/specification"), "{text}");
        }
        let full = format!("a: {}", "x".repeat(super::super::BYTES_MAX - 3));
        let error = edit_specification(&full, &append("skills", "c")).unwrap_err();
        assert!(error.details[0].message.contains("has 100015 bytes"), "{error:?}");
    }

    /// Lists and mappings in every style, with comments, anchors and blocks of text.
    fn specification() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            Just("skills:"),
            Just("skills: [a, b]"),
            Just("skills: [a,\n  b # c\n ]"),
            Just("tools:"),
            Just("- a"),
            Just("  - b"),
            Just("  - {name: c}"),
            Just("-"),
            Just("  - |\n    text\n"),
            Just("    more"),
            Just("name: &x y"),
            Just("z: *x"),
            Just("# comment"),
            Just(""),
            Just("tool_resources: {a: 1}"),
            Just("tool_resources:"),
            Just("  a: 1"),
            Just("  b: >-\n   x"),
            Just("---"),
            Just("..."),
            Just("? k"),
            Just(": v"),
            Just("q: 'x"),
            Just("  '"),
            Just("\t"),
        ];
        let lines = prop::collection::vec(line, 0..12);
        (lines, any::<bool>())
            .prop_map(|(lines, ends)| lines.join("\n") + if ends { "\n" } else { "" })
    }

    proptest! {
        #[test]
        fn t275_a_change_of_one_part_changes_nothing_else(text in specification(), index in 0..3usize) {
            let Ok(before) = parse_yaml(&text) else { return Ok(()) };
            for edit in [
                append("skills", "new"), append("tools", "new"), insert("tool_resources", "new"),
                remove("skills", index), remove("tools", index), remove_member("tool_resources", "a"),
            ] {
                let Ok(edited) = edit_specification(&text, &edit) else { continue };
                let (mut rest, mut after) = (before.clone(), parse_yaml(&edited).unwrap());
                rest.shift_remove(edit.container());
                after.shift_remove(edit.container());
                prop_assert_eq!(rest, after, "{}", edited);
                let comments = |text: &str| text.matches("# comment").count();
                if matches!(edit, SpecificationEdit::AppendItem { .. } | SpecificationEdit::InsertMember { .. }) {
                    prop_assert_eq!(comments(&edited), comments(&text));
                }
            }
        }

        #[test]
        fn t275_no_text_makes_a_change_fall(text in "(skills|tools|a|[-:{}\\[\\],&*|>!?#'\"% \r\n\t]){0,40}") {
            let _ = edit_specification(&text, &append("skills", "c"));
            let _ = edit_specification(&text, &remove("skills", 0));
        }
    }
}
