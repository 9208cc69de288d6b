// What if: the fields of one record as a form; every change is predicted again.
import {$, complain, el, say} from "./dom.js";
import {ask, percent} from "./records.js";

/** From so many values on, a field is typed, with suggestions. */
const MANY = 60;
const WAIT = 150;
let state = null;

/** Show the form for the rows of one prediction. */
export function showWhatIf(given) {
  state = {...given, now: given.own.map((row) => ({...row})), record: given.own.length - 1, named: [], asked: 0};
  $("record-chooser").hidden = state.own.length < 2;
  $("record").replaceChildren(...state.own.map((_, i) => el("option", {value: i}, `${state.model.record} ${i + 1} of ${state.own.length}`)));
  $("record").value = String(state.record);
  $("find-field").value = "";
  drawFields();
  drawChanges();
}

document.addEventListener("explained", (event) => {
  if (state?.one !== event.detail.one) return;
  state.named = event.detail.fields;
  if (!changes().length) drawFields();
});

function drawFields() {
  const columns = state.model.columns.filter((column) => !["entity", "time"].includes(column.role));
  const wanted = $("find-field").value.trim().toLowerCase();
  const shown = columns.filter((column) => !wanted || `${column.name} ${column.title}`.toLowerCase().includes(wanted));
  const isNamed = (column) => state.named.includes(column.field);
  const groups = new Map();
  for (const column of shown) {
    const heading = isNamed(column) ? "On the card" : column.group ?? (state.named.length ? "Other fields" : "");
    groups.set(heading, [...(groups.get(heading) ?? []), column]);
  }
  const sorted = [...groups].sort(([a], [b]) => (b === "On the card") - (a === "On the card"));
  $("fields").replaceChildren(...sorted.map(([heading, members]) => el("fieldset", {},
    heading ? el("legend", {}, heading) : null, el("div", {class: "grid"}, ...members.map(fieldOf)))));
}

function fieldOf(column) {
  const id = `field-${column.name}`, value = state.now[state.record][column.name];
  const changed = !same(value, state.own[state.record][column.name]);
  const unit = column.unit ? ` (${column.unit})` : "";
  const wide = column.role === "text" || (column.role === "set" && column.delimiter);
  return el("div", {class: `field${changed ? " changed" : ""}${wide ? " wide" : ""}`}, el("label", {for: id}, column.title + unit), ...control(column, id, value));
}

/** The input of a column, by its kind. */
function control(column, id, value) {
  const text = value === null || value === undefined ? "" : Array.isArray(value) ? value.join("; ") : String(value);
  const attributes = {id, name: column.name, autocomplete: "off"};
  if (column.role === "category" && column.values.length <= MANY || column.role === "flag") {
    const known = column.values.map((one) => one.value);
    const select = el("select", attributes, el("option", {value: ""}, "(absent)"),
      ...column.values.map((one) => el("option", {value: one.value}, one.name)),
      text && !known.includes(text) ? el("option", {value: text}, text) : null);
    select.value = text;
    return [select];
  }
  if (column.role === "number" && (text === "" || !Number.isNaN(Number(text)))) {
    const range = column.low === null ? "" : `${column.low} to ${column.high}`;
    return [el("input", {...attributes, type: "number", step: "any", value: text, placeholder: range})];
  }
  const list = column.values.length ? `${id}-values` : null;
  const hint = column.role === "set" && (column.delimiter || Array.isArray(value)) ? `several, with ${column.delimiter ?? ";"} between them` : "";
  return [el("input", {...attributes, type: "text", value: text, list, placeholder: hint}),
    list ? el("datalist", {id: list}, ...column.values.map((one) => el("option", {value: one.value}, one.name))) : null];
}

/** What was typed, in the type that the row had. */
function typed(text, before) {
  if (text.trim() === "") return null;
  if (Array.isArray(before)) return text.split(";").map((part) => part.trim()).filter((part) => part);
  return text;
}

/** The records that a field is changed in: one that stays the same within an entity, in all of them. */
const recordsOf = (column, record) => column.static ? state.now.map((_, i) => i) : [record];

const plain = (value) => value === null || value === undefined ? "" : String(value);
const same = (a, b) => plain(a) === plain(b);

function changes() {
  return state.own.flatMap((row, record) => state.model.columns.filter((column) => !(column.static && record) && !same(row[column.name], state.now[record][column.name]))
    .map((column) => ({column, record, from: row[column.name], to: state.now[record][column.name]})));
}

function drawChanges() {
  const all = changes();
  $("reset").disabled = !all.length;
  const words = (value) => value === null || value === undefined || value === "" ? "absent" : Array.isArray(value) ? value.join("; ") : String(value);
  $("changes").replaceChildren(...all.map((one) => el("li", {},
    `${one.column.title}${state.own.length > 1 && !one.column.static ? ` of ${state.model.record} ${one.record + 1}` : ""}: ${words(one.from)} → ${words(one.to)} `,
    el("button", {type: "button", "aria-label": `Undo the change of ${one.column.title}`, onclick: () => undo(one)}, "Undo"))));
}

function undo(one) {
  for (const i of recordsOf(one.column, one.record)) state.now[i][one.column.name] = state.own[i][one.column.name];
  drawFields();
  changed();
}

let timer;
function changed() {
  drawChanges();
  clearTimeout(timer);
  timer = setTimeout(predict, WAIT);
}

async function predict() {
  const mine = state, number = ++mine.asked;
  if (!changes().length) { mine.onAnswer(null); say("All changes are undone."); return; }
  try {
    const reply = await ask("v1/predict", {model: mine.model.id, rows: mine.now, codes: true, absent: mine.absent});
    if (mine !== state || number !== mine.asked) return; // a later change has been asked about already
    const [after] = reply.predictions;
    complain(null);
    mine.onAnswer(after);
    const name = mine.model.classes.length === 2 ? mine.model.positive : after.predicted;
    const moved = (after.codes ?? []).flat().filter((token, i) => token !== mine.one.codes.flat()[i]).length;
    say(`Probability of ${name}: ${percent(after.probabilities[name])}, was ${percent(mine.one.probabilities[name])}. ${moved} code${moved === 1 ? "" : "s"} changed.`);
  } catch (error) { if (mine === state) complain(error); }
}

$("fields").addEventListener("input", (event) => {
  const name = event.target.name, row = state.now[state.record];
  const value = typed(event.target.value, state.own[state.record][name]);
  for (const i of recordsOf(state.model.columns.find((column) => column.name === name), state.record)) state.now[i][name] = value;
  event.target.closest(".field").classList.toggle("changed", !same(row[name], state.own[state.record][name]));
  changed();
});
$("record").addEventListener("change", (event) => { state.record = Number(event.target.value); drawFields(); });
$("find-field").addEventListener("input", drawFields);
$("reset").addEventListener("click", () => {
  state.now = state.own.map((row) => ({...row}));
  drawFields();
  changed();
  $("find-field").focus();
});
