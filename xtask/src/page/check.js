// Checks the page in the window and returns a sentence for each fault. The caller sets the width and the theme.
const faults = [];
const fault = (kind, text) => faults.push(`${kind}: ${text}`);
const shown = (element) => element.checkVisibility({ checkVisibilityCSS: true, checkOpacity: true });
const brief = (text) => text.trim().replace(/\s+/g, " ").slice(0, 60);

function overflow() {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > room) {
    const beyond = (element) => element.getBoundingClientRect().right > room + 1 && !element.closest(".scroll");
    const widest = [...document.body.querySelectorAll("*")].filter(beyond).pop();
    fault("overflow", `the page is ${document.documentElement.scrollWidth} wide in ${room}: ${widest?.outerHTML.slice(0, 80)}`);
  }
}

function anchors() {
  const seen = new Set();
  for (const { id } of document.querySelectorAll("[id]")) {
    if (seen.has(id)) fault("anchor", `two elements have the id ${id}`);
    seen.add(id);
  }
  for (const link of document.querySelectorAll("a[href]")) {
    const target = link.getAttribute("href");
    if (target.startsWith("#") && !seen.has(target.slice(1))) fault("anchor", `${target} leads nowhere`);
    if (/^[a-z]+:/.test(target)) fault("anchor", `${target} needs a network`);
  }
}

const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
// Returns the colour behind an element: opaque colours of its ancestors, with those of translucent ones on top.
function behind(element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
    if (a > 0) layers.push([r, g, b, a]);
    if (a === 1) break;
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  let colour = dark ? [18, 18, 18] : [255, 255, 255];
  for (const [r, g, b, a] of layers.reverse()) {
    colour = colour.map((under, at) => [r, g, b][at] * a + under * (1 - a));
  }
  return colour;
}

function luminance(colour) {
  const [r, g, b] = colour.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast() {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = brief(walk.currentNode.data);
    if (!text || /^(script|style|title)$/i.test(element.tagName) || !shown(element)) continue;
    const style = getComputedStyle(element);
    const drawing = element.closest("svg");
    const paper = drawing?.querySelector("rect.paper");
    const back = paper ? numbers(getComputedStyle(paper).fill) : behind(element);
    const front = numbers(drawing ? style.fill : style.color);
    const [light, dark] = [luminance(front), luminance(back)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) fault("contrast", `${ratio.toFixed(2)} for "${text}"`);
    const view = drawing?.viewBox.baseVal;
    const scale = view?.width ? drawing.getBoundingClientRect().width / view.width : 1;
    if (size * scale < 9) fault("small", `${(size * scale).toFixed(1)} px for "${text}"`);
  }
}

function drawings() {
  for (const svg of document.querySelectorAll("svg")) {
    const name = svg.getAttribute("aria-label");
    const { x, y, width, height } = svg.viewBox.baseVal;
    const boxes = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBBox()]);
    for (const [text, box] of boxes) {
      const inside =
        box.x >= x - 0.5 && box.y >= y - 0.5 && box.x + box.width <= x + width + 0.5 && box.y + box.height <= y + height + 0.5;
      if (!inside) fault("clipped", `"${text}" leaves the drawing "${name}"`);
    }
    boxes.forEach(([text, a], at) => {
      for (const [other, b] of boxes.slice(at + 1)) {
        const across = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
        const down = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
        // The box of a text is higher than its letters.
        if (across > 1 && down > 4) fault("overlap", `"${text}" and "${other}" in "${name}"`);
      }
    });
  }
}

function figures() {
  const all = document.querySelectorAll("figure");
  if (!all.length) fault("figure", "the page has no figure");
  for (const figure of all) {
    const name = brief(figure.textContent);
    if (!figure.querySelector("figcaption")?.textContent.trim()) fault("figure", `no caption: ${name}`);
    const rows = figure.querySelectorAll("tbody tr").length;
    if (!rows) fault("figure", `no table: ${name}`);
    for (const point of figure.querySelectorAll(".pt")) {
      if (!(point.dataset.r < rows)) fault("figure", `a point without a row: ${name}`);
      if (!point.getAttribute("aria-label")) fault("figure", `a point without a name: ${name}`);
    }
    if (figure.querySelectorAll("button").length !== 3) fault("figure", `not three downloads: ${name}`);
  }
  for (const box of document.querySelectorAll("body *")) {
    if (box.scrollWidth > box.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(box).overflowX) && box.tabIndex < 0) {
      fault("keyboard", `no key scrolls ${box.outerHTML.slice(0, 80)}`);
    }
  }
}

overflow();
for (const details of document.querySelectorAll("details")) details.open = true;
overflow();
anchors();
contrast();
drawings();
figures();
return [...new Set(faults)];
