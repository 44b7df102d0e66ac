-- name: install
-- One row a topic that was ever switched. The state is all of it, as JSON; the other columns are for people.
CREATE TABLE IF NOT EXISTS inorder_topic (
    topic      text NOT NULL PRIMARY KEY,
    epoch      bigint NOT NULL,
    phase      text NOT NULL,
    generation integer NOT NULL,
    state      text NOT NULL
);

-- name: insert
-- The first switch of a topic; a second one changes nothing.
INSERT INTO inorder_topic (topic, epoch, phase, generation, state)
VALUES (%(topic)s, %(epoch)s, %(phase)s, %(generation)s, %(state)s)
ON CONFLICT (topic) DO NOTHING;
