"""FastAPI by hand: uvicorn fastapi_app:app."""

from fastapi import FastAPI
from model import load
from pydantic import BaseModel

app = FastAPI()
predict = load()


class Row(BaseModel):
    """One row."""

    x: list[float]


@app.post("/predict")
async def predict_row(row: Row):
    """Predict one row in the event loop, because the model is faster than a thread switch."""
    return {"p": predict([row.x])[0].tolist()}
