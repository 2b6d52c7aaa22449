"""A client of the platform needs no arguments, and is whoever the code runs for."""

import os
import textwrap

from tests.harness import RunnerTest

SDK = {
    "__init__.py": """
        class Settings:
            default_client_config = None
            disable_pypi_version_check = False
        global_config = Settings()
        class ClientConfig:
            def __init__(self, client_name, project, credentials, base_url):
                self.project, self.credentials, self.base_url = project, credentials, base_url
            def told(self):
                return [self.project, self.base_url, self.credentials.token()]
        class AsyncCogniteClient:
            def __init__(self, config=None):
                self.config = config
        class CogniteClient:
            def __init__(self, config=None):
                self.config = AsyncCogniteClient(config).config
        """,
    "credentials.py": """
        class Token:
            def __init__(self, token): self.token = token
        """,
    "data_classes/data_modeling/instances.py": """
        class Instance:
            def __init__(self, **properties): self.properties = properties
            def __getitem__(self, name): return self.properties[name]
        """,
    "exceptions.py": "class CogniteAuthError(Exception): pass",
}
ANN = {"COGNITE_PROJECT": "mine", "COGNITE_BASE_URL": "https://api.test", "COGNITE_TOKEN": "ann"}
MAKE = "from cognite.client import CogniteClient, ClientConfig, global_config\n"


class CogniteClients(RunnerTest):
    def setUp(self):
        super().setUp()
        place = os.path.join(self.runner.workspace, "cognite", "client")
        for name, source in SDK.items():
            path = os.path.join(place, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(textwrap.dedent(source))

    def value_for(self, variables: dict[str, str], code: str) -> object:
        reply = self.run_cell(code, variables=variables)
        self.assertIsNone(reply.error, reply)
        return reply.done["value"]

    def test_it_is_configured_and_speaks_for_whoever_calls(self):
        code = f"{MAKE}client = CogniteClient()\nclient.config.told()"
        self.assertEqual(self.value_for(ANN, code), ["mine", "https://api.test", "ann"])
        self.assertEqual(self.value_for(ANN | {"COGNITE_TOKEN": "bob"}, "client.config.told()")[2], "bob")
        self.assertTrue(self.value_for(ANN, "global_config.disable_pypi_version_check"))

    def test_a_configuration_of_ones_own_goes_first(self):
        own = "ClientConfig('own', 'other', None, 'https://other.test')"
        self.assertEqual(self.value_for(ANN, f"{MAKE}CogniteClient({own}).config.project"), "other")
        code = f"global_config.default_client_config = {own}\nCogniteClient().config.project"
        self.assertEqual(self.value_for(ANN, code), "other")

    def test_whoever_has_no_secret_is_told_so(self):
        for variables in ({}, ANN | {"COGNITE_PROJECT": ""}):
            error = self.run_cell(f"{MAKE}CogniteClient()", variables=variables).error
            self.assertEqual(error["type"], "cognite.client.exceptions.CogniteAuthError")
            self.assertIn("no secret for the client `cognite`", error["message"])
        self.value_for(ANN, "client = CogniteClient()\n1")
        self.assertIn("not configured", self.run_cell("client.config.told()").error["message"])

    def test_properties_of_what_was_read_are_attributes_too(self):
        code = """
            from cognite.client.data_classes.data_modeling.instances import Instance
            import copy
            pump = copy.copy(Instance(name="Pump"))
            [pump.name, pump["name"], hasattr(pump, "colour"), hasattr(pump, "_name")]
            """
        self.assertEqual(self.value_for({}, code), ["Pump", "Pump", False, False])
        self.assertEqual(self.run_cell("pump.colour").error["message"], "'Instance' object has no attribute 'colour'")
