"use strict";
// Asks /api/pools and /api/clients every two seconds and shows what happened in between. Only text is ever put into the page: names are
// chosen by clients.
const EVERY = 2000, EXAMINED_EVERY = 3, PATIENCE = 5000, MAX_ROWS = 200, HOLDERS = 20, MAX_TEXT = 1000, MAX_TOLD = 300;
// Points that are kept of the chosen pool, and of all others together: each of many has fewer.
const FEW_WORKERS = 4, KEPT = 300, MAX_POINTS = 60000;
// Poolhouse itself keeps an hour: one point each ten seconds, as lists of these values.
const PAST_EVERY = 10000, PAST = ["at", "tps", "waiters", "inUse", "open", "hold", "queued", "created", "made", "closed", "failed"];
// How long the axis of time may be; the shorter of two choices has the looks of this page, which are closer together.
const MINUTE = 60e3, SPANS = [2, 4, 8, 20, 40, 60].map(minutes => minutes * MINUTE), SHORT = 8 * MINUTE;
// Points that are further apart are not joined by a line.
const GAP = 3 * PAST_EVERY;
// Looks that have all been answered, however slowly, are not further apart than this.
const APART = 2 * EVERY + 3 * PATIENCE;
// A client that has asked nothing within its transaction for so long has forgotten it, in milliseconds.
const FORGOTTEN = 5000;
const MAX_WAITERS = 10;
let before = null, chosen = null, timer = null, looking = false, still = false, looks = 0, latest = 0, isHour = true;
let past = { id: null, asked: -PAST_EVERY, points: [] };
const history = new Map();

// What would turn the direction of the text beside it, or cannot be seen, is replaced: two names that differ must look different.
const unseen = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}|(?<=[\p{Mn}\p{Me}]{3})[\p{Mn}\p{Me}]/gu;
const clean = text => (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text).replace(unseen, "\ufffd");

const element = (name, attributes = {}, ...inside) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
  made.append(...inside.map(one => one instanceof Node ? one : clean(String(one))));
  return made;
};
const by = id => document.getElementById(id);
const sum = counts => Object.values(counts).reduce((a, b) => a + b, 0);
const dash = "–";
const time = ms => {
  if (ms === null || ms === undefined) return dash;
  if (ms < 1) return (ms * 1000).toFixed(0) + " µs";
  if (ms < 10) return ms.toFixed(1) + " ms";
  if (ms < 1000) return ms.toFixed(0) + " ms";
  if (ms < 120e3) return (ms / 1e3).toFixed(1) + " s";
  return ms < 7200e3 ? (ms / 60e3).toFixed(0) + " min" : (ms / 3600e3).toFixed(0) + " h";
};
const rate = value => value === null ? dash : value >= 10 || value === 0 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
const count = n => n.toLocaleString("en");
const listed = counts => Object.entries(counts).filter(([, n]) => n > 0).map(([why, n]) => `${why} ${count(n)}`).join(", ") || "none";
const grown = (now, then) => Object.fromEntries(Object.entries(now).map(([key, n]) => [key, Math.max(0, n - (then?.[key] ?? 0))]));

// A quantile of what came between two looks; beyond the last bound it is that bound.
const quantile = (now, then, share, bounds) => {
  const counts = now.buckets.map((n, i) => Math.max(0, n - (then?.buckets[i] ?? 0)));
  const rank = sum(counts) * share;
  let seen = 0, lower = 0;
  for (let i = 0; i < bounds.length; i++) {
    if (counts[i] > 0 && seen + counts[i] >= rank) return lower + (bounds[i] - lower) * (rank - seen) / counts[i];
    seen += counts[i];
    lower = bounds[i];
  }
  return rank > 0 ? lower : null;
};

