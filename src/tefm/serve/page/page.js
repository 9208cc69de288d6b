// The page: paste rows, sort predictions, open one, see why, change a field.
import {$, bar, complain, el, say} from "./dom.js";
import {ask, asCsv, percent, rowsOf, useKey} from "./records.js";
import {askAbout, offerQuestions} from "./questions.js";
import {showWhatIf} from "./what_if.js";

let models = [], model, rows = [], predictions = [], sorting = {by: "p", down: true}, open = null, asking;

// ---- the model ----------------------------------------------------------------------------------------------------

async function start() {
  try {
    models = (await ask("v1/models")).data;
  } catch (error) { complain(error); return; }
  complain(null);
  $("key-form").hidden = true;
  $("main").hidden = false;
  $("model").replaceChildren(...models.map((one) => el("option", {value: one.id}, one.id)));
  $("chooser").hidden = models.length < 2;
  choose(models[0].id);
}

function choose(id) {
  model = models.find((one) => one.id === id);
  $("title").textContent = model.label ? `Predicts “${model.label}”${model.title.slice(model.label.length)}` : model.title;
  $("rows").placeholder = model.columns.map((column) => column.name).join(",");
  document.title = `${model.id} · tefm`;
  $("work").hidden = true;
  offerQuestions(model);
  predictions = []; open = null;
  const known = (column) => column.values.length
    ? column.values.slice(0, 8).map((one) => one.value).join(", ") + (column.values.length > 8 ? " …" : "")
    : column.low !== null ? `${column.low} to ${column.high}${column.unit ? ` ${column.unit}` : ""}` : "";
  $("columns").replaceChildren(el("table", {},
    el("thead", {}, el("tr", {}, ...["column", "what it is", "values"].map((text) => el("th", {scope: "col"}, text)))),
    el("tbody", {}, ...model.columns.map((column) => el("tr", {},
      el("th", {scope: "row"}, el("code", {}, column.name)), el("td", {}, column.role), el("td", {}, known(column)))))));
}

// ---- predictions --------------------------------------------------------------------------------------------------

/** The class whose probability the list shows: of two classes the positive one, else the predicted one. */
const shownClass = (one) => model.classes.length === 2 ? model.positive : one.predicted;

async function predict() {
  complain(null);
  let given;
  try { given = rowsOf($("rows").value); } catch (error) { complain(error); return; }
  $("go").disabled = true;
  try {
    const reply = await ask("v1/predict", {model: model.id, rows: given, codes: true, absent: $("absent").checked});
    rows = given; predictions = reply.predictions; open = null;
  } catch (error) { complain(error); return; } finally { $("go").disabled = false; }
  $("detail").hidden = true;
  $("work").hidden = false;
  $("work").classList.remove("opened");
  $("records").open = false;
  const count = `${rows.length.toLocaleString("en")} row${rows.length === 1 ? "" : "s"}, ${predictions.length.toLocaleString("en")} prediction${predictions.length === 1 ? "" : "s"}`;
  $("input-summary").textContent = count;
  const tally = model.classes.map((name) => `${predictions.filter((one) => one.predicted === name).length} ${name}`);
  const odd = predictions.filter((one) => one.notices.length).length;
  $("tally").textContent = `${model.label ?? "class"}: ${tally.join(", ")}. Predicted: ${model.decision}.`
    + (odd ? ` ${odd} with values unlike those of training: open them to see which.` : "");
  $("find").value = "";
  sorting = {by: "p", down: true};
  drawList();
  $("results").focus({preventScroll: true});
  say(`${count}.`);
}

const COLUMNS = () => [
  {by: "id", text: model.sequence, of: (one) => one.id},
  {by: "predicted", text: model.label ?? "predicted", of: (one) => one.predicted},
  {by: "p", text: model.classes.length === 2 ? `probability of ${model.positive}` : "probability", of: (one) => one.probabilities[shownClass(one)]},
  {by: "records", text: `${model.record}s`, of: (one) => one.rows.length},
];

const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b
  : String(a).localeCompare(String(b), "en", {numeric: true});

