"""Clients of model providers are there without an import, and say why when they cannot be had."""

import os

from tests.harness import RunnerTest

SDKS = {
    "openai.py": "class OpenAI:\n    def __init__(self, api_key): self.key = api_key",
    "anthropic.py": "class Anthropic:\n    def __init__(self, api_key): self.key = api_key",
    "google/genai.py": "class Client:\n    def __init__(self, api_key): self.key = api_key",
}
NAMES = {"openai": "OpenAI", "anthropic": "Anthropic", "gemini": "Gemini"}
KEYS = {"OPENAI_API_KEY": "one", "ANTHROPIC_API_KEY": "two", "GEMINI_API_KEY": "three"}


class ModelClients(RunnerTest):
    def bring_sdks(self) -> None:
        for path, source in SDKS.items():
            path = os.path.join(self.runner.workspace, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(source)

    def message_of(self, code: str, **options: object) -> tuple[str, str]:
        error = self.run_cell(code, **options).error
        return error["type"], error["message"]

    def test_without_a_key_each_says_so_when_it_is_used(self):
        self.bring_sdks()
        for name, title in NAMES.items():
            expected = "RuntimeError", f"{title} is not configured for this deployment"
            self.assertEqual(self.message_of(f"{name}_client.key"), expected)
            self.assertEqual(self.message_of(f"client.{name}"), expected)
            self.assertEqual(self.call(f"def handle(): return {name}_client.key").error["message"], expected[1])
        self.assertEqual(self.value_of("repr(openai_client)"), "<OpenAI is not configured for this deployment>")
        self.run_cell("openai_client")
        self.assert_still_works()

    def test_without_the_sdk_each_says_so(self):
        self.run_cell("import sys\nsys.modules.update(dict.fromkeys(['openai', 'anthropic', 'google.genai']))")
        for name, title in NAMES.items():
            kind, message = self.message_of(f"{name}_client.key", variables=KEYS)
            self.assertEqual(kind, "RuntimeError")
            self.assertRegex(message, rf"^{title} is unavailable: Python SDK missing \(.*halted.*\)$")

    def test_with_a_key_it_is_a_ready_client_of_that_key(self):
        self.bring_sdks()
        code = "[openai_client.key, anthropic_client.key, gemini_client.key]"
        self.assertEqual(self.run_cell(code, variables=KEYS).done["value"], ["one", "two", "three"])
        code = "import openai\n[client.openai is client.openai, isinstance(openai_client, openai.OpenAI)]"
        self.assertEqual(self.run_cell(code, variables=KEYS).done["value"], [True, True])
        other = KEYS | {"OPENAI_API_KEY": "another"}
        self.assertEqual(self.run_cell("client.openai.key", variables=other).done["value"], "another")
        self.assertEqual(self.message_of("openai_client.key")[0], "RuntimeError")

    def test_they_cost_and_show_nothing_until_then(self):
        self.bring_sdks()
        code = "import sys\n['openai' in sys.modules, 'client' in globals(), [n for n in dir() if 'client' in n]]"
        self.assertEqual(self.run_cell(code, variables=KEYS).done["value"], [False, False, []])

    def test_a_name_of_the_users_own_is_the_one_that_counts(self):
        self.assertEqual(self.value_of("client = 5\nclient + 1"), 6)
        self.assertEqual(self.result_of("openai_client = 7\ndef handle(): return openai_client"), 7)
        self.assertIn("client has no attribute 'session'", self.message_of("del client\nclient.session")[1])
