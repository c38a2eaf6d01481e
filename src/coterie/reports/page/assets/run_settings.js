// A run: its settings, versions, and the command that repeats it.

function settingsSection(run, { prefix, level }) {
  return section(
    { id: `${prefix}settings`, title: "Settings and versions", level },
    commandPart(run, prefix),
    settingsPart(run, prefix),
    versionsPart(run, prefix),
  );
}

function commandPart(run, prefix) {
  if (!run.command) return null;
  const said = h("span", { class: "said", role: "status" });
  const code = h("code", null, run.command);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(run.command);
      said.textContent = "Copied.";
    } catch {
      // Pages from disk may not write to the clipboard: the text is selected instead.
      getSelection().selectAllChildren(code);
      said.textContent = "Selected; copy it with your keyboard.";
    }
    setTimeout(() => {
      said.textContent = "";
    }, 4000);
  };
  return h(
    "div",
    { class: "block" },
    h("h3", null, "Repeat this run"),
    h(
      "div",
      { class: "command" },
      h("pre", { tabindex: 0, role: "region", "aria-label": "Command" }, code),
      h(
        "button",
        { type: "button", "data-key": `copy:${prefix}`, "aria-label": "Copy the command", onclick: copy },
        "Copy",
      ),
      said,
    ),
  );
}

function settingsPart(run, prefix) {
  const settings = run.settings || [];
  if (!settings.length) return nothing("The record has no settings.");
  const text = (value) =>
    value === null || value === undefined ? MISSING : typeof value === "object" ? JSON.stringify(value) : String(value);
  const rows = settings.map((each) => ({
    ...each,
    name: each.section ? `${each.section}.${each.key}` : each.key,
    value: text(each.value),
    default: text(each.default),
    changed: Boolean(each.changed),
  }));
  const changed = rows.filter((row) => row.changed);
  const state = remembered(`settings:${prefix}`, { only: "all" });
  const place = h("div");
  const columns = [
    {
      key: "name",
      label: "Setting",
      format: "text",
      cell: (row) => [h("code", null, row.name), row.changed ? h("span", { class: "tag" }, "changed") : null],
    },
    { key: "value", label: "Value", format: "text", cell: (row) => h("code", null, row.value) },
    { key: "default", label: "Default", format: "text", cell: (row) => h("code", null, row.default) },
    { key: "help", label: "Meaning", format: "text" },
  ];
  const show = () =>
    place.replaceChildren(
      dataTable({
        caption: state.only === "all" ? "All settings" : "Changed settings",
        columns,
        rows: state.only === "all" ? rows : changed,
        search: ["name", "value", "help"],
        size: 400,
        state: `${prefix}settings`,
        file: `${prefix}settings`,
        rowClass: (row) => (row.changed ? "changed" : null),
        tools: [
          choice(
            "Settings",
            [
              ["all", `All (${rows.length})`],
              ["changed", `Changed (${changed.length})`],
            ],
            state.only,
            (value) => {
              state.only = value;
              show();
            },
          ),
        ],
      }),
    );
  show();
  return h(
    "div",
    { class: "block" },
    h("h3", null, "Settings"),
    h(
      "p",
      { class: "note" },
      changed.length
        ? `${plural(changed.length, "setting")} of ${rows.length} ${changed.length === 1 ? "differs" : "differ"} from the default.`
        : "All settings have their default values.",
    ),
    place,
  );
}

function versionsPart(run, prefix) {
  const versions = Object.entries(run.versions || {});
  if (!versions.length)
    return nothing(
      run.status === "running"
        ? "Versions are recorded when the run ends."
        : "The record has no versions, because the run did not finish.",
    );
  return h(
    "div",
    { class: "block" },
    h("h3", null, "Versions"),
    h(
      "dl",
      { class: "facts" },
      versions.map(([name, version]) => h("div", null, h("dt", null, name), h("dd", null, String(version)))),
    ),
    run.path ? h("p", { class: "note" }, "Record: ", h("code", null, run.path)) : null,
  );
}

/** All sections of a run; `prefix` keeps ids of several runs apart. */
function runSections(run, { prefix = "", level = 2, title = null } = {}) {
  const options = { prefix, level };
  return [
    overviewSection(run, { ...options, title: title || "Result" }),
    curvesSection(run, options),
    clustersSection(run, options),
    mapSection(run, options),
    matrixSection(run, options),
    labelsSection(run, options),
    clientsSection(run, options),
    driftSection(run, options),
    costSection(run, options),
    faultsSection(run, options),
    privacySection(run, options),
    settingsSection(run, options),
  ].filter(Boolean);
}