// One point of a pool's history.
const measured = (pool, then, seconds, bounds, at) => ({
  at,
  tps: (pool.transactions - then.transactions) / seconds,
  waiters: pool.waiters,
  inUse: pool.servers.in_use,
  open: pool.servers.total,
  hold: quantile(pool.hold, then.hold, 0.99, bounds),
  queued: quantile(pool.checkout.queued, then.checkout.queued, 0.99, bounds),
  created: quantile(pool.checkout.created, then.checkout.created, 0.99, bounds),
  made: (pool.created - then.created) / seconds * 60,
  closed: (sum(pool.closed) - sum(then.closed)) / seconds * 60,
  failed: sum(grown(pool.checkout_failed, then.checkout_failed)) / seconds,
});

const stateOf = pool => pool.paused ? "paused" : pool.drained ? "drained" : pool.unavailable_ms !== null ? "unavailable" : "ready";

// What does not fit into a cell is told whole to whoever points at it.
const titled = cell => {
  const text = cell instanceof Node ? cell.textContent : String(cell);
  return text.length > 30 ? clean(text) : null;
};

// Rows are cells, of which some are bad, by their heads.
const table = (id, heads, rows, all = rows.length, none = "nothing") => {
  const head = element("tr", {}, ...heads.map(([name, kind]) => element("th", { scope: "col", class: kind || null }, name)));
  const body = rows.slice(0, MAX_ROWS).map(row => element("tr", { class: row.class || null }, ...row.cells.map((cell, i) =>
    element("td", { class: [heads[i][1], row.bad?.includes(heads[i][0]) && "bad"].filter(Boolean).join(" ") || null, title: titled(cell) }, cell))));
  const more = all - Math.min(rows.length, MAX_ROWS);
  if (more > 0) body.push(element("tr", {}, element("td", { colspan: heads.length, class: "soft" }, `and ${count(more)} more: poolhouse top lists them all`)));
  const nothing = element("tr", {}, element("td", { colspan: heads.length, class: "soft" }, none));
  // Whoever goes through the page by keyboard stays where he is.
  const focused = by(id).contains(document.activeElement) ? document.activeElement.dataset.key : null;
  by(id).replaceChildren(element("thead", {}, head), element("tbody", {}, ...(body.length ? body : [nothing])));
  if (focused) by(id).querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
};

const tile = (name, value, note, bad) =>
  element("div", { class: bad ? "tile bad" : "tile" }, element("dt", {}, name), element("dd", { class: "value" }, value), element("dd", { class: "note" }, note));

const SVG = "http://www.w3.org/2000/svg";
const drawn = (name, attributes, ...inside) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
};

// What is known of a pool: over an hour what Poolhouse has kept, and what this page has seen since; over less what this page has seen, and
// what Poolhouse has kept from before.
const pointsOf = id => {
  const own = (history.get(id) ?? []).filter(point => point.at !== undefined), told = past.id === id ? past.points : [];
  const last = told[told.length - 1]?.at ?? -1, first = own[0]?.at ?? Infinity;
  return isHour ? [...told, ...own.filter(point => point.at > last)] : [...told.filter(point => point.at < first), ...own];
};

// The shortest axis that has room for all points, and the points that are on it.
const framed = all => {
  const longest = isHour ? SPANS[SPANS.length - 1] : SHORT, age = latest - (all[0]?.at ?? latest);
  const span = Math.min(longest, SPANS.find(span => span >= age) ?? longest);
  return { span, points: all.filter(point => point.at >= latest - span) };
};
const TICKS = [0, 0.25, 0.5, 0.75], WIDTH = 1000;
const ticked = ms => ms % MINUTE ? `${ms / 1e3} s` : `${ms / MINUTE} min`;

