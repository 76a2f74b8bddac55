// The curves of some scalars in the span that is looked at: asked for, kept, continued live.

import { get, Gone, runPath } from "./api.js";
import { append, fromServer, MOST, none } from "./points.js";

/** So many points are asked for: about one for each pixel, within limits. */
export function resolution(element) {
  return Math.max(300, Math.min(1200, Math.round(element.clientWidth || 600)));
}

export class Curves {
  /** `changed(names)` is called when there is something new to draw; `failed(error)` when there is not. */
  constructor({ id, span, rank = 0, points = () => 800, changed, failed = () => {} }) {
    Object.assign(this, { id, span, rank, points, changed, failed, names: [], known: new Map(), asking: null });
  }

  of(name) {
    return this.known.get(name) ?? none();
  }

  /** Asks for these scalars in the span; an older question is forgotten. */
  async ask(names = this.names) {
    this.names = names;
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    for (const name of this.known.keys()) if (!names.includes(name)) this.known.delete(name);
    if (!names.length) return;
    try {
      const query = { name: names, ...this.span.query(), points: this.points(), rank: this.rank };
      const { series } = await get(runPath(this.id, "series"), query, signal);
      if (signal.aborted) return;
      for (const name of names) this.known.set(name, series[name] ? fromServer(series[name]) : none());
      this.measure();
      this.changed(names);
    } catch (error) {
      if (!signal.aborted && !(error instanceof Gone)) this.failed(error);
    }
  }

  /** What the span can reach, learned from the curves themselves. */
  measure() {
    let first = Infinity;
    for (const points of this.known.values()) {
      if (!points.steps.length) continue;
      first = Math.min(first, points.first[0]);
      this.span.grow(points.steps[points.steps.length - 1]);
    }
    if (this.span.isAll && Number.isFinite(first)) this.span.first = first;
  }

  /** Continues the curves with what the live stream brought. */
  append(series = {}) {
    let crowded = false;
    const changed = [];
    for (const [name, { steps, values }] of Object.entries(series)) {
      const points = this.known.get(name);
      if (!points || !steps.length) continue;
      this.span.grow(steps[steps.length - 1]);
      if (!this.span.follows) continue;
      crowded ||= points.steps.length + steps.length > MOST;
      this.known.set(name, this.cut(append(points, steps, values)));
      changed.push(name);
    }
    if (crowded) this.ask();
    if (changed.length) this.changed(changed);
  }

  /** Points that slid out of the left edge are let go. */
  cut(points) {
    const [start] = this.span.range();
    const from = points.steps.findIndex((step) => step >= start);
    if (from <= MOST / 4) return points;
    for (const column of Object.values(points)) if (Array.isArray(column)) column.splice(0, from);
    return points;
  }

  stop() {
    this.asking?.abort();
  }
}
