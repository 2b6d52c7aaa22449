-- Of an execution with many events, all but the last of them: each row has some that follow each other, so that a reader
-- needs no more than one row in memory. The last are in the row of the execution, which says how many came before them.
CREATE TABLE execution_events (
    workspace BLOB NOT NULL,
    execution BLOB NOT NULL,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    body      BLOB NOT NULL,
    PRIMARY KEY (workspace, execution, first),
    FOREIGN KEY (workspace, execution) REFERENCES executions (workspace, id) ON DELETE CASCADE
) STRICT;
ALTER TABLE executions ADD COLUMN events_before INTEGER NOT NULL DEFAULT 0;
