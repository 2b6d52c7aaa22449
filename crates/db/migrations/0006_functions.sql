-- Code that is deployed apart from agents. `environment` is of what serves, `preparing` of what is being
-- deployed; `source` has the files of what serves, and is null until there is something that does.
CREATE TABLE functions (
    workspace   BLOB NOT NULL REFERENCES workspaces (id),
    id          BLOB NOT NULL,
    name        TEXT NOT NULL,
    owner       BLOB NOT NULL,
    environment TEXT,
    preparing   TEXT,
    body        TEXT NOT NULL,
    source      BLOB,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, name)
) STRICT;

ALTER TABLE executions ADD COLUMN function BLOB;
CREATE INDEX executions_of_function ON executions (workspace, function, id) WHERE function IS NOT NULL;