function drawList() {
  const columns = COLUMNS(), current = columns.find((column) => column.by === sorting.by);
  $("list").tHead.replaceChildren(el("tr", {}, ...columns.map((column) => el("th",
    {scope: "col", class: column.by, "aria-sort": column.by === sorting.by ? (sorting.down ? "descending" : "ascending") : "none"},
    el("button", {type: "button", onclick: () => sort(column.by)}, column.text, el("span", {class: "arrow", "aria-hidden": "true"},
      column.by === sorting.by ? (sorting.down ? " ↓" : " ↑") : ""))))));
  const wanted = $("find").value.trim().toLowerCase();
  const shown = predictions.filter((one) => !wanted || `${one.id} ${one.predicted}`.toLowerCase().includes(wanted));
  shown.sort((a, b) => (sorting.down ? -1 : 1) * compare(current.of(a), current.of(b)));
  $("list").tBodies[0].replaceChildren(...shown.map((one) => {
    const p = one.probabilities[shownClass(one)];
    return el("tr", {class: one === open ? "open" : null, onclick: () => show(one)},
      el("th", {scope: "row"}, el("button", {type: "button", class: "link", "aria-expanded": String(one === open), "data-id": String(one.id)}, String(one.id))),
      el("td", {}, el("span", {class: `class c${model.classes.indexOf(one.predicted) % 6}`}, one.predicted)),
      el("td", {class: "p"}, bar(p), percent(p)),
      el("td", {class: "records"}, String(one.rows.length)));
  }));
}

function sort(by) {
  sorting = {by, down: sorting.by === by ? !sorting.down : by === "p" || by === "records"};
  drawList();
  $("list").tHead.querySelector(`th.${by} button`).focus();
  say(`Sorted by ${COLUMNS().find((column) => column.by === by).text}, ${sorting.down ? "descending" : "ascending"}.`);
}

// ---- one prediction -----------------------------------------------------------------------------------------------

function show(one) {
  open = one;
  drawList();
  $("detail").hidden = false;
  $("work").classList.add("opened");
  $("detail-title").textContent = `${model.sequence} ${one.id}`;
  const own = one.rows.map((row) => rows[row]);
  showAnswer(one);
  tab("why");
  why(one, own);
  showWhatIf({model, own, one, absent: $("absent").checked, onAnswer: (after) => showAnswer(one, after)});
  askAbout({model, own, absent: $("absent").checked});
  $("detail").focus({preventScroll: true});
  $("detail").scrollIntoView({block: "nearest"});
}

/** The probabilities and codes of a prediction; with `after`, next to those after a change. */
function showAnswer(before, after = null) {
  const now = after ?? before;
  $("answer").replaceChildren(
    el("p", {class: "verdict"}, `${model.label ? `${model.label} = ` : ""}`, el("strong", {id: "predicted"}, now.predicted),
      after && after.predicted !== before.predicted ? el("span", {class: "was"}, ` was ${before.predicted}`) : null),
    el("p", {class: "soft", id: "decision"}, `Predicted: ${model.decision}.`),
    ...now.notices.map((text) => el("p", {class: "soft notice"}, `! ${text}`)),
    el("dl", {class: "classes"}, ...model.classes.map((name) => {
      const p = now.probabilities[name], was = before.probabilities[name], moved = after && Math.abs(p - was) >= 0.0005;
      return el("div", {class: name === now.predicted ? "chosen" : null}, el("dt", {}, name), el("dd", {}, bar(p, after ? was : null),
        el("span", {class: "number", "data-class": name}, percent(p)),
        el("span", {class: "delta"}, moved ? `${p > was ? "+" : "−"}${(100 * Math.abs(p - was)).toFixed(1)} points` : "")));
    })));
  const codes = now.codes;
  if (!codes) { $("codes").replaceChildren(); return; }
  $("codes").replaceChildren(el("p", {class: "soft"}, `What the language model reads: ${codes[0].length} codes per ${model.record}`),
    el("ol", {}, ...codes.map((code, record) => el("li", {}, codes.length > 1 ? el("span", {class: "soft"}, `${model.record} ${record + 1} `) : null,
      ...code.map((token, level) => {
        const was = before.codes[record]?.[level], changed = was !== token;
        return el("span", {class: changed ? "code changed" : "code", title: changed ? `was ${short(was)}` : null},
          short(token), changed ? el("span", {class: "hidden"}, ` (was ${short(was)})`) : null);
      })))));
}

