"""Trains a small diffusion model on drawn circles, looks at its loss by timestep and at the pipeline that samples."""

import torch
from accelerate import Accelerator
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg


def circles(number: int, size: int = 16) -> torch.Tensor:
    """White discs on black, from -1 to 1."""
    rows = torch.arange(size).view(1, size, 1)
    columns = torch.arange(size).view(1, 1, size)
    y, x = torch.randint(5, size - 5, (2, number, 1, 1))
    radius = torch.randint(2, 5, (number, 1, 1))
    inside = (rows - y) ** 2 + (columns - x) ** 2 <= radius**2
    return inside.float().unsqueeze(1) * 2 - 1


def main(steps: int = 50) -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    model = UNet2DModel(
        sample_size=16,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ema = EMAModel(model.parameters(), decay=0.99)
    loader = DataLoader(TensorDataset(circles(1024)), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    debugger = sg.DiffusionModelDebugger(scheduler=scheduler)
    with sg.watch(model, optimizer, name="circles"):
        done = 0
        while done < steps:
            for (images,) in loader:
                with accelerator.accumulate(model):
                    noise = torch.randn_like(images)
                    timesteps = torch.randint(0, 1000, (len(images),))
                    noisy = scheduler.add_noise(images, noise, timesteps)
                    prediction = model(noisy, timesteps).sample
                    losses = F.mse_loss(prediction, noise, reduction="none").mean(dim=(1, 2, 3))
                    accelerator.backward(losses.mean())
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                debugger.training_step(timesteps, losses, latents=images, noise=noise, target=noise)
                if accelerator.sync_gradients:
                    ema.step(model.parameters())
                    done += 1
                if done == steps:
                    break
        print(debugger.timestep_table())

        ema.copy_to(model.parameters())
        pipeline = DDPMPipeline(accelerator.unwrap_model(model).eval(), scheduler)
        pipeline.set_progress_bar_config(disable=True)
        for trouble in debugger.analyze_diffusion_pipeline(pipeline)["trouble"]:
            print("trouble:", trouble)
        with debugger.watch_pipeline(pipeline):
            pipeline(batch_size=2, num_inference_steps=10, generator=torch.Generator().manual_seed(0))
    for finding in debugger.findings:
        print(f"[{finding.id}] {finding.message}")
    summary = debugger.summary()
    print(f"{summary['diffusion_steps']} denoising steps, {summary['total_anomalies']} anomalies")


if __name__ == "__main__":
    main()
