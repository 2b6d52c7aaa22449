-- Which packages sessions may install, as JSON; any if it says nothing.
ALTER TABLE workspaces ADD COLUMN package_policy TEXT NOT NULL DEFAULT '{}';
