"""Writes a run to TensorBoard."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from seismograd.extras import need
from seismograd.records import Finding
from seismograd.sinks.relay import PREFIX, Point, Relay
from seismograd.sinks.wording import files_of, markdown_of, summary_of

_taken: set[Path] = set()
"""Folders that runs of this process write to: a second one gets its own below."""
_SUFFIX = ".seismograd"
"""How the names of our event files end."""


class TensorBoard(Relay):
    """A sink that writes scalars, findings as text, and the report to TensorBoard.

    `log_dir` is the folder to write to, or your own `SummaryWriter`, which stays open; without it `runs/` and the run's
    id. Values that are not finite are written as they are, which TensorBoard draws as triangles.
    """

    title: ClassVar[str] = "TensorBoard"

    def __init__(
        self,
        log_dir: Any = None,
        *,
        prefix: str = PREFIX,
        every: int | None = None,
        rank: int | None = 0,
        report: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, every=every, rank=rank, report=report)
        self._writer: Any = None
        self._folder: Path | None = None
        if log_dir is None or isinstance(log_dir, (str, os.PathLike)):
            need("tensorboard", "tensorboard")
            self._folder = None if log_dir is None else Path(os.path.abspath(log_dir))
            self._runs = Path(os.path.abspath("runs"))
        elif hasattr(log_dir, "add_scalar") and hasattr(log_dir, "add_text"):
            self._writer = log_dir
        else:
            raise TypeError(f"TensorBoard takes a folder or a SummaryWriter, not {log_dir!r}")
        self._events_file: Any = None

    @property
    def log_dir(self) -> Path | None:
        """Where it writes; `None` while that is not known."""
        if self._writer is None:
            return self._folder
        told = getattr(self._writer, "log_dir", None)
        return None if told is None else Path(told)

    def _open(self) -> None:
        if self._writer is not None:
            return
        need("tensorboard.summary.writer.event_file_writer", "tensorboard")
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = self._own_folder()
        self._events_file = EventFileWriter(str(folder), max_queue_size=1000, flush_secs=5, filename_suffix=_SUFFIX)
        self._folder = folder
        _taken.add(folder)

    def _own_folder(self) -> Path:
        """The folder, or one below it if another run of ours is there: TensorBoard would draw both as one."""
        own = str(self.run.get("id") or time.strftime("%Y%m%d-%H%M%S"))
        rank = f"rank{self._rank}" if self.rank is None and self._rank else ""
        if self._folder is None:
            return self._runs / own / rank
        folder = self._folder / rank
        there = folder in _taken or any(folder.glob(f"*tfevents*{_SUFFIX}"))
        return self._folder / own / rank if there else folder

    def _send(self, points: Sequence[Point]) -> None:
        if self._writer is not None:
            for point in points:
                for name, value in point.scalars.items():
                    self._writer.add_scalar(name, value, point.step, walltime=point.time)
            return
        from tensorboard.compat.proto.summary_pb2 import Summary

        for point in points:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.scalars.items()]
            self._write(Summary(value=values), point.step, point.time)

    def _send_finding(self, finding: Finding) -> None:
        self._text(f"findings/{finding.id}", markdown_of(finding), finding.step)

    def _send_event(self, event: Mapping[str, Any]) -> None:
        data = event.get("data") or {}
        self._text("recovery", str(event.get("message")), int(data.get("step") or 0))

    def _settle(self) -> None:
        if self._writer is not None:
            self._writer.flush()
        else:
            self._events_file.flush()

    def _finish(self, report: dict[str, Any]) -> None:
        if self.report:
            self._text("report", summary_of(report), int((report.get("run") or {}).get("steps") or 0))
            folder = self.log_dir
            if folder is not None and folder.is_dir():
                for name, text in files_of(report, self.page).items():
                    (folder / f"seismograd-{name}").write_text(text, encoding="utf-8")
        self._settle()
        if self._events_file is not None:
            self._events_file.close()
            with suppress(KeyError):
                _taken.remove(self._folder)  # type: ignore[arg-type]

    def _text(self, name: str, text: str, step: int) -> None:
        if self._writer is not None:
            self._writer.add_text(self.prefix + name, text, step)
            return
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

        about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
        value = Summary.Value(tag=f"{self.prefix}{name}/text_summary", metadata=about, tensor=tensor)
        self._write(Summary(value=[value]), step, time.time())

    def _write(self, summary: Any, step: int, at: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._events_file.add_event(Event(wall_time=at, step=step, summary=summary))
