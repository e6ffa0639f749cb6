import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from phalanx.tracking.callbacks import PhalanxTransformers


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([index, index % 2, 1]), "labels": torch.tensor(index % 2)}


sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
model = BertForSequenceClassification(BertConfig(vocab_size=40, **sizes))
arguments = TrainingArguments(
    "checkpoints",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    logging_steps=2,
    eval_strategy="epoch",
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
callback = PhalanxTransformers(log_model=True)
Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences(), callbacks=[callback]).train()
