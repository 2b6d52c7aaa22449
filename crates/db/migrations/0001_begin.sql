-- Ids are the 16 bytes of a UUIDv7, so that their order is that of time. Moments are nanoseconds since
-- 1970. A `body` is the JSON of the record's type; the columns beside it are what is searched by.
-- Keys begin with the workspace wherever rows are found by it: every look-up is confined to one.

CREATE TABLE workspaces (
    id         BLOB PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    -- The sum of its files, kept by the triggers below so that a quota is one look-up.
    file_bytes INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE principals (
    workspace BLOB NOT NULL REFERENCES workspaces (id),
    id        BLOB NOT NULL,
    name      TEXT NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, name)
) STRICT;

CREATE TABLE keys (
    id        BLOB PRIMARY KEY,
    workspace BLOB NOT NULL,
    principal BLOB NOT NULL,
    hash      BLOB NOT NULL CHECK (length(hash) = 32),
    body      TEXT NOT NULL,
    FOREIGN KEY (workspace, principal) REFERENCES principals (workspace, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX keys_of_principal ON keys (workspace, principal, id);

CREATE TABLE grants (
    id          BLOB PRIMARY KEY,
    workspace   BLOB NOT NULL,
    principal   BLOB NOT NULL,
    object_kind TEXT NOT NULL,
    object_id   BLOB NOT NULL,
    privilege   TEXT NOT NULL,
    granted_by  BLOB NOT NULL,
    created_at  INTEGER NOT NULL,
    UNIQUE (workspace, principal, object_kind, object_id, privilege),
    FOREIGN KEY (workspace, principal) REFERENCES principals (workspace, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX grants_on_object ON grants (workspace, object_kind, object_id);

CREATE TABLE tools (
    workspace BLOB NOT NULL REFERENCES workspaces (id),
    id        BLOB NOT NULL,
    name      TEXT NOT NULL,
    owner     BLOB NOT NULL,
    body      TEXT NOT NULL,
    source    BLOB NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, name)
) STRICT;

CREATE TABLE agents (
    workspace BLOB NOT NULL REFERENCES workspaces (id),
    id        BLOB NOT NULL,
    name      TEXT NOT NULL,
    owner     BLOB NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, name)
) STRICT;

-- An agent takes its bindings along; a tool that is bound cannot go.
CREATE TABLE agent_tools (
    workspace       BLOB NOT NULL,
    agent           BLOB NOT NULL,
    tool            BLOB NOT NULL,
    approval_action TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (workspace, agent, tool),
    FOREIGN KEY (workspace, agent) REFERENCES agents (workspace, id) ON DELETE CASCADE,
    FOREIGN KEY (workspace, tool) REFERENCES tools (workspace, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX agents_of_tool ON agent_tools (workspace, tool, agent);

CREATE TABLE sessions (
    workspace  BLOB NOT NULL REFERENCES workspaces (id),
    sandbox_id BLOB NOT NULL,
    owner      BLOB NOT NULL,
    key        TEXT,
    status     TEXT NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (workspace, sandbox_id)
) STRICT;
-- A key names one session of its owner until that is over, also when two ask at once.
CREATE UNIQUE INDEX sessions_by_key ON sessions (workspace, owner, key)
    WHERE key IS NOT NULL AND status IN ('ready', 'busy', 'lost');
CREATE INDEX sessions_by_id ON sessions (sandbox_id);
CREATE INDEX sessions_alive ON sessions (status) WHERE status IN ('ready', 'busy');

-- The large columns come last: a list reads the beginning of a row.
CREATE TABLE executions (
    workspace  BLOB NOT NULL REFERENCES workspaces (id),
    id         BLOB NOT NULL,
    principal  BLOB,
    sandbox_id BLOB,
    tool       TEXT,
    status     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    summary    TEXT NOT NULL,
    plan       BLOB,
    events     BLOB,
    PRIMARY KEY (workspace, id)
) STRICT;
CREATE INDEX executions_of_sandbox ON executions (workspace, sandbox_id, id);
CREATE INDEX executions_by_age ON executions (created_at);
CREATE INDEX executions_under_way ON executions (status) WHERE status IN ('queued', 'running');

CREATE TABLE files (
    workspace    BLOB NOT NULL REFERENCES workspaces (id),
    id           BLOB NOT NULL,
    owner        BLOB NOT NULL,
    execution_id BLOB,
    name         TEXT NOT NULL,
    source       TEXT NOT NULL,
    size         INTEGER NOT NULL,
    expires_at   INTEGER,
    body         TEXT NOT NULL,
    PRIMARY KEY (workspace, id),
    FOREIGN KEY (workspace, execution_id) REFERENCES executions (workspace, id)
) STRICT;
CREATE INDEX files_of_execution ON files (workspace, execution_id, name) WHERE execution_id IS NOT NULL;
CREATE INDEX documents ON files (workspace, id) WHERE source <> 'code';
CREATE INDEX files_by_expiry ON files (expires_at) WHERE expires_at IS NOT NULL;

CREATE TRIGGER files_added AFTER INSERT ON files BEGIN
    UPDATE workspaces SET file_bytes = file_bytes + NEW.size WHERE id = NEW.workspace;
END;
CREATE TRIGGER files_removed AFTER DELETE ON files BEGIN
    UPDATE workspaces SET file_bytes = file_bytes - OLD.size WHERE id = OLD.workspace;
END;

CREATE TABLE approvals (
    workspace    BLOB NOT NULL REFERENCES workspaces (id),
    id           BLOB NOT NULL,
    state        TEXT NOT NULL,
    execution_id BLOB NOT NULL,
    requester    BLOB NOT NULL,
    tool_id      BLOB NOT NULL,
    agent_id     BLOB,
    expires_at   INTEGER NOT NULL,
    seal         BLOB NOT NULL CHECK (length(seal) = 32),
    body         TEXT NOT NULL,
    PRIMARY KEY (workspace, id)
) STRICT;
CREATE INDEX approvals_of_execution ON approvals (workspace, execution_id);
CREATE INDEX approvals_open ON approvals (expires_at) WHERE state IN ('pending', 'allowed');

-- Answers that are good for more than one call.
CREATE TABLE remembered (
    id          BLOB PRIMARY KEY,
    workspace   BLOB NOT NULL REFERENCES workspaces (id),
    requester   BLOB NOT NULL,
    tool        BLOB NOT NULL,
    agent       BLOB,
    sandbox_id  BLOB,
    scope       TEXT NOT NULL,
    seal        BLOB NOT NULL CHECK (length(seal) = 32),
    approval_id BLOB NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX remembered_for ON remembered (workspace, requester, tool);

CREATE TABLE audit (
    sequence      INTEGER PRIMARY KEY CHECK (sequence > 0),
    at            INTEGER NOT NULL,
    workspace     BLOB NOT NULL,
    principal     BLOB,
    key           BLOB,
    action        TEXT NOT NULL,
    object        TEXT NOT NULL,
    detail        TEXT NOT NULL,
    previous_hash BLOB NOT NULL,
    hash          BLOB NOT NULL
) STRICT;
CREATE INDEX audit_of_workspace ON audit (workspace, sequence);

-- What the last entry was, so that a tail that was cut off is missed.
CREATE TABLE audit_head (
    only     INTEGER PRIMARY KEY CHECK (only = 1),
    sequence INTEGER NOT NULL,
    hash     BLOB NOT NULL
) STRICT;
INSERT INTO audit_head VALUES (1, 0, zeroblob(32));

CREATE TABLE idempotency (
    workspace    BLOB NOT NULL REFERENCES workspaces (id),
    principal    BLOB NOT NULL,
    key          TEXT NOT NULL,
    fingerprint  BLOB NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('pending', 'done', 'interrupted')),
    created_at   INTEGER NOT NULL,
    execution_id BLOB,
    status       INTEGER,
    content_type TEXT,
    body         BLOB,
    PRIMARY KEY (workspace, principal, key)
) STRICT;
CREATE INDEX idempotency_by_age ON idempotency (created_at);
