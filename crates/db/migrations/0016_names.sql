-- Columns, fields and events have the names that the API and the code use.
ALTER TABLE approvals RENAME COLUMN seal TO mac;
ALTER TABLE remembered RENAME COLUMN seal TO mac;
UPDATE keys
    SET body = json_remove(json_set(body, '$.created_with', json_extract(body, '$.made_with')), '$.made_with')
    WHERE json_extract(body, '$.made_with') IS NOT NULL;
-- Inside a JSON string these quotes would be escaped, so nothing but the name of an event matches.
UPDATE executions
    SET events = CAST(replace(CAST(events AS TEXT), '{"event":"said"', '{"event":"text"') AS BLOB)
    WHERE instr(events, CAST('{"event":"said"' AS BLOB)) > 0;
UPDATE execution_events
    SET body = CAST(replace(CAST(body AS TEXT), '{"event":"said"', '{"event":"text"') AS BLOB)
    WHERE instr(body, CAST('{"event":"said"' AS BLOB)) > 0;
