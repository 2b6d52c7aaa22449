-- Everything about secrets but their values. `whose` is empty for those of the workspace, and otherwise
-- the one who alone uses it: names are unique among the secrets of one.
CREATE TABLE secrets (
    workspace BLOB NOT NULL REFERENCES workspaces (id),
    id        BLOB NOT NULL,
    name      TEXT NOT NULL,
    owner     BLOB NOT NULL,
    whose     BLOB NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, whose, name)
) STRICT;

-- Values that nobody reads without the key. `holder` is a secret, or a tool whose variable it is. Each was sealed for
-- exactly the columns beside it.
CREATE TABLE sealed (
    workspace   BLOB NOT NULL REFERENCES workspaces (id),
    holder      BLOB NOT NULL,
    name        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    place       TEXT NOT NULL,
    sealing_key BLOB NOT NULL CHECK (length(sealing_key) = 8),
    bytes       BLOB NOT NULL,
    PRIMARY KEY (workspace, holder, name)
) STRICT;
CREATE INDEX sealed_with ON sealed (sealing_key);
