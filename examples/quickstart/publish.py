import inorder
import sqlalchemy as sa

settings = inorder.Settings.load()  # ./inorder.toml
engine = sa.create_engine(settings.database.require_url())
outbox = inorder.Outbox(settings.relay.table)

with engine.begin() as connection:  # your transaction: both rows are committed, or neither
    connection.execute(sa.text("CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, paid boolean)"))
    connection.execute(sa.text("INSERT INTO orders VALUES (42, true)"))
    outbox.publish(connection, inorder.Message("orders", key=42, value={"id": 42, "paid": True}))
