"""Only what the operator has listed is imported by the user's code; what that needs itself comes along."""

import os
import shutil
import tempfile

from tests.test_zygote import ZygoteTest


class Imports(ZygoteTest):
    def setUp(self):
        site = tempfile.mkdtemp(prefix="site-")
        self.addCleanup(shutil.rmtree, site)
        packages = {"listed": "import needed\n__import__('found')", "needed": "x = 1", "found": "x = 3", "other": "x = 2"}
        for name, source in packages.items():
            os.makedirs(os.path.join(site, name), exist_ok=True)
            with open(os.path.join(site, name, "__init__.py"), "w") as file:
                file.write(source + "\n")
        self.start("--imports", "listed")
        self.assertEqual(self.socket.recv(1), b"R")
        self.runner = self.spawn()
        self.assertIsNone(self.runner.run(f"import sys; sys.path.append({site!r})").error)

    def assert_refused(self, code: str) -> None:
        error = self.runner.run(code).error
        self.assertIsNotNone(error, code)
        message = "other not allowed by PYTHON_PACKAGES_WHITELIST_IMPORT"
        self.assertEqual((error["type"], error["message"], error["denied"]), ("ImportError", message, "import"), code)
        self.assertNotIn("belljar_runner", error["traceback"], code)
        self.assertTrue(error["traceback"].endswith(f"ImportError: {message}\n"), code)

    # proves P-039
    def test_what_is_not_listed_is_refused_by_the_name_of_the_setting(self):
        for code in [
            "import other", "from other import x", "import other.deep", "__import__('other')", "exec('import other')",
            "import importlib; importlib.import_module('other')", "exec('import other', {})",
            "def f():\n    import other\nf()", "eval('__import__(\"other\")')",
            "import importlib; importlib.__import__('other')",
        ]:
            self.assert_refused(code)

    # proves P-040, P-045
    def test_the_standard_library_and_what_a_listed_package_needs_are_there(self):
        for code in [
            "import csv, json, statistics, math, datetime, os.path, xml.etree.ElementTree, asyncio",
            "import listed", "from listed import needed", "import importlib; importlib.import_module('listed')",
        ]:
            self.assertIsNone(self.runner.run(code).error, code)

    def test_modules_of_the_users_own_are_there_and_have_no_more_rights(self):
        self.assertIsNone(self.runner.run("open('mine.py', 'w').write('import math')\nimport mine").error)
        self.assertIsNone(self.runner.run("open('sly.py', 'w').write('import other')").error)
        self.assert_refused("import sly")

    def test_a_folder_or_file_of_the_same_name_does_not_open_a_package(self):
        self.assert_refused("import os; os.mkdir('other')\nimport other")
        self.assert_refused("sly = lambda: __import__('other')\nsly()")
        self.assertIsNone(self.runner.run("os.mkdir('folder'); open('folder/part.py', 'w').close()\nimport folder.part").error)
        self.assertIsNone(self.runner.run("import sys, types\nsys.modules['made'] = types.ModuleType('made')\nimport made").error)

    def test_a_refusal_can_be_expected(self):
        code = "try: import other\nexcept ImportError as e: found = [type(e).__name__, e.name]\nfound"
        self.assertEqual(self.runner.run(code).done["value"], ["ImportError", "other"])
