-- The password of root, at every address from which it may connect; users without a name go.
UPDATE mysql.global_priv
SET priv = json_set(priv, '$.plugin', 'mysql_native_password', '$.authentication_string', PASSWORD('{password}'))
WHERE user = 'root';
DELETE FROM mysql.global_priv WHERE user = '';
FLUSH PRIVILEGES;
