"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => "&#" + c.charCodeAt(0) + ";");  // Plotly reads HTML

  // ---- Theme
  const PAPER = 660;  // pixels of a printed page's width; nobody tells charts about it
  let printing = false;
  theme.watch(draw);
  window.addEventListener("beforeprint", () => { printing = true; draw(); });
  window.addEventListener("afterprint", () => {
    printing = false;
    draw();
    for (const chart of document.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(chart);
  });

  // ---- Charts
  const config = { displayModeBar: false, displaylogo: false, responsive: true, showTips: false };
  function layout(more) {
    const style = getComputedStyle(root), ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft");
    const line = style.getPropertyValue("--line"), axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, fixedrange: true };
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, 'DejaVu Sans', sans-serif", size: 13, color: soft },
      margin: { l: 8, r: 24, t: 8, b: 8 }, hoverlabel: { bgcolor: style.getPropertyValue("--card"), font: { color: ink }, bordercolor: line, namelength: -1 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" }, hovermode: "x unified"
    };
    const merged = Object.assign(base, more);
    merged.xaxis = Object.assign({}, axis, more.xaxis);
    merged.yaxis = Object.assign({}, axis, more.yaxis);
    Object.assign(merged, printing ? { width: PAPER } : { autosize: true });
    return merged;
  }
  function plot(id, traces, more) {
    const place = document.getElementById(id);
    if (place && window.Plotly && traces.length) Plotly.react(place, traces, layout(more), config);
  }
  const titled = (text) => ({ text: text, font: { size: 13 }, standoff: 8 });
  const time = { title: titled("ms since the start"), range: [0, data.timeline.end_ms], fixedrange: false };
  const percent = { tickformat: ".0%", range: [0, 1.02], title: titled("share of time") };
  function drawRoutes() {
    const sum = (key) => data.routes.reduce((total, row) => total + row[key], 0) || 1;
    const calls = sum("calls"), ms = sum("ms");
    plot("chart-routes", data.routes.map((row) => ({
      type: "bar", orientation: "h", name: escaped(row.name), y: ["by time", "by calls"], x: [row.ms / ms, row.calls / calls],
      marker: { color: row.colour }, customdata: [row.ms.toPrecision(3) + " ms", row.calls + " calls"],
      hovertemplate: "%{x:.1%}, %{customdata}<extra>" + escaped(row.name) + "</extra>"
    })), { barmode: "stack", bargap: 0.35, hovermode: "closest", xaxis: { tickvals: [0, 0.25, 0.5, 0.75, 1], tickformat: ".0%", range: [0, 1.001] } });
  }
  function drawTimeline() {
    plot("chart-timeline", data.timeline.lanes.map((lane) => ({
      type: "scatter", mode: "lines", name: lane.name, x: data.timeline.ms, y: lane.shares, stackgroup: "host",
      line: { width: 0.5, color: lane.colour, shape: "hvh" }, fillcolor: lane.colour, hovertemplate: "%{y:.0%}"
    })), { xaxis: time, yaxis: percent });
    const colours = ["#0072b2", "#009e73", "#cc79a7", "#e69f00"];
    plot("chart-devices", Object.entries(data.timeline.devices).map(([name, shares], i) => ({
      type: "scatter", mode: "lines", name: escaped(name), showlegend: true, x: data.timeline.ms, y: shares,
      line: { width: 2, color: colours[i % colours.length], shape: "hvh" }, hovertemplate: "%{y:.0%}"
    })), { xaxis: time, yaxis: percent });
  }
  function drawMemory() {
    const colours = ["#0072b2", "#009e73", "#cc79a7", "#e69f00"], lines = Object.entries(data.memory);
    const most = Math.max(1, ...lines.map(([, points]) => points.reduce((top, point) => Math.max(top, point[1]), 0)));
    const unit = most >= 2 ** 30 ? ["GiB", 2 ** 30] : most >= 2 ** 20 ? ["MiB", 2 ** 20] : ["KiB", 2 ** 10];
    plot("chart-memory", lines.map(([name, points], i) => ({
      type: "scatter", mode: "lines", name: escaped(name), showlegend: true, x: points.map((p) => p[0]), y: points.map((p) => p[1] / unit[1]),
      line: { width: 2, color: colours[i % colours.length], shape: "hv" }, fill: lines.length === 1 ? "tozeroy" : "none",
      hovertemplate: "%{y:.3~g} " + unit[0]
    })), { xaxis: time, yaxis: { title: titled(unit[0]), rangemode: "tozero" } });
  }
  function draw() { drawRoutes(); drawTimeline(); drawMemory(); }

  // ---- Heat maps
  const switches = Array.from(document.querySelectorAll("[data-map]"));
  for (const button of switches) {
    button.addEventListener("click", () => {
      for (const other of switches) {
        other.setAttribute("aria-pressed", String(other === button));
        document.getElementById("map-" + other.dataset.map).hidden = other !== button;
      }
    });
  }

  // ---- The table
  const table = document.getElementById("groups");
  if (table) {
    const body = table.tBodies[0], rows = Array.from(body.rows), heads = Array.from(table.tHead.rows[0].cells);
    const value = (row, i) => {
      const cell = row.cells[i];
      return cell.dataset.value === undefined ? cell.textContent.trim().toLowerCase() : Number(cell.dataset.value);
    };
    heads.forEach((head, i) => head.firstElementChild.addEventListener("click", () => {
      const first = head.classList.contains("num") ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? (first === "ascending" ? "descending" : "ascending") : first;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      rows.sort((a, b) => { const x = value(a, i), y = value(b, i); return sign * (x < y ? -1 : x > y ? 1 : 0); });
      body.append(...rows);
    }));
    const filter = document.getElementById("filter"), route = document.getElementById("route"), found = document.getElementById("found");
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    function narrow() {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const fits = words.every((word) => texts.get(row).includes(word)) && (!route.value || row.dataset.route === route.value);
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      }
      found.textContent = shown + " of " + rows.length;
    }
    filter.addEventListener("input", narrow);
    route.addEventListener("change", narrow);
    narrow();
  }
  draw();
})();
