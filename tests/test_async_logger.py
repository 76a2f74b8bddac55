"""The logger of coroutines: what it tells, that its run is judged and stored, and that the event loop never waits."""

import asyncio
import gc
import json
import logging
import math
import threading

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.progress import Progress
from seismograd.store import open_store


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def backward(model, scale=1.0):
    loss = model(torch.ones(2, 3)).pow(2).mean() * scale
    loss.backward()
    return loss


def test_a_training_is_recorded_with_its_progress_and_judged(tmp_path, model):
    async def train():
        async with sg.AsyncTrainingLogger(user_id=123, model_name="tiny", store=tmp_path) as logger:
            logger.start_training(total_epochs=2, total_steps=20)
            for epoch in range(2):
                for step in range(10):
                    loss = backward(model) if (epoch, step) != (1, 7) else torch.tensor(math.nan)
                    await logger.update_progress_async(
                        epoch=epoch, step=step, loss=loss, learning_rate=0.1, accuracy=step / 10
                    )
                logger.set_phase(sg.TrainingPhase.VALIDATION)
                await logger.update_progress_async(epoch, 9, val_loss=0.5)
                logger.set_phase("training")
            summary = logger.get_training_summary()
            findings = logger.findings
        return summary, findings

    summary, findings = asyncio.run(train())
    assert (summary["progress"], summary["eta_seconds"]) == (1.0, 0.0)
    assert (summary["epoch"], summary["step"], summary["total_epochs"]) == (1, 19, 2)
    assert summary["loss_anomalies"] >= 1
    assert summary["status"] == "critical"
    assert "nonfinite-loss" in [finding.id for finding in findings]
    with open_store(tmp_path) as store:
        run = store.run("last")
        assert run.name == "tiny"
        assert (run.about["user_id"], run.about["model_name"]) == (123, "tiny")
        assert {"loss", "lr/0", "accuracy", "epoch", "val_loss"} <= set(run.names())
        series = run.series(["loss", "accuracy"])
        assert list(series["loss"].steps) == list(range(20))
        assert math.isnan(series["loss"].last[17])
        assert series["accuracy"].last[13] == pytest.approx(0.3)
        assert next(finding.id for finding in run.findings()) == "nonfinite-loss"
        assert (run.status, run.ended is not None) == ("critical", True)
        phases = [event["data"]["phase"] for event in run.events(types=["phase"])]
    assert phases == ["training", "validation", "training", "validation", "training", "completed"]


def test_tensors_and_gradients_are_looked_at(tmp_path, model):
    async def look():
        with sg.AsyncTrainingLogger(model_name="tiny", store=tmp_path) as logger:
            loss = backward(model)
            sound = await logger.check_tensor_anomalies_async(loss, "loss")
            assert (sound["has_nan"], sound["has_inf"], sound["shape"]) == (False, False, ())
            gradients = await logger.check_gradient_anomalies_async(model)
            assert gradients["params_with_nan_grad"] == gradients["params_with_inf_grad"] == 0
            assert gradients["total_params"] == gradients["params_with_grad"] == 4
            assert gradients["gradient_norm"] > 0
            model[0].weight.grad[0, 0] = math.nan
            model[2].bias.grad[0] = -math.inf
            gradients = await logger.check_gradient_anomalies_async(model)
            assert (gradients["nan_params"], gradients["inf_params"]) == (["0.weight"], ["2.bias"])
            assert logger.check_gradient_anomalies(model)["params_with_nan_grad"] == 1
            bad = await logger.check_tensor_anomalies_async(loss.detach() * math.inf, "loss")
            assert bad["has_inf"]
            odd = logger.check_tensor_anomalies(torch.tensor([1, math.nan]), "<hidden>")
            assert odd["num_nans"] == 1
            with pytest.raises(TypeError, match="not a tensor"):
                await logger.check_tensor_anomalies_async(3.0, "three")
            with pytest.raises(TypeError, match=r"not an nn\.Module"):
                await logger.check_gradient_anomalies_async(nn.Linear)
            return logger

    logger = asyncio.run(look())
    assert {finding.id for finding in logger.findings} == {"nonfinite-gradient", "nonfinite-loss"}
    with open_store(tmp_path) as store:
        run = store.run("last")
        messages = [event["message"] for event in run.events(types=["anomaly"])]
        assert {finding.id for finding in run.findings()} == {"nonfinite-gradient", "nonfinite-loss"}
    assert "loss holds 1 Inf" in messages
    assert "<hidden> holds 1 NaN" in messages


