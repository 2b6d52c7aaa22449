// The reference page: loads /openapi.json once, lays the operations out, searches them and opens deep links.
// It has no key, sends none, and asks this server for that one document only.

import { element, prose } from "./dom.js";
import { groups } from "./openapi.js";
import { operationView } from "./operation.js";

/** The document is local and small; whoever waits longer wants to hear that something is wrong. */
const LOAD_TIMEOUT_MS = 15_000;

// Found before anything of the document is on the page, because its ids could be the same as ours.
const main = document.querySelector("main");
const nav = document.querySelector("nav");
const state = document.querySelector("[data-place=state]");
const version = document.querySelector("[data-place=version]");
const form = document.querySelector("form");
const search = form.querySelector("input");
const count = form.querySelector("output");

async function load() {
  const answer = await fetch("/openapi.json", { signal: AbortSignal.timeout(LOAD_TIMEOUT_MS) });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const api = await answer.json();
  if (!String(api?.openapi).startsWith("3.1")) throw new Error("it is not an OpenAPI 3.1 document");
  return api;
}

function show(api) {
  version.textContent = api.info?.version ?? "";
  const sections = groups(api).map((group, index) => section(api, group, `group-${index}`));
  main.replaceChildren(...prose(api.info?.description), ...sections.map(({ node }) => node), state);
  nav.replaceChildren(element("ul", {}, sections.map(({ link }) => link)));
  return sections;
}

function section(api, group, id) {
  const entries = group.operations.map((operation) => {
    const href = `#${encodeURIComponent(operation.id)}`;
    return {
      href,
      words: [operation.id, operation.method, operation.path, group.name, operation.summary, operation.description]
        .join(" ").toLowerCase(),
      node: operationView(api, operation),
      link: element("li", {}, element("a", { href }, operation.id)),
    };
  });
  const node = element("section", { "aria-labelledby": id },
    element("h2", { id }, group.name), prose(group.description), entries.map((entry) => entry.node));
  const link = element("li", {}, element("a", { href: `#${id}` }, group.name),
    element("ul", {}, entries.map((entry) => entry.link)));
  return { node, link, entries };
}

function filter(sections) {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { node, link, entries } of sections) {
    for (const entry of entries) {
      const hidden = !wanted.every((word) => entry.words.includes(word));
      entry.node.hidden = entry.link.hidden = hidden;
      if (!hidden) shown += 1;
    }
    node.hidden = link.hidden = entries.every((entry) => entry.node.hidden);
  }
  count.textContent = wanted.length > 0 ? `${shown} found` : "";
  state.textContent = shown > 0 ? "" : "No operation has all of these words.";
}

/** Opens what the address names, even if a search hides it. */
async function openLinked(sections) {
  const linked = sections.flatMap(({ entries }) => entries).find(({ href }) => href === location.hash);
  if (linked === undefined) return;
  if (linked.node.hidden) {
    search.value = "";
    filter(sections);
  }
  if (!linked.node.open) {
    // What is inside comes with this event; before it the page may be too short to scroll there.
    const filled = new Promise((resolve) => linked.node.addEventListener("toggle", resolve, { once: true }));
    linked.node.open = true;
    await filled;
  }
  linked.node.scrollIntoView();
  linked.node.querySelector("summary").focus({ preventScroll: true });
}

function explain(error) {
  state.setAttribute("role", "alert");
  state.replaceChildren(
    `The description of the API could not be shown: ${error.message}. `,
    "Look whether the server is still running and load this page again; the document itself is at ",
    element("a", { href: "/openapi.json" }, "/openapi.json"), ".");
  main.replaceChildren(state);
}

try {
  const sections = show(await load());
  filter(sections);
  openLinked(sections);
  search.addEventListener("input", () => filter(sections));
  addEventListener("hashchange", () => openLinked(sections));
  form.addEventListener("submit", (event) => event.preventDefault());
} catch (error) {
  explain(error);
}
