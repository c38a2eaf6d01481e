// The page: what is shown for which data, the theme, the list of sections, printing, and new data of a run that goes on.

const root = document.documentElement;
let data = null;
let sectionsSeen = null;

const stored = (key, value) => {
  // Pages from disk may have no storage.
  try {
    if (value === undefined) return localStorage.getItem(key);
    if (value) localStorage.setItem(key, value);
    else localStorage.removeItem(key);
  } catch {
    /* the choice is not kept */
  }
  return null;
};

function chooseTheme(theme) {
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  stored("coterie-theme", theme === "auto" ? null : theme);
  drawAll(true);
}

function masthead() {
  const theme = root.dataset.theme || "auto";
  return [
    h(
      "div",
      { class: "brand" },
      h("span", { class: "mark-name" }, "Coterie"),
      h("span", { class: "kind" }, data.kind === "comparison" ? "comparison" : "run"),
      data.live ? h("span", { class: "live", id: "live-state" }, "live") : null,
    ),
    h("h1", null, data.title || "Report"),
    choice(
      "Theme",
      [
        ["auto", "Auto"],
        ["light", "Light"],
        ["dark", "Dark"],
      ],
      theme,
      chooseTheme,
    ),
  ];
}

function openRun(id, jump = true) {
  remembered("comparison", { run: null }).run = id || null;
  const place = document.getElementById("run-place");
  showRun(place);
  const select = document.querySelector("#runs select");
  if (select) select.value = id || "";
  showContents();
  if (jump && place.firstElementChild) document.getElementById("runs").scrollIntoView();
  if (jump && select) select.focus({ preventScroll: true });
}

function showRun(place) {
  const { run: id } = remembered("comparison", { run: null });
  const run = data.runs.find((each) => each.id === id);
  const sections = run ? runSections(run, { prefix: "run-", title: run.name || run.id }) : [];
  // A comparison has no map, matrix and clients of its runs; their sections would only say so.
  place.replaceChildren(
    ...sections.filter(
      (each) =>
        run.map ||
        run.matrix ||
        run.clients ||
        !["run-map", "run-matrix", "run-clients", "run-labels"].includes(each.id),
    ),
  );
  if (run && !run.map && !run.matrix && !run.clients)
    place.append(
      h(
        "p",
        { class: "note" },
        `For the clients, the map and the distances of this run: coterie report ${run.path || run.id}`,
      ),
    );
}

function content() {
  if (data.kind !== "comparison" || !data.comparison)
    return data.runs.length ? runSections(data.runs[0]) : [nothing("This report has no runs.")];
  const place = h("div", { id: "run-place" });
  showRun(place);
  return [
    comparisonOverview(data),
    tableSection(data, openRun),
    testsSection(data),
    comparisonCurves(data),
    comparisonCost(data),
    winsSection(data),
    driftTableSection(data),
    runsSection(data, remembered("comparison", { run: null }), openRun),
    place,
  ].filter(Boolean);
}

/** The list of sections, with the one in view marked. */
function showContents() {
  const sections = [...document.querySelectorAll("main section[id]")];
  const links = new Map(
    sections.map((each) => [
      each.id,
      h(
        "a",
        { href: `#${each.id}`, "data-key": `nav:${each.id}`, class: each.id.startsWith("run-") ? "inner" : null },
        each.dataset.title,
      ),
    ]),
  );
  document.getElementById("contents").replaceChildren(
    h(
      "ol",
      null,
      [...links.values()].map((link) => h("li", null, link)),
    ),
  );
  if (sectionsSeen) sectionsSeen.disconnect();
  sectionsSeen = new IntersectionObserver(
    () => {
      const current = sections.findLast((each) => each.getBoundingClientRect().top < innerHeight * 0.35) || sections[0];
      for (const [id, link] of links) {
        const mine = current && id === current.id;
        if (mine === link.hasAttribute("aria-current")) continue;
        if (mine) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
        const list = document.getElementById("contents");
        if (mine && list.scrollWidth > list.clientWidth) list.scrollLeft = link.offsetLeft - list.clientWidth / 3;
      }
    },
    { rootMargin: "-35% 0px -64% 0px" },
  );
  sections.forEach((each) => sectionsSeen.observe(each));
}

function render() {
  document.title = data.title || "Coterie report";
  document.getElementById("masthead").replaceChildren(...masthead());
  document.getElementById("content").replaceChildren(...content());
  document
    .getElementById("colophon")
    .replaceChildren(
      h(
        "p",
        null,
        `Made by Coterie ${data.version || ""} from records`,
        data.created ? `, ${startedText(data.created)}.` : ".",
        data.live ? " The page is updated while the run continues." : " The file is self-contained and works offline.",
      ),
    );
  showContents();
}

/** Show new data: the reader's place, focus, choices and open tables stay. */
function update(next) {
  const sections = [...document.querySelectorAll("main section[id]")];
  const seen = sections.findLast((each) => each.getBoundingClientRect().top <= 80);
  const offset = seen ? seen.getBoundingClientRect().top : 0;
  const [scroll, focus] = [scrollY, document.activeElement && document.activeElement.getAttribute("data-key")];
  const caret = document.activeElement && document.activeElement.selectionStart;
  const heights = new Map(
    [...document.querySelectorAll("figure[id]")].map((each) => [
      each.id,
      [each.querySelector(".plot").offsetHeight, figures.get(each.querySelector(".plot")).width > 0],
    ]),
  );
  data = next;
  render();
  for (const [id, [height, drawn]] of heights) {
    const plot = document.querySelector(`#${CSS.escape(id)} .plot`);
    if (!plot) continue;
    if (drawn) drawFigure(plot);
    else plot.style.minHeight = `${height}px`;
  }
  const again = seen && document.getElementById(seen.id);
  if (again) scrollTo({ top: scrollY + again.getBoundingClientRect().top - offset, behavior: "instant" });
  else scrollTo({ top: scroll, behavior: "instant" });
  const focused = focus && document.querySelector(`[data-key="${CSS.escape(focus)}"]`);
  if (focused) {
    focused.focus({ preventScroll: true });
    if (isNumber(caret) && focused.setSelectionRange) focused.setSelectionRange(caret, caret);
  }
}

function print(on) {
  printing = on;
  if (on) drawAll();
  refillTables();
  // Images have the colors of the theme in their pixels.
  if (on || isDark()) drawAll(true);
}

function start() {
  const theme = stored("coterie-theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  data = JSON.parse(document.getElementById("report-data").textContent);
  render();
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
  addEventListener("scroll", hideTooltip, { passive: true });
  window.coterieReport = {
    update,
    drawAll,
    get data() {
      return data;
    },
  };
  root.dataset.ready = "true";
}

start();
