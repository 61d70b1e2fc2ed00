"use strict";

// Names and values come from whoever moved a ref: they become text, never markup.

// printable returns a name as the server shows it: quoted if there is something in it that people can't see.
function printable(name) {
  if (!/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(name)) return name;
  return JSON.stringify(name).replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, c => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

function short(value) {
  if (!value) return "none";
  if (/^(0{40}|0{64})$/.test(value)) return "deleted";
  return /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(value) ? value.slice(0, 12) : printable(value);
}

function cell(row, text) {
  const td = row.insertCell(), bdi = document.createElement("bdi");
  bdi.textContent = text;
  td.append(bdi);
  return td;
}

const mostRows = 500;

function follow(table) {
  const status = document.querySelector(".live"), body = table.tBodies[0];
  const say = (text, ended) => { status.hidden = false; status.textContent = text; status.classList.toggle("ended", ended); };
  const keys = new Set(Array.from(body.rows, row => row.dataset.key));
  const events = new EventSource(table.dataset.events);
  events.onopen = () => say("Live", false);
  events.onerror = () => say(events.readyState === EventSource.CLOSED ? "Not live any more: reload the page" : "Connecting again", true);
  events.addEventListener("changes", event => {
    for (const c of JSON.parse(event.data).changes) {
      const key = c.position + " " + c.ref;
      if (table.dataset.ref && table.dataset.ref !== c.ref || keys.has(key)) continue;
      keys.add(key);
      const row = body.insertRow(0), link = document.createElement("a");
      row.className = "new";
      row.dataset.key = key;
      cell(row, c.time.slice(0, 19).replace("T", " ") + "Z");
      link.href = table.dataset.history + "?" + new URLSearchParams({project: table.dataset.project, ref: c.ref});
      const ref = cell(row, printable(c.ref));
      link.append(ref.firstChild);
      ref.append(link);
      for (const value of [c.old || "", c.new || ""]) {
        const td = cell(row, short(value));
        td.className = "value";
        td.title = printable(value);
      }
      cell(row, printable(c.by || ""));
      cell(row, printable(c.owner || ""));
      if (body.rows.length > mostRows) body.deleteRow(-1);
    }
  });
  events.addEventListener("end", event => {
    const reason = JSON.parse(event.data);
    if (reason.code === "unavailable" || reason.code === "resource_exhausted") return; // it connects again
    events.close();
    say("Not live any more: " + printable(reason.message), true);
  });
}

// refresh replaces the figures by those of a new answer, which is parsed without running anything.
async function refresh() {
  const figures = document.getElementById("figures");
  if (document.hidden || !figures) return;
  const answer = await fetch(location.href, {redirect: "error"}).catch(() => null);
  figures.classList.toggle("old", !answer || !answer.ok);
  if (!answer || !answer.ok) return;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("figures");
  if (next) {
    figures.replaceWith(next);
    addCopiers(next);
  }
}

function addCopiers(within) {
  if (!navigator.clipboard) return;
  for (const code of within.querySelectorAll("code.copy")) {
    const button = document.createElement("button");
    button.className = "copier";
    button.textContent = "copy";
    button.onclick = () => navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = "copied"; });
    code.after(button);
  }
}

addCopiers(document);
for (const table of document.querySelectorAll("table[data-events]")) follow(table);
const figures = document.getElementById("figures");
if (figures) setInterval(refresh, 1000 * figures.dataset.refresh);
