-- Facts about the database as a whole. `database_id` also stands beside the kept files, so that files and a database
-- that do not belong together are noticed. `trusted_at` is the last wall-clock time by which something was forgotten,
-- in nanoseconds since 1970: a clock that has jumped since then is not believed at once.
CREATE TABLE server (
    only        INTEGER PRIMARY KEY CHECK (only = 1),
    database_id BLOB NOT NULL CHECK (length(database_id) = 16),
    trusted_at  INTEGER,
    -- Counts the writes that only ask whether anything can be written.
    probes      INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO server (only, database_id) VALUES (1, randomblob(16));

-- The audit log begins after `floor_sequence`, whose hash the next entry has: what was before it was forgotten after its
-- retention. `mac` is over the head, the floor and `database_id`, with a key that is not in the database.
ALTER TABLE audit_head ADD COLUMN floor_sequence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE audit_head ADD COLUMN floor_hash BLOB NOT NULL
    DEFAULT x'0000000000000000000000000000000000000000000000000000000000000000';
ALTER TABLE audit_head ADD COLUMN mac BLOB;

-- When a session or a key ended, or will end by itself: what has ended is forgotten after the retention.
ALTER TABLE sessions ADD COLUMN ended_at INTEGER;
UPDATE sessions SET ended_at = unixepoch(json_extract(body, '$.updated_at')) * 1000000000
    WHERE status IN ('closed', 'expired', 'lost');
CREATE INDEX sessions_ended ON sessions (ended_at) WHERE ended_at IS NOT NULL;
ALTER TABLE keys ADD COLUMN ended_at INTEGER;
UPDATE keys SET ended_at = unixepoch(coalesce(json_extract(body, '$.revoked_at'), json_extract(body, '$.expires_at')))
    * 1000000000;
CREATE INDEX keys_ended ON keys (ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX remembered_by_age ON remembered (created_at);
CREATE INDEX remembered_of_sandbox ON remembered (workspace, sandbox_id) WHERE sandbox_id IS NOT NULL;

-- Lists of one status, of which there may be few rows among millions.
CREATE INDEX executions_by_status ON executions (workspace, status, id);
CREATE INDEX sessions_by_status ON sessions (workspace, status, sandbox_id);
