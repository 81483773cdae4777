// Adds to a page that is complete without it: points under the pointer and the keyboard, and downloads.
"use strict";
const tip = document.createElement("div");
tip.id = "tip";
tip.setAttribute("role", "tooltip");
tip.hidden = true;
document.body.append(tip);

const texts = (row) => [...row.cells].map((cell) => cell.textContent.trim());

// Returns the cells of a point's row with their headers, without empty ones.
function facts(figure, point) {
  const heads = texts(figure.querySelector("thead tr"));
  const cells = texts(figure.querySelectorAll("tbody tr")[point.dataset.r]);
  return cells.map((cell, at) => [heads[at], cell]).filter(([, cell]) => cell);
}

function show(figure, point) {
  hide();
  const [[, name], ...rest] = facts(figure, point);
  const title = document.createElement("b");
  title.textContent = name;
  tip.replaceChildren(title, ...rest.map(([head, cell]) => {
    const line = document.createElement("div");
    line.textContent = `${head}: ${cell}`;
    return line;
  }));
  point.classList.add("here");
  tip.hidden = false;
  const at = point.getBoundingClientRect();
  const width = document.documentElement.clientWidth;
  const left = Math.min(Math.max(at.left + at.width / 2 - tip.offsetWidth / 2, 8), width - tip.offsetWidth - 8);
  const above = at.top - tip.offsetHeight - 10;
  tip.style.left = `${left + scrollX}px`;
  tip.style.top = `${(above > 4 ? above : at.bottom + 10) + scrollY}px`;
}

function hide() {
  tip.hidden = true;
  document.querySelector(".pt.here")?.classList.remove("here");
}

// Returns the point nearest to the pointer, if it is near.
function nearest(points, event) {
  let best = null;
  let least = 22;
  for (const point of points) {
    const box = point.getBoundingClientRect();
    const dx = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
    const dy = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
    const away = Math.hypot(dx, dy);
    if (away < least) [best, least] = [point, away];
  }
  return best;
}

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function csv(figure) {
  const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const rows = [...figure.querySelectorAll("table tr")].map((row) => texts(row).map(quoted).join(","));
  return new Blob([rows.join("\n") + "\n"], { type: "text/csv" });
}

// Returns the chart as a file of its own, in light colours.
function svg(figure) {
  const copy = figure.querySelector("svg").cloneNode(true);
  const [, , width, height] = copy.getAttribute("viewBox").split(" ");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  for (const point of copy.querySelectorAll(".pt")) {
    for (const name of ["tabindex", "role", "aria-label"]) point.removeAttribute(name);
  }
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = document.getElementById("chart-style").textContent;
  copy.prepend(style);
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

async function png(figure) {
  const picture = new Image();
  const text = await svg(figure).text();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = picture.width * 3;
  canvas.height = picture.height * 3;
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

for (const figure of document.querySelectorAll("figure")) {
  const drawing = figure.querySelector("svg");
  const points = [...drawing.querySelectorAll(".pt")];
  points.forEach((point, at) => {
    // One stop of the Tab key for each chart; the arrow keys go from point to point.
    point.setAttribute("tabindex", at ? -1 : 0);
    point.setAttribute("role", "img");
    point.setAttribute("aria-label", facts(figure, point).map(([head, cell], n) => (n ? `${head} ${cell}` : cell)).join(", "));
    point.addEventListener("focus", () => show(figure, point));
    point.addEventListener("blur", hide);
    point.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -points.length, End: points.length };
      if (event.key === "Escape") hide();
      if (!(event.key in steps)) return;
      event.preventDefault();
      const next = points[Math.min(Math.max(at + steps[event.key], 0), points.length - 1)];
      point.setAttribute("tabindex", -1);
      next.setAttribute("tabindex", 0);
      next.focus();
    });
  });
  for (const kind of ["pointermove", "pointerdown"]) {
    drawing.addEventListener(kind, (event) => {
      const point = nearest(points, event);
      point ? show(figure, point) : hide();
    });
  }
  drawing.addEventListener("pointerleave", hide);
  const tools = figure.querySelector(".tools");
  tools.append("Download: ");
  for (const [kind, make] of [["CSV", csv], ["SVG", svg], ["PNG", png]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.setAttribute("aria-label", `Download as ${kind}: ${figure.dataset.title}`);
    button.addEventListener("click", async () => save(`${figure.id}.${kind.toLowerCase()}`, await make(figure)));
    tools.append(button);
  }
}

// The contents are open beside the page, and closed above it on a small screen.
if (innerWidth < 1100) document.querySelector("nav details")?.removeAttribute("open");
