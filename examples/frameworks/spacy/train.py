import random

import mlflow
import pandas as pd
import spacy
from spacy.training import Example
from spacy.util import minibatch

subjects = ["the film", "this book", "our hotel", "her song", "the meal", "that game"]
praise = ["was wonderful", "is a delight", "was great fun", "is very good"]
blame = ["was terrible", "is a bore", "was a waste", "is awful"]
texts = [f"{subject} {verdict}" for subject in subjects for verdict in praise + blame]
cats = [
    {"POSITIVE": float(good), "NEGATIVE": float(not good)}
    for _ in subjects
    for good in [True] * len(praise) + [False] * len(blame)
]

nlp = spacy.blank("en")
textcat = nlp.add_pipe("textcat")
for label in ("POSITIVE", "NEGATIVE"):
    textcat.add_label(label)
examples = [
    Example.from_dict(nlp.make_doc(text), {"cats": cat})
    for text, cat in zip(texts, cats, strict=True)
]
optimizer = nlp.initialize(lambda: examples)

random.seed(0)
with mlflow.start_run():
    for epoch in range(5):
        random.shuffle(examples)
        losses = {}
        for batch in minibatch(examples, size=8):
            nlp.update(batch, sgd=optimizer, losses=losses)
        print(f"epoch {epoch} loss {losses['textcat']:.4f}", flush=True)
        mlflow.log_metric("textcat_loss", losses["textcat"], step=epoch)
    mlflow.log_metric("cats_score", nlp.evaluate(examples)["cats_score"])
    mlflow.spacy.log_model(
        nlp,
        name="sentiment",
        input_example=pd.DataFrame({"text": ["the film was wonderful", "this book is a bore"]}),
        registered_model_name="sentiment-spacy",
        pip_requirements="requirements.txt",
    )
