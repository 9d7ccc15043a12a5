"""A Hugging Face Trainer with a small model of random weights."""

import sys
import time

import job
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        ids = torch.arange(16) + index % 100
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": index % 4}


class Watch(TrainerCallback):
    def __init__(self):
        self.stopwatch = job.Stopwatch()

    def on_step_end(self, args, state, control, **kwargs):
        self.stopwatch.tick(args.per_device_train_batch_size * args.gradient_accumulation_steps)


config = BertConfig(
    vocab_size=128,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    num_labels=4,
)
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    max_steps=100_000,
    use_cpu=True,
    report_to="none",
    save_strategy="no",
    disable_tqdm=True,
    ddp_find_unused_parameters=False,
)
model = BertForSequenceClassification(config)
model.register_forward_pre_hook(lambda *_: time.sleep(job.FORWARD_S))
Trainer(model, arguments, train_dataset=Tokens(), callbacks=[Watch()]).train()
