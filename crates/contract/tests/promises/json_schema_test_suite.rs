//! The official test suite of JSON Schema (`tests/json_schema_test_suite`, under its own licence): the
//! cases of drafts 7, 2019-09 and 2020-12 without remote references, `$id`, anchors and formats.

use belljar_contract::{JsonSchema, JsonSchemaError};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const CASES: &str = include_str!("../json_schema_test_suite/cases.json");

/// Recursive schemas, and escapes of URIs in references.
const REFUSED: [&str; 4] = [
    "escaped pointer ref",
    "refs with quote",
    "root pointer ref",
    "unevaluatedProperties + single cyclic ref",
];

fn uri(draft: &str) -> &'static str {
    match draft {
        "7" => "http://json-schema.org/draft-07/schema#",
        "2019-09" => "https://json-schema.org/draft/2019-09/schema",
        _ => "https://json-schema.org/draft/2020-12/schema",
    }
}

fn with_draft(schema: &Value, draft: &str) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    let mut all = Map::from_iter([("$schema".to_owned(), json!(uri(draft)))]);
    all.extend(members.clone());
    Value::Object(all)
}

#[test]
fn values_are_judged_as_the_official_test_suite_says() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let (mut judged, mut wrong, mut refused) = (0, Vec::new(), BTreeSet::new());
    for case in &cases {
        let description = case["description"].as_str().unwrap();
        for draft in case["drafts"].as_array().unwrap() {
            let draft = draft.as_str().unwrap();
            let schema = match JsonSchema::new(&with_draft(&case["schema"], draft)) {
                Ok(schema) => schema,
                Err(JsonSchemaError::TooLarge | JsonSchemaError::Reference(_)) => {
                    refused.insert(description);
                    continue;
                }
                Err(error) => panic!("{case}: {error}"),
            };
            for test in case["tests"].as_array().unwrap() {
                judged += 1;
                if schema.find_mismatches(&test[1]).is_empty() != test[2] {
                    let found = schema.find_mismatches(&test[1]);
                    wrong.push(format!(
                        "{} {draft}: {description}: {test}: {found:?}",
                        case["file"]
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(judged > 3000, "{judged}");
    assert_eq!(refused, BTreeSet::from(REFUSED));
}
