-- name: install
-- One row a topic that was ever switched. The state is all of it, as JSON; the other columns are for people.
CREATE TABLE IF NOT EXISTS inorder_topic (
    topic      VARCHAR(249) NOT NULL PRIMARY KEY,
    epoch      BIGINT NOT NULL,
    phase      VARCHAR(32) NOT NULL,
    generation INT NOT NULL,
    state      LONGTEXT NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: install_copies
-- One row for each copy of a topic into another: Kafka's ids of both, since the offsets of a copy are of these two.
CREATE TABLE IF NOT EXISTS inorder_topic_copy (
    source         VARCHAR(249) NOT NULL,
    destination    VARCHAR(249) NOT NULL,
    source_id      VARCHAR(249),
    destination_id VARCHAR(249),
    PRIMARY KEY (source, destination)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: install_pauses
-- One row for each topic, table or job that an operator has paused.
CREATE TABLE IF NOT EXISTS inorder_pause (
    kind      VARCHAR(16) NOT NULL,
    name      VARCHAR(249) NOT NULL,
    reason    TEXT NOT NULL,
    paused_by VARCHAR(255) NOT NULL,
    paused_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    PRIMARY KEY (kind, name)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: insert
-- The first switch of a topic; a second one changes nothing.
INSERT IGNORE INTO inorder_topic (topic, epoch, phase, generation, state)
VALUES (%(topic)s, %(epoch)s, %(phase)s, %(generation)s, %(state)s);

-- name: insert_copy
-- The first run of a copy; a second one changes nothing.
INSERT IGNORE INTO inorder_topic_copy (source, destination, source_id, destination_id)
VALUES (%(source)s, %(destination)s, %(source_id)s, %(destination_id)s);
