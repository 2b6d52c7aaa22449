-- Persistent directories are volumes, here as in the API.
ALTER TABLE stores RENAME TO volumes;
UPDATE grants SET object_kind = 'volume' WHERE object_kind = 'store';
UPDATE ownership_offers SET object_kind = 'volume' WHERE object_kind = 'store';
UPDATE agent_uses SET kind = 'volume' WHERE kind = 'store';
