-- The API key that a session was opened with: the session ends with it. Absent for a token, and for sessions from before.
ALTER TABLE sessions ADD COLUMN opened_with BLOB;
CREATE INDEX sessions_of_key ON sessions (workspace, opened_with)
    WHERE opened_with IS NOT NULL AND status IN ('ready', 'busy', 'lost');
