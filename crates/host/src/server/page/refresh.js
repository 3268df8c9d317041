// Of ginneld's status page: asks for the page every two seconds and puts in place what differs.
"use strict";

const PERIOD = 2000;
const live = document.getElementById("live");
let timer;

// Makes `old` like `now`, and touches nothing that is so already: a selection stays, and nothing flickers.
function match(old, now) {
  if (old.nodeName !== now.nodeName) {
    old.replaceWith(now);
  } else if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== now.data) old.data = now.data;
  } else {
    for (const name of old.getAttributeNames()) if (!now.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const [before, after] = [[...old.childNodes], [...now.childNodes]];
    after.forEach((child, i) => (i < before.length ? match(before[i], child) : old.append(child)));
    before.slice(after.length).forEach((child) => child.remove());
  }
}

function say(state, words) {
  live.classList.toggle("live", state === "live");
  live.classList.toggle("lost", state === "lost");
  // Said aloud to those who have the page read to them: only news.
  if (live.textContent !== words) live.textContent = words;
}

async function refresh() {
  clearTimeout(timer);
  try {
    const answer = await fetch("/", { signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(answer.statusText);
    const now = new DOMParser().parseFromString(await answer.text(), "text/html");
    match(document.querySelector("main"), now.querySelector("main"));
    say("live", "live");
  } catch {
    if (!live.classList.contains("lost")) say("lost", "no answer since " + new Date().toLocaleTimeString());
  }
  if (!document.hidden) timer = setTimeout(refresh, PERIOD);
}

document.addEventListener("visibilitychange", () => document.hidden || refresh());
refresh();
