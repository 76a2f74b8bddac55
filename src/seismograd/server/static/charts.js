// A chart of curves over steps, drawn by plotly: bands where thinned, marks where not finite, zoom through the span.

import { h, put, say, segments } from "./dom.js";
import { bytes, label, number, valued, whole } from "./format.js";
import { isThinned, latest } from "./points.js";
import { colours, faint, theme } from "./theme.js";

let loading = null;

/** Plotly, loaded from the server when the first chart is drawn. */
export function plotly(address = "/static/plotly.min.js") {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(new Error("plotly.js could not be loaded."));
    };
    document.head.append(script);
  });
  return loading;
}

/** How much plotly may do by itself: nothing that this page does not ask for. */
export const QUIET = {
  displayModeBar: false,
  displaylogo: false,
  doubleClick: false,
  scrollZoom: false,
  showTips: false,
  responsive: false,
};

const UNITS = { seconds: { tickformat: "~s", ticksuffix: "s" } };

/** The part of a layout that all drawings share. */
export function layoutOf(element, height) {
  const { text, muted, line, panel, font } = colours();
  const axis = { gridcolor: line, zeroline: false, linecolor: line, tickfont: { color: muted, size: 11 } };
  return {
    width: element.clientWidth || 320,
    height,
    margin: { l: 56, r: 14, t: 8, b: 26 }, // the same everywhere: what is below each other is the same step
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: font, color: text, size: 12 },
    hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: text, family: font, size: 12 }, namelength: 28 },
    xaxis: {
      ...axis,
      unifiedhovertitle: { text: "step %{x:,d}" },
      tickformat: ",d",
      separatethousands: true,
      showgrid: false,
      ticks: "outside",
      ticklen: 4,
      tickcolor: line,
    },
    yaxis: { ...axis, exponentformat: "power", nticks: Math.max(3, Math.min(6, Math.floor(height / 34))) },
    showlegend: false,
  };
}

/** Mouse drags zoom; a finger scrolls the page and zooms with the buttons. */
export function dragging() {
  return window.matchMedia("(pointer: coarse)").matches ? false : "zoom";
}

/** Lets the keyboard zoom and move: + and -, arrows, 0. */
export function spanKeys(element, span) {
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      "+": () => span.zoom(0.5),
      "=": () => span.zoom(0.5),
      "-": () => span.zoom(2),
      0: () => span.all(),
      ArrowLeft: () => span.pan(-0.25),
      ArrowRight: () => span.pan(0.25),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  });
}

export class Chart {
  /** `curves` later come through `show`. `stacked`: areas on top of each other. `scale`: auto, log or linear. */
  constructor({ title, span, height = 220, unit = null, scale = "auto", stacked = false, head = null, zero = false }) {
    Object.assign(this, {
      title,
      span,
      height,
      unit,
      scale,
      stacked,
      zero,
      curves: [],
      marks: [],
      drawn: false,
      frame: 0,
    });
    this.now = h("span", { class: "now" });
    this.note = h("span", { class: "chart-note" });
    this.scales = stacked
      ? null
      : segments(
          "Scale of the value axis",
          [
            { value: "linear", label: "lin", title: "linear axis" },
            { value: "log", label: "log", title: "logarithmic axis" },
          ],
          "linear",
          (chosen) => {
            this.scale = chosen;
            this.redraw();
          },
        );
    this.plot = h("div", { class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart" });
    this.plot.style.height = `${height}px`;
    this.legend = h("div", { class: "legend" });
    this.element = h(
      "section",
      { class: "panel chart", "aria-label": title },
      h(
        "header",
        { class: "panel-head" },
        head ?? h("h3", {}, title),
        this.now,
        this.note,
        h("span", { class: "grow" }),
        this.scales,
      ),
      this.legend,
      this.plot,
    );
    spanKeys(this.plot, span);
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(this.plot);
    this.recolour = () => this.redraw();
    theme.addEventListener("change", this.recolour);
    span.addEventListener("same", this.recolour);
  }

  /** Takes `{name, points, colour, dash}`s, and `{step, severity}`s to be marked by a line. */
  show(curves, marks = this.marks) {
    this.curves = curves;
    this.marks = marks;
    this.redraw();
  }

  /** Draws at the next frame, once. */
  redraw() {
    if (this.gone || this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.gone && this.plot.isConnected && this.plot.clientWidth) this.draw();
    });
  }

