// Elements, messages, bars.
import {ApiError} from "./records.js";

export const $ = (id) => document.getElementById(id);

/** An element with text, attributes and children; text is never read as HTML. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function say(text) { $("live").textContent = text; }

export function complain(error) {
  if (error?.name === "AbortError") return;
  if (error instanceof ApiError && error.status === 401) { $("key-form").hidden = false; $("key").focus(); }
  const details = error instanceof ApiError ? error.details : {};
  const about = details.column ? ` Column “${details.column}”${details.value ? `, value “${details.value}”` : ""}.` : "";
  const [first, ...lines] = (error?.message ?? "").split("\n");
  $("alert").replaceChildren(...(error ? [el("div", {class: "alert"},
    el("strong", {}, first), lines.length ? null : about, lines.length ? el("span", {class: "lines"}, lines.join("\n")) : null, details.remedy ? el("span", {class: "remedy"}, `→ ${details.remedy}`) : null)] : []));
  if (error) $("alert").scrollIntoView({block: "nearest"});
}

export function bar(p, before = null) {
  return el("span", {class: "meter", "aria-hidden": "true"}, el("i", {style: `width:${(100 * p).toFixed(1)}%`}),
    before === null ? null : el("b", {style: `left:${(100 * before).toFixed(1)}%`}));
}
