-- Whom code may talk to, and whom it has tried to reach. An integration names its rules in its body.
CREATE TABLE network_rules (
    workspace BLOB NOT NULL REFERENCES workspaces (id),
    id        BLOB NOT NULL,
    name      TEXT NOT NULL,
    owner     BLOB NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, name)
) STRICT;

CREATE TABLE integrations (
    workspace BLOB NOT NULL REFERENCES workspaces (id),
    id        BLOB NOT NULL,
    name      TEXT NOT NULL,
    owner     BLOB NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, name)
) STRICT;

CREATE TABLE network_log (
    workspace    BLOB NOT NULL REFERENCES workspaces (id),
    id           BLOB NOT NULL,
    at           INTEGER NOT NULL,
    principal    BLOB NOT NULL,
    execution_id BLOB,
    sandbox_id   BLOB NOT NULL,
    host         TEXT NOT NULL,
    allowed      INTEGER NOT NULL,
    body         TEXT NOT NULL,
    PRIMARY KEY (workspace, id)
) STRICT;
CREATE INDEX network_log_by_age ON network_log (at);
CREATE INDEX network_log_of_execution ON network_log (workspace, execution_id, id) WHERE execution_id IS NOT NULL;