def test_the_gradient_norm_that_was_looked_at_stands_in_the_next_reading(tmp_path, model):
    async def look():
        async with sg.AsyncTrainingLogger(store=tmp_path) as logger:
            backward(model)
            norm = (await logger.check_gradient_anomalies_async(model))["gradient_norm"]
            await logger.update_progress_async(0, 0, loss=1.0)
            await logger.update_progress_async(0, 1, loss=1.0)
            return norm

    norm = asyncio.run(look())
    with open_store(tmp_path) as store:
        series = store.run("last").series("grad/norm")["grad/norm"]
    assert list(series.steps) == [0]
    assert series.last[0] == pytest.approx(norm)


def test_the_event_loop_goes_on_while_a_tensor_is_read(monkeypatch):
    """The reading waits for what the loop does meanwhile: were the loop held up, it would wait for ever."""
    from seismograd.stats import describe as module

    describe, goes_on = module.describe, threading.Event()

    def slow(tensor, name):
        assert goes_on.wait(60), "the event loop stood still"
        return describe(tensor, name)

    monkeypatch.setattr(module, "describe", slow)

    async def look():
        async with sg.AsyncTrainingLogger(store=False) as logger:
            check = asyncio.create_task(logger.check_tensor_anomalies_async(torch.ones(3), "x"))
            progress = asyncio.create_task(logger.update_progress_async(0, 0, loss=1.0))
            await asyncio.sleep(0.01)
            assert not check.done()
            assert not progress.done()
            logger.log_info("said meanwhile")
            goes_on.set()
            await progress
            return await check, logger

    info, logger = asyncio.run(look())
    assert info["has_nan"] is False
    assert logger.get_training_summary()["total_steps"] == 1


def test_a_call_that_is_cancelled_leaves_everything_in_order(monkeypatch, tmp_path):
    from seismograd.stats import describe as module

    describe, entered, goes_on = module.describe, threading.Event(), threading.Event()

    def slow(tensor, name):
        entered.set()
        assert goes_on.wait(60)
        return describe(tensor, name)

    monkeypatch.setattr(module, "describe", slow)

    async def look():
        async with sg.AsyncTrainingLogger(store=tmp_path) as logger:
            running = asyncio.create_task(logger.check_tensor_anomalies_async(torch.ones(3), "x"))
            waiting = asyncio.create_task(logger.update_progress_async(0, 0, loss=7.0))
            await asyncio.to_thread(entered.wait, 60)
            for task in (running, waiting):
                task.cancel()
            for task in (running, waiting):
                with pytest.raises(asyncio.CancelledError):
                    await task
            goes_on.set()
            await logger.update_progress_async(0, 1, loss=1.0)

    asyncio.run(look())
    with open_store(tmp_path) as store:
        assert list(store.run("last").series("loss")["loss"].last) == [1.0]  # the one that waited was left


def test_many_tasks_at_once_are_taken_one_after_another(tmp_path):
    async def train():
        async with sg.AsyncTrainingLogger(store=tmp_path) as logger:
            await asyncio.gather(*(logger.update_progress_async(0, step, loss=1.0) for step in range(200)))
            return logger.get_training_summary()

    assert asyncio.run(train())["total_steps"] == 200
    with open_store(tmp_path) as store:
        assert list(store.run("last").series("loss")["loss"].steps) == list(range(200))


@pytest.mark.parametrize("before", [False, True])
def test_autograds_mode_is_put_back(before):
    torch.autograd.set_detect_anomaly(before, check_nan=not before)
    try:
        logger = sg.AsyncTrainingLogger(enable_autograd_debug=True, store=False)
        assert torch.is_anomaly_enabled() is before
        logger.start_training()
        assert torch.is_anomaly_enabled()
        assert torch.is_anomaly_check_nan_enabled()
        logger.close()
        assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (before, not before)
        logger.close()
        with pytest.raises(KeyError), sg.AsyncTrainingLogger(enable_autograd_debug=True, store=False) as logger:
            raise _started(logger)
        assert torch.is_anomaly_enabled() is before
    finally:
        torch.autograd.set_detect_anomaly(False, check_nan=True)


