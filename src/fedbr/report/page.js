// Draws the figures that Python made: buttons choose one of the views of a figure, or hide curves.
(() => {
  "use strict";
  const written = JSON.parse(document.getElementById("figures").textContent), shared = [];
  const whole = (value) => { // puts what is written once where it belongs
    if (value === null || typeof value !== "object") return value;
    if (value.shared !== undefined) return shared[value.shared];
    return Array.isArray(value) ? value.map(whole) : Object.fromEntries(Object.entries(value).map(([key, item]) => [key, whole(item)]));
  };
  for (const part of written.shared) shared.push(whole(part));
  const figures = whole(written.figures);
  const narrow = matchMedia("(max-width: 40rem)");
  const touch = matchMedia("(pointer: coarse)").matches; // there a finger on a figure scrolls the page
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button, on) => button.setAttribute("aria-pressed", on);

  for (const figure of document.querySelectorAll("[data-figure]")) {
    const views = figures[figure.dataset.figure], bands = figure.dataset.bands;
    const names = [...figure.querySelectorAll(".legend button")];
    let lit = null;

    const draw = () => {
      const chosen = [...figure.querySelectorAll(".switch button")].filter(pressed).map((button) => button.dataset.value);
      const onNarrow = narrow.matches && views[[...chosen, "narrow"].join(" ")];
      const { data, layout } = onNarrow || views[chosen.join(" ")];
      const shown = new Set(names.filter(pressed).map((button) => button.dataset.group));
      const traces = data.map((trace) => ({ // many bands hide each other
        ...trace, opacity: lit === null || lit === trace.legendgroup ? 1 : 0.15,
        visible: !names.length || shown.has(trace.legendgroup) && (trace.meta !== "band" || shown.size <= bands),
      }));
      const zoom = layout.dragmode !== false && !touch;
      Plotly.react(figure.querySelector(".plot"), traces, { ...structuredClone(layout), dragmode: zoom && "zoom" }, {
        responsive: true, displaylogo: false, displayModeBar: zoom, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      });
    };

    for (const button of figure.querySelectorAll(".switch button")) button.addEventListener("click", () => {
      for (const other of button.parentNode.children) press(other, other === button);
      draw();
    });
    for (const name of names) {
      name.addEventListener("click", () => { press(name, !pressed(name)); draw(); });
      name.addEventListener("dblclick", () => { // alone or, once it is alone, with all others
        const alone = names.every((other) => pressed(other) === (other === name));
        for (const other of names) press(other, alone || other === name);
        draw();
      });
      const light = (group) => () => { if (!touch && names.length > 2 && lit !== group) { lit = group; draw(); } };
      name.addEventListener("mouseenter", light(name.dataset.group));
      name.addEventListener("mouseleave", light(null));
    }
    narrow.addEventListener("change", draw);
    setTimeout(draw); // one by one, so that the page answers meanwhile
  }
})();
