"use strict";
(() => {
  const { charts, paper } = JSON.parse(document.getElementById("chart-data").textContent);
  const options = {
    renderer: "svg", actions: false, ast: true, defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  const onPaper = (value) => {
    if (Array.isArray(value)) return value.map(onPaper);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, onPaper(inner)]));
    if (value === "transparent") return paper.colours.paper;
    return typeof value === "string" && value.startsWith("var(--")
      ? value.replace(/var\(--([a-z0-9]+)\)/g, (_, name) => paper.colours[name]) : value;
  };
  const download = (href, name) => Object.assign(document.createElement("a"), { href, download: name }).click();

  // A file has no style sheet: the same specification, drawn again in paper colours at a fixed width.
  const save = async (id, format) => {
    const host = document.createElement("div");
    host.style.cssText = `position:absolute;left:-10000px;width:${paper.width}px`;
    document.body.append(host);
    const { view, finalize } = await vegaEmbed(host, { ...onPaper(charts[id]), width: paper.width }, options);
    const href = await view.toImageURL(format, format === "png" ? 2 : 1);
    finalize();
    host.remove();
    download(href, `${id}.${format}`);
  };

  const drawAll = async () => {
    for (const place of document.querySelectorAll("[data-chart]")) {
      const spec = charts[place.dataset.chart];
      await vegaEmbed(place, spec, options);
    }
    document.documentElement.dataset.drawn = "all";
  };
  for (const button of document.querySelectorAll("[data-save]"))
    button.addEventListener("click", () => save(button.dataset.for, button.dataset.save));
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("#warnings details")) details.open = true;
  });
  drawAll();
})();
