-- Offers of OWNERSHIP that were not accepted yet. An object has at most one.
CREATE TABLE ownership_offers (
    workspace   BLOB NOT NULL,
    id          BLOB NOT NULL,
    principal   BLOB NOT NULL,
    object_kind TEXT NOT NULL,
    object_id   BLOB NOT NULL,
    offered_by  BLOB NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (workspace, id),
    UNIQUE (workspace, object_kind, object_id),
    FOREIGN KEY (workspace, principal) REFERENCES principals (workspace, id) ON DELETE CASCADE
) STRICT;

-- What the specifications of agents name, by kind and name: it is not deleted while it is named.
CREATE TABLE agent_uses (
    workspace BLOB NOT NULL,
    agent     BLOB NOT NULL,
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    PRIMARY KEY (workspace, kind, name, agent),
    FOREIGN KEY (workspace, agent) REFERENCES agents (workspace, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_uses_of_agent ON agent_uses (workspace, agent);

-- Who wrote the current code or set the current value. Of objects from before, their owner is taken to be.
UPDATE agents SET body = json_set(body, '$.author', body ->> 'owner');
UPDATE tools SET body = json_set(body, '$.author', body ->> 'owner');
UPDATE secrets SET body = json_set(body, '$.set_by', body ->> 'owner');
UPDATE functions SET body = json_set(body, '$.deployed.author', body ->> 'owner')
    WHERE body -> 'deployed' IS NOT NULL;
