"""Diffusion pipelines of a few thousand parameters, built from configs: nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers


def unet(**more: Any) -> Any:
    torch.manual_seed(0)
    shape = {"sample_size": 8, "in_channels": 1, "out_channels": 1, "layers_per_block": 1, "block_out_channels": (8, 8)}
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2, "norm_num_groups": 4}
    return diffusers.UNet2DModel(**{**shape, **blocks, **more})


def vae(**more: Any) -> Any:
    torch.manual_seed(1)
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    shape = {"block_out_channels": (8, 8), "layers_per_block": 1, "latent_channels": 4, "norm_num_groups": 4}
    return diffusers.AutoencoderKL(**{**blocks, **shape, "sample_size": 16, **more}).eval()


def ddpm(**scheduler: Any) -> Any:
    """Pixels, no VAE, no text."""
    pipe = diffusers.DDPMPipeline(unet().eval(), diffusers.DDPMScheduler(num_train_timesteps=50, **scheduler))
    return quiet(pipe)


def tokenizer(folder: Path) -> Any:
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (folder / "vocab.json").write_text(json.dumps({word: at for at, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return transformers.CLIPTokenizer.from_pretrained(folder, model_max_length=8)


def stable_diffusion(folder: Path, *, hidden: int = 16, scheduler: Any = None, autoencoder: Any = None) -> Any:
    """What Stable Diffusion is made of, each part tiny."""
    torch.manual_seed(2)
    model = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 8),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=4,
    )
    words = tokenizer(folder)
    text = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=len(words),
            hidden_size=hidden,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=8,
            bos_token_id=0,
            eos_token_id=1,
        )
    )
    chosen = diffusers.DDIMScheduler(clip_sample=False, steps_offset=1) if scheduler is None else scheduler
    pipe = diffusers.StableDiffusionPipeline(
        vae=vae() if autoencoder is None else autoencoder,
        text_encoder=text.eval(),
        tokenizer=words,
        unet=model.eval(),
        scheduler=chosen,
        safety_checker=None,
        feature_extractor=None,
        image_encoder=None,
        requires_safety_checker=False,
    )
    return quiet(pipe)


def dit() -> Any:
    """A transformer that is told the class."""
    torch.manual_seed(3)
    model = diffusers.DiTTransformer2DModel(
        sample_size=8,
        in_channels=4,
        out_channels=8,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        patch_size=4,
        num_embeds_ada_norm=1000,
    )
    pipe = diffusers.DiTPipeline(
        transformer=model.eval(), vae=vae(), scheduler=diffusers.DDIMScheduler(clip_sample=False)
    )
    return quiet(pipe)


def quiet(pipe: Any) -> Any:
    pipe.set_progress_bar_config(disable=True)
    return pipe


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
