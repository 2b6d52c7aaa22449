// Shows a JSON Schema: its type, what it means, its bounds and its parts, one level at a time.
// `trail` holds the names that are open around a schema; one that is in it is named, not opened again.

import { element, fold, prose } from "./dom.js";
import { hasParts, scalarWords, shape, typeWords } from "./shape.js";

/** A schema as the subject of its own paragraph, with its parts in sight. */
export function schemaView(api, schema) {
  const own = shape(api, schema);
  return element("div", { class: "schema" }, typeLine(api, own), about(own), parts(api, own, []));
}

/** A named value, such as a field or a parameter, with its parts folded away. */
export function field(api, name, { schema, note, description }, trail = []) {
  const own = shape(api, schema ?? {});
  const marker = note && element("span", { class: "note" }, note);
  const title = element("div", { class: "title" }, element("code", {}, name), " ", typeLine(api, own), " ", marker);
  const meaning = description ? { ...own, description } : own;
  return element("li", {}, title, about(meaning), folded(api, own, trail));
}

export function fields(items) {
  return items.length > 0 ? element("ul", { class: "fields" }, items) : [];
}

function typeLine(api, own) {
  return element("span", { class: "type" }, typeWords(api, own));
}

function about(own) {
  const facts = [...scalarWords(own), ...own.facts].join(", ");
  const values = own.values.map((value, index) => [index ? " " : "", element("code", {}, JSON.stringify(value))]);
  return [
    prose(own.description),
    facts && element("p", { class: "facts" }, facts),
    values.length > 0 ? element("p", { class: "facts" }, values.length > 1 ? "one of " : "always ", values) : undefined,
  ].filter(Boolean);
}

function parts(api, own, trail) {
  const inside = own.name ? [...trail, own.name] : trail;
  const part = (name, schema, note) => field(api, name, { schema, note }, inside);
  const properties = own.properties.map(([name, schema]) =>
    part(name, schema, own.required.includes(name) ? "required" : undefined));
  return [
    fields(properties),
    own.element ? elementParts(api, shape(api, own.element), inside) : [],
    fields(own.tuple.map((schema, index) => part(`${index}`, schema))),
    own.choices.map((options) => choice(api, options, inside)),
  ].flat(Infinity);
}

/** The items of an array, or the values of a map, are told as if they were the thing itself. */
function elementParts(api, own, trail) {
  return trail.includes(own.name) ? [again(own)] : [about(own), parts(api, own, trail)];
}

/** Forms show their fields at once, but not forms within forms: those can be many. */
function choice(api, options, trail) {
  const items = options.map((option) => {
    const own = shape(api, option);
    const flat = own.choices.length === 0 && !own.element && !trail.includes(own.name);
    const content = flat ? parts(api, own, trail) : folded(api, own, trail);
    return element("li", {}, typeLine(api, own), about(own), content);
  });
  return [element("p", { class: "facts" }, "one of these forms:"), element("ol", { class: "choices" }, items)];
}

function folded(api, own, trail) {
  if (!hasParts(own)) return [];
  const inner = own.element && shape(api, own.element);
  const open = [own, inner].find((each) => each && trail.includes(each.name));
  if (open) return again(open);
  if (inner && !hasParts(inner)) return about(inner);
  return fold(`what is in ${own.name ?? inner?.name ?? "it"}`, {}, () => parts(api, own, trail));
}

function again(own) {
  return element("p", { class: "facts" }, `${own.name}, as above`);
}
