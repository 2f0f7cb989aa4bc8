// The chart: a canvas that shows the rows in view, and stays where it is while
// an empty element scrolls by.

const chart = byId("chart"), canvas = byId("canvas"), pen = canvas.getContext("2d");
const rowHeight = 24, rulerHeight = 26, agentHeight = 22, loadHeight = 34, head = rulerHeight + agentHeight + loadHeight;
const mono = "12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace", sans = "12px system-ui, sans-serif";
let width = 0, height = 0, gutter = 0, colours = {}, drag = null;
const drawn = { lanes: 0, agents: 0, frames: 0 };

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "raised", "ink", "soft", "line", "grid", "pick", "accent", "agent", "gap", "gap-ink", ...Object.keys(looks)]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
}

// resize fits the canvas to its place, and tells whether that changed it: then
// it is empty.
function resize() {
  if (width === chart.clientWidth && height === chart.clientHeight) return false;
  width = chart.clientWidth;
  height = chart.clientHeight;
  gutter = width < 700 ? 150 : Math.min(380, Math.max(200, width * 0.3));
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  return true;
}

// arrange takes a changed list of rows or size of the window.
function arrange() {
  makeRows();
  const emptied = resize();
  byId("spacer").style.height = Math.max(0, head + view.rows.length * rowHeight + 8 - height) + "px";
  if (emptied) draw(); else redraw();
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

const plot = () => Math.max(1, width - gutter - 12);
const xOf = t => gutter + (t - view.from) / (view.to - view.from) * plot();
const timeAt = x => view.from + (x - gutter) / plot() * (view.to - view.from);

function draw() {
  drawn.frames++;
  drawn.lanes = drawn.agents = 0;
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, width, height);
  const ticks = ticksInView();
  clipped(gutter, 0, width - gutter, height, () => { drawGaps(); drawGrid(ticks); });
  drawRows();
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, width, head);
  clipped(gutter, 0, width - gutter, head, () => { drawRuler(ticks); drawAgents(); drawLoad(); });
  drawHeadNames();
  line(0, head - 0.5, width, head - 0.5, colours.line);
  line(gutter - 0.5, 0, gutter - 0.5, height, colours.line);
  if (drag && drag.ruler) drawChoice();
}

function clipped(x, y, w, h, paint) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, w, h);
  pen.clip();
  paint();
  pen.restore();
}

function line(x1, y1, x2, y2, colour) {
  pen.strokeStyle = colour;
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

// write writes a text, cut to a width, and returns how wide it is.
function write(text, x, y, room, colour, font = sans) {
  pen.font = font;
  pen.fillStyle = colour;
  let wide = pen.measureText(text).width;
  if (wide > room) {
    const fits = Math.max(0, Math.floor(text.length * (room - 8) / wide));
    text = fits ? text.slice(0, fits) + "…" : "";
    wide = pen.measureText(text).width;
  }
  pen.fillText(text, x, y);
  return wide;
}

// Steps of the ruler, in milliseconds.
const tickSteps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5];

function ticksInView() {
  const least = 105 * (view.to - view.from) / plot();
  let step = tickSteps.find(s => s >= least);
  if (!step) step = Math.ceil(least / 864e5) * 864e5;
  if (least < 0.5) step = Math.pow(10, Math.ceil(Math.log10(least)));
  const zone = new Date(data.from).getTimezoneOffset() * 60000; // so that steps fall on round local times
  const base = data.from - zone, ticks = [];
  for (let t = Math.ceil((base + view.from) / step) * step - base; t <= view.to; t += step) ticks.push(t);
  return { step, ticks };
}

function drawGrid({ ticks }) {
  for (const t of ticks) line(Math.round(xOf(t)) + 0.5, head, Math.round(xOf(t)) + 0.5, height, colours.grid);
}

function drawRuler({ step, ticks }) {
  let day = "";
  for (const t of ticks) {
    const x = Math.round(xOf(t)) + 0.5, date = dateOf(t);
    line(x, rulerHeight - 6, x, rulerHeight, colours.line);
    const text = date === day && step < 864e5 ? clock(t, step) : step < 864e5 ? `${date.slice(5)} ${clock(t, step)}` : date;
    write(text, x + 3, rulerHeight - 9, 200, date === day ? colours.soft : colours.ink);
    day = date;
  }
}

