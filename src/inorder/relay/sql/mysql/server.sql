-- name: facts
-- What tells a cluster, and servers that only speak the protocol; those that a server does not have are missing.
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
  'version', 'version_comment', 'wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode',
  'auto_increment_increment'
);
