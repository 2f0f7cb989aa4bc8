// A process's story beside the chart, the tip at the mouse, and the printed
// table. All text is set as text, never as HTML.

function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

// visible shows control characters as their pictures, for they would vanish.
const visible = text => text.replace(/[\u0000-\u0008\u000b-\u001f]/g, c => String.fromCharCode(0x2400 + c.charCodeAt(0))).replace(/\u007f/g, "\u2421");

// output is the text of stored bytes; those that are not UTF-8 become U+FFFD.
function output(base64) {
  const bytes = Uint8Array.from(atob(base64 || ""), c => c.charCodeAt(0));
  return visible(new TextDecoder().decode(bytes).replace(/\r\n/g, "\n"));
}

const by = asker => asker ? `by ${asker.peer} (${asker.front} front, ${asker.op})` : "";

function facts(lane) {
  const story = lane.story, spec = story.spec, process = story.process, all = [];
  const fact = (name, value, tag) => { if (value) all.push([name, value, tag]); };
  fact("Command", lane.command, "code");
  if (spec) {
    fact("Folder", spec.cwd, "code");
    fact("Session", spec.session);
    fact("At most", spec.timeout_ms && span(spec.timeout_ms));
    fact("Terminal", spec.pty && "yes");
    fact("Environment", (spec.env_names || []).join(", "), "code");
  }
  if (story.asked_by) fact("Asked for", by(story.asked_by));
  if (process) {
    fact("Process", `pid ${process.pid}`);
    fact("Started", stamp(process.started_at));
    fact("Ran", story.ran);
    const used = process.rusage;
    if (used && used.max_rss_kib) fact("Used", `user ${span(used.user_us / 1000)}, system ${span(used.sys_us / 1000)}, memory ${(used.max_rss_kib / 1024).toFixed(1)} MiB`);
  }
  fact("Only asked", story.reads && Object.entries(story.reads).map(([op, n]) => `${op} ${n}`).join(", "));
  return all;
}

function stepItem(step) {
  const item = make("li"), when = new Date(step.time);
  const time = make("time", clock(when - data.from, 1));
  time.title = `record ${step.seq}, ${stamp(when)}`;
  const says = make("span", step.says);
  if (step.by) says.append(make("span", ", " + by(step.by), "by"));
  if (step.count) says.append(make("span", `, ${step.count} times`, "by"));
  item.append(time, says);
  return item;
}

function section(panel, title, element) {
  panel.append(make("h3", title), element);
}

function tell(lane) {
  const panel = byId("story"), story = lane.story;
  panel.replaceChildren();
  const close = make("button", "✕", "close");
  close.title = "Close ( Esc )";
  close.onclick = () => select(null);
  panel.append(close, make("h2", story.handle), make("p", `It ${story.summary}.`, "summary"));
  const list = make("dl");
  for (const [name, value, tag] of facts(lane)) {
    const dd = make("dd");
    dd.append(make(tag || "span", value));
    list.append(make("dt", name), dd);
  }
  panel.append(list);
  const steps = make("ol");
  steps.append(...story.steps.map(stepItem));
  section(panel, "What happened", steps);
  for (const name of ["stdout", "stderr"]) {
    const stream = story.output && story.output[name];
    if (stream && stream.len) section(panel, `The last of ${count(stream.len)} bytes of ${name}`, make("pre", output(stream.tail)));
  }
  if (story.unknown.length) {
    const unknown = make("ul");
    unknown.append(...story.unknown.map(text => make("li", text)));
    section(panel, "Not known", unknown);
  }
  panel.scrollTop = 0;
}

// select picks a process and tells its story, or none with null.
function select(lane, scroll = true) {
  view.selected = lane;
  byId("story").hidden = !lane;
  if (lane) tell(lane);
  history.replaceState(null, "", lane ? "#" + lane.story.handle : location.pathname + location.search);
  arrange();
  if (lane && scroll) show(lane);
}

// show scrolls a process into view, in both directions.
function show(lane) {
  const top = view.rows.findIndex(row => row.lane === lane) * rowHeight;
  if (top < 0) return;
  const room = height - head - rowHeight;
  if (top < chart.scrollTop) chart.scrollTop = top;
  else if (top > chart.scrollTop + room) chart.scrollTop = top - room / 2;
  if (lane.to < view.from || lane.from > view.to) {
    const half = (view.to - view.from) / 2;
    look(lane.from - half, lane.from + half);
  }
  redraw();
}

function tip(lane, x, y) {
  const box = byId("tip");
  box.hidden = !lane;
  if (!lane) return;
  box.replaceChildren(
    make("div", lane.command || lane.story.handle),
    make("div", `${lane.end}, ${clock(lane.from, 1)} for ${span(lane.to - lane.from)}`, "by"));
  box.style.left = Math.min(x + 14, innerWidth - box.offsetWidth - 8) + "px";
  box.style.top = Math.min(y + 16, innerHeight - box.offsetHeight - 8) + "px";
}

// print makes a table of all that the search leaves: the canvas shows a part.
function fillPrinted() {
  const table = make("table"), headings = make("tr"), body = make("tbody"), top = make("thead");
  for (const name of ["Process", "Command", `${clock(0, 1)} to ${clock(data.length, 1)}`, "End"]) headings.append(make("th", name));
  top.append(headings);
  for (const { lane, group } of view.rows) body.append(lane ? printedLane(lane) : printedGroup(group));
  table.append(top, body);
  byId("printed").replaceChildren(table);
}

function printedGroup(group) {
  const row = make("tr"), cell = make("th", group.name ? `session ${group.name}` : "guest front");
  cell.colSpan = 4;
  row.append(cell);
  return row;
}

function printedLane(lane) {
  const row = make("tr"), handle = make("td"), cell = make("td"), bar = make("div", undefined, "bar"), ran = make("i");
  handle.append(make("code", lane.story.handle));
  ran.style.left = lane.from / data.length * 100 + "%";
  ran.style.width = (lane.to - lane.from) / data.length * 100 + "%";
  ran.style.background = `var(--${lane.look})`;
  bar.append(ran);
  cell.append(bar);
  row.append(handle, make("td", lane.command), cell, make("td", lane.end));
  return row;
}
