//! Texts that are wrong on purpose: mutated, nested, and with a secret in the wrong place.

use super::{error, one};
use belljar_statements::{StatementKind, TEXT_BYTES_MAX, parse};

const WORKSHEET: &str = r#"
-- Lets code reach GitHub.
CREATE OR REPLACE NETWORK RULE db.public.github_access_rule
  TYPE = HOST_PORT MODE = EGRESS
  VALUE_LIST = ('github.com', '*.github.com:80', 'it''s');
CREATE EXTERNAL ACCESS INTEGRATION "Git Hub" ALLOWED_NETWORK_RULES = (github_access_rule)
  ALLOWED_AUTHENTICATION_SECRETS = (token, "ALL") ENABLED = TRUE COMMENT = 'all /* of */ it';
CREATE SECRET IF NOT EXISTS token TYPE = GENERIC_STRING SECRET_STRING = 'correct horse battery' COMMENT = 'c';
CREATE AGENT sales PROFILE = '{"color": "red"}' FROM SPECIFICATION $$
name: sales
tools: [{tool_spec: {type: code_execution, name: code_execution}}]
$$;
GRANT USAGE, MODIFY ON AGENT sales TO ROLE analysts;
GRANT OWNERSHIP ON AGENT sales TO USER ann REVOKE CURRENT GRANTS;
REVOKE USAGE ON INTEGRATION "Git Hub" FROM ann RESTRICT; /* a; b */
GRANT DATABASE ROLE SNOWFLAKE.PYPI_REPOSITORY_USER TO ROLE analysts; // done
REVOKE ROLE analysts FROM USER ann;
SHOW AGENTS LIKE 'sa%_' LIMIT 10; SHOW GRANTS ON AGENT sales; DESC SECRET token; DROP NETWORK RULE IF EXISTS r
"#;

/// A generator of pseudorandom numbers (splitmix64), so that a failure comes again.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % most.max(1) as u64).unwrap()
    }
}

/// Pieces that end, begin or confuse tokens.
const PIECES: [&str; 30] = [
    "'", "''", "\"", "$$", "$", "$a$", ";", "(", ")", ",", ".", "=", "--", "//", "/*", "*/", "\\",
    "\\'", "\n", "\0", "é", "\u{202e}", "1", "0x", "E'", "N'", "q'[", "@~", "CREATE", "SECRET",
];

fn mutated(random: &mut Random) -> String {
    let mut chars: Vec<char> = WORKSHEET.chars().collect();
    for _ in 0..=random.below(12) {
        let at = random.below(chars.len());
        let length = random.below(20).min(chars.len() - at);
        match random.below(5) {
            0 => {
                chars.drain(at..at + length);
            }
            1 => chars.splice(at..at, PIECES[random.below(PIECES.len())].chars()).for_each(drop),
            2 => {
                let copied: Vec<char> = chars[at..at + length].to_vec();
                let to = random.below(chars.len());
                chars.splice(to..to, copied).for_each(drop);
            }
            3 => {
                let other = random.below(chars.len());
                chars.swap(at, other);
            }
            _ => chars.truncate(at),
        }
        if chars.is_empty() {
            break;
        }
    }
    chars.into_iter().collect()
}

#[test]
fn t265_ten_thousand_mutated_worksheets_are_read_or_refused_at_a_place_in_the_text() {
    assert_eq!(parse(WORKSHEET).unwrap().len(), 13);
    let (mut random, mut refused) = (Random(18), 0);
    for _ in 0..10_000 {
        let text = mutated(&mut random);
        let Err(error) = parse(&text) else { continue };
        refused += 1;
        let lines = text.split('\n').count() as u64;
        assert!((1..=lines).contains(&error.position.line), "{error} in {text:?}");
        assert!(error.position.column >= 1, "{error} in {text:?}");
        assert!(error.to_string().len() < 400, "{error} in {text:?}");
    }
    assert!((1_000..10_000).contains(&refused), "{refused}");
}

#[test]
fn t265_large_texts_of_one_piece_are_read_in_one_pass() {
    let of_piece = |piece: &str| {
        let text = piece.repeat(TEXT_BYTES_MAX / piece.len());
        assert!(parse(&text).is_err(), "{piece}");
        assert!(parse(&format!("SHOW AGENTS {}", &text[..text.len() - 100])).is_err(), "{piece}");
    };
    for piece in [
        "(", "((", "'", "''", "\"", "$$", "$a$", "$", "a ", "/*", "--\n(", ",", ".", "a.", "\\",
        "1e", "@",
    ] {
        of_piece(piece);
    }
    let nested = format!("DROP AGENT a {}*/", "/* ".repeat(1_000));
    assert!(matches!(one(&nested), StatementKind::Drop { .. }), "comments are not nested");
}

/// The value of a secret, in a statement that is wrong in a way that people write.
const VALUE: &str = "Zq7fVtK";

#[test]
fn t266_no_error_repeats_the_value_of_a_secret() {
    let wrong = [
        // Without quotes, or with the wrong ones.
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = {}",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = \"{}\"",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = `{}`",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING {}",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = '{}",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = $${}",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = $${}$",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = ${}",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = N'{}'",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = ('{}')",
        // A quote in the value.
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = 'a'{}'",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = 'a'{} = 'b'",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = 'a';{}",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = 'a'; DROP {}",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = 'a'; SHOW AGENTS {}",
        // The rest of the statement is wrong.
        "CREATE SECRET s TYPE = {} SECRET_STRING = 'a'",
        "CREATE SECRET s TYPE = PASSWORD USERNAME = 'u' PASSWORD = '{}'",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET = '{}'",
        "CREATE SECRET s SECRET_STRING = '{}'",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = '{}' SECRET_STRING = '{}'",
        "CREATE SECRET '{}' TYPE = GENERIC_STRING",
        "CREATE SECRET TYPE = GENERIC_STRING SECRET_STRING = '{}'",
        "CREATE SECRT s TYPE = GENERIC_STRING SECRET_STRING = '{}'",
        "ALTER SECRET s SET SECRET_STRING = '{}'",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = 'a'; CREATE AGENT {}",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = '{}' COMMENT = 4; SHOW AGENTS",
        "CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = '{}'; NOTHING",
    ];
    for text in wrong {
        let text = text.replace("{}", VALUE);
        let (_, _, message) = error(&text);
        assert!(!message.contains(VALUE), "{text}: {message}");
    }
    let text = format!("CREATE SECRET s TYPE = GENERIC_STRING SECRET_STRING = '{VALUE}'");
    let StatementKind::CreateSecret(secret) = one(&text) else { panic!() };
    assert!(!format!("{secret:?}").contains(VALUE));
    assert_eq!(secret.value.into_value(), VALUE);
    // What is no secret is named.
    assert!(error("CREATE AGENT a COLOR = 'red'").2.contains("\"COLOR\""));
}