// drawGaps shades the times without an agent, over all rows.
function drawGaps() {
  pen.fillStyle = colours.gap;
  for (let i = 0; i + 1 < data.agents.length; i++) {
    if (data.agents[i].end !== "crashed") continue;
    const x = xOf(data.agents[i].to), to = xOf(data.agents[i + 1].from);
    pen.fillRect(x, head - loadHeight - agentHeight, Math.max(2, to - x), height);
  }
}

function drawAgents() {
  drawGaps();
  const y = rulerHeight + 3, h = agentHeight - 6;
  for (const agent of data.agents) {
    const x = xOf(agent.from), to = Math.max(x + 2, xOf(agent.to));
    if (to < gutter || x > width) continue;
    drawn.agents++;
    pen.fillStyle = colours.agent;
    pen.fillRect(x, y, to - x, h);
    agent.images.forEach((t, i) => { if (i) line(xOf(t), y, xOf(t), y + h, colours.paper); });
    const name = (agent.version || "agent") + (agent.images.length > 1 ? `, ${agent.images.length} images` : "");
    if (Math.min(to, width) - Math.max(x, gutter) > 40) write(name, Math.max(x, gutter) + 5, y + 12, to - Math.max(x, gutter) - 8, colours.paper);
    if (agent.end === "crashed") {
      pen.fillStyle = colours["gap-ink"];
      pen.fillRect(to - 1, y - 2, 3, h + 4);
    }
  }
}

function drawLoad() {
  const bottom = head - 3, tall = loadHeight - 8, steps = load.steps;
  pen.fillStyle = colours.running;
  pen.globalAlpha = 0.35;
  pen.beginPath();
  pen.moveTo(gutter, bottom);
  let first = 0;
  for (let lo = 0, hi = steps.length - 1; lo <= hi;) { // the last step before the view
    const mid = lo + hi >> 1;
    if (steps[mid][0] <= view.from) { first = mid; lo = mid + 1; } else hi = mid - 1;
  }
  const level = n => bottom - n / load.most * tall;
  let x = gutter, n = steps[first][1], most = n; // most of those within a pixel, whose number is n in the end
  pen.lineTo(x, level(n));
  for (let i = first + 1; i < steps.length && steps[i][0] <= view.to; i++) {
    const next = Math.floor(xOf(steps[i][0]));
    if (next > x) {
      pen.lineTo(x, level(most));
      pen.lineTo(x + 1, level(n));
      pen.lineTo(next, level(n));
      x = next;
      most = n;
    }
    n = steps[i][1];
    most = Math.max(most, n);
  }
  pen.lineTo(x, level(most));
  const y = level(n);
  pen.lineTo(x + 1, y);
  pen.lineTo(xOf(Math.min(view.to, data.length)), y);
  pen.lineTo(xOf(Math.min(view.to, data.length)), bottom);
  pen.fill();
  pen.globalAlpha = 1;
}

function drawHeadNames() {
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, gutter - 1, head);
  write(dateOf(view.from), 12, rulerHeight - 9, gutter - 20, colours.soft);
  write("agent", 12, rulerHeight + 15, gutter - 20, colours.ink);
  write(`running, at most ${load.most}`, 12, head - 12, gutter - 20, colours.soft);
}

const rowAt = y => y < head ? null : view.rows[Math.floor((y - head + chart.scrollTop) / rowHeight)];

function drawRows() {
  const first = Math.max(0, Math.floor(chart.scrollTop / rowHeight));
  const last = Math.min(view.rows.length, Math.ceil((chart.scrollTop + height - head) / rowHeight));
  for (let i = first; i < last; i++) {
    const y = head + i * rowHeight - chart.scrollTop, row = view.rows[i];
    if (row.group) drawGroup(row, y); else drawLane(row.lane, y);
  }
  if (!view.rows.length) write(data.lanes.length ? "nothing matches" : "no processes", gutter + 14, head + 24, 300, colours.soft);
}

