// The data of the page, what is shown of it, and how times are written.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);

// What ends look like: the names are those of the style sheet's colours.
const looks = {
  "ok": "exit 0", "failed": "other exit code", "killed": "killed by a request", "signal": "signal from elsewhere",
  "timeout": "ran out of time", "oom": "out of memory", "lost": "ended unseen", "running": "still there", "start-failed": "start failed",
};

// strata are the looks, in the order in which they are drawn over each other.
const strata = ["ok", "running", "lost", "failed", "killed", "timeout", "signal", "oom", "start-failed"];

// sessionOf is the session of a lane, "" on the guest front.
const sessionOf = lane => lane.story.spec && lane.story.spec.session || "";

// Each lane knows the text that a search looks in, and its place.
data.lanes.forEach((lane, i) => {
  lane.index = i;
  lane.text = [lane.story.handle, lane.command, sessionOf(lane), lane.end, looks[lane.look], lane.story.summary].join("\n").toLowerCase();
});

// groups are the lanes by session, in the order of their first starts.
const groups = (() => {
  const found = new Map();
  for (const lane of data.lanes) {
    const name = sessionOf(lane);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(lane);
  }
  return [...found].map(([name, lanes]) => ({
    name, lanes,
    from: lanes.reduce((t, l) => Math.min(t, l.from), Infinity),
    to: lanes.reduce((t, l) => Math.max(t, l.to), 0),
  }));
})();

// load is how many processes there are over time: pairs of a time and a number.
const load = (() => {
  const changes = [];
  for (const lane of data.lanes) {
    if (lane.look !== "start-failed") changes.push([lane.from, 1], [lane.to, -1]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const steps = [[0, 0]];
  let n = 0;
  for (const [t, d] of changes) {
    n += d;
    const last = steps[steps.length - 1];
    if (last[0] === t) last[1] = n; else steps.push([t, n]);
  }
  return { steps, most: steps.reduce((m, s) => Math.max(m, s[1]), 1) };
})();

// view is what is shown.
const view = { from: 0, to: 1, rows: [], selected: null, query: "", onlyVisible: false, folded: new Set() };

// shown tells whether a lane passes the search and the view.
function shown(lane) {
  if (view.query && !lane.text.includes(view.query)) return false;
  return !view.onlyVisible || lane === view.selected || lane.to >= view.from && lane.from <= view.to;
}

// makeRows lists what is drawn below each other: lanes, and above those of a
// session, if there is any, its name. A click on the name folds them away.
function makeRows() {
  const named = groups.length > 1 || groups.some(g => g.name);
  view.rows = [];
  for (const group of groups) {
    const lanes = group.lanes.filter(shown);
    if (named && lanes.length) view.rows.push({ group, n: lanes.length, strata: strata.map(look => lanes.filter(lane => lane.look === look)) });
    if (!view.folded.has(group)) for (const lane of lanes) view.rows.push({ lane });
  }
}

const pad = (n, width = 2) => String(n).padStart(width, "0");
const dateOf = t => { const d = new Date(data.from + t); return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`; };

// clock writes a time of day as finely as a step in milliseconds needs.
function clock(t, step) {
  const d = new Date(data.from + t);
  let text = `${pad(d.getHours())}:${pad(d.getMinutes())}`;
  if (step < 60000) text += ":" + pad(d.getSeconds());
  if (step < 1000) text += "." + pad(d.getMilliseconds(), 3);
  if (step < 1) text += pad(Math.round((data.from + t) % 1 * 1000), 3);
  return text;
}

// stamp writes a day and a time, both as on the ruler, of a time in UTC.
const stamp = time => { const t = new Date(time) - data.from; return `${dateOf(t)} ${clock(t, 1)}`; };

// count writes a large number.
const count = n => n.toLocaleString("en");

// span writes a length of time.
function span(ms) {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60000);
  if (minutes < 60) return `${minutes} min ${Math.round(ms % 60000 / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
