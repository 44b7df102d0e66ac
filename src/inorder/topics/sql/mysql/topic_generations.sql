-- name: install
-- One row a topic that was ever switched. The state is all of it, as JSON; the other columns are for people.
CREATE TABLE IF NOT EXISTS inorder_topic (
    topic      VARCHAR(249) NOT NULL PRIMARY KEY,
    epoch      BIGINT NOT NULL,
    phase      VARCHAR(32) NOT NULL,
    generation INT NOT NULL,
    state      LONGTEXT NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: insert
-- The first switch of a topic; a second one changes nothing.
INSERT IGNORE INTO inorder_topic (topic, epoch, phase, generation, state)
VALUES (%(topic)s, %(epoch)s, %(phase)s, %(generation)s, %(state)s);
