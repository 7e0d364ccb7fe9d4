// What sticks out to the right of the window, unless a box around it scrolls; [] when the page fits.
const scrolls = box =>
  box && (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX) || scrolls(box.parentElement));
if (document.documentElement.scrollWidth <= window.innerWidth + 1) return [];
return [...document.querySelectorAll("article *")]
  .filter(e => e.getBoundingClientRect().right > window.innerWidth + 1 && !scrolls(e.parentElement))
  .map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 40)}`)
  .concat(["the page"]);
