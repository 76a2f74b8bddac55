"""A tiny Llama learns to count, trained by the Trainer of transformers: an ordinary script, and a healthy one.

seismograd run examples/transformers/train.py
"""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

WORDS, LENGTH = 32, 12


def sequences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Numbers that go up by one to three."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, WORDS, (count, 1), generator=generator)
    strides = torch.randint(1, 4, (count, 1), generator=generator)
    tokens = (starts + strides * torch.arange(LENGTH)) % WORDS
    return [{"input_ids": row, "labels": row.clone()} for row in tokens]


torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        bos_token_id=0,
        eos_token_id=0,
    )
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=5,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=10,
        report_to=[],
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    data = sequences(192, seed=0)
    trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=sequences(48, seed=1))
    trainer.train()
