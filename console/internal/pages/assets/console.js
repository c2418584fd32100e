// What pages do better with a script: parts of an open page stay up to date, a form is
// sent once, a search goes on by itself, a command line can be copied. All of it works
// without this file, by links and forms.
"use strict";
(() => {
  const page = () => location.pathname + location.search;

  // fetchPage returns a page of ours as a document, or null.
  async function fetchPage(url) {
    try {
      const answer = await fetch(url, { credentials: "same-origin", headers: { Accept: "text/html" }, redirect: "error", signal: AbortSignal.timeout(20000) });
      if (!answer.ok) return null;
      return new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      return null;
    }
  }

  // busy reports whether a person is at work inside a part of the page.
  function busy(part) {
    const active = document.activeElement;
    const selected = getSelection();
    return (active && part.contains(active) && active.matches("input, textarea, select")) ||
      (selected && !selected.isCollapsed && part.contains(selected.anchorNode));
  }

  // swap replaces a part by its new version, and keeps the focus.
  function swap(part, next) {
    if (part.innerHTML === next.innerHTML) return;
    const href = part.contains(document.activeElement) && document.activeElement.getAttribute("href");
    part.replaceChildren(...document.importNode(next, true).childNodes);
    if (href) [...part.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === href)?.focus();
  }

  function live(part) {
    const every = 1000 * Number(part.dataset.live);
    let wait = every;
    async function turn() {
      if (!document.hidden && !busy(part)) {
        const next = await fetchPage(page());
        const mine = next && next.getElementById(part.id);
        wait = mine ? every : Math.min(2 * wait, 30000);
        const mark = document.querySelector("[data-live-mark]");
        if (mark) {
          mark.hidden = false;
          mark.classList.toggle("off", !mine);
          mark.textContent = mine ? "live" : "not connected";
        }
        if (mine) {
          if (part.dataset.revision && mine.dataset.revision !== part.dataset.revision) {
            for (const note of document.querySelectorAll("[data-moved]")) note.hidden = false;
          }
          swap(part, mine);
          if (!mine.dataset.live) return;
        }
      }
      setTimeout(turn, wait);
    }
    setTimeout(turn, wait);
  }
  // The answer to a form, such as that of a refused action, has no address to fetch anew.
  if (!document.querySelector("main[data-sent]")) for (const part of document.querySelectorAll("[data-live]")) live(part);

  // A double click sends a form once. Should it be sent twice all the same, its id makes
  // the second one a repetition of the first.
  for (const form of document.querySelectorAll("form[data-once]")) {
    form.addEventListener("submit", () => {
      setTimeout(() => { for (const b of form.querySelectorAll("button")) b.disabled = true; }, 0);
    });
  }
  addEventListener("pageshow", () => {
    for (const b of document.querySelectorAll("form[data-once] button")) b.disabled = false;
  });

  // A search goes on by itself for as long as it finds nothing.
  async function searchOn() {
    let link = document.querySelector("[data-search-next]");
    while (link && !document.querySelector("#found tbody")) {
      const next = await fetchPage(link.href);
      if (!next || !next.getElementById("found")) return;
      document.getElementById("found").replaceWith(document.importNode(next.getElementById("found"), true));
      document.getElementById("search-foot").replaceWith(document.importNode(next.getElementById("search-foot"), true));
      link = document.querySelector("[data-search-next]");
    }
  }
  if (document.querySelector("[data-search]")) searchOn();

  const patient = document.querySelector("[data-patient]");
  if (patient) location.replace(patient.href);

  for (const text of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) break;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    text.after(button);
  }

  // "/" goes to the search box, as on many consoles; "g" and a letter goes to a page.
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    if (event.key === "/") {
      const box = document.getElementById("q");
      if (box) { event.preventDefault(); box.focus(); box.select(); }
    }
  });
})();
