// The steps that are looked at. All charts of a run share one span, so that a zoom in one is a zoom in all.

const NARROWEST = 4;

export class Span extends EventTarget {
  /** `start` and `stop` are steps, or null: from the first, to the newest. `width` follows the newest at a distance. */
  constructor({ start = null, stop = null, width = null } = {}) {
    super();
    Object.assign(this, { start, stop, width, first: 0, newest: 0 });
  }

  /** What the run has, as far as it is known; true if it grew. */
  grow(newest) {
    if (!(newest > this.newest)) return false;
    this.newest = newest;
    return true;
  }

  get follows() {
    return this.stop === null;
  }

  get isAll() {
    return this.start === null && this.stop === null && this.width === null;
  }

  /** First and last step in view. */
  range() {
    if (this.width !== null) return [Math.max(this.first, this.newest - this.width), this.newest];
    return [this.start ?? this.first, this.stop ?? this.newest];
  }

  /** The same for the server: null where there is no limit, so that it need not look. */
  query() {
    if (this.width !== null) return { start: Math.max(this.first, this.newest - this.width), stop: null };
    return { start: this.start, stop: this.stop };
  }

  /** Looks at these steps; a span that reaches the newest step follows it. */
  set(from, to) {
    let start = Math.max(this.first, Math.floor(Math.min(from, to)));
    let stop = Math.min(this.newest, Math.ceil(Math.max(from, to)));
    if (stop - start < NARROWEST) {
      const middle = Math.round((from + to) / 2);
      start = Math.max(this.first, middle - NARROWEST / 2);
      stop = Math.min(this.newest, start + NARROWEST);
      start = Math.max(this.first, stop - NARROWEST);
    }
    if (start <= this.first && stop >= this.newest) return this.all();
    if (stop >= this.newest) this.take(null, null, stop - start);
    else this.take(start, stop, null);
  }

  all() {
    this.take(null, null, null);
  }

  /** The same width at the newest steps. */
  follow() {
    const [start, stop] = this.range();
    this.take(null, null, this.isAll ? null : stop - start);
  }

  zoom(factor) {
    const [start, stop] = this.range();
    const width = (stop - start) * factor;
    const last = this.follows && !this.isAll ? stop : (start + stop + width) / 2; // what is followed stays in view
    this.set(last - width, last);
  }

  pan(share) {
    const [start, stop] = this.range();
    const width = stop - start;
    const by = Math.max(this.first - start, Math.min(this.newest - stop, share * width));
    if (by) this.set(start + by, stop + by);
  }

  /** What a link to this view says. */
  link() {
    return { start: this.start, stop: this.stop, width: this.width };
  }

  take(start, stop, width) {
    if (start === this.start && stop === this.stop && width === this.width) {
      this.dispatchEvent(new Event("same")); // a chart may have been dragged out of it
      return;
    }
    Object.assign(this, { start, stop, width });
    this.dispatchEvent(new Event("change"));
  }
}
