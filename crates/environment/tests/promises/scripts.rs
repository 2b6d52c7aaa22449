//! The requirements of a script, and the errors when they are missing.

use belljar_environment::{Header, PackageVersion};
use proptest::prelude::*;

fn header(block: &str) -> Header {
    Header::of(&format!("#!/usr/bin/env python3\n# /// script\n{block}\n# ///\nprint(1)\n"))
        .unwrap()
}

fn header_error(block: &str) -> String {
    let source = format!("# /// script\n{block}\n# ///\n");
    Header::of(&source).unwrap_err().to_string()
}

fn unmet(block: &str) -> Vec<String> {
    let packages = [("numpy", "2.4.6"), ("et_xmlfile", "2.0.0"), ("pandas", "3.0.0rc1")];
    let packages = packages.map(|(name, version)| PackageVersion {
        name: name.to_owned(),
        version: version.to_owned(),
    });
    let unmet = header(block).unmet("3.13.1".parse().unwrap(), &packages);
    unmet.iter().map(ToString::to_string).collect()
}

// proves K-10
#[test]
fn a_script_that_says_what_it_needs_is_understood() {
    let block = "# requires-python = \">=3.11\"\n# dependencies = [\n#   \"NumPy>=2,<3\",\n#\n#   \
         \"Et.Xmlfile\",\n# ]\n# [tool.uv]\n# exclude-newer = \"2026-01-01\"";
    let header = header(block);
    let names: Vec<&str> = header.dependencies.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["numpy", "et-xmlfile"]);
    assert_eq!(header.requires_python.to_string(), ">=3.11");
    assert_eq!(unmet(block), [""; 0]);
}

// proves K-10
#[test]
fn what_is_missing_is_named_with_what_is_there_instead() {
    let block = r#"# requires-python = ">=3.14"
# dependencies = ["numpy", "requests (>=2)", "numpy==1.26", "et_xmlfile~=1.0"]"#;
    assert_eq!(
        unmet(block),
        [
            "Python >=3.14 (has 3.13.1)",
            "requests (>=2)",
            "numpy==1.26 (has 2.4.6)",
            "et_xmlfile~=1.0 (has 2.0.0)",
        ]
    );
    assert_eq!(unmet("# dependencies = [\"pandas>=3.0.0rc1\", \"numpy != 2.0\"]"), [""; 0]);
}

#[test]
fn a_script_that_says_nothing_needs_nothing() {
    for source in [
        "",
        "print(1)",
        "# /// script\n# dependencies = [\"a\"]\n",
        "# /// script\n\n# dependencies = [\"a\"]\n# ///\n",
        "# /// other\n# dependencies = [\"a\"]\n# ///\n",
        " # /// script\n # dependencies = [\"a\"]\n # ///\n",
        "#/// script\n# dependencies = [\"a\"]\n# ///\n",
    ] {
        assert_eq!(Header::of(source).unwrap(), Header::default(), "{source:?}");
    }
}

#[test]
fn comments_after_the_block_do_not_belong_to_it() {
    let source = "# /// script\r\n# dependencies = [\"a\"]\r\n# ///\r\n# not = toml at all\r\n";
    assert_eq!(Header::of(source).unwrap().dependencies.len(), 1);
}

#[test]
fn what_cannot_be_parsed_is_refused_and_not_skipped() {
    let twice = "# /// script\n# dependencies = []\n# ///\n";
    let twice = Header::of(&format!("{twice}\n{twice}")).unwrap_err().to_string();
    assert_eq!(twice, "more than one block `# /// script`; keep one");
    assert!(
        header_error("# dependencies = [")
            .starts_with("line 2: block `# /// script` is not valid TOML: ")
    );
    assert!(header_error("# dependencies = \"a\"").contains("is not valid TOML"));
    let range = header_error("# requires-python = \"new\"");
    assert_eq!(range, "line 2: requires-python `new` is not a valid version range");
    let address =
        header_error("# dependencies = [\n#   \"a\",\n#   \"b @ https://example.org/b.whl\",\n# ]");
    assert!(
        address.starts_with("line 4: `b @ https://example.org/b.whl` is a URL or a path"),
        "{address}"
    );
    assert!(
        header_error("# dependencies = [\"=2\"]").contains("does not start with a package name")
    );
    assert!(header_error("# dependencies = [\"a>>2\"]").starts_with("line 2: `a>>2`: "));
}

#[test]
fn what_is_needed_only_somewhere_is_not_missed() {
    let block =
        r#"# dependencies = ["numpy[extra]>=2", "tomli; python_version < '3.11'", "tomli"]"#;
    assert_eq!(unmet(block), ["tomli"]);
}

proptest! {
    #[test]
    fn no_script_makes_the_parser_panic(block in r"(?s)(# |#)?.{0,100}", requirement in r".{0,40}") {
        let _ = Header::of(&format!("# /// script\n# {block}\n# ///\n"));
        let quoted = format!("{requirement:?}");
        let _ = Header::of(&format!("# /// script\n# dependencies = [{quoted}]\n# ///\n"));
    }
}
