-- What a run of a language model leaves besides its execution: the conversation, to go on from, and its trace. `next` is
-- the run that has gone on from it: nobody goes on from one place twice.
CREATE TABLE runs (
    workspace    BLOB NOT NULL,
    id           BLOB NOT NULL,
    principal    BLOB NOT NULL,
    agent        BLOB,
    sandbox_id   BLOB,
    next         BLOB,
    conversation BLOB,
    trace        BLOB,
    PRIMARY KEY (workspace, id),
    FOREIGN KEY (workspace, id) REFERENCES executions (workspace, id)
) STRICT;
CREATE INDEX runs_of_sandbox ON runs (workspace, sandbox_id, id) WHERE sandbox_id IS NOT NULL;
