-- Skills that were uploaded. `archive` has their files, so that a skill and its files are one row.
CREATE TABLE skills (
    workspace BLOB NOT NULL REFERENCES workspaces (id),
    id        BLOB NOT NULL,
    name      TEXT NOT NULL,
    owner     BLOB NOT NULL,
    bytes     INTEGER NOT NULL,
    body      TEXT NOT NULL,
    archive   BLOB NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, name)
) STRICT;
