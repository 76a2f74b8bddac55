"use strict";
// The page reads without this: it adds the cross-hair, the heat maps one at a time, and what is folded, on paper.
(() => {
  document.documentElement.classList.add("js");

  const make = (name, cls, parent) => {
    const element = document.createElement(name);
    if (cls) element.className = cls;
    if (parent) parent.append(element);
    return element;
  };
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const count = (value) => value.toLocaleString("en-US");

  function number(value) {
    if (Number.isInteger(value) && Math.abs(value) < 1e7) return count(value);
    const size = Math.abs(value);
    if (size >= 1e-3 && size < 1e6) return Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 });
    return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  function written(value, unit) {
    if (unit === "bytes") {
      let at = 0;
      while (Math.abs(value) >= 1024 && at < 4) { value /= 1024; at++; }
      return `${Number(value.toPrecision(4))} ${["bytes", "kB", "MB", "GB", "TB"][at]}`;
    }
    if (unit === "seconds") {
      for (const [factor, name] of [[1, "s"], [1e3, "ms"], [1e6, "µs"]])
        if (Math.abs(value) * factor >= 1 || name === "µs") return `${Number((value * factor).toPrecision(3))} ${name}`;
    }
    return number(value);
  }

  // -- curves ---------------------------------------------------------------------------------------------------------

  function nearest(line, step) {
    const x = line.x;
    let low = 0, high = x.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < step) low = middle + 1; else high = middle;
    }
    const from = line.from ? line.from[low] : x[low];
    if (low > 0 && step < from && step - x[low - 1] < from - step) low--;
    return low;
  }

  function place(value, [low, high, log]) {
    if (log) return value <= 0 ? 0 : clamp((Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low)), 0, 1);
    return clamp((value - low) / (high - low), 0, 1);
  }

  function crosshair(axes) {
    const plot = axes.querySelector(".plot");
    const chart = JSON.parse(axes.closest("figure").querySelector("script[type='application/json']").textContent);
    const steps = [...new Set(chart.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    if (!steps.length) return;
    const hair = make("div", "hair", plot);
    const readout = make("div", "readout", plot);
    const dots = chart.stack ? [] : chart.lines.map((_, at) => make("i", `c${at + 1}`, hair));
    const reader = make("div", "reader");
    plot.querySelector("svg").after(reader);
    hair.hidden = readout.hidden = true;
    reader.tabIndex = 0;
    reader.setAttribute("role", "slider");
    reader.setAttribute("aria-label", axes.dataset.chart);
    reader.setAttribute("aria-valuemin", steps[0]);
    reader.setAttribute("aria-valuemax", steps[steps.length - 1]);
    let at = steps.length - 1;
    reader.setAttribute("aria-valuenow", steps[at]);

    function show(index) {
      at = clamp(index, 0, steps.length - 1);
      const step = steps[at];
      const told = [];
      chart.lines.forEach((line, number_) => {
        const point = nearest(line, step), value = line.v[point], bad = line.bad && line.bad[point];
        const from = line.from ? line.from[point] : line.x[point];
        const far = line.x[point] < step || from > step ? ` (step ${count(line.x[point])})` : "";
        let text = value === null ? "" : written(value, chart.unit);
        if (line.low && value !== null && line.high[point] > line.low[point])
          text += ` (${written(line.low[point], chart.unit)} to ${written(line.high[point], chart.unit)})`;
        if (bad) text = [text, bad[1] > 1 ? `${count(bad[1])} not finite, last ${bad[0]}` : bad[0]].filter(Boolean).join("; ");
        told.push(`${line.label}: ${text}${far}`);
        if (dots[number_]) {
          dots[number_].hidden = value === null;
          if (value !== null) dots[number_].style.top = `${(1 - place(value, chart.y)) * 100}%`;
        }
      });
      const across = clamp((step - chart.x[0]) / (chart.x[1] - chart.x[0]), 0, 1);
      hair.hidden = readout.hidden = false;
      hair.style.left = `${across * 100}%`;
      readout.replaceChildren();
      make("b", "", readout).textContent = `step ${count(step)}`;
      if (chart.stack) told.reverse();
      for (const line of told) make("div", "", readout).textContent = line;
      const wide = plot.clientWidth, own = readout.offsetWidth, x = across * wide;
      readout.style.left = `${clamp(x + 14 + own <= wide ? x + 14 : x - 14 - own, 0, Math.max(0, wide - own))}px`;
      reader.setAttribute("aria-valuenow", step);
      reader.setAttribute("aria-valuetext", `step ${count(step)}. ${told.join(". ")}`);
    }
    const hide = () => { hair.hidden = readout.hidden = true; };

    function point(event) {
      const box = plot.getBoundingClientRect();
      const step = chart.x[0] + ((event.clientX - box.left) / box.width) * (chart.x[1] - chart.x[0]);
      show(nearest({ x: steps }, step));
    }
    plot.addEventListener("pointerdown", point);
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerleave", () => { if (document.activeElement !== reader) hide(); });
    reader.addEventListener("focus", () => { if (reader.matches(":focus-visible")) show(at); });
    reader.addEventListener("blur", hide);
    reader.addEventListener("keydown", (event) => {
      const far = Math.max(1, Math.round(steps.length / 20));
      const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, PageUp: at + far, PageDown: at - far, Home: 0, End: steps.length - 1 }[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      show(to);
    });
  }

  // -- layers ---------------------------------------------------------------------------------------------------------

  function heat(cells) {
    const figure = cells.closest("figure");
    const map = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const names = [...figure.querySelectorAll(".rows li")];
    const levels = Uint8Array.from(atob(map.cells), (char) => char.charCodeAt(0));
    const wide = map.steps.length, high = names.length, cursor = cells.querySelector(".cursor");
    const scroll = figure.querySelector(".scroll");
    const told = make("output", "told");
    told.setAttribute("aria-live", "polite");
    figure.querySelector("figcaption").before(told);
    told.textContent = "Point at a cell, or use the arrow keys, to read it.";
    cells.tabIndex = 0;
    cells.setAttribute("role", "application");
    cells.setAttribute("aria-label", cells.dataset.heat);
    cells.setAttribute("aria-roledescription", "heat map");
    let row = 0, column = 0, marked = null;

    function value(level) {
      if (level === 0) return "not read";
      if (level === 1) return "not finite";
      const [low, top, log] = map.scale, share = (level - 3) / 252;
      const read = level === 2 ? 0 : log ? low * (top / low) ** share : low + share * (top - low);
      if (map.share) return `${Math.round(read * 100)} %`;
      return level === 2 ? "0" : `about ${Number(read.toPrecision(2)) < 1e-3 || read >= 1e6 ? read.toExponential(1).replace("e+", "e") : Number(read.toPrecision(2))}`;
    }
    function show(toRow, toColumn, follow) {
      row = clamp(toRow, 0, high - 1);
      column = clamp(toColumn, 0, wide - 1);
      cursor.hidden = false;
      Object.assign(cursor.style, { left: `${(column / wide) * 100}%`, top: `${(row / high) * 100}%`, width: `${100 / wide}%`, height: `${100 / high}%` });
      if (marked) marked.classList.remove("on");
      marked = names[row];
      marked.classList.add("on");
      told.classList.add("on");
      told.textContent = `${marked.title}, step ${count(map.steps[column])}: ${value(levels[row * wide + column])}`;
      if (follow) {
        const top = marked.offsetTop - names[0].offsetTop, room = marked.offsetHeight * 2;
        if (top - room < scroll.scrollTop) scroll.scrollTop = top - room;
        if (top + room > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + room - scroll.clientHeight;
      }
    }
    function hide() {
      cursor.hidden = true;
      if (marked) marked.classList.remove("on");
    }
    cells.addEventListener("pointermove", (event) => {
      const box = cells.getBoundingClientRect();
      show(Math.floor(((event.clientY - box.top) / box.height) * high), Math.floor(((event.clientX - box.left) / box.width) * wide), false);
    });
    cells.addEventListener("pointerleave", () => { if (document.activeElement !== cells) hide(); });
    cells.addEventListener("focus", () => { if (cells.matches(":focus-visible")) show(row, column, true); });
    cells.addEventListener("blur", hide);
    cells.addEventListener("keydown", (event) => {
      const to = { ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], PageDown: [row + 10, column], PageUp: [row - 10, column], Home: [row, 0], End: [row, wide - 1] }[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      show(...to, true);
    });
  }

  function tabs(bar) {
    const buttons = [...bar.querySelectorAll("button")];
    const panels = buttons.map((button) => document.getElementById(button.dataset.for));
    if (buttons.length < 2) return;
    bar.hidden = false;
    bar.setAttribute("role", "tablist");
    function choose(number_, focus) {
      const at = (number_ + buttons.length) % buttons.length;
      buttons.forEach((button, each) => {
        button.setAttribute("aria-selected", String(each === at));
        button.tabIndex = each === at ? 0 : -1;
        panels[each].hidden = each !== at;
      });
      if (focus) buttons[at].focus();
    }
    buttons.forEach((button, at) => {
      button.id = `${button.dataset.for}-tab`;
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", button.dataset.for);
      panels[at].setAttribute("role", "tabpanel");
      panels[at].setAttribute("aria-labelledby", button.id);
      button.addEventListener("click", () => choose(at, false));
      button.addEventListener("keydown", (event) => {
        const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        choose(to, true);
      });
    });
    choose(0, false);
  }

  document.querySelectorAll("[data-chart]").forEach(crosshair);
  document.querySelectorAll("[data-heat]").forEach(heat);
  document.querySelectorAll(".tabs").forEach(tabs);

  // On paper nothing is folded.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const each of opened) each.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
  });
})();
