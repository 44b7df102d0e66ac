"""A shop: its orders, and an event about each change in the same transaction."""

import inorder
import sqlalchemy as sa
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

settings = inorder.Settings.load()
engine = sa.create_engine(settings.database.require_url())
publisher = inorder.Publisher(settings)
app = FastAPI()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    item: Mapped[str]
    paid: Mapped[bool] = mapped_column(default=False)


class NewOrder(BaseModel):
    item: str


def event(order: Order) -> inorder.Message:
    return inorder.Message("orders", key=order.id, value={"id": order.id, "item": order.item, "paid": order.paid})


Base.metadata.create_all(engine)


@app.post("/orders")
def place(new: NewOrder):
    with Session(engine) as session, session.begin():
        order = Order(item=new.item)
        session.add(order)
        session.flush()  # the order gets its id
        publisher.publish(event(order), session)
        return {"id": order.id}


@app.post("/orders/{id}/pay")
def pay(id: int, card: str = "good"):
    with Session(engine) as session, session.begin():
        order = session.get(Order, id, with_for_update=True)
        if order is None:
            raise HTTPException(404, "no such order")
        order.paid = True
        publisher.publish(event(order), session)
        if card == "declined":
            raise HTTPException(402, "card declined")  # ends the transaction: neither row is committed
        return {"id": order.id, "paid": order.paid}


@app.get("/view/{id}")
def view(id: int):
    with engine.connect() as connection:
        row = connection.execute(sa.text("SELECT id, item, paid FROM order_view WHERE id = :id"), {"id": id}).first()
        return row._asdict() if row else None
