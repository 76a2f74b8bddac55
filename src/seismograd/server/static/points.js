// The points of a curve: a bounded number of them, however long the run.

import { real } from "./format.js";

/** More are merged two by two until the server's own thinning arrives. */
export const MOST = 2400;

/** Columns of a curve: of each point its first and last step, its values, how many they are, how many not finite. */
export function fromServer(series) {
  const last = series.last.map(real);
  return {
    first: series.first.slice(),
    steps: series.steps.slice(),
    low: series.low.map(real),
    high: series.high.map(real),
    mean: series.mean.map(real),
    last,
    count: series.count.slice(),
    bad: series.bad.slice(),
    width: series.width,
  };
}

export function none() {
  return { first: [], steps: [], low: [], high: [], mean: [], last: [], count: [], bad: [], width: 1 };
}

/** Adds what the live stream brought; what is known already is left out. */
export function append(points, steps, values) {
  let newest = points.steps.length ? points.steps[points.steps.length - 1] : -Infinity;
  for (let at = 0; at < steps.length; at += 1) {
    if (steps[at] <= newest) continue;
    newest = steps[at];
    const value = real(values[at]);
    const finite = Number.isFinite(value);
    points.first.push(newest);
    points.steps.push(newest);
    points.low.push(finite ? value : NaN);
    points.high.push(finite ? value : NaN);
    points.mean.push(finite ? value : NaN);
    points.last.push(value);
    points.count.push(1);
    points.bad.push(finite ? 0 : 1);
  }
  return points.steps.length > MOST ? halved(points) : points;
}

/** Neighbours become one point; lowest and highest stay. */
function halved(points) {
  const merged = none();
  for (let at = 0; at < points.steps.length; at += 2) {
    const next = Math.min(at + 1, points.steps.length - 1);
    const both = at === next ? [at] : [at, next];
    const good = both.map((each) => points.count[each] - points.bad[each]);
    const finite = both.filter((each, place) => good[place] > 0 && Number.isFinite(points.mean[each]));
    const weight = finite.reduce((sum, each) => sum + points.count[each] - points.bad[each], 0);
    merged.first.push(points.first[at]);
    merged.steps.push(points.steps[next]);
    merged.low.push(finite.length ? Math.min(...finite.map((each) => points.low[each])) : NaN);
    merged.high.push(finite.length ? Math.max(...finite.map((each) => points.high[each])) : NaN);
    merged.mean.push(
      finite.length
        ? finite.reduce((sum, each) => sum + points.mean[each] * (points.count[each] - points.bad[each]), 0) / weight
        : NaN,
    );
    merged.last.push(points.last[next]);
    merged.count.push(both.reduce((sum, each) => sum + points.count[each], 0));
    merged.bad.push(both.reduce((sum, each) => sum + points.bad[each], 0));
  }
  merged.width = points.width * 2;
  return merged;
}

/** Whether a point stands for more than one step's value, so that lowest and highest have something to say. */
export function isThinned(points) {
  return points.count.some((count) => count > 1);
}

/** The newest value that was read, finite or not. */
export function latest(points) {
  return points.last.length ? points.last[points.last.length - 1] : undefined;
}
