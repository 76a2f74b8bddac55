"""Training of diffusion models: the loss by timestep, what goes into it, and the run that is watched meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers.training_utils import EMAModel, compute_snr
from fastapi.testclient import TestClient
from torch.nn import functional as F

import seismograd as sg
from seismograd.records import Severity

from . import tiny_diffusion as tiny


def scheduler(**more: Any) -> Any:
    return diffusers.DDPMScheduler(**more)


def ids(debugger: sg.DiffusionModelDebugger) -> list[str]:
    return [finding.id for finding in debugger.findings]


def steps(
    debugger: sg.DiffusionModelDebugger,
    number: int = 6,
    *,
    scale: float = 1.0,
    target: str = "epsilon",
    noise: str = "new",
) -> None:
    """Steps of a loop whose model is good at noise: only what is told of them differs."""
    draw = tiny.seeded()
    kept = torch.randn(8, 4, 4, 4, generator=draw)
    for _ in range(number):
        latents = torch.randn(8, 4, 4, 4, generator=draw) * scale
        added = kept if noise == "kept" else torch.randn(8, 4, 4, 4, generator=draw)
        added = added[:1].expand(8, -1, -1, -1) if noise == "shared" else added
        at = torch.randint(0, 1000, (8,), generator=draw)
        wanted = {"epsilon": added, "sample": latents, "flow": added - latents, "reversed": latents - added}.get(target)
        if target == "v_prediction":
            wanted = debugger.scheduler.get_velocity(latents, added, at)
        debugger.training_step(at, torch.rand(8, generator=draw), latents=latents, noise=added, target=wanted)


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample"])
def test_the_right_target_is_silent_and_each_wrong_one_is_told(kind: str) -> None:
    for target in ("epsilon", "v_prediction", "sample"):
        debugger = sg.DiffusionModelDebugger(scheduler=scheduler(prediction_type=kind))
        steps(debugger, target=target)
        assert ids(debugger) == ([] if target == kind else ["loss-input-mismatch"])


@pytest.mark.parametrize(("target", "expected"), [("flow", []), ("reversed", ["loss-input-mismatch"])])
def test_a_flow_has_a_direction(target: str, expected: list[str]) -> None:
    debugger = sg.DiffusionModelDebugger(scheduler=diffusers.FlowMatchEulerDiscreteScheduler())
    steps(debugger, target=target)
    assert ids(debugger) == expected


@pytest.mark.parametrize(
    ("scale", "told"),
    [
        (1.0, None),
        (0.6, None),
        (2.5, None),
        (1 / 0.18215, "scaling_factor"),
        (0.18215, "scaled twice"),
        (0.01, "near 1"),
    ],
)
def test_latents_that_were_not_scaled_are_told(scale: float, told: str | None) -> None:
    debugger = sg.DiffusionModelDebugger(scheduler=scheduler(), vae=tiny.vae())
    steps(debugger, scale=scale)
    assert ids(debugger) == ([] if told is None else ["unnormalized-input"])
    if told is not None:
        assert told in debugger.findings[0].recommendations[0]


@pytest.mark.parametrize(("noise", "expected"), [("new", []), ("kept", [True]), ("shared", [False])])
def test_noise_that_is_not_drawn_anew_is_told(noise: str, expected: list[bool]) -> None:
    debugger = sg.DiffusionModelDebugger(scheduler=scheduler())
    steps(debugger, noise=noise)
    assert [
        finding.evidence["again"] for finding in debugger.findings if finding.id == "duplicate-randomness"
    ] == expected
    assert set(ids(debugger)) <= {"duplicate-randomness"}


@pytest.mark.parametrize("zero_snr", [True, False])
def test_a_weight_that_divides_by_no_signal_is_told_with_its_timestep(zero_snr: bool) -> None:
    noises = scheduler(rescale_betas_zero_snr=zero_snr, prediction_type="v_prediction")
    debugger = sg.DiffusionModelDebugger(scheduler=noises)
    draw = tiny.seeded()
    for _ in range(20):
        at = torch.randint(0, 999, (8,), generator=draw)
        at[0] = 999
        snr = compute_snr(noises, at)
        weights = snr.clamp(max=5.0) / snr
        debugger.training_step(at, weights * torch.rand(8, generator=draw))
    if not zero_snr:
        assert ids(debugger) == []
        return
    (finding,) = debugger.findings
    assert finding.id == "nonfinite-loss"
    assert finding.evidence["timesteps"] == [999.0]
    assert "signal-to-noise ratio is 0" in finding.message
    assert debugger.loss_by_timestep()[-1]["nonfinite"] == 20
    assert "20 not finite" in debugger.timestep_table()


def course(debugger: sg.DiffusionModelDebugger, losses: Any, number: int = 400) -> None:
    draw = tiny.seeded()
    for step in range(number):
        at = torch.randint(0, 1000, (8,), generator=draw)
        noise = torch.rand(8, generator=draw) * 0.2 + 0.9
        debugger.training_step(at, losses(at.float() / 1000, step / number) * noise)


def test_the_usual_shape_of_a_loss_is_silent_and_a_part_that_runs_away_is_told() -> None:
    healthy, sick = (sg.DiffusionModelDebugger(scheduler=scheduler()) for _ in range(2))
    course(healthy, lambda at, done: (1 - at).clamp_min(0.02) * (1 - 0.9 * done))
    assert ids(healthy) == []
    course(sick, lambda at, done: (1 - at).clamp_min(0.02) * (1 - 0.6 * done) + (at < 0.1) * 20 * max(0.0, done - 0.7))
    assert ids(sick) == ["loss-explosion"]
    assert sick.findings[0].evidence["timesteps"] == "0-99"


def test_a_model_that_predicts_velocity_is_known_by_the_shape_of_its_loss_of_noise() -> None:
    velocity, noise = (sg.DiffusionModelDebugger(scheduler=scheduler()) for _ in range(2))
    course(velocity, lambda at, done: 0.1 + 1.8 * at)
    assert ids(velocity) == ["loss-input-mismatch"]
    course(noise, lambda at, done: 1.5 - 1.2 * at)
    assert ids(noise) == []


def test_the_table_and_the_figure() -> None:
    debugger = sg.DiffusionModelDebugger(scheduler=scheduler(num_train_timesteps=100), buckets=4)
    told = debugger.training_step(
        torch.tensor([0, 24, 25, 99]), torch.tensor([[1.0, 3.0], [2.0, 2.0], [4.0, 4.0], [8.0, 8.0]])
    )
    assert told["loss"] == 4.0
    rows = debugger.loss_by_timestep()
    assert [(row["timesteps"], row["samples"], row["loss"]) for row in rows] == [
        ("0-24", 2, 2.0),
        ("25-49", 1, 4.0),
        ("50-74", 0, None),
        ("75-99", 1, 8.0),
    ]
    assert [trace.name for trace in debugger.plot_loss_by_timestep().data] == ["now", "at first"]
    shares = sg.DiffusionModelDebugger(scheduler=diffusers.FlowMatchEulerDiscreteScheduler())
    shares.training_step(torch.tensor([0.05, 1.0]), torch.tensor([1.0, 2.0]))
    assert [row["timesteps"] for row in shares.loss_by_timestep() if row["samples"]] == ["0-0.1", "0.9-1"]


def test_a_timestep_beyond_the_schedule_is_no_error_of_ours() -> None:
    latents, noise = torch.randn(2, 2, 1, 4, 4)
    told = sg.DiffusionModelDebugger(scheduler=scheduler()).training_step(
        torch.tensor([0, 100_000]), torch.rand(2), latents=latents, noise=noise, target=noise
    )
    assert told["anomalies"] == []


def test_a_loss_that_is_already_reduced_is_refused() -> None:
    with pytest.raises(ValueError, match="one loss for each sample"):
        sg.DiffusionModelDebugger().training_step(torch.tensor([1, 2]), torch.tensor(0.5))


# -- real loops --------------------------------------------------------------------------------------------------


def train(tmp_path: Path, *, rate: float = 2e-3, number: int = 40, spoiled: int = -1) -> tuple[Any, Any, Any]:
    """UNet, DDPM noise, AdamW, accelerate with accumulation, EMA."""
    from accelerate import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    model, noises = tiny.unet(), scheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    ema = EMAModel(model.parameters(), decay=0.9)
    torch.manual_seed(0)
    data = torch.where(torch.rand(256, 1, 8, 8) < 0.5, -1.0, 1.0)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    debugger, done = sg.DiffusionModelDebugger(scheduler=noises), 0
    with sg.watch(model, optimizer, store=tmp_path, strict=True) as watch:
        while done < number:
            for (clean,) in loader:
                with accelerator.accumulate(model):
                    noise, at = torch.randn_like(clean), torch.randint(0, 100, (len(clean),))
                    images = clean * torch.nan if done == spoiled else clean
                    prediction = model(noises.add_noise(images, noise, at), at).sample
                    losses = F.mse_loss(prediction, noise, reduction="none").mean(dim=(1, 2, 3))
                    accelerator.backward(losses.mean())
                    optimizer.step()
                    optimizer.zero_grad()
                debugger.training_step(at, losses, latents=images, noise=noise, target=noise)
                if accelerator.sync_gradients:
                    ema.step(model.parameters())
                    done += 1
        pipe = tiny.quiet(diffusers.DDPMPipeline(model.eval(), noises))
        with debugger.watch_pipeline(pipe):
            pipe(num_inference_steps=5, generator=tiny.seeded(), output_type="np")
        watch.flush()
    return watch, debugger, pipe


def test_a_healthy_training_is_silent_and_its_run_knows_the_loss_by_timestep(tmp_path: Path) -> None:
    from seismograd.server import create_app

    watch, debugger, _ = train(tmp_path)
    assert [finding.id for finding in watch.findings if finding.severity is not Severity.INFO] == []
    assert ids(debugger) == []
    assert debugger.loss_by_timestep()[-1]["loss"] < debugger.loss_by_timestep()[-1]["first"]
    name = "loss/timestep/90-99"
    assert len(sg.runs(tmp_path)[0].series(name)[name]) > 10
    with TestClient(create_app(store=tmp_path), base_url="http://127.0.0.1") as client:
        told = client.get("/training-logs/debug/summary").json()["diffusion_debugger"]
    assert told["total_anomalies"] == 0
    assert told["debug_history_length"] == 5


def test_a_nan_in_the_data_is_found_by_both_and_told_to_the_run(tmp_path: Path) -> None:
    watch, debugger, _ = train(tmp_path, number=8, spoiled=4)
    assert "nonfinite-input" in [finding.id for finding in watch.findings]
    assert "nonfinite-loss" in ids(debugger)
    assert debugger.first_bad is not None
    assert debugger.first_bad["component"] == "unet"
    assert sum(finding.count for finding in debugger.findings) > 3


def test_a_learning_rate_that_is_far_too_high_is_found(tmp_path: Path) -> None:
    watch, _, _ = train(tmp_path, rate=1.0, number=40)
    assert any(finding.severity is Severity.CRITICAL for finding in watch.findings), watch.findings