def _started(logger):
    logger.start_training()
    assert torch.is_anomaly_enabled()
    return KeyError("x")


def test_of_two_loggers_the_last_puts_it_back():
    first, second = (sg.AsyncTrainingLogger(enable_autograd_debug=True, store=False) for _ in range(2))
    first.start_training()
    second.start_training()
    second.start_training()
    first.close()
    assert torch.is_anomaly_enabled()
    second.close()
    assert not torch.is_anomaly_enabled()


def test_a_logger_that_is_forgotten_puts_it_back_and_ends_its_run(tmp_path):
    logger = sg.AsyncTrainingLogger(enable_autograd_debug=True, store=tmp_path)
    logger.start_training(total_steps=3)
    logger.update_progress(0, 0, loss=1.0)
    del logger
    gc.collect()
    assert not torch.is_anomaly_enabled()
    with open_store(tmp_path) as store:
        assert store.run("last").ended is not None


def test_what_is_said_goes_to_the_run_to_logging_and_to_the_last_events(tmp_path, caplog):
    def fails():
        raise ValueError("bad batch")

    with caplog.at_level(logging.INFO, logger="seismograd"):
        with sg.AsyncTrainingLogger(model_name="tiny", store=tmp_path) as logger:
            logger.start_training(total_steps=3)
            logger.log_info("hello", batch=3)
            logger.log_warning("look at this")
            logger.log_warning("and at this", sg.TrainingPhase.VALIDATION)
            try:
                fails()
            except ValueError as error:
                logger.log_error(error, sg.TrainingPhase.TRAINING, {"epoch": 0, "step": 1})
            logger.log_error("only words")
            logger.log_info("a break", "lunch")
            with pytest.raises(ValueError, match="phase 'lunch' is unknown"):
                logger.set_phase("lunch")
        with open_store(tmp_path) as store:
            events = store.run("last").events()
    said = {event["message"]: event for event in events}
    assert said["look at this"]["data"] == {"phase": "training"}
    assert said["and at this"]["data"] == {"phase": "validation"}
    assert said["hello"]["data"] == {"phase": "training", "batch": 3}
    error = said["ValueError: bad batch"]
    assert (error["event_type"], error["level"], error["data"]["step"]) == ("error", "error", 1)
    assert error["data"]["error"]["where"]["code"].strip() == 'raise ValueError("bad batch")'
    assert said["only words"]["event_type"] == "error"
    assert said["a break"]["data"] == {"phase": "lunch"}
    assert [event["message"] for event in logger.events] == [event["message"] for event in events]
    assert "look at this" in caplog.text
    assert (logger.get_training_summary()["warnings"], logger.get_training_summary()["errors"]) == (2, 2)
    assert len(logger.errors.errors) == 2


def test_an_exception_that_ends_it_is_logged_once(tmp_path):
    async def train(told):
        async with sg.AsyncTrainingLogger(store=tmp_path) as logger:
            try:
                raise RuntimeError("boom")
            except RuntimeError as error:
                if told:
                    logger.log_error(error)
                raise

    for told in (True, False):
        with pytest.raises(RuntimeError):
            asyncio.run(train(told))
        with open_store(tmp_path) as store:
            run = store.run("last")
            assert [event["message"] for event in run.events(types=["error"])] == ["RuntimeError: boom"]
            assert run.status == "crashed"
            assert run.report()["run"]["exit"] == {"code": 1, "exception": "RuntimeError: boom"}


def test_a_training_that_is_cancelled_has_not_crashed(tmp_path):
    async def train():
        async with sg.AsyncTrainingLogger(store=tmp_path) as logger:
            await logger.update_progress_async(0, 0, loss=1.0)
            await asyncio.sleep(60)

    async def outer():
        task = asyncio.create_task(train())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(outer())
    with open_store(tmp_path) as store:
        assert store.run("last").status == "healthy"


