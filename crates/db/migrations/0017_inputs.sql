-- What is long about a call that waits for an approval, apart from the rows that change when the approval ends: SQLite
-- rewrites a whole row, and everyone who writes waits for that.

-- Code and arguments of an execution that has not begun, as JSON. When it begins, they move into its summary.
CREATE TABLE execution_inputs (
    workspace BLOB NOT NULL,
    execution BLOB NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (workspace, execution),
    FOREIGN KEY (workspace, execution) REFERENCES executions (workspace, id) ON DELETE CASCADE
) STRICT;

-- The arguments that an approval shows, as JSON.
CREATE TABLE approval_arguments (
    workspace BLOB NOT NULL,
    approval  BLOB NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (workspace, approval),
    FOREIGN KEY (workspace, approval) REFERENCES approvals (workspace, id) ON DELETE CASCADE
) STRICT;
INSERT INTO approval_arguments SELECT workspace, id, coalesce(body -> '$.arguments', 'null') FROM approvals;
UPDATE approvals SET body = json_set(body, '$.arguments', json('null'));
