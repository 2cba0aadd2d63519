// Draws the figures of a report. Labels are text: they enter the page as text nodes, and Plotly only when plain.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const touch = matchMedia("(pointer: coarse)");
  const BANDS = 8; // more hide each other
  const VIRIDIS = ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"].map((color, i) => [i / 4, color]);

  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const short = (text, most) => plain(text.length > most ? text.slice(0, most - 1) + "…" : text);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = (value) => String(Number(value.toPrecision(4)));

  const draw = (place, traces, layout) => Plotly.react(place, traces, {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", showlegend: false, hovermode: "closest",
    dragmode: touch.matches ? false : "zoom", // on a phone a finger on the plot scrolls the page
    font: { family: "system-ui, sans-serif", size: 13, color: color("--ink") },
    hoverlabel: { bgcolor: color("--card"), bordercolor: color("--line"), font: { color: color("--ink") }, align: "left" },
    modebar: { bgcolor: "transparent", color: color("--line"), activecolor: color("--muted") },
    ...layout,
  }, {
    responsive: true, displaylogo: false, displayModeBar: layout.dragmode !== false && !touch.matches,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  });

  const axis = (title) => ({
    title: { text: title, standoff: 12 }, gridcolor: color("--grid"), linecolor: color("--line"), zeroline: false,
  });

  // A row of buttons of which one is pressed.
  const choice = (place, state, key, redraw) => place && place.addEventListener("click", (event) => {
    const chosen = event.target.closest("button");
    if (!chosen) return;
    for (const button of place.children) button.setAttribute("aria-pressed", String(button === chosen));
    state[key] = chosen.dataset.value;
    redraw();
  });

  const curves = (figure) => {
    const { variants, target, units, measures } = data.curves[figure.dataset.curves];
    const place = figure.querySelector(".plot"), legend = figure.querySelector(".legend");
    const state = { unit: "round", measure: "accuracy", hidden: new Set(), lit: null };
    const last = Math.max(0, ...variants.flatMap((variant) => variant.curves.accuracy.round));

    const traces = () => {
      const bands = variants.length - state.hidden.size <= BANDS;
      return variants.flatMap((variant, i) => {
        const curve = variant.curves[state.measure], x = curve[state.unit];
        const faded = state.lit !== null && state.lit !== i;
        const common = {
          visible: !state.hidden.has(i), opacity: faded ? 0.15 : 1, name: plain(variant.label), legendgroup: String(i),
          line: { color: variant.color, dash: variant.dash, width: state.lit === i ? 3.5 : 2.2 },
        };
        const text = curve.mean.map((mean, k) =>
          `<b>${plain(variant.label)}</b><br>${number(mean)} %` +
          (curve.low[k] < curve.high[k] ? ` (${number(curve.low[k])} to ${number(curve.high[k])})` : "") +
          `<br>round ${curve.round[k]} · ${number(curve.seconds[k])} s · ${number(curve.megabytes[k])} MB`);
        const part = (from, to, more) => ({
          ...common, ...more, type: "scatter", mode: to - from > 1 ? "lines" : "markers", marker: { color: variant.color, size: 8 },
          x: x.slice(from, to), y: curve.mean.slice(from, to), text: text.slice(from, to), hovertemplate: "%{text}<extra></extra>",
        });
        const found = [];
        if ((bands || state.lit === i) && curve.low.some((low, k) => low < curve.high[k])) {
          found.push({
            ...common, type: "scatter", mode: "lines", x: [...x, ...x.toReversed()], y: [...curve.high, ...curve.low.toReversed()],
            fill: "toself", fillcolor: variant.color, opacity: faded ? 0.02 : 0.16, line: { width: 0 }, hoverinfo: "skip",
          });
        }
        found.push(part(0, curve.whole));
        if (curve.whole < x.length) {
          found.push(part(Math.max(0, curve.whole - 1), x.length, { line: { ...common.line, width: 1 } }));
        }
        const ends = variant.ends.filter(() => state.measure === "accuracy");
        if (ends.length) found.push({
          ...common, type: "scatter", mode: "markers", x: ends.map((end) => end[state.unit]), y: ends.map((end) => end.accuracy),
          marker: { symbol: "x", size: 10, color: variant.color }, text: ends.map((end) => plain(`${variant.label}: ${end.text}`)),
          hovertemplate: "%{text}<extra></extra>",
        });
        return found;
      });
    };
    const redraw = () => draw(place, traces(), {
      margin: { l: 52, r: 12, t: 12, b: 48 }, uirevision: state.unit + state.measure,
      xaxis: { ...axis(units[state.unit]), rangemode: "tozero", ...(state.unit === "round" && last <= 10 ? { dtick: 1 } : {}) },
      yaxis: { ...axis(narrow.matches ? "%" : measures[state.measure]), rangemode: "tozero" },
      shapes: state.measure === "accuracy" ? [{
        type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line: { color: color("--muted"), width: 1, dash: "dot" },
      }] : [],
    });

    const shown = () => [...legend.children].forEach((button, i) => button.setAttribute("aria-pressed", String(!state.hidden.has(i))));
    variants.forEach((variant, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.innerHTML = variant.sample;
      button.append(variant.label);
      button.addEventListener("click", () => {
        state.hidden.has(i) ? state.hidden.delete(i) : state.hidden.add(i);
        shown();
        redraw();
      });
      button.addEventListener("dblclick", () => {
        const alone = state.hidden.size === variants.length - 1 && !state.hidden.has(i);
        state.hidden = new Set(alone ? [] : [...variants.keys()].filter((k) => k !== i));
        shown();
        redraw();
      });
      const light = (to) => () => { if (state.lit !== to) { state.lit = to; redraw(); } };
      if (!touch.matches && variants.length > 2) {
        button.addEventListener("mouseenter", light(i));
        button.addEventListener("mouseleave", light(null));
      }
      legend.append(button);
    });
    shown();
    choice(figure.querySelector("[data-choice=unit]"), state, "unit", redraw);
    choice(figure.querySelector("[data-choice=measure]"), state, "measure", redraw);
    return redraw;
  };

  const clients = (figure) => {
    const { labels, seeds, classes, names, sorted } = data.clients[figure.dataset.clients];
    const place = figure.querySelector(".plot"), state = { seed: "0" };

    const redraw = () => {
      const { accuracy, counts, effective, sizes } = seeds[state.seed];
      const columns = Math.max(...accuracy.map((row) => row.length), sorted ? 0 : sizes.length);
      const client = (i) => sorted ? `${i} % of the clients are worse` : names ? plain(names[i]) : `client ${i}`;
      const most = narrow.matches ? 13 : 28, few = columns <= (narrow.matches ? 10 : 25);
      const tall = Math.max(1, labels.length) * (few ? 26 : 20);
      const kinds = counts ? counts.length : 4;
      const wide = counts ? kinds * (kinds > 25 ? 8 : 20) : 90;
      const height = tall + wide + 120;
      const top = 1 - tall / (tall + wide + 50), bottom = wide / (tall + wide + 50);
      const shownLabels = labels.map((label) => short(label, most));
      const z = accuracy.map((row) => Array.from({ length: columns }, (_, i) => row[i] ?? null));
      const traces = [{
        type: "heatmap", z, zmin: 0, zmax: 100, colorscale: VIRIDIS, showscale: false, xgap: columns > 60 ? 0 : 1, ygap: 1,
        customdata: z.map((row, k) => row.map((value, i) =>
          `<b>${plain(labels[k])}</b><br>${client(i)}<br>${value === null ? "not tested" : number(value) + " %"}`)),
        hovertemplate: "%{customdata}<extra></extra>",
      }, {
        type: "heatmap", z: z.map((row) => row.map((value) => value === null ? 1 : null)), showscale: false, hoverinfo: "skip",
        colorscale: [[0, color("--missing")], [1, color("--missing")]], xgap: columns > 60 ? 0 : 1, ygap: 1,
      }];
      const cells = few ? z.flatMap((row, y) => row.map((value, x) => ({ x, y, value })).filter((cell) => cell.value !== null)) : [];
      for (const [ink, mine] of [["#fff", (cell) => cell.value <= 55], ["#000", (cell) => cell.value > 55]]) {
        const written = cells.filter(mine);
        traces.push({
          type: "scatter", mode: "text", x: written.map((cell) => cell.x), y: written.map((cell) => cell.y), hoverinfo: "skip",
          text: written.map((cell) => cell.value.toFixed(0)), textfont: { color: ink, size: narrow.matches ? 10 : 12 },
        });
      }
      const below = { xaxis: "x", yaxis: "y2" };
      const people = Array.from({ length: sizes.length }, (_, i) => i);
      if (counts) {
        traces.push({
          ...below, ...(sorted ? { xaxis: "x2" } : {}), type: "heatmap", z: counts.map((row) => row.map((count) => count || null)),
          zmin: 0, zmax: Math.max(...counts.flat()), colorscale: [[0, color("--low")], [1, color("--high")]], showscale: false,
          xgap: columns > 60 ? 0 : 1, ygap: kinds > 25 ? 0 : 1, hovertemplate: "%{text}<extra></extra>",
          text: counts.map((row, k) => row.map((count, i) =>
            `${names ? plain(names[i]) : `client ${i}`}<br>class ${classes ? plain(classes[k]) : k}: ${count} of ${sizes[i]} samples`)),
        });
      } else {
        traces.push({
          ...below, ...(sorted ? { xaxis: "x2" } : {}), type: "bar", x: people, y: effective, marker: { color: color("--high") },
          text: people.map((i) => `client ${i}: ${effective[i]} effective classes, ${sizes[i]} samples`), textposition: "none",
          hovertemplate: "%{text}<extra></extra>",
        });
      }
      const bare = { showgrid: false, zeroline: false, automargin: true, fixedrange: true };
      const ticks = (texts) => ({ ...bare, tickvals: [...texts.keys()], ticktext: texts, autorange: "reversed" });
      const kindNames = counts && {
        ...(kinds > 25 ? { ...bare, autorange: "reversed" } : ticks(counts.map((_, k) => classes ? short(classes[k], most) : String(k)))),
        title: { text: "class" },
      };
      place.style.height = `${height}px`;
      draw(place, traces, {
        height, margin: { l: 12, r: 8, t: 8, b: 44 }, dragmode: false,
        xaxis: { ...bare, anchor: sorted ? "y" : "y2", title: { text: sorted ? "clients from worst to best, %" : names ? "" : "client", standoff: 8 },
          ...(few && !sorted ? { tickvals: people, ticktext: people.map((i) => names ? short(names[i], 12) : String(i)) } : {}) },
        xaxis2: { ...bare, anchor: "y2", title: { text: "the first clients" }, visible: sorted },
        yaxis: { ...ticks(shownLabels), domain: [top, 1] },
        yaxis2: { ...(kindNames || { ...bare, title: { text: narrow.matches ? "" : "effective classes" }, rangemode: "tozero" }), domain: [0, bottom] },
      });
    };
    choice(figure.querySelector("[data-choice=seed]"), state, "seed", redraw);
    return redraw;
  };

  const figures = [
    ...[...document.querySelectorAll("[data-curves]")].map(curves),
    ...[...document.querySelectorAll("[data-clients]")].map(clients),
  ];
  const all = () => figures.forEach((redraw) => setTimeout(redraw)); // one by one, so that the page answers meanwhile
  figures.length && figures[0]();
  figures.slice(1).forEach((redraw) => setTimeout(redraw));
  dark.addEventListener("change", all);
  narrow.addEventListener("change", all);
})();
