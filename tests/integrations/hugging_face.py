"""Tiny models made from configs, data of plain tensors, Trainers over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

WORDS = 32


class Sequences(Dataset):
    """Tokens that count up by one to three; the beginning of each is not to be predicted."""

    def __init__(self, count: int = 48, length: int = 12, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        draw = lambda low, high: int(torch.randint(low, high, (1,), generator=generator))  # noqa: E731
        self.items = []
        for _ in range(count):
            tokens = (draw(0, WORDS) + draw(1, 4) * torch.arange(length)) % WORDS
            labels = tokens.clone()
            labels[: draw(0, length // 2)] = -100
            self.items.append({"input_ids": tokens, "labels": labels, "attention_mask": torch.ones_like(tokens)})

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return self.items[at]


class Classes(Sequences):
    """Tokens of two classes, with many of each half of the words."""

    def __init__(self, count: int = 48, seed: int = 0) -> None:
        super().__init__(count, seed=seed)
        generator = torch.Generator().manual_seed(seed + 1)
        for item in self.items:
            label = torch.randint(0, 2, (1,), generator=generator)[0]
            tokens = torch.randint(0, WORDS // 2, (12,), generator=generator) + label * (WORDS // 2)
            item["input_ids"], item["labels"] = tokens, label


class Stream(IterableDataset):
    """The same, one after the other, without a length."""

    def __init__(self, data: Sequences) -> None:
        self.items = data.items

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return iter(self.items)


def bert(**more: Any) -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return BertForSequenceClassification(BertConfig(vocab_size=WORDS, max_position_embeddings=16, **sizes, **more))


def gpt(**more: Any) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 16}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM", **more))


def llama(**more: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    ids = {"vocab_size": WORDS, "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 0}
    return LlamaForCausalLM(LlamaConfig(**sizes, **ids, num_key_value_heads=2, **more))


def trainer(model: Any, data: Any, folder: Any, kind: type[Trainer] = Trainer, **more: Any) -> Trainer:
    """A Trainer; what is no argument of its own goes into its `TrainingArguments`."""
    own = {name: more.pop(name) for name in ("eval_dataset", "callbacks", "optimizers") if name in more}
    settings = {"per_device_train_batch_size": 8, "num_train_epochs": 4, "learning_rate": 3e-3, "logging_steps": 1}
    quiet = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    args = TrainingArguments(output_dir=str(folder), dataloader_pin_memory=False, **quiet | settings | more)
    return kind(model=model, args=args, train_dataset=data, **own)