def test_errors_that_are_tracked_elsewhere_reach_the_run(tmp_path):
    with sg.AsyncTrainingLogger(store=tmp_path) as logger:
        system = sg.ErrorHandlingDebuggingSystem(logger)
        system.error_tracker.track_error(RuntimeError("boom"), context={"operation": "load"})
        sg.PyTorchDebugger(training_logger=logger).log_debug_event("mine", "hello")
    with open_store(tmp_path) as store:
        told = {event["event_type"]: event for event in store.run("last").events()}
    assert told["error"]["data"]["error"]["context"] == {"operation": "load"}
    assert told["mine"]["message"] == "hello"


def test_findings_are_told_to_whoever_wants_to_know():
    told = []
    with sg.AsyncTrainingLogger(store=False, notify=told.append) as logger:
        logger.update_progress(0, 0, loss=math.nan)
    assert [finding.id for finding in told] == ["nonfinite-loss"]


def test_a_stop_that_is_asked_for_ends_the_loop(tmp_path):
    async def train():
        async with sg.AsyncTrainingLogger(store=tmp_path) as logger:
            logger.debugger.errands.ask("stop", None, lambda text: None)
            for step in range(10):
                await logger.update_progress_async(0, step, loss=1.0)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(train())
    with open_store(tmp_path) as store:
        assert len(store.run("last").series("loss")["loss"].last) == 1


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (
            lambda logger: logger.start_training(total_epochs=0),
            ValueError,
            "total_epochs is 0: it takes a whole number",
        ),
        (lambda logger: logger.start_training(total_steps="9"), ValueError, "total_steps is '9'"),
        (lambda logger: logger.update_progress(loss="low"), ValueError, "loss is 'low': it takes a single number"),
        (lambda logger: logger.update_progress(learning_rate=[1]), ValueError, r"learning_rate is \[1\]"),
        (lambda logger: logger.update_progress(loss=torch.ones(2)), ValueError, "it takes a single number"),
        (lambda logger: logger.update_progress(step=1.5, loss=1.0), ValueError, "step is 1.5: it takes a whole number"),
        (lambda logger: sg.AsyncTrainingLogger(store=3), TypeError, "store is 3"),
    ],
)
def test_mistakes_are_said(act, error, words):
    with sg.AsyncTrainingLogger(store=False) as logger, pytest.raises(error, match=words):
        act(logger)


def test_after_the_end_there_is_no_training():
    logger = sg.AsyncTrainingLogger(store=False)
    logger.close()
    logger.log_info("late")
    assert logger.events[-1]["message"] == "late"
    with pytest.raises(RuntimeError, match="the logger is closed"):
        logger.start_training()
    with pytest.raises(RuntimeError, match="the logger is closed"):
        asyncio.run(logger.update_progress_async(0, 0, loss=1.0))


def test_steps_that_begin_anew_with_each_epoch_are_counted_through():
    progress = Progress(3, 12)
    numbers = [progress.stepped(epoch, step, {}) for epoch in range(3) for step in range(4)]
    assert numbers == list(range(12))
    assert progress.share == 1.0
    whole = Progress()
    assert [whole.stepped(epoch, 2 * epoch + step, {}) for epoch in range(2) for step in range(2)] == [0, 1, 2, 3]
    assert whole.share is None
    again = Progress()
    assert [again.stepped(0, step, {}) for step in (5, 6, 6, 2, 3)] == [5, 6, 6, 7, 8]  # resumed from a checkpoint
    epochs = Progress(total_epochs=4)
    epochs.stepped(1, 0, {})
    assert epochs.share == 0.25
    of_one = Progress(total_epochs=2, total_steps=3)
    for epoch in range(2):
        for step in range(3):
            of_one.stepped(epoch, step, {})
    assert of_one.share == 1.0


def test_the_summary_is_plain():
    with sg.AsyncTrainingLogger(user_id=7, model_name="tiny", store=False) as logger:
        logger.start_training(total_steps=4)
        logger.update_progress(0, 0, loss=2.0, learning_rate=0.1)
        logger.update_progress(0, 1, loss=1.0, learning_rate=0.2)
        summary = logger.get_training_summary()
    assert summary["progress"] == 0.5
    assert summary["eta_seconds"] == pytest.approx(summary["elapsed_seconds"])
    assert (summary["loss"], summary["best_loss"], summary["learning_rate"]) == (1.0, 1.0, 0.2)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
