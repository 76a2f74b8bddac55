// Layers over steps as a heat map, and the curve of the layer that is chosen.

import { get, Gone, runPath } from "./api.js";
import { Chart, dragging, layoutOf, plotly, QUIET, spanKeys } from "./charts.js";
import { choice, empty, failed, h, put, say, segments } from "./dom.js";
import { label, many, number, real, shortened, whole } from "./format.js";
import { append, none } from "./points.js";
import { colourOf, colours, theme } from "./theme.js";

const KINDS = ["gradient", "update", "activation", "parameter"];
const FIRST = { gradient: "norm", update: "ratio", activation: "dead" };
const LOG = new Set(["norm", "max", "ratio", "std", "abs", "mean_abs", "scale", "gain"]);
const EVERY = 2000; // milliseconds between two looks at a live run

export function mountLayers(panel, context) {
  const { id, span, query, setQuery, server } = context;
  const { tables } = context.run;
  const kinds = Object.keys(tables)
    .filter((kind) => tables[kind].length)
    .sort((one, other) => place(one) - place(other) || one.localeCompare(other));
  if (!kinds.length) {
    put(
      panel,
      empty(
        "No layer has been read yet.",
        context.run.level === "basic"
          ? "The level basic reads no layers: raise it to advanced."
          : "They are read on sampled steps.",
      ),
    );
    return { found: lookAgain, reload: lookAgain };
  }

  /** Another level may read what was not read before. */
  function lookAgain() {
    if (JSON.stringify(context.run.tables) !== JSON.stringify(tables)) context.remount();
  }

  let kind = kinds.includes(query.kind) ? query.kind : kinds[0];
  let column = columnOf(query.column);
  let scale = "auto";
  let heat = null;
  let layer = query.layer ?? null;
  let asking = null;
  let timer = 0;
  let drawn = false;
  let gone = false;

  const pickers = h("div", { class: "pickers" });
  const plot = h("div", { class: "plot heat", tabindex: 0, role: "group", "aria-roledescription": "heat map" });
  const readout = h("p", { class: "readout muted" });
  const tip = h("div", { class: "tip", hidden: true });
  const notice = h("div", {}, h("p", { class: "muted" }, "Loading the layers…"));
  const picked = h("h3", {});
  const own = new Chart({ title: "Curve of the layer", span, height: 170, head: picked });
  own.element.hidden = true;
  put(
    panel,
    h(
      "section",
      { class: "panel" },
      h("header", { class: "panel-head" }, pickers),
      notice,
      h("div", { class: "heat-box" }, plot, tip),
      readout,
    ),
    own.element,
  );

  function columnOf(wanted) {
    const columns = tables[kind];
    return columns.includes(wanted) ? wanted : columns.includes(FIRST[kind]) ? FIRST[kind] : columns[0];
  }

  let offered = "";
  /** Drawn anew only when there is something else to choose: a list that is open stays open. */
  function drawPickers() {
    const next = JSON.stringify([kind, column, layer, isLog(), heat?.names]);
    if (next === offered) return;
    offered = next;
    const scales = segments(
      "Colour scale",
      [
        { value: "linear", label: "lin" },
        { value: "log", label: "log" },
      ],
      isLog() ? "log" : "linear",
      (chosen) => {
        scale = chosen;
        scales.press(chosen);
        draw();
      },
    );
    const layers = heat?.names.length
      ? choice("Layer", [{ value: "", label: "choose a layer…" }, ...heat.names], layer ?? "", (name) =>
          choose(name || null),
        )
      : null;
    put(
      pickers,
      choice("Kind of statistics", kinds, kind, (value) => {
        kind = value;
        column = columnOf(column);
        changed();
      }),
      choice("Measure", tables[kind], column, (value) => {
        column = value;
        changed();
      }),
      layers,
      h("span", { class: "grow" }),
      scales,
    );
  }

  function changed() {
    scale = "auto";
    setQuery({ kind, column });
    ask();
  }

  function isLog() {
    if (scale !== "auto") return scale === "log";
    return LOG.has(column);
  }

  async function ask() {
    clearTimeout(timer);
    timer = 0;
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      const answer = await get(
        runPath(id, "heat"),
        { kind, column, ...span.query(), samples: samples(), rank: context.rank },
        signal,
      );
      if (signal.aborted || gone) return;
      heat = { ...answer, values: answer.values.map((row) => row.map(real)) };
      if (layer !== null && !heat.names.includes(layer)) layer = null;
      put(
        notice,
        !heat.steps.length &&
          empty("Nothing was read in these steps.", "Layers are read on sampled steps: look at a wider span."),
      );
      drawPickers();
      draw();
    } catch (error) {
      if (!signal.aborted && !gone && !(error instanceof Gone)) put(notice, failed(error, ask));
    }
  }

  function samples() {
    return Math.max(60, Math.min(300, Math.round((plot.clientWidth || 600) / 4)));
  }

  function draw() {
    if (gone || !heat || !window.Plotly || !plot.isConnected) return;
    const wide = plot.clientWidth > 560;
    const height = 40 + Math.min(720, heat.names.length * (heat.names.length < 12 ? 28 : 16));
    plot.style.height = `${height}px`;
    const log = isLog();
    const layout = layoutOf(plot, height);
    const { critical, muted, text, panel: behind } = colours();
    const z = cells(heat.values, log);
    const every = Math.max(1, Math.ceil(heat.names.length / Math.max(1, (height - 40) / 14)));
    const ticks = heat.names.map((_, at) => at).filter((at) => at % every === 0);
    layout.margin = { l: 8, r: 8, t: 8, b: 26 };
    Object.assign(layout.xaxis, { range: edges(heat.steps, span.range()), showgrid: false });
    Object.assign(layout.yaxis, {
      autorange: false,
      range: [heat.names.length - 0.5, -0.5],
      fixedrange: true,
      showgrid: false,
      automargin: true,
      tickmode: "array",
      tickvals: ticks,
      ticktext: ticks.map((at) => label(shortened(heat.names[at], wide ? 32 : 15), wide ? 32 : 20)),
    });
    layout.dragmode = dragging();
    layout.hovermode = "closest";
    layout.plot_bgcolor = behind;
    const at = layer === null ? -1 : heat.names.indexOf(layer);
    layout.shapes =
      at < 0
        ? []
        : [
            {
              type: "rect",
              xref: "paper",
              x0: 0,
              x1: 1,
              y0: at - 0.5,
              y1: at + 0.5,
              line: { color: text, width: 1.5 },
            },
          ];
    const base = {
      type: "heatmap",
      x: heat.steps,
      y: heat.names.map((_, row) => row),
      hoverinfo: "none",
      xgap: 0,
      ygap: heat.names.length < 60 ? 1 : 0,
    };
    const bad = heat.values.map((row) => row.map((value) => (value === Infinity || value === -Infinity ? 1 : null)));
    Plotly.react(
      plot,
      [
        { ...base, z, colorscale: "Viridis", showscale: wide, colorbar: bar(log, muted) },
        {
          ...base,
          z: bad,
          colorscale: [
            [0, critical],
            [1, critical],
          ],
          showscale: false,
        },
      ],
      layout,
      QUIET,
    );
    if (!drawn) listen();
    const badly = bad.flat().filter(Boolean).length;
    const marked = badly ? `, ${whole(badly)} not finite (marked)` : "";
    const known = wide ? [] : z.flat().filter((value) => value !== null);
    const ends = [Infinity, -Infinity];
    for (const value of known) [ends[0], ends[1]] = [Math.min(ends[0], value), Math.max(ends[1], value)];
    const [low, high] = log ? ends.map((value) => 10 ** value) : ends;
    const key = known.length ? ` Dark is ${number(low, 3)}, bright ${number(high, 3)}.` : ""; // no room for a legend
    say(
      readout,
      `${many(heat.names.length, "layer")}, ${many(heat.steps.length, "sample")}${marked}.${key} Click a layer for its curve.`,
    );
    plot.setAttribute(
      "aria-label",
      `${kind} ${column} of layers over steps ${span.range().join(" to ")}. Up and down choose a layer.`,
    );
    drawLayer();
  }

  function listen() {
    drawn = true;
    plot.on("plotly_relayout", (change) => {
      const [start, stop] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (start !== undefined && stop !== undefined) span.set(Number(start), Number(stop));
    });
    plot.on("plotly_doubleclick", () => span.all());
    plot.on("plotly_click", ({ points }) => choose(heat.names[points[0].y]));
    plot.on("plotly_hover", ({ points, event }) => {
      const [row, step] = [points[0].y, points[0].x];
      const at = heat.steps.indexOf(step);
      const value = heat.values[row]?.[at];
      put(tip, h("b", {}, heat.names[row]), h("span", {}, `step ${whole(step)} · ${kind} ${column} ${shown(value)}`));
      tip.hidden = false;
      const box = plot.getBoundingClientRect();
      const left = Math.min(Math.max(4, event.clientX - box.left + 14), box.width - tip.offsetWidth - 4);
      const top = event.clientY - box.top + 16;
      tip.style.transform = `translate(${Math.round(Math.max(4, left))}px, ${Math.round(top)}px)`;
    });
    plot.on("plotly_unhover", () => {
      tip.hidden = true;
    });
  }

  function choose(name) {
    layer = name;
    setQuery({ layer });
    drawPickers();
    draw();
  }

  /** The chosen layer, and the median of all of them to see it against. */
  function drawLayer() {
    const at = layer === null ? -1 : heat.names.indexOf(layer);
    own.element.hidden = at < 0;
    if (at < 0) return;
    say(picked, `${layer}: ${kind} ${column}`);
    own.title = `${layer}: ${kind} ${column}`;
    const median = heat.steps.map((_, step) => middle(heat.values.map((row) => row[step]).filter(Number.isFinite)));
    const curve = (values) => {
      const there = heat.steps.map((_, step) => step).filter((step) => !Number.isNaN(values[step]));
      return append(
        none(),
        there.map((step) => heat.steps[step]),
        there.map((step) => values[step]),
      );
    };
    own.show(
      [
        { name: layer, points: curve(heat.values[at]), colour: colourOf(0) },
        { name: "median of all layers", points: curve(median), colour: colours().muted, dash: true },
      ],
      context.findings.map(({ step, severity }) => ({ step, severity })),
    );
  }

  spanKeys(plot, span);
  plot.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || !heat || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const at = layer === null ? -1 : heat.names.indexOf(layer);
    choose(heat.names[Math.max(0, Math.min(heat.names.length - 1, at + by))]);
  });
  const resized = new ResizeObserver(() => requestAnimationFrame(draw));
  resized.observe(panel);
  theme.addEventListener("change", draw);
  span.addEventListener("same", draw);
  drawPickers();
  plotly(server.plotly).then(ask, (error) => put(notice, failed(error)));

  return {
    change: ask,
    reload: ask,
    found: lookAgain,
    batch() {
      if (span.follows && !timer) timer = setTimeout(ask, EVERY);
    },
    leave() {
      gone = true;
      clearTimeout(timer);
      asking?.abort();
      resized.disconnect();
      theme.removeEventListener("change", draw);
      span.removeEventListener("same", draw);
      own.dispose();
      if (drawn) window.Plotly.purge(plot);
    },
  };
}

