"""Real diffusers pipelines, tiny: what is analysed, what is watched, who is named, and that nothing is left behind."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

import seismograd as sg
from seismograd.records import Severity

from . import tiny_diffusion as tiny

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def grave(debugger: sg.DiffusionModelDebugger) -> list[str]:
    return [finding.id for finding in debugger.findings if finding.severity is not Severity.INFO]


def perfect(pipe: Any) -> Any:
    """The model says 0, which is the right velocity for data that is Gaussian itself."""
    with torch.no_grad():
        for parameter in pipe.unet.conv_out.parameters():
            parameter.zero_()
    return pipe


def sample(pipe: Any, **more: Any) -> Any:
    return pipe("a cat", num_inference_steps=4, generator=tiny.seeded(), output_type="np", **more).images


def velocity(**more: Any) -> Any:
    return diffusers.DDIMScheduler(clip_sample=False, steps_offset=1, **{"prediction_type": "v_prediction", **more})


# -- before it runs ----------------------------------------------------------------------------------------------


def test_the_parts_of_a_pipeline_are_told(tmp_path: Path) -> None:
    pipe = tiny.stable_diffusion(tmp_path)
    pipe.vae.requires_grad_(False)
    analysis = sg.DiffusionModelDebugger().analyze_diffusion_pipeline(pipe)
    models = (pipe.vae, pipe.text_encoder, pipe.unet)
    assert analysis["total_parameters"] == sum(p.numel() for model in models for p in model.parameters())
    assert analysis["components"]["vae"]["trainable_parameters"] == 0
    assert (
        analysis["trainable_parameters"] == analysis["total_parameters"] - analysis["components"]["vae"]["parameters"]
    )
    assert analysis["components"]["unet"]["dtypes"] == {"float32": len(list(pipe.unet.parameters()))}
    assert analysis["components"]["tokenizer"] == {"class": type(pipe.tokenizer).__name__}
    assert analysis["scheduler"]["class"] == "DDIMScheduler"
    assert analysis["scheduler"]["alphas_cumprod"]["last"] == pytest.approx(4.04e-5, rel=0.01)
    assert analysis["scheduler"]["zero_terminal_snr"] is False
    assert analysis["trouble"] == []


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    pipe = tiny.stable_diffusion(tmp_path)
    with torch.no_grad():
        pipe.unet.conv_in.weight[0, 0, 0, 0] = torch.nan
    debugger = sg.DiffusionModelDebugger()
    debugger.analyze_diffusion_pipeline(pipe)
    (finding,) = debugger.findings
    assert finding.id == "nonfinite-parameter"
    assert finding.where.parameter == "unet.conv_in.weight"


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda folder: tiny.stable_diffusion(folder, hidden=24), "attends to text of width 16"),
        (lambda folder: tiny.stable_diffusion(folder, autoencoder=tiny.vae(latent_channels=8)), "takes 4 channels"),
        (
            lambda folder: tiny.stable_diffusion(folder, autoencoder=tiny.vae(scaling_factor=None)),
            "scaling_factor is None",
        ),
        (lambda folder: tiny.stable_diffusion(folder).to(torch.float32), None),
        (
            lambda folder: tiny.stable_diffusion(
                folder,
                scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False, rescale_betas_zero_snr=True),
            ),
            "zero terminal SNR",
        ),
        (
            lambda folder: tiny.stable_diffusion(
                folder, scheduler=velocity(rescale_betas_zero_snr=True, timestep_spacing="trailing")
            ),
            None,
        ),
        (lambda folder: tiny.ddpm(beta_end=1.5), "has to lie between 0 and 1"),
        (lambda folder: tiny.ddpm(), None),
        (lambda folder: tiny.ddpm(beta_schedule="squaredcos_cap_v2"), None),
        (
            lambda folder: tiny.stable_diffusion(
                folder,
                scheduler=diffusers.DDIMScheduler(
                    beta_schedule="squaredcos_cap_v2", steps_offset=1, clip_sample=False, timestep_spacing="leading"
                ),
            ),
            None,
        ),
        (lambda folder: tiny.dit(), None),
    ],
)
def test_parts_that_do_not_fit_are_named_and_others_are_not(tmp_path: Path, build: Any, told: str | None) -> None:
    debugger = sg.DiffusionModelDebugger()
    trouble = debugger.analyze_diffusion_pipeline(build(tmp_path))["trouble"]
    if told is None:
        assert trouble == []
    else:
        assert any(told in sentence for sentence in trouble), trouble
        assert set(grave(debugger)) == {"pipeline-mismatch"}


def test_latents_that_are_clipped_like_images() -> None:
    pipe = tiny.dit()
    pipe.scheduler = diffusers.DDIMScheduler(clip_sample=True)
    (sentence,) = sg.DiffusionModelDebugger().analyze_diffusion_pipeline(pipe)["trouble"]
    assert "clip_sample=True" in sentence


def test_a_scheduler_that_differs_from_the_trainings() -> None:
    pipe, debugger = tiny.ddpm(), sg.DiffusionModelDebugger()
    same = diffusers.DDPMScheduler.from_config(pipe.scheduler.config)
    assert debugger.analyze_diffusion_pipeline(pipe, trained_with=same)["trouble"] == []
    other = diffusers.DDPMScheduler.from_config(pipe.scheduler.config, prediction_type="v_prediction", beta_end=0.03)
    debugger.analyze_diffusion_pipeline(pipe, trained_with=other)
    assert [finding.severity for finding in debugger.findings] == [Severity.CRITICAL, Severity.WARNING]


def test_mixed_dtypes_are_worth_knowing_and_no_more() -> None:
    pipe, debugger = tiny.dit(), sg.DiffusionModelDebugger()
    pipe.vae.to(torch.bfloat16)
    assert "`vae` in bfloat16" in debugger.analyze_diffusion_pipeline(pipe)["trouble"][0]
    assert grave(debugger) == []
    assert debugger.summary()["total_anomalies"] == 0


def test_what_is_no_pipeline_is_refused() -> None:
    with pytest.raises(TypeError, match="int is no pipeline"):
        sg.DiffusionModelDebugger().analyze_diffusion_pipeline(3)


# -- while it runs -----------------------------------------------------------------------------------------------


def traces(pipe: Any) -> list[Any]:
    """Everything that watching may have changed."""
    models = [part for part in pipe.components.values() if isinstance(part, torch.nn.Module)]
    hooks = [(len(each._forward_hooks), len(each._forward_pre_hooks)) for model in models for each in model.modules()]
    own = [sorted(vars(part)) for part in (*models, pipe.scheduler)]
    return [hooks, own, [dict(vars(type(part))) for part in (*models, pipe.scheduler)]]


@pytest.mark.parametrize("level", ["basic", "extreme"])
def test_a_watched_pipeline_makes_the_same_image_and_nothing_stays(tmp_path: Path, level: str) -> None:
    pipe = perfect(tiny.stable_diffusion(tmp_path, scheduler=velocity()))
    before, image = traces(pipe), sample(pipe)
    debugger = sg.DiffusionModelDebugger(level)
    with debugger.watch_pipeline(pipe):
        watched = sample(pipe, callback_on_step_end=debugger.callback)
    assert np.array_equal(image, watched)
    assert traces(pipe) == before
    assert debugger.findings == []
    assert [step["step"] for step in debugger.steps] == [0, 1, 2, 3], "each once, though the callback sees them, too"
    assert debugger.steps[0]["timestep"] == 751
    summary = debugger.summary()
    assert summary["component_calls"] == {"text_encoder": 2, "unet": 4, "vae.decode": 1}
    assert summary["total_anomalies"] == 0
    assert summary["first_bad"] is None


@pytest.mark.parametrize("make", [tiny.ddpm, tiny.dit])
def test_other_pipelines_run_the_same_under_watch(make: Any) -> None:
    def run(pipe: Any) -> Any:
        given = {} if isinstance(pipe, diffusers.DDPMPipeline) else {"class_labels": [1]}
        return pipe(**given, num_inference_steps=3, generator=tiny.seeded(), output_type="np").images

    pipe = make()
    image, debugger = run(pipe), sg.DiffusionModelDebugger()
    with debugger.watch_pipeline(pipe):
        assert np.array_equal(run(pipe), image)
    assert len(debugger.steps) == 3
    assert debugger.first_bad is None


def test_what_a_model_or_a_scheduler_gives_back_is_taken_as_the_latents(tmp_path: Path) -> None:
    """As the seed's own loop has it: `latents = pipeline.unet(latents, timestep, encoder_hidden_states)`."""
    pipe, debugger = tiny.stable_diffusion(tmp_path), sg.DiffusionModelDebugger()
    pipe.scheduler.set_timesteps(2)
    latents = torch.randn(1, 4, 8, 8, generator=tiny.seeded())
    with torch.no_grad():
        predicted = pipe.unet(latents, 501, torch.zeros(1, 8, 16))
    told = debugger.monitor_diffusion_step(pipe, 0, predicted, 501)
    assert told["std"] == pytest.approx(float(predicted.sample.std(correction=0)), rel=1e-4)
    stepped = pipe.scheduler.step(predicted.sample, 501, latents, return_dict=False)
    told = debugger.monitor_diffusion_step(pipe, 1, stepped, 501)
    assert told["std"] == pytest.approx(float(stepped[0].std(correction=0)), rel=1e-4)
    with pytest.raises(TypeError, match="no tensor in this dict"):
        debugger.monitor_diffusion_step(pipe, 2, {})


