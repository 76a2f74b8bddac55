// Colours for what is drawn, from the style sheet, so that dark mode is one place. After Okabe and Ito.

const scheme = window.matchMedia("(prefers-color-scheme: dark)");

/** "change" happens when the colours do. */
export const theme = new EventTarget();
let known = null;

scheme.addEventListener("change", () => {
  known = null;
  theme.dispatchEvent(new Event("change"));
});

export function colours() {
  if (known) return known;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  known = {
    text: read("text"),
    muted: read("muted"),
    line: read("line"),
    panel: read("panel"),
    critical: read("critical"),
    warning: read("warning"),
    info: read("info"),
    series: [1, 2, 3, 4, 5, 6, 7, 8, 9].map((at) => read(`series-${at}`)),
    font: style.getPropertyValue("--sans").trim(),
  };
  return known;
}

/** The colour of the n-th curve; they come again after nine. */
export function colourOf(at) {
  const { series } = colours();
  return series[at % series.length];
}

/** A colour with some of what is behind it showing through. */
export function faint(colour, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${share})`;
}