  draw() {
    const Plotly = window.Plotly;
    if (!Plotly) return;
    const log = !this.stacked && (this.scale === "log" || (this.scale === "auto" && spansDecades(this.curves)));
    this.scales?.press(log ? "log" : "linear");
    const traces = this.curves.flatMap((curve, at) => tracesOf(curve, { log, stacked: this.stacked, unit: this.unit }));
    const layout = layoutOf(this.plot, this.height);
    Object.assign(layout.xaxis, { range: padded(this.span.range()), showspikes: false });
    Object.assign(layout.yaxis, {
      type: log ? "log" : "linear",
      fixedrange: true,
      ...UNITS[this.unit],
      ...(this.unit === "bytes" ? byteTicks(extent(this.curves), this.zero) : {}),
      ...(this.stacked || this.zero ? { rangemode: "tozero" } : {}),
      ...(this.zero && !log ? fromZero(extent(this.curves)) : {}),
      ...(log ? { dtick: decadesOf(this.curves) } : {}),
    });
    layout.hovermode = "x unified";
    layout.dragmode = dragging();
    layout.shapes = this.marks.slice(0, 40).map(({ step, severity }) => ({
      type: "line",
      xref: "x",
      yref: "paper",
      x0: step,
      x1: step,
      y0: 0,
      y1: 1,
      layer: "below",
      line: { color: colours()[severity] ?? colours().muted, width: 1, dash: "dot" },
    }));
    Plotly.react(this.plot, traces, layout, QUIET);
    if (!this.drawn) {
      this.drawn = true;
      this.plot.on("plotly_relayout", (change) => {
        const [start, stop] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (start !== undefined && stop !== undefined) this.span.set(Number(start), Number(stop));
      });
      this.plot.on("plotly_doubleclick", () => this.span.all());
    }
    this.describe(log);
  }

  /** Says in words and in the legend what is drawn. */
  describe(log) {
    const shown = this.curves.filter((curve) => curve.points.steps.length);
    const value = shown.length === 1 ? latest(shown[0].points) : undefined;
    say(this.now, value === undefined ? "" : valued(value, this.unit));
    this.now.classList.toggle("is-bad", value !== undefined && !Number.isFinite(value));
    const bad = shown.reduce((sum, { points }) => sum + points.bad.reduce((all, one) => all + one, 0), 0);
    const hidden = log ? shown.reduce((sum, { points }) => sum + points.low.filter((low) => low <= 0).length, 0) : 0;
    const notes = [];
    if (bad) notes.push(`${whole(bad)} not finite`);
    if (hidden) notes.push(`${whole(hidden)} not above 0, off the log axis`);
    say(this.note, notes.join(" · "));
    const [start, stop] = this.span.range();
    const last = shown.map(
      ({ name, points }) => `${name} is ${valued(latest(points), this.unit)} at step ${points.steps.at(-1)}`,
    );
    this.plot.setAttribute(
      "aria-label",
      `${this.title}, steps ${start} to ${stop}. ${last.join(", ") || "No values"}.`,
    );
    put(
      this.legend,
      shown.length > 1 &&
        shown.map(({ name, points, colour, dash }) => {
          const stroke = h("i", { class: dash ? "key is-dashed" : "key" });
          stroke.style.color = colour;
          return h("span", {}, stroke, name, h("b", {}, valued(latest(points), this.unit)));
        }),
    );
  }

  dispose() {
    this.gone = true;
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
    theme.removeEventListener("change", this.recolour);
    this.span.removeEventListener("same", this.recolour);
    if (this.drawn) window.Plotly.purge(this.plot);
  }
}

function padded([start, stop]) {
  const room = Math.max((stop - start) * 0.008, 0.4);
  return [start - room, stop + room];
}

/** The lowest and the highest value of some curves. */
function extent(curves) {
  let low = Infinity;
  let high = -Infinity;
  for (const { points } of curves) {
    for (const value of points.low) if (value < low) low = value;
    for (const value of points.high) if (value > high) high = value;
  }
  return [low, high];
}

/** From zero on, with room above the highest value, so that a level line is not the edge. */
function fromZero([low, high]) {
  return low >= 0 && high > 0 && Number.isFinite(high) ? { range: [0, high * 1.1] } : {};
}