def test_a_velocity_that_is_taken_for_noise_explodes_and_the_right_one_does_not(tmp_path: Path) -> None:
    for scheduler, expected in ((velocity(), []), (velocity(prediction_type="epsilon"), ["latent-explosion"])):
        debugger = sg.DiffusionModelDebugger()
        sample(perfect(tiny.stable_diffusion(tmp_path, scheduler=scheduler)), callback_on_step_end=debugger.callback)
        assert [finding.id for finding in debugger.findings] == expected
        assert [len(step["anomalies"]) > 0 for step in debugger.steps][-1] is bool(expected)


@pytest.mark.parametrize("kind", [diffusers.DDIMScheduler, diffusers.EulerDiscreteScheduler])
def test_latents_that_an_untrained_model_makes_are_no_warning_and_larger_ones_are(tmp_path: Path, kind: Any) -> None:
    kept = {"clip_sample": False} if kind is diffusers.DDIMScheduler else {}
    pipe = tiny.stable_diffusion(tmp_path, scheduler=kind(steps_offset=1, **kept))
    fresh, wild = sg.DiffusionModelDebugger(), sg.DiffusionModelDebugger()
    sample(pipe, callback_on_step_end=fresh.callback)
    assert {finding.id for finding in fresh.findings} <= {"latent-explosion"}
    assert grave(fresh) == []
    wild.monitor_diffusion_step(pipe, 0, torch.randn(1, 4, 8, 8, generator=tiny.seeded()) * 2000)
    assert grave(wild) == ["latent-explosion"]


