-- What becomes of code that somebody sends.
ALTER TABLE workspaces ADD COLUMN code_permission TEXT NOT NULL DEFAULT 'allow';