/** Round amounts of memory along an axis. */
function byteTicks([low, high], zero) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return {};
  const foot = zero ? 0 : low;
  const unit = 1024 ** Math.min(4, Math.max(0, Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024))));
  const rough = Math.max((high - foot) / unit / 5, 1e-3);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) * unit;
  const tickvals = [];
  for (let value = Math.floor(foot / step) * step; value <= high + step; value += step) tickvals.push(value);
  return { tickmode: "array", tickvals, ticktext: tickvals.map(bytes) };
}

/** Whether a log axis tells more: all above zero, over more than two decades. */
function spansDecades(curves) {
  const [low, high] = extent(curves);
  return low > 0 && Number.isFinite(high) && high > 100 * low;
}

/** How many decades lie between two labels of a log axis; nothing where one is enough for all. */
function decadesOf(curves) {
  const [low, high] = extent(
    curves.map(({ points }) => ({ points: { ...points, low: points.low.filter((value) => value > 0) } })),
  );
  const decades = Math.log10(high / low);
  return decades > 1.5 ? Math.ceil(decades / 6) : undefined;
}

const gap = (value) => (Number.isFinite(value) ? value : null);

function tracesOf({ name, points, colour, dash }, { log, stacked, unit }) {
  const x = points.steps.map((stop, place) => Math.floor((points.first[place] + stop) / 2));
  const shape = { x, mode: "lines" };
  const traces = [];
  if (stacked) {
    return [
      {
        ...shape,
        y: points.mean.map(gap),
        name: label(name, 28),
        stackgroup: "all",
        stackgaps: "interpolate",
        fillcolor: faint(colour, 0.55),
        line: { color: colour, width: 0.5 },
        customdata: points.mean.map((value) => valued(value, unit)),
        hovertemplate: "%{customdata}",
      },
    ];
  }
  if (isThinned(points)) {
    const off = log ? (value) => (value > 0 ? gap(value) : null) : gap;
    const edge = { ...shape, line: { width: 0, color: colour }, hoverinfo: "skip" };
    traces.push({ ...edge, y: points.low.map(off) });
    traces.push({ ...edge, y: points.high.map(off), fill: "tonexty", fillcolor: faint(colour, 0.22) });
  }
  const lone = points.steps.length < 3;
  traces.push({
    ...shape,
    mode: lone ? "lines+markers" : "lines",
    y: points.mean.map(gap),
    name: label(name, 28),
    line: { color: colour, width: 1.6, dash: dash ? "dash" : "solid" },
    marker: { size: 5, color: colour },
    customdata: points.mean.map((_, place) => hoverOf(points, place, unit)),
    hovertemplate: "%{customdata}",
  });
  const marks = marksOf(points, x);
  if (marks.x.length) {
    traces.push({
      ...marks,
      mode: "markers",
      name: label(name, 28),
      hovertemplate: "%{text}",
      marker: { symbol: "x-thin", size: marks.size, line: { color: colours().critical, width: 2 } },
    });
  }
  return traces;
}

/** The value at a point; where it stands for many steps, its range too. A curve may have its own words (`said`). */
function hoverOf(points, place, unit) {
  if (points.said) return points.said[place];
  const mean = valued(points.mean[place], unit);
  if (points.count[place] === 1) return mean;
  return `${mean} (${valued(points.low[place], unit)} to ${valued(points.high[place], unit)})`;
}

/** Crosses where values are not finite, at the height of the last one that is; the first of a row is the largest. */
function marksOf(points, x) {
  const marks = { x: [], y: [], text: [], size: [] };
  let level = points.mean.find((value) => Number.isFinite(value)) ?? 1;
  let row = false;
  for (let place = 0; place < x.length; place += 1) {
    if (points.bad[place] > 0) {
      const what = Number.isFinite(points.last[place]) ? "not finite" : number(points.last[place]);
      marks.x.push(x[place]);
      marks.y.push(level);
      marks.text.push(points.count[place] > 1 ? `${points.bad[place]} of ${points.count[place]} not finite` : what);
      marks.size.push(row ? 5 : 11);
    }
    row = points.bad[place] > 0;
    if (Number.isFinite(points.mean[place])) level = points.mean[place];
  }
  return marks;
}
