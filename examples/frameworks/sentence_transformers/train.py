import mlflow
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

COLOURS = ("red", "green", "blue", "white", "black")
THINGS = ("car", "house", "boat", "chair", "lamp", "door", "coat", "bike")
pairs = {
    "question": [f"where is the {colour} {thing}" for colour in COLOURS for thing in THINGS],
    "answer": [f"a {thing} painted {colour} is here" for colour in COLOURS for thing in THINGS],
}

tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))  # noqa: S106
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
trainer = trainers.WordLevelTrainer(special_tokens=["[UNK]", "[PAD]"])
tokenizer.train_from_iterator([*pairs["question"], *pairs["answer"]], trainer)
model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu")

mlflow.set_experiment("sentences")
trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir="checkpoints",
        num_train_epochs=20,
        per_device_train_batch_size=8,
        learning_rate=0.05,
        report_to="mlflow",
        logging_steps=10,
        use_cpu=True,
    ),
    train_dataset=Dataset.from_dict(pairs),
    loss=MultipleNegativesRankingLoss(model),
)
trainer.train()

if trainer.is_world_process_zero():
    questions, answers = model.encode(pairs["question"]), model.encode(pairs["answer"])
    nearest = model.similarity(questions, answers).argmax(dim=1)
    correct = (nearest == nearest.new_tensor(range(len(questions)))).float().mean().item()
    print(f"answers found: {correct:.2f}")
    mlflow.log_metric("answers_found", correct)
    mlflow.log_metric("ranks", trainer.args.world_size)
    mlflow.sentence_transformers.log_model(
        model,
        name="sentences",
        input_example=["where is the red car"],
        registered_model_name="sentences",
        pip_requirements="requirements.txt",
    )