def test_a_finding_about_a_pipeline_is_left_out_of_a_run_that_ignores_it(tmp_path: Path) -> None:
    pipe = tiny.stable_diffusion(tmp_path)
    for ignored in ([], ["latent-explosion"]):
        model = torch.nn.Linear(2, 1)
        with sg.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), ignore=ignored) as watch:
            sg.DiffusionModelDebugger().monitor_diffusion_step(pipe, 0, torch.randn(1, 4, 8, 8) * 1e5)
        assert [finding.id for finding in watch.findings] == ([] if ignored else ["latent-explosion"])


def test_added_noise_is_judged_by_its_sigma(tmp_path: Path) -> None:
    pipe = tiny.stable_diffusion(tmp_path, scheduler=diffusers.EulerDiscreteScheduler(steps_offset=1))
    debugger = sg.DiffusionModelDebugger()
    pipe.scheduler.set_timesteps(10)
    sigma = float(pipe.scheduler.sigmas[0])
    fine = debugger.monitor_diffusion_step(pipe, 0, torch.randn(1, 4, 8, 8, generator=tiny.seeded()) * sigma)
    late = debugger.monitor_diffusion_step(pipe, 9, torch.randn(1, 4, 8, 8, generator=tiny.seeded()) * sigma)
    assert (fine["anomalies"], late["anomalies"]) == ([], ["latent-explosion"])


def test_a_vae_that_overflows_half_precision_is_named_with_layer_and_op(tmp_path: Path) -> None:
    sick = tiny.vae()
    with torch.no_grad():
        sick.decoder.mid_block.resnets[0].norm2.weight *= 2000
        sick.decoder.mid_block.resnets[0].conv2.weight *= 500
    pipe = perfect(tiny.stable_diffusion(tmp_path, scheduler=velocity(), autoencoder=sick))
    debugger = sg.DiffusionModelDebugger()
    with debugger.watch_pipeline(pipe):
        sample(pipe)
    assert grave(debugger) == [], "float32 holds it"
    for part in (pipe.unet, pipe.vae, pipe.text_encoder):
        part.half()
    before = traces(pipe)
    with debugger.watch_pipeline(pipe), np.errstate(invalid="ignore"):
        pipe("a cat", num_inference_steps=2, generator=tiny.seeded(), output_type="pt")
    assert traces(pipe) == before
    (finding,) = debugger.findings
    assert (finding.id, finding.where.op) == ("nonfinite-activation", "aten.convolution")
    assert finding.where.module == "vae.decoder.mid_block.resnets.0.conv2"
    assert finding.evidence["component"] == "vae.decode"
    assert finding.evidence["pattern"] == "overflow"
    assert "resnet.py" in finding.evidence["library"]
    assert finding.evidence["component_dtype"] == "float16"
    assert "force_upcast=True" in finding.recommendations[0]
    assert "bfloat16" in finding.recommendations[1]
    assert debugger.first_bad is not None
    assert debugger.first_bad["component"] == "vae.decode"


