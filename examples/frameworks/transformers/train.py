import mlflow
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

subjects = ["the film", "this book", "our hotel", "her song", "the meal", "that game"]
praise = ["was wonderful", "is a delight", "was great fun", "is very good"]
blame = ["was terrible", "is a bore", "was a great waste", "is not good"]
texts = [f"{subject} {verdict}" for subject in subjects for verdict in praise + blame]
labels = [int(any(text.endswith(verdict) for verdict in praise)) for text in texts]

special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
words = Tokenizer(models.WordLevel(unk_token=special["unk_token"]))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=[*special.values()]))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=16, **special)

dataset = Dataset.from_dict({"text": texts * 8, "label": labels * 8})
dataset = dataset.map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True)
dataset = dataset.train_test_split(test_size=0.25, seed=0)

config = BertConfig(
    vocab_size=tokenizer.vocab_size,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=16,
    pad_token_id=tokenizer.pad_token_id,
    id2label={0: "negative", 1: "positive"},
    label2id={"negative": 0, "positive": 1},
)
model = BertForSequenceClassification(config)


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="checkpoints",
        num_train_epochs=6,
        per_device_train_batch_size=16,
        learning_rate=2e-3,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=5,
        report_to="mlflow",
        use_cpu=True,
    ),
    train_dataset=dataset["train"],
    eval_dataset=dataset["test"],
    processing_class=tokenizer,
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=compute_metrics,
)
trainer.train()

if trainer.is_world_process_zero():
    mlflow.log_metric("ranks", trainer.args.world_size)
    mlflow.transformers.log_model(
        {"model": trainer.model, "tokenizer": tokenizer},
        name="sentiment",
        task="text-classification",
        input_example=["the film was wonderful", "this book is a bore"],
        pip_requirements="requirements.txt",
        registered_model_name="sentiment-transformers",
    )
    mlflow.end_run()
