-- Open questions count against the quota of their workspace, end with the key that they were asked with, and are
-- found without a look at those that are over.
ALTER TABLE workspaces ADD COLUMN question_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE approvals ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE approvals ADD COLUMN key BLOB;

CREATE INDEX approvals_pending ON approvals (workspace, id) WHERE state = 'pending';
CREATE INDEX approvals_of_key ON approvals (workspace, key) WHERE state IN ('pending', 'allowed');

CREATE TRIGGER questions_added AFTER INSERT ON approvals WHEN NEW.state IN ('pending', 'allowed') BEGIN
    UPDATE workspaces SET question_bytes = question_bytes + NEW.bytes WHERE id = NEW.workspace;
END;
CREATE TRIGGER questions_ended AFTER UPDATE OF state ON approvals
WHEN OLD.state IN ('pending', 'allowed') AND NEW.state NOT IN ('pending', 'allowed') BEGIN
    UPDATE workspaces SET question_bytes = question_bytes - OLD.bytes WHERE id = OLD.workspace;
END;
CREATE TRIGGER questions_removed AFTER DELETE ON approvals WHEN OLD.state IN ('pending', 'allowed') BEGIN
    UPDATE workspaces SET question_bytes = question_bytes - OLD.bytes WHERE id = OLD.workspace;
END;
