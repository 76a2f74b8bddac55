"""What the page is put together from: scales, images, HTML."""

from __future__ import annotations

import math
import re
import struct
import zlib

import numpy as np
import pytest

from seismograd.amounts import duration, number
from seismograd.reports.page import curves
from seismograd.reports.page.heat import cells_of, common_part, fitted, png, scale_of, shortened
from seismograd.reports.page.markup import Html, data, escape, prose, tag
from seismograd.reports.page.scale import Scale, short, step_ticks, steps_scale


def test_an_element():
    assert tag("a", "x < y", Html("<b>z</b>"), None, href='"', cls="c", hidden=True, title=None) == (
        '<a href="&quot;" class="c" hidden>x &lt; y<b>z</b></a>'
    )
    assert tag("path", d="M0 0") == '<path d="M0 0" />'


def test_code_in_a_sentence():
    assert prose("add `a < b`, `c") == "add <code>a &lt; b</code>, `c"


def test_what_cannot_be_shown_is_spelled_out():
    assert escape("a\x00b\ud83dc\u202ed\ne") == "a\\u0000b\\ud83dc\\u202ed\ne"


def test_json_cannot_end_its_element():
    text = data({"</script>": [math.nan, "<!--", "&"]})
    assert text.count("<") == 2
    assert "NaN" in text


@pytest.mark.parametrize(
    ("values", "log"), [([1, 2, 3], False), ([1e-5, 1], True), ([0, 1e-5, 1], True), ([-1, 1e6], False), ([5], False)]
)
def test_values_have_their_place(values, log):
    scale = Scale.of(values)
    assert scale.log is log
    places = scale.at(values)
    assert ((places >= 0) & (places <= 1)).all()
    assert (np.diff(places) > 0).all()
    assert all(0 <= place <= 1 for place, _ in scale.ticks())
    assert len(scale.ticks()) >= 2


@pytest.mark.parametrize(
    "values", [[], [math.nan, math.inf], [0.0], [1e308, -1e308], [5e-324, 1e308], [1e-300, 2e-300]]
)
def test_no_values_are_too_strange_for_a_scale(values):
    scale = Scale.of(values)
    assert scale.blank == (not np.isfinite(values).any())
    assert (not scale.blank) <= len(scale.ticks()) < 20
    assert np.isnan(scale.at(math.nan))


def test_a_zero_stands_at_the_foot_of_a_logarithmic_scale():
    scale = Scale.of([0.0, 1e-4, 1.0])
    assert scale.at(0.0) == 0.0
    assert scale.ticks()[0] == (0.0, "0")
    assert scale.at(1e-4) > 0.05


def test_what_only_differs_by_rounding_is_a_level_line():
    scale = Scale.of([0.001, 0.001 + 1e-18, 0.0010000000000000002])
    assert (scale.low, scale.high) == (0.0, pytest.approx(0.002))


def test_bytes_and_seconds_have_round_ticks_of_their_own():
    assert [text for _, text in Scale.of([340e6, 380e6], "bytes").ticks()] == ["330 MB", "340 MB", "350 MB", "360 MB"]
    assert [text for _, text in Scale(0.0, 0.21, unit="seconds").ticks()] == [
        "0 s",
        "50 ms",
        "100 ms",
        "150 ms",
        "200 ms",
    ]


def test_steps_are_whole():
    assert [text for _, text in step_ticks(steps_scale(0, 3))] == ["0", "1", "2", "3"]
    assert step_ticks(steps_scale(7, 7)) == [(0.5, "7")]
    assert [short(step) for step in (0, 1500, 20_000, 999_990, 1_500_000)] == ["0", "1,500", "20k", "1M", "1.5M"]


def test_a_cell_says_what_was_read():
    values = np.array([[np.nan, np.inf, 0.0, 1e-6, 1.0]])
    assert cells_of(values, scale_of(values)).tolist() == [[0, 1, 2, 3, 255]]
    assert cells_of(np.array([[0.0, 1.0]]), Scale(0.0, 1.0), apart=False).tolist() == [[3, 255]]


