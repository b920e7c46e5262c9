// Draws the charts of a Poolhouse page with uPlot, from the JSON in the page. Knows how things look; what they mean is said in the page.
"use strict";
(function () {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const RUNS = DATA.runs, GROUPS = DATA.groups, SWEEPS = DATA.sweeps;
  const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
  const DASHES = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];
  // Beyond this ratio of largest to smallest, small values could not be read on a straight axis.
  const LOG_FROM = 30;

  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const group = text => text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

  // As the tables have them: three digits that matter.
  function number(value) {
    if (value == null || !isFinite(value)) return "-";
    const size = Math.abs(value);
    if (size >= 99.95) return group(Math.round(value).toString());
    if (size >= 9.995) return value.toFixed(1);
    if (size >= 0.9995) return value.toFixed(2);
    return size === 0 ? "0" : value.toFixed(3);
  }
  // At an axis: as few digits as tell the ticks apart.
  function tick(value) {
    if (value == null) return "";
    return Math.abs(value) >= 1000 ? group(String(+value.toFixed(3))) : String(+value.toPrecision(6));
  }
  function time(value) {
    if (value == null) return "";
    const whole = Math.round(value), pad = part => String(part).padStart(2, "0");
    if (whole < 120) return +value.toFixed(1) + " s";
    if (whole < 3600) return Math.floor(whole / 60) + ":" + pad(whole % 60);
    return Math.floor(whole / 3600) + ":" + pad(Math.floor(whole / 60) % 60) + ":" + pad(whole % 60);
  }
  // 1 / (1 - quantile) as a percentile.
  function percentile(one_in) {
    if (one_in == null) return "";
    if (one_in <= 1) return "0%";
    const nines = Math.max(0, Math.ceil(Math.log10(one_in) - 1e-9) - 2);
    return +((1 - 1 / one_in) * 100).toFixed(nines + (one_in > 2 ? 1 : 0)) + "%";
  }

  // -- what each kind of chart shows

  const line = (label, stroke, more) => Object.assign({ label, stroke }, more);

  function overTime(run, lines, more) {
    const series = RUNS[run].series;
    const present = lines.filter(one => one.always || series[one.of].some(value => value));
    return Object.assign({
      x: { values: time, unit: "" }, steps: RUNS[run].steps, sync: "run-" + run, lines: present,
      data: [series.t].concat(present.map(one => series[one.of])),
    }, more);
  }
  function joined(pairs) {
    const data = uPlot.join(pairs);
    return data[0] ? data : [[]].concat(pairs.map(() => []));
  }
  function ofAll(group, pick, more) {
    const runs = RUNS.slice(...GROUPS[group]);
    const lines = runs.map((run, index) => line(run.name, COLOURS[index % COLOURS.length], { dash: DASHES[Math.floor(index / COLOURS.length) % DASHES.length] }));
    return Object.assign({ lines, data: joined(runs.map(pick)) }, more);
  }
  const columns = points => [points.map(point => point[0]), points.map(point => point[1])];
  const percentiles = { x: { values: percentile, log: true, splits: [2, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9], least: 1 }, y: { unit: "ms", log: "auto" } };
  const seconds = (group, unit) => ({ x: { values: time }, y: unit, sync: "all-" + group });

  const powers = Array.from({ length: 18 }, (_, power) => 2 ** power);
  const againstClients = { x: { log: true, splits: powers, room: 1.15, values: value => group(String(+value.toFixed(1))), unit: "clients", label: "clients (log)" } };
  const column = (points, name) => points.map(point => point[name]);

  function sweepThroughput(sweep) {
    const lines = [], pairs = [], intervals = [];
    const measured = (curve, stroke, dash) => {
      lines.push(line(curve.name, stroke, { dots: true, span: true, dash }));
      pairs.push([column(curve.points, "clients"), column(curve.points, "throughput")]);
      intervals.push({ series: lines.length, stroke, points: curve.points.map(point => [point.clients, point.low, point.high]) });
    };
    measured(sweep.direct, "--c1");
    if (sweep.through) measured(sweep.through, "--c3", [8, 4]);
    if (sweep.fit.length) {
      lines.push(line("fitted law", "--c2", { span: true, plain: true, dash: [4, 4] }));
      pairs.push([sweep.fit.map(point => point[0]), sweep.fit.map(point => point[1])]);
    }
    return Object.assign({ lines, data: joined(pairs), intervals, marks: sweep.marks }, againstClients, { y: { unit: "/s" } });
  }
  function sweepLatency(curve) {
    const names = ["p99", "p95", "p50"], looks = { p99: "--c2", p95: "--c4", p50: "--c1" };
    return Object.assign({
      lines: names.map(name => line(name === "p50" ? "median" : name, looks[name], { dots: true })),
      data: [column(curve.points, "clients")].concat(names.map(name => column(curve.points, name))),
    }, againstClients, { y: { unit: "ms", log: "auto" } });
  }

  const KINDS = {
    rate: run => overTime(run, [
      line("due or begun", "--quiet", { of: "arrived", dash: [5, 4], always: true }),
      line("ended well", "--c1", { of: "requests", fill: true, always: true }),
    ], { y: { unit: "/s" } }),
    latency: run => overTime(run, [
      line("largest", "--quiet", { of: "max", dash: [2, 3] }),
      line("p99", "--c2", { of: "p99" }),
      line("median", "--c1", { of: "p50" }),
    ], { y: { unit: "ms", log: "auto" } }),
    errors: run => overTime(run, [
      line("errors", "--c6", { of: "errors", fill: true }),
      line("dropped", "--c4", { of: "dropped", dash: [5, 4] }),
    ], { y: { unit: "/s" } }),
    connections: run => overTime(run, [
      line("opened", "--quiet", { of: "created", bars: true, unit: "/s" }),
      line("open", "--c1", { of: "connections", always: true }),
      line("in use", "--c3", { of: "in_use", fill: true, always: true }),
    ], { y: { unit: "" } }),
    waiting: run => overTime(run, [line("waiting", "--c2", { of: "waiting", fill: true })], { y: { unit: "" } }),
    distribution: run => Object.assign({
      lines: [line("response", "--c1"), line("service", "--c3", { dash: [6, 4] })],
      data: joined([columns(RUNS[run].response), columns(RUNS[run].service)]),
    }, percentiles),
    "sweep-throughput": index => sweepThroughput(SWEEPS[index]),
    "sweep-latency": index => sweepLatency(SWEEPS[index].direct),
    "sweep-through-latency": index => sweepLatency(SWEEPS[index].through),
    "all-distribution": group => ofAll(group, run => columns(run.response), percentiles),
    "all-p99": group => ofAll(group, run => [run.series.t, run.series.p99], seconds(group, { unit: "ms", log: "auto" })),
    "all-rate": group => ofAll(group, run => [run.series.t, run.series.requests], seconds(group, { unit: "/s" })),
    "all-connections": group => ofAll(group, run => [run.series.t, run.series.connections], seconds(group, { unit: "" })),
  };

  // -- drawing

  function translucent(name, alpha) {
    const hex = colour(name);
    return hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
  }

  function wantsLog(spec) {
    if (spec.y.log !== "auto") return !!spec.y.log;
    let low = Infinity, high = 0;
    spec.data.slice(1).forEach(values => values.forEach(value => {
      if (value > 0) { low = Math.min(low, value); high = Math.max(high, value); }
    }));
    return high / low >= LOG_FROM;
  }

  // Steps as upright lines with their names where there is room, and what comes before the first as warm-up.
  function drawSteps(chart, steps) {
    if (!steps || !steps.length) return;
    const { ctx, bbox } = chart, ratio = devicePixelRatio || 1;
    const at = second => Math.round(chart.valToPos(second, "x", true));
    const end = bbox.left + bbox.width, first = Math.min(end, at(steps[0][0]));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = 11 * ratio + "px system-ui, sans-serif";
    ctx.textBaseline = "top";
    const write = (text, from, to) => {
      if (ctx.measureText(text).width + 10 * ratio < to - from) ctx.fillText(text, from + 5 * ratio, bbox.top + 4 * ratio);
    };
    if (first > bbox.left + 1) {
      ctx.fillStyle = colour("--shade");
      ctx.fillRect(bbox.left, bbox.top, first - bbox.left, bbox.height);
    }
    ctx.fillStyle = colour("--soft");
    ctx.strokeStyle = colour("--mark");
    ctx.setLineDash([4 * ratio, 4 * ratio]);
    if (first > bbox.left + 1) write("warm-up", bbox.left, first);
    steps.forEach((step, index) => {
      const x = at(step[0]), next = index + 1 < steps.length ? at(steps[index + 1][0]) : end;
      if (x > bbox.left + 1) {
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      if (steps.length > 1) write(step[1], x, next);
    });
    ctx.restore();
  }

  // The intervals of a measured curve.
  function drawIntervals(chart, spec) {
    if (!spec.intervals) return;
    const { ctx, bbox } = chart, ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineWidth = 1.5 * ratio;
    spec.intervals.forEach(one => {
      if (!chart.series[one.series].show) return;
      ctx.strokeStyle = colour(one.stroke);
      ctx.beginPath();
      one.points.forEach(([x, low, high]) => {
        const at = chart.valToPos(x, "x", true), from = chart.valToPos(low, "y", true), to = chart.valToPos(high, "y", true), half = 4 * ratio;
        ctx.moveTo(at, from); ctx.lineTo(at, to);
        ctx.moveTo(at - half, from); ctx.lineTo(at + half, from);
        ctx.moveTo(at - half, to); ctx.lineTo(at + half, to);
      });
      ctx.stroke();
    });
    ctx.restore();
  }

  // Upright lines at what is recommended and the like. Each has its name in a row of its own, on a ground that no line goes through.
  function drawMarks(chart, spec) {
    if (!spec.marks) return;
    const { ctx, bbox } = chart, ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.font = "600 " + 12 * ratio + "px system-ui, sans-serif";
    ctx.textBaseline = "bottom";
    ctx.textAlign = "left";
    const at = spec.marks.map(mark => Math.round(chart.valToPos(mark.x, "x", true)));
    spec.marks.forEach((mark, index) => {
      const x = at[index];
      ctx.strokeStyle = colour(mark.stroke);
      ctx.setLineDash(mark.dash ? [4 * ratio, 4 * ratio] : []);
      ctx.lineWidth = 1.5 * ratio;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    });
    spec.marks.forEach((mark, index) => {
      const width = ctx.measureText(mark.text).width, pad = 4 * ratio, gap = 6 * ratio, bottom = bbox.top + bbox.height - (6 + 19 * index) * ratio;
      const from = at[index] + gap + width > bbox.left + bbox.width ? at[index] - gap - width : at[index] + gap;
      ctx.fillStyle = colour("--card");
      ctx.fillRect(from - pad, bottom - 15 * ratio, width + 2 * pad, 17 * ratio);
      ctx.fillStyle = colour(mark.stroke);
      ctx.fillText(mark.text, from, bottom);
    });
    ctx.restore();
  }

  function series(one) {
    const made = { label: one.label, stroke: () => colour(one.stroke), width: 2, dash: one.dash, spanGaps: !!one.span, scale: "y" };
    if (one.fill) made.fill = () => translucent(one.stroke, .13);
    if (one.bars) Object.assign(made, { paths: uPlot.paths.bars({ size: [.8, 20] }), width: 0, fill: () => translucent(one.stroke, .55), points: { show: false } });
    if (one.dots) made.points = { show: true, size: 7, fill: () => colour(one.stroke) };
    if (one.dots === "only") made.paths = () => null;
    if (one.plain) made.points = { show: false };
    return made;
  }

  // `room`: above the largest, so that names of steps do not stand in the line.
  function yScale(log, room) {
    if (!log) return { range: (_, low, high) => [Math.min(0, low || 0), high > 0 ? high * room : 1] };
    const decade = (value, round) => Math.pow(10, round(Math.log10(value)));
    return {
      distr: 3, log: 10,
      range: (_, low, high) => {
        if (!(low > 0)) low = high > 0 ? high / 10 : 0.1;
        if (!(high > low)) high = low * 10;
        const floor = decade(low, Math.floor);
        // Not a whole decade of nothing below or above.
        const from = low / floor >= 5 ? floor * 5 : low / floor >= 2 ? floor * 2 : floor, top = decade(high, Math.floor);
        return [from, high / top <= 1.9 ? top * 2 : high / top <= 4.8 ? top * 5 : top * 10];
      },
    };
  }

  function xScale(x) {
    if (!x.log) return { time: false };
    return { time: false, distr: 3, log: 10, range: (_, low, high) => [Math.max(low || 1, x.least || 0), high > low ? high * (x.room || 1) : (low || 1) * 10] };
  }

  // Every second or third of them, where all would not have room.
  function roomy(chart, splits) {
    const each = Math.ceil(splits.length * 40 / Math.max(1, chart.bbox.width / (devicePixelRatio || 1)));
    return splits.filter((_, index) => index % each === 0);
  }

  function options(spec, width, height, follow) {
    const log = wantsLog(spec), quiet = () => colour("--soft"), grid = { stroke: () => colour("--grid"), width: 1 };
    const axis = { stroke: quiet, grid, ticks: { stroke: () => colour("--grid"), size: 5 }, font: "12px system-ui, sans-serif" };
    const x = Object.assign({}, axis, { values: (_, splits) => splits.map(spec.x.values || tick), space: spec.x.log ? 42 : 64, size: 34 });
    if (spec.x.splits) x.splits = chart => roomy(chart, spec.x.splits.filter(value => value >= chart.scales.x.min * .999 && value <= chart.scales.x.max * 1.001));
    if (spec.x.splits) x.filter = (_, splits) => splits;
    if (spec.x.values === time) x.incrs = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];
    if (spec.x.label) Object.assign(x, { label: spec.x.label, labelSize: 20, labelFont: "12px system-ui, sans-serif" });
    const text = [spec.y.unit, log ? "(log)" : ""].join(" ").trim();
    const y = Object.assign({}, axis, { scale: "y", values: (_, splits) => splits.map(tick), size: (_, values) => 16 + 7 * Math.max(3, ...(values || []).map(value => (value || "").length)) });
    if (text) Object.assign(y, { label: text, labelSize: 18, labelFont: "12px system-ui, sans-serif" });
    return {
      width, height, padding: [10, 14, 0, 0], legend: { show: false },
      scales: { x: xScale(spec.x), y: yScale(log, spec.steps && spec.steps.length > 1 ? 1.16 : 1.06) },
      axes: [x, y],
      series: [{}].concat(spec.lines.map(series)),
      cursor: { y: false, sync: spec.sync ? { key: spec.sync, setSeries: false } : undefined, points: { size: 8 } },
      hooks: {
        drawClear: [chart => drawSteps(chart, spec.steps)],
        draw: [chart => { drawIntervals(chart, spec); drawMarks(chart, spec); }],
        setCursor: [follow],
      },
    };
  }

  // The keys below a chart: each shows and hides its line, and tells its value where the cursor is.
  function keys(place, spec, chart) {
    const at = document.createElement("span");
    at.className = "at";
    const buttons = spec.lines.map((one, index) => {
      const button = document.createElement("button"), value = document.createElement("b");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.title = "Show or hide this line";
      button.append(swatch(one), one.label, value);
      button.addEventListener("click", () => {
        const show = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(show));
        chart().setSeries(index + 1, { show });
      });
      return { button, value };
    });
    place.replaceChildren(...buttons.map(one => one.button), at);
    return function (u) {
      const index = u.cursor.idx;
      at.textContent = index == null ? "" : "at " + (spec.x.values || number)(u.data[0][index]) + (spec.x.unit ? " " + spec.x.unit : "");
      buttons.forEach((one, line) => {
        const value = index == null ? null : u.data[line + 1][index], unit = spec.lines[line].unit || spec.y.unit;
        one.value.textContent = value == null ? "" : number(value) + (unit ? " " + unit : "");
      });
    };
  }

  function swatch(one) {
    const make = name => document.createElementNS("http://www.w3.org/2000/svg", name), svg = make("svg"), mark = make(one.bars ? "rect" : "line");
    svg.setAttribute("viewBox", "0 0 22 10");
    svg.setAttribute("aria-hidden", "true");
    const shape = one.bars ? { x: 5, y: 0, width: 12, height: 10, rx: 2 } : { x1: 0, x2: 22, y1: 5, y2: 5, "stroke-width": 3, "stroke-dasharray": (one.dash || []).join(" ") };
    Object.entries(shape).forEach(([name, value]) => mark.setAttribute(name, value));
    mark.style[one.bars ? "fill" : "stroke"] = "var(" + one.stroke + ")";
    svg.append(mark);
    if (one.dots) {
      const dot = make("circle");
      Object.entries({ cx: 11, cy: 5, r: 4 }).forEach(([name, value]) => dot.setAttribute(name, value));
      dot.style.fill = "var(" + one.stroke + ")";
      svg.append(dot);
      if (one.dots === "only") mark.remove();
    }
    return svg;
  }

  // Arrow keys move the cursor from point to point.
  function byKeyboard(plot, chart) {
    plot.addEventListener("keydown", event => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (steps === undefined) return;
      event.preventDefault();
      const u = chart(), last = u.data[0].length - 1, now = u.cursor.idx == null ? (steps < 0 ? last + 1 : -1) : u.cursor.idx;
      const index = Math.max(0, Math.min(last, now + steps));
      u.setCursor({ left: u.valToPos(u.data[0][index], "x"), top: 1 });
    });
  }

  function draw(figure) {
    const spec = KINDS[figure.dataset.kind](Number(figure.dataset.run));
    const plot = figure.querySelector(".plot");
    if (!spec.data[0].length) {
      figure.remove();
      return;
    }
    let chart = null;
    const follow = keys(figure.querySelector(".keys"), spec, () => chart);
    const size = () => ({ width: plot.clientWidth, height: plot.clientWidth < 480 ? 230 : figure.classList.contains("whole") ? 380 : 270 });
    const { width, height } = size();
    chart = new uPlot(options(spec, width, height, follow), spec.data, plot);
    byKeyboard(plot, () => chart);
    new ResizeObserver(() => { if (plot.clientWidth !== chart.width) chart.setSize(size()); }).observe(plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw(false, true));
    figure.dataset.drawn = "yes";
  }

  document.documentElement.classList.add("scripted");
  document.querySelectorAll(".chart").forEach(draw);
})();
