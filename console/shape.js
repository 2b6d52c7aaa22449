// What a JSON Schema says, in one plain form: references followed, `null` taken out of types and
// choices, `allOf` merged. Pages and examples are made from shapes and never look at a schema.

import { follow } from "./openapi.js";

const BOUNDS = {
  minimum: "≥", maximum: "≤", exclusiveMinimum: ">", exclusiveMaximum: "<", multipleOf: "a multiple of",
  minLength: "length ≥", maxLength: "length ≤", pattern: "matches",
  minItems: "items ≥", maxItems: "items ≤", minProperties: "fields ≥", maxProperties: "fields ≤",
  contentEncoding: "encoded as", contentMediaType: "holds",
};

const FLAGS = {
  uniqueItems: "no item twice", readOnly: "only in answers", writeOnly: "only in requests", deprecated: "deprecated",
};

export function shape(api, schema, passed = new Set()) {
  const { name, node } = follow(api, schema, passed);
  const parts = (node.allOf ?? []).map((part) => shape(api, part, passed));
  const own = [...parts, plain(node)].reduce(merge);
  const onlyName = parts.length === 1 && !node.properties ? parts[0].name : undefined;
  return unwrapped(api, { ...own, name: name ?? node.title ?? onlyName }, passed);
}

function plain(node) {
  const types = [node.type ?? []].flat();
  const listed = node.const === undefined ? node.enum ?? [] : [node.const];
  return {
    description: node.description ?? "",
    nullable: types.includes("null") || listed.includes(null),
    types: types.filter((type) => type !== "null"),
    format: node.format,
    values: listed.filter((value) => value !== null),
    properties: Object.entries(node.properties ?? {}),
    required: node.required ?? [],
    element: typeof node.items === "object" ? node.items : mapped(node),
    tuple: node.prefixItems ?? [],
    choices: [node.oneOf, node.anyOf].filter((options) => options?.length > 0),
    facts: facts(node),
    example: node.examples?.[0] ?? node.example ?? node.default ?? undefined,
    least: node.minimum,
  };
}

function facts(node) {
  const bounds = Object.keys(BOUNDS).filter((key) => node[key] !== undefined);
  const flags = Object.keys(FLAGS).filter((key) => node[key] === true);
  return [
    ...bounds.map((key) => `${BOUNDS[key]} ${node[key]}`),
    ...flags.map((key) => FLAGS[key]),
    ...(node.additionalProperties === false ? ["no other fields"] : []),
    ...((node.default ?? null) === null ? [] : [`default ${JSON.stringify(node.default)}`]),
  ];
}

function mapped(node) {
  return typeof node.additionalProperties === "object" ? node.additionalProperties : undefined;
}

/** Lists are joined; of the rest, what a later part says stands. */
function merge(whole, part) {
  const said = Object.entries(part).filter(([, value]) => value !== undefined && value !== "");
  const joined = (key) => [...new Set([...whole[key], ...part[key]])];
  return {
    ...whole,
    ...Object.fromEntries(said),
    types: joined("types"),
    values: joined("values"),
    properties: [...new Map([...whole.properties, ...part.properties])],
    required: joined("required"),
    tuple: joined("tuple"),
    choices: joined("choices"),
    facts: joined("facts"),
  };
}

const isNull = (schema) => schema?.type === "null";

/** A choice between one thing and `null` is that thing, and may be null. */
function unwrapped(api, own, passed) {
  const choices = own.choices.map((options) => options.filter((option) => !isNull(option)));
  const nullable = own.nullable || own.choices.some((options) => options.some(isNull));
  if (choices.length !== 1 || choices[0].length !== 1 || own.properties.length > 0) {
    return { ...own, choices, nullable };
  }
  const only = shape(api, choices[0][0], passed);
  const description = own.description || only.description;
  return { ...only, nullable: nullable || only.nullable, description };
}

/** The type in a few words, such as `array of FileInput or null`. */
export function typeWords(api, own) {
  const base = own.name ?? bareWords(api, own);
  return own.nullable ? `${base} or null` : base;
}

function bareWords(api, own) {
  const element = () => typeWords(api, shape(api, own.element));
  if (own.types.includes("array")) {
    return own.element ? `array of ${element()}` : own.tuple.length > 0 ? `list of ${own.tuple.length}` : "array";
  }
  if (own.element) return `map to ${element()}`;
  if (own.types.length > 0) return own.types.join(" or ") + (own.format ? ` (${own.format})` : "");
  if (own.values.length > 0) return typeof own.values[0];
  return own.choices.length > 0 ? "one of several" : "anything";
}

export function hasParts(own) {
  return own.properties.length + own.tuple.length + own.choices.length > 0 || own.element !== undefined;
}

/** What a name alone does not tell: that a `SandboxId` is a string. */
export function scalarWords(own) {
  return own.name && !hasParts(own) && own.values.length === 0 ? [...own.types, own.format].filter(Boolean) : [];
}
