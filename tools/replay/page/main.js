// What the mouse, the wheel and the keys do.

// look shows a stretch of time, within what there is and a little around it.
function look(from, to) {
  const all = data.length || 1, margin = all * 0.02, least = 0.01;
  const wide = Math.min(Math.max(to - from, least), all + 2 * margin);
  view.from = Math.min(Math.max(from, -margin), all + margin - wide);
  view.to = view.from + wide;
  if (view.onlyVisible) arrange(); else redraw();
}

const lookAtAll = () => look(-Infinity, Infinity);
const move = share => { const by = (view.to - view.from) * share; look(view.from + by, view.to + by); };

// zoom changes the scale by a factor and keeps a time where it is.
function zoom(factor, at = (view.from + view.to) / 2) {
  look(at - (at - view.from) / factor, at + (view.to - at) / factor);
}

function zoomTo(lane) {
  const around = Math.max((lane.to - lane.from) * 0.3, 1);
  look(lane.from - around, lane.to + around);
  show(lane);
}

function search(text) {
  view.query = text.trim().toLowerCase();
  arrange();
  const n = data.lanes.filter(shown).length;
  byId("found").textContent = view.query ? `${n} of ${data.lanes.length}` : "";
}

function fold(group) {
  if (!view.folded.delete(group)) view.folded.add(group);
  arrange();
}

// step selects the next lane that is shown, by +1 or -1.
function step(by) {
  const lanes = view.rows.filter(row => row.lane).map(row => row.lane), at = lanes.indexOf(view.selected);
  const next = at < 0 ? lanes[0] : lanes[Math.min(Math.max(at + by, 0), lanes.length - 1)];
  if (next) select(next);
}

const keys = {
  "ArrowLeft": () => move(-0.15), "ArrowRight": () => move(0.15), "ArrowUp": () => step(-1), "ArrowDown": () => step(1),
  "k": () => step(-1), "j": () => step(1), "n": () => step(1), "N": () => step(-1),
  "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "0": lookAtAll,
  "f": () => view.selected && zoomTo(view.selected), "Enter": () => view.selected ? zoomTo(view.selected) : step(1),
  "/": () => byId("search").focus(), "?": () => byId("keys").showModal(),
  "Escape": () => select(null),
};

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const field = event.target.closest("input[type=search]");
  if (field) {
    if (event.key === "Escape") { field.value = ""; search(""); }
    if (event.key === "Escape" || event.key === "Enter") chart.focus();
    return;
  }
  if (event.target.closest("button, label") && event.key === "Enter" || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

chart.addEventListener("wheel", event => {
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY * 0.003), timeAt(event.offsetX));
  else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(sideways / plot());
  else return; // the element scrolls by itself
  event.preventDefault();
}, { passive: false });

// place is where the mouse is on the canvas.
function place(event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

canvas.addEventListener("pointerdown", event => {
  if (event.button) return;
  const { x, y } = place(event);
  drag = { x, y, now: x, from: view.from, to: view.to, scroll: chart.scrollTop, ruler: y < head && x > gutter, moved: false };
  canvas.setPointerCapture(event.pointerId);
});

canvas.addEventListener("pointermove", event => {
  const { x, y } = place(event);
  if (!drag) {
    const row = rowAt(y);
    tip(row && row.lane || null, event.clientX, event.clientY);
    return;
  }
  drag.moved = drag.moved || Math.abs(x - drag.x) + Math.abs(y - drag.y) > 4;
  drag.now = Math.max(x, gutter);
  if (!drag.moved) return;
  tip(null);
  if (drag.ruler) { redraw(); return; }
  const by = (drag.x - x) / plot() * (drag.to - drag.from);
  chart.scrollTop = drag.scroll + drag.y - y;
  look(drag.from + by, drag.to + by);
});

canvas.addEventListener("pointerup", event => {
  const was = drag, { y } = place(event);
  drag = null;
  if (!was) return;
  if (!was.moved) {
    const row = rowAt(y);
    if (row && row.group) fold(row.group); else select(row && row.lane || null, false);
  } else if (was.ruler) {
    look(timeAt(Math.min(was.x, was.now)), timeAt(Math.max(was.x, was.now)));
  }
  redraw();
});

canvas.addEventListener("pointercancel", () => { drag = null; redraw(); });
canvas.addEventListener("pointerleave", () => tip(null));
canvas.addEventListener("dblclick", event => {
  const { x, y } = place(event);
  if (y < head) lookAtAll(); else zoom(2, timeAt(x));
});
chart.addEventListener("scroll", redraw);
new ResizeObserver(arrange).observe(chart);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
addEventListener("beforeprint", fillPrinted);
addEventListener("afterprint", () => byId("printed").replaceChildren());

byId("search").addEventListener("input", event => search(event.target.value));
byId("visible").addEventListener("change", event => { view.onlyVisible = event.target.checked; arrange(); });
byId("in").onclick = () => zoom(1.5);
byId("out").onclick = () => zoom(1 / 1.5);
byId("fit").onclick = lookAtAll;
byId("help").onclick = () => byId("keys").showModal();

// check uses the page as a person would and leaves what it saw in the
// document, for a browser without a window: open the page with #check.
function check(problems) {
  const seen = { processes: data.lanes.length };
  draw();
  Object.assign(seen, { lanes: drawn.lanes, agents: drawn.agents, rows: view.rows.length });
  const began = performance.now();
  for (let i = 0; i < 20; i++) draw();
  seen.frame_ms = (performance.now() - began) / 20;
  const wide = view.to - view.from;
  chart.dispatchEvent(new WheelEvent("wheel", { deltaY: -200, ctrlKey: true, cancelable: true }));
  seen.zoomed = view.to - view.from < wide;
  document.dispatchEvent(new Event("none"));
  chart.dispatchEvent(new KeyboardEvent("keydown", { key: "0", bubbles: true }));
  seen.fitted = view.to - view.from === wide;
  for (const lane of data.lanes.slice(0, 1000)) tell(lane);
  if (data.lanes.length) {
    search(data.lanes[0].story.handle);
    seen.found = view.rows.filter(row => row.lane).length;
    search("");
    chart.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
    seen.story = byId("story").textContent.includes(data.lanes[0].story.handle);
  }
  seen.problems = problems;
  byId("check").textContent = JSON.stringify(seen);
}

// legend names what is there: ends, notches, times without an agent.
function legend() {
  const entry = (colour, text, name) => {
    const item = make("span"), box = make("i", undefined, name);
    box.style.background = `var(--${colour})`;
    item.append(box, text);
    byId("legend").append(item);
  };
  const marked = sign => data.lanes.some(lane => (lane.marks || []).some(mark => mark.sign === sign));
  for (const name in looks) if (data.lanes.some(lane => lane.look === name)) entry(name, looks[name]);
  if (marked("s")) entry("ink", "signal sent", "notch");
  if (marked("d")) entry("timeout", "deadline", "notch");
  if (marked("f")) entry("accent", "found again", "notch");
  if (data.agents.some(agent => agent.end === "crashed")) entry("gap", "no agent, after a crash");
}

function begin() {
  byId("extent").textContent = `${data.lanes.length} processes, records ${data.first_seq} to ${data.head_seq}, ${new Date(data.from).toLocaleString()}, ${span(data.length)}`;
  legend();
  readColours();
  arrange();
  lookAtAll();
  const asked = data.lanes.find(lane => "#" + lane.story.handle === location.hash);
  if (asked) select(asked);
}

const problems = [];
addEventListener("error", event => problems.push(event.message));
begin();
if (location.hash === "#check") {
  try { check(problems); } catch (error) { byId("check").textContent = error.stack; }
}
