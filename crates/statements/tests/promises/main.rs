//! What a text of statements means, and what its errors say.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod hostile;

use belljar_statements::{
    CreateMode, GrantedRole, GranteeKind, GrantsFilter, NamedKind, SecretNames, Statement,
    StatementKind, parse,
};
use types::Privilege;

pub(crate) fn one(text: &str) -> StatementKind {
    let statements = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let [Statement { kind, .. }] = <[Statement; 1]>::try_from(statements).unwrap();
    kind
}

/// The place and the words of the error, with its hint.
pub(crate) fn error(text: &str) -> (u64, u64, String) {
    let error = parse(text).unwrap_err();
    let hint = error.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    (error.position.line, error.position.column, format!("{}{hint}", error.message))
}

#[test]
fn the_options_of_a_network_rule_have_any_order_and_any_case() {
    for text in [
        "CREATE NETWORK RULE github TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('github.com')",
        "create network rule github\n  value_list=('github.com')\n  mode=egress type=host_port;",
        "CREATE -- a comment\nNETWORK /* one; more */ RULE github // and one\n MODE = EGRESS, TYPE = HOST_PORT, VALUE_LIST = ('github.com');",
    ] {
        let StatementKind::CreateNetworkRule(rule) = one(text) else { panic!("{text}") };
        assert_eq!((rule.mode, rule.name.text.as_str()), (CreateMode::New, "github"), "{text}");
        assert_eq!(rule.value_list, ["github.com"]);
        assert_eq!(rule.comment, None);
    }
    let text = "CREATE OR REPLACE NETWORK RULE db.public.\"My Rule\" TYPE = HOST_PORT MODE = EGRESS \
                VALUE_LIST = ('a.example:80', 'it''s') COMMENT = $$of 'ours'$$";
    let StatementKind::CreateNetworkRule(rule) = one(text) else { panic!("{text}") };
    assert_eq!(rule.mode, CreateMode::OrReplace);
    assert_eq!(rule.name.text, "My Rule");
    assert!(rule.name.is_quoted && rule.name.is_qualified);
    assert_eq!(rule.value_list, ["a.example:80", "it's"]);
    assert_eq!(rule.comment.as_deref(), Some("of 'ours'"));
}