def test_a_model_that_overflows_is_told_what_helps_without_a_training(tmp_path: Path) -> None:
    pipe = tiny.stable_diffusion(tmp_path)
    with torch.no_grad():
        pipe.unet.mid_block.resnets[0].norm2.weight *= 1000
        pipe.unet.mid_block.resnets[0].conv2.weight *= 600
    for part in (pipe.unet, pipe.vae, pipe.text_encoder):
        part.half()
    debugger = sg.DiffusionModelDebugger()
    with debugger.watch_pipeline(pipe):
        pipe("a cat", num_inference_steps=2, generator=tiny.seeded(), output_type="pt")
    (finding,) = debugger.findings
    assert finding.where.module == "unet.mid_block.resnets.0.conv2"
    assert "pipe.to(torch.bfloat16)" in finding.recommendations[0]
    debugger.clear_debug_history()
    with debugger.watch_pipeline(pipe.to(torch.float32)):
        pipe("a cat", num_inference_steps=3, generator=tiny.seeded(), guidance_scale=1e38, output_type="pt")
    (advice,) = debugger.findings[0].recommendations
    assert "guidance_scale" in advice


def spoil(module: torch.nn.Module) -> Any:
    def zero_by_zero(_module: Any, _args: Any, output: Any) -> Any:
        return output / (output - output)

    return module.register_forward_hook(zero_by_zero)


@pytest.mark.parametrize(
    ("component", "inner"),
    [("unet", "mid_block.resnets.0.conv1"), ("text_encoder", "encoder.layers.1.mlp.fc2")],
)
def test_the_first_component_is_named_not_those_that_pass_it_on(tmp_path: Path, component: str, inner: str) -> None:
    pipe = perfect(tiny.stable_diffusion(tmp_path, scheduler=velocity()))
    model = getattr(pipe, component)
    names = [name for name, _ in model.named_modules() if name.endswith(inner)]
    spoil(model.get_submodule(names[0]))
    debugger = sg.DiffusionModelDebugger()
    with debugger.watch_pipeline(pipe):
        pipe("a cat", num_inference_steps=2, generator=tiny.seeded(), output_type="pt")
    assert {finding.evidence["component"] for finding in debugger.findings} == {component}
    finding = debugger.findings[0]
    assert finding.where.op == "aten.div"
    assert finding.where.module is not None
    assert finding.where.module.startswith(f"{component}.{names[0].rpartition('.')[0]}")
    assert debugger.steps[-1]["has_nan"] is True
    assert debugger.summary()["first_bad"]["component"] == component


def test_a_scheduler_that_divides_by_nothing_is_named() -> None:
    pipe = tiny.ddpm(clip_sample=False)
    pipe.scheduler.alphas_cumprod[25] = 0.0
    debugger = sg.DiffusionModelDebugger()
    with debugger.watch_pipeline(pipe):
        first = pipe(num_inference_steps=2, generator=tiny.seeded(), output_type="np").images
    assert np.isnan(first).any()
    assert debugger.first_bad is not None
    assert debugger.first_bad["component"] == "scheduler.step"
    assert debugger.first_bad["timestep"] == 25
    finding = debugger.findings[0]
    assert (finding.where.module, finding.where.op) == ("scheduler.step", "aten.div")
    assert "scheduling_ddpm.py" in finding.evidence["library"]


def test_what_the_pipeline_makes_bad_between_two_components_is_told_so(tmp_path: Path) -> None:
    pipe = perfect(tiny.stable_diffusion(tmp_path, scheduler=velocity()))
    debugger = sg.DiffusionModelDebugger()
    with debugger.watch_pipeline(pipe):
        pipe(
            "a cat",
            num_inference_steps=2,
            generator=tiny.seeded(),
            output_type="pt",
            latents=torch.full((1, 4, 8, 8), torch.inf),
        )
    assert [finding.id for finding in debugger.findings] == ["nonfinite-input"]
    assert "`unet`" in debugger.findings[0].message
    assert "`text_encoder`" in debugger.findings[0].message