function drawGroup(row, y) {
  const { group, n } = row;
  pen.fillStyle = colours.raised;
  pen.fillRect(0, y, width, rowHeight);
  const name = group.name ? `session ${group.name}` : "guest front";
  write(`${view.folded.has(group) ? "▸" : "▾"} ${name}  (${count(n)})`, 12, y + 16, gutter - 20, colours.ink, "600 " + sans);
  clipped(gutter, y, width - gutter, rowHeight, () => drawStrip(row, y));
}

// drawStrip draws all lanes of a group on top of each other, what ended well
// below what did not: where to look shows before anything is scrolled.
function drawStrip({ group, strata }, y) {
  line(xOf(group.from), y + rowHeight / 2, xOf(group.to), y + rowHeight / 2, colours.soft);
  for (const lanes of strata) {
    let painted = gutter; // what ends before is out of view, or drawn already
    for (const lane of lanes) {
      const x = Math.round(xOf(lane.from)), to = Math.max(x + 1, Math.round(xOf(lane.to)));
      if (x > width) break;
      if (to <= painted) continue;
      pen.fillStyle = colours[lane.look];
      pen.fillRect(x, y + 8, to - x, rowHeight - 16);
      painted = to;
    }
  }
}

function drawLane(lane, y) {
  drawn.lanes++;
  if (lane === view.selected) {
    pen.fillStyle = colours.pick;
    pen.fillRect(0, y, width, rowHeight);
  }
  const handle = gutter < 300 ? lane.story.handle.slice(0, 8) : lane.story.handle; // the command tells more
  const used = write(handle, 12, y + 16, gutter - 20, colours.ink, mono);
  write(lane.command, 22 + used, y + 16, gutter - used - 32, colours.soft);
  clipped(gutter, y, width - gutter, rowHeight, () => drawBar(lane, y));
}

function drawBar(lane, y) {
  const x = xOf(lane.from), to = Math.max(x + 3, xOf(lane.to)), top = y + 6, tall = rowHeight - 12;
  pen.fillStyle = colours[lane.look];
  let end = to;
  if (lane.drained) {
    end = Math.max(to, xOf(lane.drained));
    pen.globalAlpha = 0.35;
    pen.fillRect(to, top + 4, end - to, tall - 8);
    pen.globalAlpha = 1;
  }
  if (lane.look === "start-failed") {
    pen.font = "700 " + sans;
    pen.fillText("✕", x - 4, y + 16);
    end = x + 8;
  } else {
    pen.fillRect(x, top, to - x, tall);
    if (lane.look === "running") arrow(to, top, tall);
    if (lane.cut) pen.fillRect(x - 4, top + tall / 2 - 1, 3, 2);
  }
  for (const mark of lane.marks || []) drawMark(mark, xOf(mark.at), top, tall);
  drawEnd(lane, x, end, y);
}

function arrow(x, top, tall) {
  pen.beginPath();
  pen.moveTo(x, top);
  pen.lineTo(x + tall / 2, top + tall / 2);
  pen.lineTo(x, top + tall);
  pen.fill();
}

// drawMark draws a signal, a deadline or a rediscovery as a notch in the bar.
function drawMark(mark, x, top, tall) {
  pen.fillStyle = mark.sign === "d" ? colours.timeout : mark.sign === "f" ? colours.accent : colours.ink;
  pen.fillRect(x - 1, top - 3, 2, tall + 6);
}

// drawEnd says in words how a process ended: right of its bar, or left of it
// where there is no room.
function drawEnd(lane, x, end, y) {
  if (lane.look === "ok" || end < gutter || x > width) return;
  pen.font = sans;
  const wide = pen.measureText(lane.end).width, soft = colours.soft;
  if (end + 12 + wide < width) write(lane.end, end + 10, y + 16, wide + 1, soft);
  else if (x - 10 - wide > gutter) write(lane.end, x - 8 - wide, y + 16, wide + 1, soft);
  else if (Math.min(end, width) - Math.max(x, gutter) > wide + 16) write(lane.end, Math.min(end, width) - wide - 12, y + 16, wide + 1, colours.paper);
}

function drawChoice() {
  pen.fillStyle = colours.accent;
  pen.globalAlpha = 0.2;
  pen.fillRect(Math.min(drag.x, drag.now), 0, Math.abs(drag.now - drag.x), height);
  pen.globalAlpha = 1;
}