#[test]
fn the_secrets_of_an_integration_are_all_none_or_named() {
    let secrets = |list: &str| {
        let text = format!(
            "CREATE EXTERNAL ACCESS INTEGRATION IF NOT EXISTS i ALLOWED_NETWORK_RULES = (a, \"B\") \
             ENABLED = TRUE {list}"
        );
        let StatementKind::CreateIntegration(integration) = one(&text) else { panic!("{text}") };
        assert_eq!(integration.mode, CreateMode::IfNotExists);
        assert!(integration.enabled);
        let rules = integration.allowed_network_rules;
        assert_eq!(rules.iter().map(|rule| rule.is_quoted).collect::<Vec<_>>(), [false, true]);
        integration.allowed_secrets
    };
    assert_eq!(secrets(""), SecretNames::None);
    assert_eq!(secrets("ALLOWED_AUTHENTICATION_SECRETS = (none)"), SecretNames::None);
    assert_eq!(secrets("ALLOWED_AUTHENTICATION_SECRETS = ()"), SecretNames::None);
    assert_eq!(secrets("ALLOWED_AUTHENTICATION_SECRETS = (ALL)"), SecretNames::All);
    assert_eq!(secrets("ALLOWED_AUTHENTICATION_SECRETS = all"), SecretNames::All);
    let named = |list: &str| match secrets(&format!("ALLOWED_AUTHENTICATION_SECRETS = ({list})")) {
        SecretNames::Named(names) => names.into_iter().map(|name| name.text).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(named("token, \"all\""), ["token", "all"]);
    assert_eq!(named("\"none\""), ["none"]);
}

#[test]
fn a_specification_is_taken_between_dollars_unchanged() {
    let specification = "\nname: sales\ntools:\n  - 'it; is' -- $1 \"text\" \\n\n";
    let text = format!(
        "CREATE OR REPLACE AGENT sales COMMENT = 'c' PROFILE = '{{}}' FROM SPECIFICATION $${specification}$$; SHOW AGENTS"
    );
    let statements = parse(&text).unwrap();
    assert_eq!(statements.len(), 2);
    let StatementKind::CreateAgent(agent) = &statements[0].kind else { panic!("{statements:?}") };
    assert_eq!(agent.specification, specification);
    assert_eq!(agent.ignored, ["COMMENT", "PROFILE"]);
    assert_eq!((statements[1].position.line, statements[1].position.column), (5, 5));
}

#[test]
fn privileges_and_roles_are_granted_and_revoked() {
    let StatementKind::Grant(change) = one("GRANT USAGE, MODIFY ON AGENT a.b.sales TO ROLE Ann")
    else {
        panic!()
    };
    assert_eq!(change.privileges, [Privilege::Usage, Privilege::Modify]);
    assert_eq!((change.kind, change.name.text.as_str()), (NamedKind::Agent, "sales"));
    assert_eq!(change.grantee.kind, Some(GranteeKind::Role));
    assert_eq!(change.grantee.name.text, "Ann");
    let text = "GRANT OWNERSHIP ON AGENT sales TO USER \"ann\" REVOKE CURRENT GRANTS";
    let StatementKind::Grant(change) = one(text) else { panic!() };
    assert_eq!(change.privileges, [Privilege::Ownership]);
    let StatementKind::Revoke(change) = one("REVOKE USAGE ON INTEGRATION i FROM ann CASCADE")
    else {
        panic!()
    };
    assert_eq!((change.kind, change.grantee.kind), (NamedKind::Integration, None));
    for role in ["SNOWFLAKE.PYPI_REPOSITORY_USER", "snowflake.snowpark.pypi_repository_user"] {
        let StatementKind::GrantRole(change) =
            one(&format!("GRANT DATABASE ROLE {role} TO ROLE r"))
        else {
            panic!()
        };
        assert_eq!(change.role, GrantedRole::PypiRepositoryUser);
        let StatementKind::RevokeRole(change) = one(&format!("REVOKE ROLE {role} FROM USER u"))
        else {
            panic!()
        };
        assert_eq!(change.role, GrantedRole::PypiRepositoryUser);
    }
    let StatementKind::GrantRole(change) = one("GRANT ROLE PYPI_REPOSITORY_USER TO USER u") else {
        panic!()
    };
    assert!(matches!(change.role, GrantedRole::Named(_)), "only that of SNOWFLAKE is special");
}

#[test]
fn objects_are_shown_described_and_dropped() {
    let StatementKind::Show(shown) =
        one("SHOW EXTERNAL ACCESS INTEGRATIONS LIKE '%GIT\\\\_%' LIMIT 5")
    else {
        panic!()
    };
    assert_eq!((shown.kind, shown.limit), (NamedKind::Integration, Some(5)));
    assert!(shown.matches("my_git_hub") && !shown.matches("my_gitxhub"));
    for (pattern, name, matches) in [
        ("", "", true),
        ("%", "", true),
        ("a_c", "ABC", true),
        ("a_c", "ac", false),
        ("%a%b%", "xxaxxbxx", true),
        ("%ab", "aab", true),
        ("%ab", "aba", false),
        ("straße", "STRASSE", false),
    ] {
        let StatementKind::Show(shown) = one(&format!("SHOW SECRETS LIKE '{pattern}'")) else {
            panic!()
        };
        assert_eq!(shown.matches(name), matches, "{pattern} {name}");
    }
    assert!(matches!(one("show grants"), StatementKind::ShowGrants(GrantsFilter::Own)));
    let on = one("SHOW GRANTS ON AGENT sales");
    assert!(matches!(on, StatementKind::ShowGrants(GrantsFilter::On(NamedKind::Agent, _))));
    assert!(matches!(one("SHOW GRANTS TO ann"), StatementKind::ShowGrants(GrantsFilter::To(_))));
    let describe = one("desc network rule r");
    assert!(matches!(describe, StatementKind::Describe { kind: NamedKind::NetworkRule, .. }));
    let drop = one("DROP SECRET IF EXISTS s");
    assert!(matches!(drop, StatementKind::Drop { kind: NamedKind::Secret, if_exists: true, .. }));
}

#[test]
fn an_error_names_its_place_and_what_is_supported() {
    let cases = [
        ("", (1, 1), "the text has no statement"),
        (" ; -- nothing\n;", (1, 1), "the text has no statement"),
        (
            "SHOW AGENTS;\n  USE ROLE accountadmin;",
            (2, 3),
            "a statement cannot start with \"USE\" (supported statements: CREATE, GRANT, REVOKE, SHOW, DESCRIBE, DROP)",
        ),
        (
            "CREATE TABLE t (a INT)",
            (1, 8),
            "expected NETWORK RULE, EXTERNAL ACCESS INTEGRATION, SECRET or AGENT, found \"TABLE\"",
        ),
        (
            "CREATE NETWORK RULE r TYPE = HOST_PORT\nMODE = INGRESS VALUE_LIST = ('a')",
            (2, 8),
            "MODE = INGRESS is not supported; use MODE = EGRESS",
        ),
        (
            "CREATE NETWORK RULE r TYPE = HOST_PORT VALUE_LIST = ('a')",
            (1, 21),
            "CREATE NETWORK RULE requires MODE = EGRESS",
        ),
        (
            "CREATE NETWORK RULE r TYPE = HOST_PORT PORT = 4",
            (1, 40),
            "CREATE NETWORK RULE does not support \"PORT\" here (supported here: TYPE, MODE, VALUE_LIST, COMMENT)",
        ),
        ("CREATE NETWORK RULE r TYPE = HOST_PORT TYPE = HOST_PORT", (1, 40), "TYPE is given twice"),
        (
            "CREATE NETWORK RULE r VALUE_LIST = (('a'))",
            (1, 37),
            "expected a string in single quotes, found \"(\"",
        ),
        (
            "CREATE OR REPLACE AGENT IF NOT EXISTS a FROM SPECIFICATION $$$$",
            (1, 25),
            "OR REPLACE and IF NOT EXISTS exclude each other",
        ),
        ("CREATE AGENT a", (1, 14), "CREATE AGENT requires FROM SPECIFICATION $$ ... $$"),
        (
            "CREATE EXTERNAL ACCESS INTEGRATION i ALLOWED_NETWORK_RULES = (r)",
            (1, 36),
            "CREATE EXTERNAL ACCESS INTEGRATION requires ENABLED = TRUE or ENABLED = FALSE",
        ),
        (
            "GRANT SELECT ON AGENT a TO r",
            (1, 7),
            "expected a privilege, found \"SELECT\" (privileges on objects: USAGE, MODIFY, OWNERSHIP; also ROLE NAME)",
        ),
        (
            "GRANT OWNERSHIP ON AGENT a TO ROLE r COPY CURRENT GRANTS",
            (1, 38),
            "GRANT does not support \"COPY\" here (supported here: REVOKE CURRENT GRANTS)",
        ),
        (
            "GRANT USAGE ON AGENT a TO ROLE r WITH GRANT OPTION",
            (1, 34),
            "GRANT does not support \"WITH\" here (the statement ends here; separate statements by ;)",
        ),
        (
            "GRANT DATABASE ROLE SNOWFLAKE.CORTEX_USER TO ROLE r",
            (1, 21),
            "the only role of a database is SNOWFLAKE.PYPI_REPOSITORY_USER",
        ),
        (
            "SHOW AGENTS IN SCHEMA a",
            (1, 13),
            "SHOW AGENTS does not support \"IN\" here (supported here: LIKE 'pattern', LIMIT number)",
        ),
        ("DROP AGENT 'a", (1, 12), "a string does not end: its closing ' is missing"),
        ("DROP AGENT \"a", (1, 12), "a quoted name does not end: its closing \" is missing"),
        ("DROP AGENT a /* b", (1, 18), "a comment does not end: its */ is missing"),
        (
            "DROP AGENT a.b.c.d",
            (1, 18),
            "a name has at most three parts: database, schema and name",
        ),
        (
            "DROP AGENT my-agent",
            (1, 14),
            "DROP does not support another symbol here (the statement ends here; separate statements by ;)",
        ),
        (
            "DROP AGENT `a`",
            (1, 12),
            "expected a name, in double quotes if it has other characters than letters, digits, _ and $, found a quoted name",
        ),
    ];
    for (text, (line, column), message) in cases {
        assert_eq!(error(text), (line, column, message.to_owned()), "{text}");
    }
    let (_, _, message) = error("CREATE AGENT a FROM SPECIFICATION $$ name: a");
    assert_eq!(message, "a $$ string does not end");
}

#[test]
fn a_text_and_its_number_of_statements_are_bounded() {
    let many = |count: usize| "SHOW AGENTS;".repeat(count);
    assert_eq!(parse(&many(belljar_statements::STATEMENTS_MAX)).unwrap().len(), 100);
    let (line, column, message) = error(&many(belljar_statements::STATEMENTS_MAX + 1));
    assert_eq!((line, column), (1, 1201));
    assert!(message.starts_with("the text has more than 100 statements"), "{message}");
    let of_bytes = |bytes: usize| format!("SHOW AGENTS{}", " ".repeat(bytes - 11));
    assert!(parse(&of_bytes(belljar_statements::TEXT_BYTES_MAX)).is_ok());
    let (_, _, message) = error(&of_bytes(belljar_statements::TEXT_BYTES_MAX + 1));
    assert!(message.starts_with("the text exceeds 524288 bytes"), "{message}");
    let pattern = |chars: usize| format!("SHOW AGENTS LIKE '{}'", "%".repeat(chars));
    assert!(parse(&pattern(1_000)).is_ok());
    assert_eq!(error(&pattern(1_001)).2, "a pattern has at most 1000 characters");
}