def test_a_black_image_is_told(tmp_path: Path) -> None:
    pipe = perfect(tiny.stable_diffusion(tmp_path, scheduler=velocity()))
    with torch.no_grad():
        pipe.vae.decoder.conv_out.weight.zero_()
        pipe.vae.decoder.conv_out.bias.fill_(-2.0)
    debugger = sg.DiffusionModelDebugger()
    with debugger.watch_pipeline(pipe):
        sample(pipe)
    assert grave(debugger) == ["constant-output"]
    assert "black all over" in debugger.findings[0].message


def test_a_copy_of_a_watched_scheduler_steps_by_itself() -> None:
    pipe, debugger = tiny.ddpm(), sg.DiffusionModelDebugger()
    with debugger.watch_pipeline(pipe):
        other = copy.deepcopy(pipe.scheduler)
        other.set_timesteps(5)
        other.step(torch.zeros(1, 1, 8, 8), 40, torch.zeros(1, 1, 8, 8))
        assert len(debugger.steps) == 0
        assert pipe.scheduler.num_inference_steps is None


def test_watches_that_end_in_any_order_leave_nothing() -> None:
    one, other = tiny.ddpm(), tiny.ddpm()
    before, debugger = traces(one), sg.DiffusionModelDebugger()
    first, second = debugger.watch_pipeline(one), debugger.watch_pipeline(other)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    one(num_inference_steps=2, generator=tiny.seeded(), output_type="np")
    assert len(debugger.steps) == 0
    other(num_inference_steps=2, generator=tiny.seeded(), output_type="np")
    assert len(debugger.steps) == 2
    second.__exit__(None, None, None)
    assert traces(one) == before


def test_an_error_of_the_pipelines_own_leaves_nothing() -> None:
    pipe, debugger = tiny.ddpm(), sg.DiffusionModelDebugger()
    before = traces(pipe)
    with pytest.raises(ValueError, match="num_inference_steps"), debugger.watch_pipeline(pipe):
        pipe(num_inference_steps=999)
    assert traces(pipe) == before
    assert debugger.watched == []


def test_an_error_of_ours_does_not_reach_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, debugger = tiny.ddpm(), sg.DiffusionModelDebugger()
    monkeypatch.setattr(debugger, "note_latents", lambda *_: 1 / 0)
    image = pipe(num_inference_steps=2, generator=tiny.seeded(), output_type="np").images
    with pytest.warns(RuntimeWarning, match="goes on unwatched"), debugger.watch_pipeline(pipe):
        assert np.array_equal(pipe(num_inference_steps=2, generator=tiny.seeded(), output_type="np").images, image)


def test_the_users_own_callback_is_called_too(tmp_path: Path) -> None:
    pipe = perfect(tiny.stable_diffusion(tmp_path, scheduler=velocity()))
    debugger, seen = sg.DiffusionModelDebugger(), []

    def users(pipeline: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        seen.append((step, sorted(given)))
        return {**given, "latents": given["latents"] * 0}

    asked = ["latents", "prompt_embeds"]
    latents = pipe(
        "a cat",
        num_inference_steps=2,
        output_type="latent",
        callback_on_step_end=debugger.callback_with(users),
        callback_on_step_end_tensor_inputs=asked,
    ).images
    assert seen == [(0, asked), (1, asked)]
    assert len(debugger.steps) == 2
    assert not latents.any(), "what the user's callback answers is used"


def test_the_history_is_cleared_and_bounded() -> None:
    debugger = sg.DiffusionModelDebugger(history=5)
    pipe = tiny.ddpm()
    for step in range(8):
        debugger.monitor_diffusion_step(pipe, step, torch.full((1, 1, 2, 2), torch.nan))
    summary = debugger.summary()
    assert (summary["total_anomalies"], summary["debug_history_length"]) == (8, 5)
    assert summary["findings"] == ["nonfinite-activation"]
    debugger.clear_debug_history()
    summary = debugger.summary()
    assert (summary["total_anomalies"], summary["debug_history_length"], summary["findings"]) == (0, 0, [])


def test_latents_are_drawn() -> None:
    debugger, pipe = sg.DiffusionModelDebugger(), tiny.ddpm()
    for step, value in enumerate((1.0, torch.nan)):
        debugger.monitor_diffusion_step(pipe, step, torch.full((1, 1, 2, 2), value), timestep=40 - step)
    figure = debugger.plot_latents()
    assert [trace.name for trace in figure.data] == ["max", "std", "mean", "min", "not finite"]
