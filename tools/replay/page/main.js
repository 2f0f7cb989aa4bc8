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
  byId("found").textContent = view.query ? `${count(n)} of ${count(data.lanes.length)}` : "";
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
  const seen = { processes: data.lanes.length, paper: getComputedStyle(document.body).backgroundColor };
  draw();
  Object.assign(seen, { lanes: drawn.lanes, agents: drawn.agents, rows: view.rows.length });
  const began = performance.now();
  for (let i = 0; i < 20; i++) draw();
  seen.frame_ms = (performance.now() - began) / 20;
  const hand = makeHand(), wide = view.to - view.from;
  chart.dispatchEvent(new WheelEvent("wheel", { deltaY: -200, ctrlKey: true, cancelable: true }));
  seen.zoomed = view.to - view.from < wide;
  hand.press("0");
  seen.fitted = view.to - view.from === wide;
  hand.drag(gutter + 50, 5, gutter + 150, 5);
  seen.dragged = Math.abs((view.to - view.from) / wide - 100 / plot()) < 0.01;
  hand.press("0");
  for (const lane of data.lanes.slice(0, 1000)) tell(lane);
  if (data.lanes.length) Object.assign(seen, checkLane(hand, data.lanes[data.lanes.length >> 1]));
  dispatchEvent(new Event("beforeprint"));
  seen.printed = byId("printed").querySelectorAll("td .bar").length;
  dispatchEvent(new Event("afterprint"));
  seen.problems = problems;
  byId("check").textContent = JSON.stringify(seen);
}

// checkLane searches a process, looks at its bar, clicks it and reads its story.
function checkLane(hand, lane) {
  const handle = lane.story.handle, seen = {};
  hand.type(handle);
  seen.found = view.rows.filter(row => row.lane).length;
  const y = head + view.rows.findIndex(row => row.lane) * rowHeight + rowHeight / 2;
  zoomTo(lane);
  draw();
  seen.painted = lane.look === "start-failed" || pixel(xOf((lane.from + lane.to) / 2), y - 4) === colour(lane.look);
  hand.click(gutter / 2, y);
  seen.story = !byId("story").hidden && byId("story").querySelector("h2").textContent === handle && location.hash === "#" + handle;
  hand.press("Escape");
  seen.closed = byId("story").hidden;
  hand.type("nothing is called so");
  seen.empty = view.rows.length === 0;
  hand.type("");
  hand.press("0");
  hand.press("j");
  seen.stepped = view.selected === view.rows.find(row => row.lane).lane;
  hand.press("Escape");
  return seen;
}

// makeHand makes what moves a mouse on the canvas, and types.
function makeHand() {
  const point = (name, x, y) => {
    const box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent(name, { clientX: box.left + x, clientY: box.top + y, pointerId: 1 }));
  };
  canvas.setPointerCapture = () => {}; // there is no real pointer to catch
  return {
    click(x, y) { point("pointerdown", x, y); point("pointerup", x, y); },
    drag(x, y, x2, y2) { point("pointerdown", x, y); point("pointermove", x2, y2); point("pointerup", x2, y2); },
    press(key) { chart.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); },
    type(text) { byId("search").value = text; byId("search").dispatchEvent(new Event("input")); },
  };
}

function pixel(x, y) {
  const scale = window.devicePixelRatio || 1;
  return [...pen.getImageData(Math.round(x * scale), Math.round(y * scale), 1, 1).data.slice(0, 3)].join();
}

const colour = name => [1, 3, 5].map(i => parseInt(colours[name].slice(i, i + 2), 16)).join();

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
  const processes = `${count(data.lanes.length)} process${data.lanes.length === 1 ? "" : "es"}`;
  byId("extent").textContent = `${processes}, ${span(data.length)} from ${stamp(data.from).slice(0, -4)}, records ${count(data.first_seq)} to ${count(data.head_seq)}`;
  byId("extent").title = byId("extent").textContent;
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
