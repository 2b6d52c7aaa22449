"""The program `coverage`, on a small project in which every kind of claim occurs."""

import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "coverage"
SPEC = """\
# What is promised
- C-099 [S] a line above the first heading is no promise.

## Seed 000 — One
**Part**
- C-001 [S] the first.
- C-002 [P] the second.
- C-003 [D] the third.
- K-01 [S] of a skill.
## Seed 001 — Other
- S-001 a line of more than eighty characters, which is shown only as far as it is needed to know which one it is.
## A chapter without lines
Nothing is promised here.
"""
ALL_OPEN = """\
Seed 000 One: 0/4
  C-001 the first.
  C-002 the second.
  C-003 the third.
  K-01 of a skill.
Seed 001 Other: 0/1
  S-001 a line of more than eighty characters, which is shown only as far as it is neede
total: 0/5
"""


def rust_test(name: str, above: str = "", body: str = "", attributes: str = "#[test]") -> str:
    return f"{above}\n{attributes}\nfn {name}() {{\n{body}\n}}\n"


class Coverage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("spec/conformance.md", SPEC)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run_on(self, results: str, *options: str) -> tuple[str, str, int]:
        done = subprocess.run([PROGRAM, *options, "-"], input=results, cwd=self.root, capture_output=True, text=True)
        return done.stdout, done.stderr, done.returncode

    def assert_proven(self, expected: set[str], results: str, complaint: str = "") -> None:
        stdout, stderr, code = self.run_on(results)
        still_open = {line.split()[0] for line in stdout.splitlines() if line.startswith("  ")}
        self.assertEqual({"C-001", "C-002", "C-003", "K-01", "S-001"} - still_open, expected, stdout)
        self.assertTrue(stdout.endswith(f"total: {len(expected)}/5\n"), stdout)
        self.assertEqual((stderr, code), (f"coverage: {complaint}\n", 1) if complaint else ("", 0))

    def test_without_tests_every_line_is_open(self):
        self.write("tests/flows/one.rs", rust_test("nothing_is_claimed"))
        self.assertEqual(self.run_on("test one::nothing_is_claimed ... ok\n"), (ALL_OPEN, "", 0))

    def test_with_all_an_open_line_is_a_failure_and_only_open_lines_are_printed(self):
        every = "// proves C-001 to C-003, K-01, S-001"
        self.write("tests/flows/one.rs", rust_test("a", every) + rust_test("b", "// proves C-002"))
        proven = "test one::a ... ok\ntest one::b ... ok\n"
        self.assertEqual(self.run_on(proven, "--all"), ("", "", 0))
        skipped = "test one::a ... ok\ntest one::b ... ignored, by hand\n"
        self.assertEqual(self.run_on(skipped, "--all"), ("  C-002 the second.\n", "", 1))
        self.assertEqual(self.run_on(skipped)[2], 0)
        failed = self.run_on("test one::a ... ok\ntest one::b ... FAILED\n", "--all")
        self.assertEqual(failed, ("  C-002 the second.\n", "coverage: tests/flows/one.rs: b failed\n", 1))

    def test_results_can_be_a_file(self):
        self.write("tests/flows/one.rs", rust_test("c_001_holds"))
        self.write("results", "test one::c_001_holds ... ok\n")
        done = subprocess.run([PROGRAM, "results"], cwd=self.root, capture_output=True, text=True)
        self.assertEqual((done.returncode, "Seed 000 One: 1/4\n  C-002" in done.stdout), (0, True), done)

    def test_a_name_proves_at_its_beginning_and_at_its_end(self):
        self.write("tests/flows/one.rs", rust_test("c_001_holds") + rust_test("this_holds_c_002_k_01"))
        results = "test one::c_001_holds ... ok\ntest one::this_holds_c_002_k_01 ... ok\n"
        self.assert_proven({"C-001", "C-002", "K-01"}, results)

    def test_a_comment_proves_above_attributes_and_text(self):
        attributes = '#[tokio::test(flavor = "multi_thread")]\n/// More about it.\n#[expect(\n    dead_code,\n)]'
        above = "/// Why.\n// proves C-001 to C-003, S-001"
        self.write("crates/x/src/one.rs", rust_test("a", above, attributes=attributes))
        self.assert_proven({"C-001", "C-002", "C-003", "S-001"}, "test deep::one::tests::a ... ok\n")

    def test_cases_prove_in_their_own_function_when_the_comment_says_so(self):
        cases = '    let cases = [("C-001", 1), ("S-001: \\" text", 2)]; // C-002\n'
        proving = rust_test("a", "// proves the ids of its cases", cases)
        silent = rust_test("b", body='    let cases = ["K-01"];')
        self.write("tests/flows/main.rs", proving + 'const OTHER: &str = "C-003";\n' + silent)
        self.assert_proven({"C-001", "S-001"}, "test a ... ok\ntest b ... ok\n")

    def test_a_line_named_by_two_tests_needs_both(self):
        self.write("tests/flows/one.rs", rust_test("a", "// proves C-001, C-002") + rust_test("b", "// proves C-002"))
        self.assert_proven({"C-001", "C-002"}, "test one::a ... ok\ntest one::b ... ok\n")
        self.assert_proven({"C-001"}, "test one::a ... ok\ntest one::b ... ignored, by hand\n")

    def test_an_ignored_test_proves_nothing(self):
        self.write("tests/flows/one.rs", rust_test("c_001_holds", attributes='#[test]\n#[ignore = "by hand"]'))
        self.assert_proven(set(), "test one::c_001_holds ... ignored, by hand\n")

    def test_a_failed_test_is_said(self):
        self.write("tests/flows/one.rs", rust_test("c_001_holds"))
        complaint = "tests/flows/one.rs: c_001_holds failed"
        self.assert_proven(set(), "test one::c_001_holds ... FAILED\n", complaint)

    def test_a_test_that_did_not_run_is_said(self):
        self.write("tests/flows/one.rs", rust_test("c_001_holds"))
        complaint = "tests/flows/one.rs: c_001_holds did not run"
        self.assert_proven(set(), "test other::c_001_holds ... ok\n", complaint)

    def test_an_unknown_line_is_said_and_the_known_one_counts(self):
        self.write("tests/flows/one.rs", rust_test("a", "// proves C-001, C-099"))
        complaint = "tests/flows/one.rs: a names C-099, which is not in spec/conformance.md"
        self.assert_proven({"C-001"}, "test one::a ... ok\n", complaint)

    def test_a_claim_without_a_line_is_said(self):
        self.write("tests/flows/one.rs", rust_test("a", "// proves C001"))
        self.assert_proven(set(), "test one::a ... ok\n", "tests/flows/one.rs: a proves, but names no line: C001")

    def test_a_claim_above_no_test_is_said(self):
        complaint = "tests/flows/one.rs: a comment proves something and stands above no test"
        for above, attributes in (("// proves C-001\n", "#[test]"), ("// proves C-001", "#[inline]")):
            self.write("tests/flows/one.rs", rust_test("a", above, attributes=attributes))
            self.assert_proven(set(), "test one::a ... ok\n", complaint)

    def test_a_test_of_the_runner_counts_as_the_one_that_runs_them_all(self):
        source = """
            class Cells(KernelTest):
                # proves C-001
                @slow
                def test_a(self):
                    pass

                # proves the ids of its cases
                def test_b(self):
                    for case in ["S-001"]:

                        self.check(case)

                def test_c(self):
                    self.check("C-002")
        """
        self.write("runner/tests/test_cells.py", textwrap.dedent(source))
        suite = "test the_runner_keeps_its_promises_without_a_sandbox ..."
        self.assert_proven({"C-001", "S-001"}, f"{suite} ok\n")
        self.assert_proven(set(), f"{suite} ignored\n")
        self.assertEqual(self.run_on(f"{suite} FAILED\n")[2], 1)

    def test_elsewhere_it_says_how_it_is_called(self):
        done = subprocess.run([PROGRAM, "-"], cwd=self.root / "spec", capture_output=True, text=True, input="")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("usage, from the root of the project", done.stderr)


if __name__ == "__main__":
    unittest.main()
