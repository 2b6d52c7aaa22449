-- Whoever shows a token is looked up by what its issuer calls them, at every request.
CREATE INDEX principals_known_elsewhere ON principals (workspace, json_extract(body, '$.external_id'));
