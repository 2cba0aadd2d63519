// Draws the figures that Python made: buttons choose one of a figure's views, or hide its curves.
(() => {
  "use strict";
  const { shared, figures } = JSON.parse(document.getElementById("figures").textContent);
  const whole = (value) => { // puts what is written once where it belongs
    if (value === null || typeof value !== "object") return value;
    if (value.shared !== undefined) return shared[value.shared];
    for (const key in value) value[key] = whole(value[key]);
    return value;
  };
  shared.forEach(whole); // a part has only parts before it
  whole(figures);
  const narrow = matchMedia("(max-width: 40rem)");
  const touch = matchMedia("(pointer: coarse)").matches; // there a finger scrolls the page
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button, on) => button.setAttribute("aria-pressed", on);
  const modeBarButtons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];

  for (const figure of document.querySelectorAll("[data-figure]")) {
    const { figure: number, bands } = figure.dataset, views = figures[number];
    const switches = [...figure.querySelectorAll(".switch button")];
    const names = [...figure.querySelectorAll(".legend button")];
    let lit = null; // the group of curves whose name the mouse is on

    const draw = () => {
      const chosen = switches.filter(pressed).map((button) => button.dataset.value);
      const view = narrow.matches && views[[...chosen, "narrow"].join(" ")];
      const { data, layout } = view || views[chosen.join(" ")];
      const shown = new Set(names.filter(pressed).map((button) => button.dataset.group));
      const only = shown.has(lit) ? lit : null;
      const drawn = ({ legendgroup: group, meta }) => {
        if (meta !== "band") return !names.length || shown.has(group);
        return only === null ? shown.has(group) && shown.size <= bands : only === group;
      };
      const traces = data.map((trace) => ({
        ...trace, visible: drawn(trace),
        opacity: only === null || only === trace.legendgroup ? 1 : 0.15,
      }));
      const zoom = layout.dragmode !== false && !touch;
      const mine = { ...structuredClone(layout), dragmode: zoom && "zoom" }; // Plotly changes it
      const config = { responsive: true, displaylogo: false, displayModeBar: zoom, modeBarButtons };
      Plotly.react(figure.querySelector(".plot"), traces, mine, config);
    };

    for (const button of switches) button.addEventListener("click", () => {
      for (const other of button.parentNode.children) press(other, other === button);
      draw();
    });
    for (const name of names) {
      const light = (group) => () => {
        if (touch || names.length < 3 || lit === group) return;
        lit = group;
        draw();
      };
      name.addEventListener("mouseenter", light(name.dataset.group));
      name.addEventListener("mouseleave", light(null));
      name.addEventListener("click", () => { press(name, !pressed(name)); draw(); });
      name.addEventListener("dblclick", () => { // alone or, if it is alone, with all others
        const alone = names.every((other) => pressed(other) === (other === name));
        for (const other of names) press(other, alone || other === name);
        draw();
      });
    }
    narrow.addEventListener("change", draw);
    setTimeout(draw); // one by one, so that the page answers meanwhile
  }
})();
