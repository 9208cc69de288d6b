
"use strict";
const counts = JSON.parse(document.getElementById("threshold-data").textContent);
const slider = document.getElementById("threshold-slider");
const show = (name, text) => { document.getElementById("threshold-" + name).textContent = text; };
const whole = (n) => n.toLocaleString("en");
const share = (part, all) => (all ? (part / all).toFixed(3) : "–");
function update() {
  const at = Number(slider.value), all = counts.positives + counts.negatives;
  const hits = counts.true_positives[at], alarms = counts.false_positives[at];
  const missed = counts.positives - hits, rejected = counts.negatives - alarms;
  const threshold = counts.thresholds[at].toFixed(at === counts.own ? 3 : 2) + (at === counts.own ? " (the model's)" : "");
  slider.setAttribute("aria-valuetext", threshold);
  show("value", threshold);
  show("hits", whole(hits)); show("missed", whole(missed)); show("alarms", whole(alarms)); show("rejected", whole(rejected));
  show("sensitivity", share(hits, counts.positives)); show("specificity", share(rejected, counts.negatives));
  show("precision", share(hits, hits + alarms)); show("f1", share(2 * hits, 2 * hits + alarms + missed));
  show("called", share(hits + alarms, all));
}
slider.addEventListener("input", update);
document.getElementById("threshold-reset").addEventListener("click", () => { slider.value = counts.own; update(); });
slider.value = counts.own;
update();
document.getElementById("threshold-box").hidden = false;
