//! What a network rule opens, tested by a table and against a second, independent matcher.

// Always true in a test crate, but this is how clippy knows that helpers may unwrap.
#![cfg(test)]

use belljar_policy::{
    BroadAccess, Destination, HostPort, IntegrationRules, NonPublicAddress, RouteError,
    allowed_addresses, internet_integration, matching_integration,
};
use proptest::prelude::*;
use std::net::IpAddr;

fn opening(values: &[&str]) -> IntegrationRules {
    IntegrationRules {
        integration: "some".to_owned(),
        values: values.iter().map(|value| value.parse().unwrap()).collect(),
    }
}

fn opens(value: &str, host: &str, port: u16) -> bool {
    let to = Destination::new(host, port);
    to.is_ok_and(|to| matching_integration(&[opening(&[value])], &to).is_some())
}

/// A value, the hosts and ports that it opens, and those that it does not.
type Row = (&'static str, &'static [(&'static str, u16)], &'static [(&'static str, u16)]);

const TABLE: &[Row] = &[
    (
        "github.com",
        &[("github.com", 443), ("GitHub.COM", 443), ("github.com.", 443), ("ｇithub.com", 443)],
        &[
            ("github.com", 80),
            ("github.com", 22),
            ("github.com", 444),
            ("github.com", 442),
            ("github.com", 0),
            ("api.github.com", 443),
            ("agithub.com", 443),
            ("-github.com", 443),
            ("github.com.evil.example", 443),
            ("github.co", 443),
            ("github.comx", 443),
            ("github", 443),
            ("com", 443),
            ("github.com..", 443),
            (".github.com", 443),
            ("evil.example#github.com", 443),
            ("evil.example/github.com", 443),
            ("github.com@evil.example", 443),
            ("evil.example\\github.com", 443),
            ("github.com\0.evil.example", 443),
            ("github.com%00.evil.example", 443),
            ("github.com:443@evil.example", 443),
            ("github.com?.evil.example", 443),
            ("gіthub.com", 443), // a Cyrillic letter
            ("140.82.121.3", 443),
        ],
    ),
    (
        "*.github.com",
        &[
            ("api.github.com", 443),
            ("a.github.com", 443),
            ("API.github.com", 443),
            ("a-b-1.github.com", 443),
            ("xn--bcher-kva.github.com", 443),
            ("bücher.github.com", 443),
            ("api.github.com.", 443),
        ],
        &[
            ("github.com", 443),
            (".github.com", 443),
            ("a.b.github.com", 443),
            ("apigithub.com", 443),
            ("api.github.com", 80),
            ("a_b.github.com", 443),
            ("api.github.com.evil.example", 443),
            ("evil.example.github.com", 443),
            ("*.github.com", 443),
            ("api.github.org", 443),
        ],
    ),
    (
        "snowflake-*.google.com",
        &[("snowflake-1.google.com", 443), ("snowflake-eu-1.google.com", 443)],
        &[
            ("snowflake-.google.com", 443),
            ("snowflake.google.com", 443),
            ("snowflake-a.b.google.com", 443),
            ("xsnowflake-a.google.com", 443),
            ("snowflake-a-google.com", 443),
            ("snowflake-a.google.com.evil.example", 443),
        ],
    ),
    (
        "a*b.example.com:80",
        &[("a1b.example.com", 80), ("abbb.example.com", 80), ("a-b.example.com", 80)],
        &[("ab.example.com", 80), ("a1b.example.com", 443), ("a.b.example.com", 80)],
    ),
    (
        "api.*.example.com",
        &[("api.eu.example.com", 443)],
        &[("api.example.com", 443), ("api.eu.west.example.com", 443), ("x.eu.example.com", 443)],
    ),
    ("*.com", &[("example.com", 443)], &[("www.example.com", 443), ("com", 443)]),
    (
        "host.example:8000-8100",
        &[("host.example", 8000), ("host.example", 8050), ("host.example", 8100)],
        &[("host.example", 7999), ("host.example", 8101), ("host.example", 443)],
    ),
    (
        "host.example:0",
        &[("host.example", 1), ("host.example", 22), ("host.example", 65535)],
        &[("host.example", 0), ("other.example", 22)],
    ),
    ("host.example:65535", &[("host.example", 65535)], &[("host.example", 65534)]),
    (
        "bücher.example",
        &[("xn--bcher-kva.example", 443), ("BÜCHER.example", 443)],
        &[("bucher.example", 443)],
    ),
    ("xn--bcher-kva.example", &[("bücher.example", 443)], &[("xn--bcher.example", 443)]),
    (
        "0.0.0.0",
        &[
            ("example.com", 443),
            ("example.com", 80),
            ("8.8.8.8", 443),
            ("[2606:4700:4700::1111]", 80),
            ("localhost", 443), // its addresses are refused
        ],
        &[
            ("example.com", 22),
            ("example.com", 8080),
            ("127.0.0.1", 443),
            ("127.1", 80),
            ("2130706433", 80),
            ("0x7f.1", 80),
            ("0177.0.0.1", 80),
            ("10.0.0.1", 443),
            ("192.168.1.1", 80),
            ("169.254.169.254", 80),
            ("0.0.0.0", 80),
            ("0", 80),
            ("[::1]", 443),
            ("[::]", 443),
            ("[::ffff:127.0.0.1]", 443),
            ("[::ffff:7f00:1]", 80),
            ("[fd00:ec2::254]", 80),
            ("224.0.0.1", 80),
        ],
    ),
    ("0.0.0.0:80", &[("example.com", 80)], &[("example.com", 443), ("10.0.0.1", 80)]),
    (
        "10.0.0.5:8080",
        &[
            ("10.0.0.5", 8080),
            ("10.5", 8080),
            ("0xa000005", 8080),
            ("[::ffff:10.0.0.5]", 8080),
            ("10.0.0.5.", 8080),
        ],
        &[("10.0.0.5", 443), ("10.0.0.6", 8080), ("10.0.0.5.example", 8080)],
    ),
    (
        "[::1]:443",
        &[("[::1]", 443), ("::1", 443), ("[0:0:0:0:0:0:0:1]", 443)],
        &[("127.0.0.1", 443), ("[::2]", 443), ("localhost", 443)],
    ),
    (
        "127.0.0.1",
        &[("127.0.0.1", 443), ("0x7f000001", 443)],
        &[("localhost", 443), ("127.0.0.2", 443), ("[::1]", 443)],
    ),
    ("localhost:9000", &[("localhost", 9000), ("LOCALHOST.", 9000)], &[("127.0.0.1", 9000)]),
];

// proves S-056, S-057, S-058, S-059
#[test]
fn t38_host_matcher_table() {
    let mut pairs = 0;
    for (value, open, closed) in TABLE {
        for (host, port) in *open {
            assert!(opens(value, host, *port), "{value} should open {host:?} {port}");
        }
        for (host, port) in *closed {
            assert!(!opens(value, host, *port), "{value} should not open {host:?} {port}");
        }
        pairs += open.len() + closed.len();
    }
    assert!(pairs >= 120, "{pairs}");
}

/// The second matcher. It knows nothing of canonical forms: it gets only lower-case ASCII, and
/// compares label by label and each label character by character.
fn second_matcher(value: &str, host: &str, port: u16) -> bool {
    let (pattern, ports) = value.split_once(':').unwrap_or((value, "443"));
    let port_fits = match ports.split_once('-') {
        Some((low, high)) => {
            u32::from(port) >= low.parse().unwrap() && u32::from(port) <= high.parse().unwrap()
        }
        None => ports == "0" || ports == port.to_string(),
    };
    let wanted: Vec<&str> = pattern.split('.').collect();
    let name_of_host: Vec<&str> = host.split('.').collect();
    let mut fits = wanted.len() == name_of_host.len();
    for (wanted, name_of_host) in wanted.iter().zip(&name_of_host) {
        fits &= label_fits(wanted.as_bytes(), name_of_host.as_bytes());
    }
    port_fits && fits
}

fn label_fits(wanted: &[u8], name_of_host: &[u8]) -> bool {
    match (wanted.first(), name_of_host.first()) {
        (None, None) => true,
        (Some(b'*'), Some(it)) => {
            *it != b'_'
                && (label_fits(&wanted[1..], &name_of_host[1..])
                    || label_fits(wanted, &name_of_host[1..]))
        }
        (Some(one), Some(other)) => one == other && label_fits(&wanted[1..], &name_of_host[1..]),
        _ => false,
    }
}

/// Few letters and short, so that random hosts often match the pattern.
const NAME: &str = "([ab_-]{1,3}\\.){0,3}[ab]{1,2}";

fn pattern() -> impl Strategy<Value = String> {
    let port = prop_oneof!["", ":0", ":80", ":443", ":80-443", ":443-444"];
    ("[ab-]{0,2}[*][ab-]{0,2}\\.", "([ab-]{1,2}\\.){0,1}", NAME, any::<bool>(), port).prop_map(
        |(star, label, name, wild, port)| {
            let prefix = if wild { format!("{label}{star}") } else { String::new() };
            format!("{prefix}{name}{port}")
        },
    )
}

/// A host that often matches the pattern, or nearly.
fn name_of_host(value: &str, part: &str, change: &str) -> String {
    value.split(':').next().unwrap().replacen('*', part, 1) + change
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn t38_host_matcher_fuzz(
        value in pattern(),
        other in NAME,
        part in "[ab_.-]{0,3}",
        change in prop_oneof!["", "", "", "a", "\\.a"],
        port in prop_oneof![Just(80), Just(443), Just(444), 1_u16..],
    ) {
        for host in [other, name_of_host(&value, &part, &change)] {
            let expected = Destination::new(&host, port).is_ok() && second_matcher(&value, &host, port);
            prop_assert_eq!(opens(&value, &host, port), expected, "{} {} {}", value, host, port);
        }
    }

    #[test]
    fn no_text_makes_the_grammar_fail_in_another_way_than_by_an_error(text in "\\PC{0,40}") {
        if let Ok(value) = text.parse::<HostPort>() {
            prop_assert_eq!(value.to_string().parse(), Ok(value));
        }
        let _ = Destination::new(&text, 443);
    }
}

// proves S-060
#[test]
fn a_bad_value_is_refused_by_name() {
    let long = "a".repeat(300);
    for (value, message) in [
        (
            "",
            "empty value; use a host such as example.com, or a host and a port such as \
              example.com:8080",
        ),
        (long.as_str(), "value has 300 bytes; at most 265 are allowed"),
        (" ", "\" \" contains a space or a control character; use one host per value"),
        (
            "a.example, b.example",
            "\"a.example, b.example\" contains a space or a control character; use one host per \
             value",
        ),
        (
            "a.example\n",
            "\"a.example\\n\" contains a space or a control character; use one host per value",
        ),
        (
            "https://github.com",
            "`https://github.com` has a scheme; use only host and port, such as example.com:443",
        ),
        (
            "github.com/belljar",
            "`github.com/belljar` has a path or a query; a rule applies to a whole host, such as \
             example.com:443",
        ),
        (
            "10.0.0.0/8",
            "`10.0.0.0/8` is a range of addresses; list each address, such as 10.0.0.5:8000",
        ),
        (
            "[fd00::]/8",
            "`[fd00::]/8` is a range of addresses; list each address, such as 10.0.0.5:8000",
        ),
        (
            "me:secret@github.com",
            "`me:secret@github.com` has a user name; use only host and port, such as \
             example.com:443",
        ),
        ("*.*.example.com", "`*.*.example.com` has more than one `*`; use at most one"),
        ("a**.example.com", "`a**.example.com` has more than one `*`; use at most one"),
        (
            "*",
            "`*` has a `*` in its last label; use a domain such as *.example.com, or 0.0.0.0 for \
             all hosts on ports 80 and 443",
        ),
        (
            "example.*:443",
            "`example.*:443` has a `*` in its last label; use a domain such as *.example.com, or \
             0.0.0.0 for all hosts on ports 80 and 443",
        ),
        (
            "github.com:70000",
            "`github.com:70000` has the invalid port `70000`; use 1 to 65535, a range such as \
             8000-8100, or 0 for all ports",
        ),
        (
            "0.0.0.0:22",
            "`0.0.0.0:22` means all hosts, which is possible only for ports 80 and 443; use \
             0.0.0.0, 0.0.0.0:80 or 0.0.0.0:443",
        ),
        (
            "2001:4860::1",
            "`2001:4860::1` is an IPv6 address without brackets; use the form [2001:db8::1]:443",
        ),
        ("10.1:80", "`10.1:80` is not the canonical form of 10.0.0.1; use that"),
        ("0", "`0` is not the canonical form of 0.0.0.0; use that"),
        (
            "169.254.169.254:80",
            "`169.254.169.254:80` is an address that is always blocked (cloud metadata)",
        ),
        ("224.0.0.1", "`224.0.0.1` is an address that is always blocked (multicast)"),
        ("[::]", "`[::]` is an address that is always blocked (unspecified)"),
        ("a..b", "`a..b` is not a valid host name or IP address"),
        (":443", "`:443` is not a valid host name or IP address"),
        ("*.1.2.3", "`*.1.2.3` is not a valid host name or IP address"),
        ("[::1", "`[::1` is not a valid host name or IP address"),
        ("[::1]443", "`[::1]443` is not a valid host name or IP address"),
        ("*.bücher.example", "`*.bücher.example` is not a valid host name or IP address"),
    ] {
        let error = value.parse::<HostPort>().unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    for port in ["", "-", "80-", "-80", "443-80", "0-80", "+80", "080", "00", "1e3", "65536", "a"] {
        assert!(format!("example.com:{port}").parse::<HostPort>().is_err(), "{port}");
    }
}

#[test]
fn a_value_reads_as_it_was_written_with_the_host_in_its_one_spelling() {
    for (written, read) in [
        ("github.com", "github.com"),
        ("GitHub.com.:443", "github.com:443"),
        ("*.GitHub.com.", "*.github.com"),
        ("bücher.example:80", "xn--bcher-kva.example:80"),
        ("host.example:8000-8100", "host.example:8000-8100"),
        ("host.example:0", "host.example:0"),
        ("0.0.0.0", "0.0.0.0"),
        ("[0:0::1]:443", "[::1]:443"),
    ] {
        let value: HostPort = serde_json::from_value(written.into()).unwrap();
        assert_eq!(serde_json::to_value(&value).unwrap(), read);
    }
    assert!(serde_json::from_str::<HostPort>("\"https://a.example\"").is_err());
}

fn route(values: &[&str], host: &str, port: u16, answers: &[&str]) -> Result<usize, RouteError> {
    let answers: Vec<IpAddr> = answers.iter().map(|answer| answer.parse().unwrap()).collect();
    let to = Destination::new(host, port).unwrap();
    allowed_addresses(&[opening(values)], &to, &answers).map(|addresses| addresses.len())
}

#[test]
fn a_private_address_is_reached_only_by_a_value_that_names_it() {
    let private = Err(RouteError::Address(NonPublicAddress::Private));
    let name = "intranet.example";
    assert_eq!(route(&[name], name, 443, &["10.0.0.5"]), private);
    assert_eq!(route(&[name, "10.0.0.5"], name, 443, &["10.0.0.5"]), Ok(1));
    assert_eq!(route(&[name, "10.0.0.5"], name, 443, &["::ffff:10.0.0.5"]), Ok(1));
    assert_eq!(route(&[name, "10.0.0.5"], name, 443, &["10.0.0.5", "10.0.0.6"]), private);
    assert_eq!(route(&[name, "10.0.0.5:8443"], name, 443, &["10.0.0.5"]), private);
    assert_eq!(route(&["0.0.0.0"], name, 443, &["8.8.8.8", "10.0.0.5"]), private);
    assert_eq!(route(&["0.0.0.0"], name, 443, &["8.8.8.8", "2606:4700::1"]), Ok(2));
}

#[test]
fn what_is_never_opened_is_not_reached_by_any_name() {
    for (answer, reason) in [
        ("169.254.169.254", NonPublicAddress::Metadata),
        ("fd00:ec2::254", NonPublicAddress::Metadata),
        ("169.254.1.1", NonPublicAddress::LinkLocal),
        ("224.0.0.1", NonPublicAddress::Multicast),
        ("0.0.0.0", NonPublicAddress::Unspecified),
    ] {
        let refused = Err(RouteError::Address(reason));
        assert_eq!(route(&["0.0.0.0", "a.example:0"], "a.example", 80, &[answer]), refused);
    }
    assert_eq!(route(&["0.0.0.0"], "a.example", 80, &[]), Err(RouteError::NoAddress));
}

// proves S-066
#[test]
fn several_integrations_are_a_union_and_the_one_that_opened_is_named() {
    let named = |integration: &str, values: &[&str]| IntegrationRules {
        integration: integration.to_owned(),
        ..opening(values)
    };
    let openings =
        [named("one", &["a.example"]), named("two", &["b.example:80"]), internet_integration()];
    let by = |host: &str, port| {
        let to = Destination::new(host, port).unwrap();
        matching_integration(&openings, &to).map(|opening| opening.integration.as_str())
    };
    assert_eq!(by("a.example", 443), Some("one"));
    assert_eq!(by("b.example", 80), Some("two"));
    assert_eq!(by("c.example", 80), Some("internet"));
    assert_eq!(by("a.example", 22), None);
}

#[test]
fn patterns_that_match_hosts_of_several_owners_are_broad() {
    let wide = ["0.0.0.0", "0.0.0.0:80", "*.com", "*.com:0", "api-*.org:443", "*.Com."];
    let internal = ["10.0.0.5", "127.0.0.1:80", "[fd00::5]:1"];
    let narrow =
        ["example.com:0", "*.example.com:0", "snowflake-*.google.com", "com", "93.184.216.34:0"];
    for (values, expected) in [
        (&wide[..], Some(BroadAccess::ManyOwners)),
        (&internal[..], Some(BroadAccess::InternalAddress)),
        (&narrow[..], None),
    ] {
        for value in values {
            assert_eq!(value.parse::<HostPort>().unwrap().broad_access(), expected, "{value}");
        }
    }
}
