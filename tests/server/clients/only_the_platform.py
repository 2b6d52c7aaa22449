from urllib.parse import urlsplit
from urllib.request import urlopen

from cognite.client import CogniteClient
from cognite.client.data_classes.data_modeling.cdm.v1 import CogniteAsset


def refusal(url):
    try:
        urlopen(url).read()
    except OSError as error:
        return str(error)
    return "it is open"


refused = {
    urlsplit(url).netloc: refusal(url) for url in (SITE, OTHER, "https://example.com:443")
}
assets = CogniteClient().data_modeling.instances.list(sources=[CogniteAsset.get_source()])
[assets[0].external_id, refused]
