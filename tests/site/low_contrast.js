// Text on view whose contrast to the first opaque ground under it is below 4.5, WCAG 2's level AA for body text.
const SEEN = "p, td, th, li, h1, h2, h3, pre, summary".split(", ").map(name => `article ${name}`).join(", ");
const rgb = colour => (colour.match(/[0-9.]+/g) || [0, 0, 0, 0]).map(Number);
const linear = v => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = colour => {
  const [r, g, b] = rgb(colour).slice(0, 3).map(v => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = box => {
  for (; box; box = box.parentElement) {
    const colour = getComputedStyle(box).backgroundColor;
    if ((rgb(colour)[3] ?? 1) > 0.99) return colour;
  }
  return "rgb(255, 255, 255)";
};
const contrast = e => {
  const [more, less] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
  return (more + 0.05) / (less + 0.05);
};
return [...document.querySelectorAll(SEEN)]
  .filter(e => e.offsetParent && e.textContent.trim())
  .map(e => [contrast(e), `${e.tagName}: ${e.textContent.trim().slice(0, 40)}`])
  .filter(([ratio]) => ratio < 4.5);