function place(kind) {
  const at = KINDS.indexOf(kind);
  return at < 0 ? KINDS.length : at;
}

/** What cells are coloured by. A zero has no logarithm: it gets the lowest colour there is. */
function cells(values, log) {
  if (!log) return values.map((row) => row.map((value) => (Number.isFinite(value) ? value : null)));
  let lowest = 0;
  const made = values.map((row) =>
    row.map((value) => {
      if (!Number.isFinite(value) || value === 0) return value === 0 ? -Infinity : null;
      const size = Math.log10(Math.abs(value));
      lowest = Math.min(lowest, size);
      return size;
    }),
  );
  return made.map((row) => row.map((size) => (size === -Infinity ? lowest : size)));
}

function shown(value) {
  if (value === undefined || Number.isNaN(value)) return "was not read";
  return Number.isFinite(value) ? number(value) : "is not finite";
}

/** The legend of the colours. */
function bar(log, muted) {
  const common = {
    thickness: 10,
    outlinewidth: 0,
    tickfont: { size: 10, color: muted },
    len: 1,
    y: 0.5,
    xpad: 4,
    nticks: 6,
  };
  if (!log) return common;
  return { ...common, tickprefix: "10<sup>", ticksuffix: "</sup>", tickformat: ".2~g" };
}

/** Half a sample of room on both sides, within what is looked at. */
function edges(steps, [start, stop]) {
  if (!steps.length) return [start, stop];
  const half = steps.length > 1 ? (steps[1] - steps[0]) / 2 : 0.5;
  return [Math.max(start, steps[0]) - half, Math.max(stop, steps[steps.length - 1]) + half];
}

function middle(values) {
  if (!values.length) return NaN;
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)];
}