def test_an_image_has_a_pixel_for_each_cell():
    cells = np.arange(12, dtype=np.uint8).reshape(3, 4)
    image = png(cells)
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(image):
        (length,) = struct.unpack(">I", image[at : at + 4])
        kind, content = image[at + 4 : at + 8], image[at + 8 : at + 8 + length]
        assert struct.unpack(">I", image[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + content)
        chunks[kind] = content
        at += 12 + length
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (4, 3, 8, 3, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(3, 5)
    assert (rows[:, 1:] == cells).all()
    assert len(chunks[b"PLTE"]) == 256 * 3
    assert len({chunks[b"PLTE"][at : at + 3] for at in range(9, 768, 3)}) > 200  # levels can be told apart


def test_too_many_layers_are_grouped_and_nothing_that_is_not_finite_is_lost():
    names = tuple(f"blocks.{at // 4}.{part}.weight" for at in range(2000) for part in ("q", "k"))
    values = np.ones((4000, 10))
    values[123, 4] = np.inf
    values[124:126] = np.nan
    table = fitted(names, np.arange(10), values)
    assert len(table.names) <= 500
    assert np.isinf(table.values).sum() == 1
    assert not np.isnan(table.values).any()
    assert "4,000 rows" in table.grouped
    flat = fitted(tuple(f"p{at}" for at in range(1200)), np.arange(1), np.ones((1200, 1)))
    assert len(flat.names) <= 500
    assert flat.names[0] == "p0 … p2"


def test_what_all_long_names_begin_with_is_said_once():
    long = [f"model.decoder.layers.{at}.self_attention.weight" for at in range(3)]
    assert common_part(long) == "model.decoder.layers."
    assert common_part(["0.weight", "0.bias"]) == ""
    assert common_part([long[0]]) == ""
    assert common_part([*long, "head"]) == ""
    assert common_part(["a_very_long_name_of_a_module", "a_very_long_name_of_a_module.weight"]) == ""


def test_a_long_name_is_cut_where_it_is_long():
    name = "encoder_stack_of_blocks.73.a_rather_long_name_of_a_projection.weight"
    short = shortened(name)
    assert len(short) <= 30
    assert re.fullmatch(r"encod\w*…\.73\.a_rath\w*…\.weight", short)
    assert shortened("0.weight") == "0.weight"
    assert len(shortened("n" * 500)) == 30
    assert shortened(".".join("ab" * 20)) == ".".join("ab" * 20)


def test_few_layers_stay_as_they_are():
    table = fitted(("a", "b"), np.arange(3), np.ones((2, 3)))
    assert (table.names, table.grouped) == (("a", "b"), "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (2.5e-5, "25 µs"), (0.0275, "27.5 ms"), (59.96, "1 min"), (250, "4 min 10 s"), (11_100, "3 h 5 min")],
)
def test_times_as_people_write_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.7487, "0.749"),
        (1.2e-5, "1.2e-5"),
        (146_508, "146,508"),
        (-3.2e8, "-3.2e8"),
        (math.nan, "NaN"),
        (12_345.6, "12,346"),
    ],
)
def test_numbers_as_people_write_them(value, text):
    assert number(value) == text


def test_curves_that_go_bad_together_are_hatched_once():
    """Hatched area upon hatched area hides what is written there."""

    def areas(*starts):
        lines = [
            curves.line_through(f"rank {rank}", range(50), [1.0] * bad + [math.nan] * (50 - bad))
            for rank, bad in enumerate(starts)
        ]
        return [str(each) for each in curves._broken(lines, Scale(0.0, 49.0))]

    (area,) = areas(26, 25, 26, 26)
    assert "NaN" in area
    assert ["NaN" in each for each in areas(0, 25)] == [True, True], "far enough from the other to say it again"
