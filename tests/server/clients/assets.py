def handle(limit: int = 10) -> dict:
    """Lists assets.

    Args:
        limit (int): How many at most.

    Returns:
        dict: The assets.
    """
    from cognite.client import CogniteClient
    from cognite.client.data_classes.data_modeling.cdm.v1 import CogniteAsset

    client = CogniteClient()
    assets = client.data_modeling.instances.list(sources=[CogniteAsset.get_source()], limit=limit)
    if not assets:
        return {"error": "No assets found"}
    first = assets[0]
    return {
        "external_id": first.external_id,
        "name": first.name,
        "description": first.description,
        "dump": first.dump(),
    }
