-- Directories that outlive sessions; their bytes are on the disk, and their quotas are counted here.
CREATE TABLE stores (
    workspace   BLOB NOT NULL REFERENCES workspaces (id),
    id          BLOB NOT NULL,
    name        TEXT NOT NULL,
    owner       BLOB NOT NULL,
    quota_bytes INTEGER NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, name)
) STRICT;
