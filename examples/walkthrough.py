# %% [markdown]
# # What a transactional outbox is, in five cells
#
# Run it as a script, or cell by cell: editors and Jupyter (with jupytext) read `# %%` as the border of a cell. It needs
# no server: SQLite takes the place of your database, and we look at the outbox instead of running a relay.

# %%
import tempfile
from pathlib import Path

import inorder
import sqlalchemy as sa
from inorder.outbox.layouts import install_statements
from inorder.testing import MemoryJournals

folder = tempfile.TemporaryDirectory()
engine = sa.create_engine(f"sqlite:///{Path(folder.name) / 'shop.db'}")
outbox = inorder.Outbox("outbox")

with engine.begin() as connection:
    connection.execute(sa.text("CREATE TABLE orders (id integer PRIMARY KEY, paid boolean)"))
    connection.execute(sa.text("INSERT INTO orders VALUES (1, false), (2, false)"))
    for statement in install_statements("native", "sqlite", "outbox"):  # what `inorder schema install` does
        connection.execute(sa.text(statement))


def waiting() -> list[tuple[str, str]]:
    with engine.connect() as connection:
        rows = connection.execute(sa.text('SELECT "key", "value" FROM outbox ORDER BY id'))
        return [(key.decode(), value.decode()) for key, value in rows]


# %% [markdown]
# ## The event is committed with the data

# %%
with engine.begin() as connection:
    connection.execute(sa.text("UPDATE orders SET paid = true WHERE id = 1"))
    outbox.publish(connection, inorder.Message("orders", key=1, value={"id": 1, "paid": True}))

print("after a commit:  ", waiting())
assert waiting() == [("1", '{"id":1,"paid":true}')]

# %% [markdown]
# ## Or neither is

# %%
try:
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE orders SET paid = true WHERE id = 2"))
        outbox.publish(connection, inorder.Message("orders", key=2, value={"id": 2, "paid": True}))
        raise RuntimeError("card declined")
except RuntimeError as error:
    print("after a rollback:", waiting(), f"({error})")
assert len(waiting()) == 1

# %% [markdown]
# ## A message that Kafka could never accept is refused before anything is written

# %%
with engine.begin() as connection:
    try:
        outbox.publish(connection, inorder.Message("no topic", key=1, value={}))
    except inorder.ValidationError as error:
        print("refused:         ", error.field, "-", error)
    else:
        raise AssertionError("it was accepted")

# %% [markdown]
# ## A journal: decisions on the state that the events add up to
#
# `MemoryJournals` has the calls of `inorder.Journals`, without Kafka.

# %%
ACCOUNT = inorder.Entity(0, lambda balance, event: balance + event["amount"])
journals = MemoryJournals()
account = inorder.Key("account-1", "journal")


def withdraw(amount: int) -> int:
    def decide(balance: int) -> list[dict[str, int]]:
        if amount > balance:
            raise ValueError(f"only {balance} left")
        return [{"amount": -amount}]

    return journals.update(account, ACCOUNT, decide).state


journals.update(account, ACCOUNT, lambda _: [{"amount": 10}])
print("balance:         ", withdraw(7))
try:
    withdraw(7)
except ValueError as error:
    print("refused:         ", error)
assert journals.state(account, ACCOUNT) == 3

engine.dispose()
folder.cleanup()