// Lines over the kept points, from zero; gaps where nothing is known. A point alone is a dot.
const chart = (name, { span, points }, lines, show) => {
  const top = Math.max(1e-9, ...points.flatMap(point => lines.map(([key]) => point[key] ?? 0)));
  const path = key => {
    let pen = -Infinity;
    return points.map(point => {
      const value = point[key];
      if (value === null || value === undefined) { pen = -Infinity; return ""; }
      const x = (WIDTH - (latest - point.at) / span * WIDTH).toFixed(1), y = (100 - value / top * 96).toFixed(1);
      const step = point.at - pen > GAP ? `M${x} ${y}h0` : `L${x} ${y}`;
      pen = point.at;
      return step;
    }).join("");
  };
  const last = points[points.length - 1] ?? {};
  const keys = lines.map(([key, word], i) => element("span", {}, drawn("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" },
    drawn("path", { class: `k${i + 1}`, d: "M0 4L22 4", "stroke-width": "2" })), `${word} `, element("b", {}, show(last[key] ?? null))));
  const label = `${name}: ${lines.map(([key, word]) => `${word} ${show(last[key] ?? null)}`).join(", ")}; at most ${show(top)} in the time shown`;
  return element("div", { class: "chart" }, element("h3", {}, name), element("div", { class: "keys" }, ...keys),
    element("div", { class: "top" }, points.length ? show(top > 1e-6 ? top : 0) : dash),
    drawn("svg", { viewBox: `0 0 ${WIDTH} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      ...TICKS.slice(1).map(share => drawn("path", { class: "tick", d: `M${share * WIDTH} 0V100` })),
      ...lines.map(([key], i) => drawn("path", { class: `k${i + 1}`, d: path(key) }))),
    element("div", { class: "axis", "aria-hidden": "true" }, ...TICKS.map(share => element("span", {}, `−${ticked(span * (1 - share))}`)), element("span", {}, "now")));
};

// Point by point: a pool's own past.
const keep = (id, point, pools) => {
  const kept = history.get(id) ?? [];
  kept.push(point);
  const most = id === chosen ? KEPT : Math.max(2, Math.min(KEPT, Math.floor(MAX_POINTS / pools)));
  if (kept.length > most) kept.splice(0, kept.length - most);
  history.set(id, kept);
};

const list = (name, text) => element("div", { class: "list" }, element("h3", {}, name), element("p", { class: "soft" }, text));

// What people call a database: in its label, the version that clients of Redis speak stands behind the number.
const named = one => one.protocol === "redis" ? one.database.replace(/\/resp3$/, " (RESP3)") : one.database;

// The rules of a pool, in the words of the configuration.
const ruled = settings => Object.entries(settings).map(([key, value]) =>
  `${key} ${value === null ? key.startsWith("max_") && !key.endsWith("_time") ? "unlimited" : "off" : key.endsWith("_time") || key.endsWith("_idle") ? time(value) : count(value)}`).join(", ");

const finding = (title, seen, kind, ...more) =>
  element("div", { class: kind }, element("h3", {}, title), element("ul", {}, ...seen.map(text => element("li", {}, text))), ...more);

// Text in which commands stand between backticks.
const marked = text => {
  const parts = text.split("`");
  return parts.length % 2 ? parts.map((part, i) => i % 2 ? element("code", {}, part) : part) : [text];
};

// What the doctor found. Told again only when it changes, so that it is not read aloud every few seconds.
let said = null;
const showFindings = told => {
  const paragraph = (...inside) => element("p", { class: "soft" }, ...inside);
  const span = told.state === "examined" ? `in the last ${time(told.window_s * 1000)}` : "";
  const set = ({ key, to, from }) => element("p", {}, "set ", element("code", {}, `${key} = ${to}`), from === null ? "" : ` (now ${from})`);
  const inside = told.state === "looking" ? [paragraph(`Looking: it says nothing before it has looked ${told.needs_looks} times and for ${told.needs_s} s.`)]
    : told.state !== "examined" ? [paragraph(`There are more than ${told.most_pools} pools: too many to watch from here. Ask "poolhouse doctor".`)]
    : [...told.findings.map(one => finding(`${one.of}: ${one.name}`, one.evidence, "finding", paragraph("not: ", ...marked(one.rules_out)),
        ...(one.setting ? [set(one.setting)] : []), element("p", {}, ...marked(one.advice)))),
      ...told.undecided.map(one => finding(`${one.of}: undetermined: ${one.names.join(", or ")}`, one.seen, "finding undecided", paragraph("what would decide it: ", ...marked(one.needs))))];
  if (told.state === "examined" && inside.length === 0) {
    inside.push(paragraph(told.pools === 0 ? "There is no pool yet: no client has asked for a database."
      : told.is_quiet ? `Nothing happened ${span}: no transaction ended, no server was in use, no client waited.` : `Healthy ${span}: none of the symptoms that it knows.`));
  }
  const key = JSON.stringify([told.state, told.findings?.map(one => [one.of, one.name]), told.undecided?.map(one => [one.of, one.names]), told.pools === 0, told.is_quiet]);
  by("findings").setAttribute("aria-live", key === said ? "off" : "polite");
  said = key;
  by("findings").replaceChildren(...inside);
};

let showAgain = () => {};
const showPool = pool => {
  by("pool").hidden = !pool;
  if (!pool) return;
  const points = framed(pointsOf(pool.id));
  by("pool-head").replaceChildren(element("bdi", {}, named(pool)), " as ", element("bdi", {}, pool.user || "no particular user"));
  by("pool-note").textContent = clean(`${pool.protocol} at ${pool.address}, ${pool.min_size} to ${pool.max_size} servers, ${stateOf(pool)}` +
    (pool.tuning ? `; max_size is tuned: ${pool.tuning.state.replace("_", " ")}${pool.tuning.last ? `; last: ${pool.tuning.last.text}` : ""}` : "") +
    (pool.last_error ? `; the last attempt to connect that failed: ${pool.last_error}` : ""));
  const whole = value => value === null ? dash : Number.isInteger(value) ? count(value) : rate(value);
  by("span").setAttribute("aria-pressed", String(isHour));
  by("charts").replaceChildren(
    chart("Transactions a second", points, [["tps", "transactions"]], whole),
    chart("Servers", points, [["inUse", "in use"], ["open", "open"]], whole),
    chart("Waiting for a server", points, [["waiters", "clients"]], whole),
    chart("99th percentiles", points, [["hold", "held"], ["queued", "waited in the queue"], ["created", "waited for a new one"]], time),
    chart("Connections a minute", points, [["made", "made"], ["closed", "closed"]], whole));
  const phases = Object.entries(pool.connect).map(([phase, times]) => `${phase} ${time(times.mean_ms)}`).join(", ");
  by("pool-lists").replaceChildren(
    list("Check-outs since the start", listed(Object.fromEntries(Object.entries(pool.checkout).map(([path, times]) => [path, times.count])))),
    list("Check-outs that failed", listed(pool.checkout_failed)),
    list("Connections closed", listed(pool.closed)),
    list("Phases of connecting, mean", phases),
    list("Settings in force", ruled(pool.settings)),
    list("Pinned now", listed(pool.pinned)),
    list("Functions that could touch a session", pool.suspicious.join(", ") || "none"));
};

const show = (look, clients, waiting, seconds) => {
  latest = look.uptime_ms;
  const thens = new Map((before?.pools ?? []).map(pool => [pool.id, pool]));
  const bounds = look.bucket_bounds_ms;
  const seen = new Set(look.pools.map(pool => pool.id));
  for (const id of history.keys()) if (!seen.has(id)) history.delete(id);
  const points = new Map();
  for (const pool of look.pools) {
    const then = thens.get(pool.id);
    if (!then) continue;
    const point = measured(pool, then, seconds, bounds, look.uptime_ms);
    points.set(pool.id, point);
    keep(pool.id, point, look.pools.length);
  }
  const all = [...points.values()], total = key => all.length ? all.reduce((n, point) => n + point[key], 0) : null;
  by("version").textContent = clean(look.version);
  const doors = look.listeners, people = doors.flatMap(door => Object.entries(door.clients));
  const states = {};
  for (const [state, n] of people) states[state] = (states[state] ?? 0) + n;
  const waiters = look.pools.reduce((n, pool) => n + pool.waiters, 0);
  const inUse = look.pools.reduce((n, pool) => n + pool.servers.in_use, 0), open = look.pools.reduce((n, pool) => n + pool.servers.total, 0);
  const cpu = look.workers.map((worker, i) => before?.workers[i] ? (worker.cpu_ms - before.workers[i].cpu_ms) / seconds / 10 : null);
  // Of many workers a list would fill the page.
  const percent = share => share === null ? dash : `${share.toFixed(0)} %`;
  const busy = cpu.length <= FEW_WORKERS ? cpu.map(percent).join("  ")
    : cpu.includes(null) ? dash : `${percent(Math.min(...cpu))} to ${percent(Math.max(...cpu))}`;
  const turned = doors.reduce((n, door) => n + sum(door.rejections), 0), sent = doors.reduce((n, door) => n + sum(door.evictions), 0);
  const turnedThen = (before?.listeners ?? doors).reduce((n, door) => n + sum(door.rejections), 0);
  const accepted = doors => doors.reduce((n, door) => n + door.accepted, 0);
  const came = before ? (accepted(doors) - accepted(before.listeners)) / seconds : null;
  by("tiles").replaceChildren(
    tile("Clients", count(sum(states)), `${listed(states)}; ${rate(came)} came a second`, doors.some(door => sum(door.clients) >= door.soft_limit)),
    tile("Servers in use", `${inUse}`, `${open} open, ${look.pools.reduce((n, pool) => n + pool.servers.connecting, 0)} being made`),
    tile("Waiting for a server", count(waiters), `longest ${time(Math.max(0, ...look.pools.map(pool => pool.oldest_wait_ms ?? 0)))}`, waiters > 0),
    tile("Transactions a second", rate(total("tps")), `${rate(total("failed"))} check-outs failed a second`, total("failed") > 0),
    tile("Connections made a minute", rate(total("made")), `${rate(total("closed"))} closed`),
    tile("Workers' CPU", busy, "of a core each"),
    tile("Turned away", count(turned), `${count(sent)} sent away, both since the start`, turned > turnedThen));
  // Of more than are shown, those come first for which clients wait, and those that cannot be used. The first of them is shown until one is chosen.
  const order = (a, b) => b.waiters - a.waiters || (stateOf(b) !== "ready") - (stateOf(a) !== "ready");
  if (chosen === null || !seen.has(chosen)) chosen = [...look.pools].sort(order)[0]?.id ?? null;
  const first = look.pools.length > MAX_ROWS ? [...look.pools].sort(order).slice(0, MAX_ROWS) : look.pools;
  const rows = first.map(pool => {
    const point = points.get(pool.id), state = stateOf(pool);
    const choose = element("button", { type: "button", "data-key": pool.id, "aria-pressed": String(pool.id === chosen) }, named(pool));
    choose.addEventListener("click", () => {
      chosen = pool.id;
      by("pools").querySelectorAll("button").forEach(button => button.setAttribute("aria-pressed", String(button === choose)));
      showAgain();
      recall(pool.id).then(showAgain);
    });
    return {
      class: pool.id === chosen ? "chosen" : null,
      bad: [...(pool.waiters > 0 ? ["waiting", "longest"] : []), ...(state !== "ready" ? ["state"] : [])],
      cells: [choose, pool.waiters, time(pool.oldest_wait_ms), `${pool.servers.in_use}/${pool.max_size}`, state, pool.user, pool.clients,
        pool.servers.idle, rate(point?.tps ?? null), time(point?.hold), time(point?.queued), time(point?.created), listed(pool.pinned), pool.protocol],
    };
  });
  table("pools", [["database"], ["waiting", "n"], ["longest", "n"], ["in use", "n"], ["state"], ["user"], ["clients", "n"], ["idle", "n"],
    ["transactions/s", "n"], ["held p99", "n"], ["queued p99", "n"], ["new p99", "n"], ["pinned"], ["protocol"]], rows, look.pools.length);
  showAgain = () => showPool(look.pools.find(pool => pool.id === chosen));
  showAgain();
  const people_heads = [["for", "n"], ["state"], ["pinned"], ["database"], ["user"], ["address"], ["id", "n"]];
  const person = client => ({
    bad: client.state === "transaction" && client.state_ms >= FORGOTTEN ? ["for", "state"] : [],
    cells: [time(client.state_ms), client.state, client.pinned ?? dash, named(client), client.user, client.address, client.id],
  });
  table("holders", people_heads, clients.map(person), clients.length, "no client holds a server");
  table("waiting", people_heads.filter(([name]) => !["state", "pinned"].includes(name)), waiting.map(client => ({
    cells: [time(client.state_ms), named(client), client.user, client.address, client.id],
  })), Math.max(waiters, waiting.length), "no client waits");
  table("listeners", [["address"], ["protocol"], ["clients", "n"], ["soft limit", "n"], ["hard limit", "n"], ["turned away"], ["sent away"]], doors.map(door => ({
    bad: sum(door.clients) >= door.soft_limit ? ["clients"] : [],
    cells: [door.name, door.protocol, sum(door.clients), door.soft_limit, door.hard_limit, listed(door.rejections), listed(door.evictions)],
  })));
};

const ask = async path => {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
};

// The hour that Poolhouse has kept of a pool. Without an answer the curves begin where this page did.
const recall = async id => {
  try {
    const told = await ask(`/api/history?pool=${id}`), points = told.pools[0]?.points ?? [];
    past = { id, asked: told.uptime_ms, points: points.map(values => Object.fromEntries(PAST.map((key, i) => [key, values[i]]))) };
  } catch {
    past = { id, asked: latest, points: past.id === id ? past.points : [] };
  }
};

// Told again only when it changes: it is read aloud.
const tell = (told, bad) => {
  const text = clean(told.slice(0, MAX_TOLD));
  if (by("state").textContent !== text) by("state").textContent = text;
  by("state").className = bad ? "bad" : "";
};

// Another process than the last one: its counters have begun anew, and its pools have other ids.
const begin = pools => {
  const was = before.pools.find(pool => pool.id === chosen);
  const same = pool => was && ["protocol", "database", "user"].every(key => pool[key] === was[key]);
  chosen = pools.pools.find(same)?.id ?? null;
  before = null;
  history.clear();
  past = { id: null, asked: -PAST_EVERY, points: [] };
};

const look = async () => {
  clearTimeout(timer);
  if (looking || still) return;
  looking = true;
  try {
    const [pools, clients] = [await ask("/api/pools"), await ask(`/api/clients?holders=true&limit=${HOLDERS}`)];
    // Those who hold servers may be listed before those who wait, however long these do.
    const wait = pools.pools.some(pool => pool.waiters > 0);
    const busy = wait ? (await ask(`/api/clients?busy=true&limit=${HOLDERS + MAX_WAITERS}`)).clients : [];
    const waiting = busy.filter(client => client.state === "waiting").slice(0, MAX_WAITERS);
    if (still) return;
    if (before && before.instance !== pools.instance) begin(pools);
    // By the clock of who answers: neither an answer that takes long nor a machine here that slept changes a rate.
    const apart = before ? pools.uptime_ms - before.uptime_ms : 0;
    // After a pause nobody knows what happened when: the curves have a gap.
    if (apart > APART) { before = null; for (const id of history.keys()) keep(id, {}, history.size); }
    // They were asked for one after the other: a client that waits by now holds no server.
    const waits = new Set(waiting.map(client => client.id));
    const holders = clients.clients.filter(client => !waits.has(client.id));
    show(pools, holders, waiting, Math.max(1, apart) / 1000);
    before = pools;
    if (chosen !== null && (past.id !== chosen || latest - past.asked >= PAST_EVERY)) {
      await recall(chosen);
      showAgain();
    }
    by("clock").textContent = `as of ${new Date().toLocaleTimeString()}`;
    if (looks++ % EXAMINED_EVERY === 0) showFindings(await ask("/api/findings"));
    if (!still) tell(pools.draining ? "draining: it accepts no new clients" : "live", pools.draining);
  } catch (error) {
    if (!still) tell(`no answer: ${error.message}`, true);
  } finally {
    looking = false;
    // A page that nobody sees asks nothing.
    if (!document.hidden && !still) timer = setTimeout(look, EVERY);
  }
};
by("still").hidden = false;
by("still").addEventListener("click", () => {
  still = !still;
  by("still").setAttribute("aria-pressed", String(still));
  if (still) tell("standing still", false);
  look();
});
by("span").addEventListener("click", () => {
  isHour = !isHour;
  showAgain();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
look();
