// "Ask another question": a question in words about the open sequence, its probability, what it is worth, and why.
import {$, bar, el} from "./dom.js";
import {ask, percent} from "./records.js";

let about = null, asking;

/** Offers the questions of a model; without any, the tab is hidden. */
export function offerQuestions(model) {
  $("tab-ask").hidden = !model.questions.length;
  $("questions").replaceChildren(...model.questions.map((text) => el("option", {value: text})));
}

/** Another sequence is open: what was asked about the last one goes. */
export function askAbout(opened) {
  asking?.abort();
  about = opened;
  $("question").value = "";
  $("answers").replaceChildren();
  $("answer-why").replaceChildren();
}

async function answer() {
  const {model, own, absent} = about, question = $("question").value.trim(), opened = about;
  if (!question) return;
  $("ask-go").disabled = true;
  try {
    const [given] = (await ask("v1/ask", {model: model.id, rows: own, question, absent})).answers;
    if (about !== opened) return;
    $("answers").prepend(el("article", {class: "asked"},
      el("h3", {}, given.question),
      el("p", {class: "p"}, ...(given.p === null ? [] : ["yes ", bar(given.p), el("strong", {class: "number"}, percent(given.p))]),
        given.known === "trained" ? null : el("span", {class: "was"}, ` ${given.known === "new" ? "a new question" : "held out of training"}`)),
      el("p", {class: "soft"}, given.worth),
      given.remark ? el("p", {class: "soft"}, given.remark) : null,
      model.explains ? el("button", {type: "button", onclick: () => why(opened, given.question)}, "Why") : null));
    $("question").value = "";
  } catch (error) {
    $("answers").prepend(el("p", {class: "alert"}, error.message));
  } finally { $("ask-go").disabled = false; }
}

async function why(opened, question) {
  const {model, own, absent} = opened;
  asking?.abort();
  asking = new AbortController();
  $("answer-why").replaceChildren(el("p", {class: "soft waiting"}, "Asking the model about look-alikes; the first time takes some seconds longer …"));
  try {
    const reply = await ask("v1/explain", {model: model.id, rows: own, html: true, question, absent}, asking.signal);
    if (about !== opened) return;
    // the server has escaped every value of the card
    const card = new DOMParser().parseFromString(reply.explanations[0].html, "text/html");
    $("answer-why").replaceChildren(el("div", {class: "tefm-card"}, ...card.body.childNodes));
  } catch (error) {
    if (error.name !== "AbortError" && about === opened) $("answer-why").replaceChildren(el("p", {class: "alert"}, error.message));
  }
}

$("ask-form").addEventListener("submit", (event) => { event.preventDefault(); answer(); });