const short = (token) => token.replace(/^<[^_]*_([a-z])_(\d+)>$/i, "$1$2");

async function why(one, own) {
  asking?.abort();
  if (!model.explains) {
    $("why").replaceChildren(el("p", {class: "soft"}, "This model was fitted without explanations."));
    return;
  }
  asking = new AbortController();
  $("why").replaceChildren(el("p", {class: "soft waiting"}, `Asking the model about look-alikes of this ${model.sequence} …`));
  $("why").setAttribute("aria-busy", "true");
  try {
    const reply = await ask("v1/explain", {model: model.id, rows: own, html: true, absent: $("absent").checked}, asking.signal);
    if (open !== one) return;
    const [explained] = reply.explanations;
    // the server has escaped every value of the card
    const card = new DOMParser().parseFromString(explained.html, "text/html");
    $("why").replaceChildren(el("div", {class: "tefm-card"}, ...card.body.childNodes));
    const named = explained.explanation;
    const fields = [...named.settling.findings, ...named.influences.map((influence) => influence.finding)].map((finding) => finding.field);
    document.dispatchEvent(new CustomEvent("explained", {detail: {one, fields}}));
    say(explained.conclusion);
  } catch (error) {
    if (error.name !== "AbortError" && open === one) {
      $("why").replaceChildren(el("p", {class: "alert"}, error.message, " ", el("button", {type: "button", onclick: () => why(one, own)}, "Try again")));
    }
  } finally { if (open === one) $("why").removeAttribute("aria-busy"); }
}

const TABS = ["why", "what-if", "ask"];

function tab(name) {
  for (const one of TABS) {
    $(`tab-${one}`).setAttribute("aria-selected", String(one === name));
    $(`tab-${one}`).tabIndex = one === name ? 0 : -1;
    $(one).hidden = one !== name;
  }
}

// ---- events -------------------------------------------------------------------------------------------------------

$("predict").addEventListener("submit", (event) => { event.preventDefault(); predict(); });
$("key-form").addEventListener("submit", (event) => { event.preventDefault(); useKey($("key").value.trim()); start(); });
$("model").addEventListener("change", (event) => choose(event.target.value));
$("example").addEventListener("click", () => { $("rows").value = asCsv(model.example); $("go").focus(); });
$("find").addEventListener("input", drawList);
$("back").addEventListener("click", () => {
  const id = String(open?.id);
  open = null;
  $("detail").hidden = true;
  $("work").classList.remove("opened");
  drawList();
  $("list").querySelector(`[data-id="${CSS.escape(id)}"]`)?.focus();
});
async function take(file) { if (file) { $("rows").value = await file.text(); predict(); } }
$("file").addEventListener("change", (event) => { take(event.target.files[0]); event.target.value = ""; });
$("rows").addEventListener("dragover", (event) => event.preventDefault());
$("rows").addEventListener("drop", (event) => {
  if (event.dataTransfer.files.length) { event.preventDefault(); take(event.dataTransfer.files[0]); }
});
$("rows").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) predict(); });
for (const name of TABS) {
  $(`tab-${name}`).addEventListener("click", () => tab(name));
  $(`tab-${name}`).addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const shown = TABS.filter((one) => !$(`tab-${one}`).hidden), step = event.key === "ArrowRight" ? 1 : shown.length - 1;
    const other = shown[(shown.indexOf(name) + step) % shown.length];
    tab(other);
    $(`tab-${other}`).focus();
  });
}
$("list").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const buttons = [...$("list").tBodies[0].querySelectorAll("button")];
  const next = buttons[buttons.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { event.preventDefault(); next.focus(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && open) $("back").click(); });

start();
