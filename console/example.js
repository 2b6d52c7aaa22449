// Makes the examples: a value that fits a schema, and the commands that send it.
// Every word of a command is quoted for the shell, because people paste commands without reading them.

import { preferredMedia } from "./openapi.js";
import { shape } from "./shape.js";

const BY_FORMAT = {
  uuid: "00000000-0000-0000-0000-000000000000",
  "date-time": "2030-01-01T00:00:00Z",
  uri: "https://example.org/",
};

/** How many named schemas an example goes into; deeper ones only make it harder to read. */
const DEPTH = 4;

/** A small value that fits: what is required, or else the first field. */
export function exampleValue(api, schema, trail = []) {
  const own = shape(api, schema);
  if (own.example !== undefined) return own.example;
  if (own.values.length > 0) return own.values[0];
  if (trail.includes(own.name) || trail.length >= DEPTH) return null;
  const inside = own.name ? [...trail, own.name] : trail;
  const of = (part) => exampleValue(api, part, inside);
  if (own.types.includes("array")) return own.element ? [of(own.element)] : own.tuple.map(of);
  if (own.properties.length > 0) return exampleObject(own, of);
  if (own.choices.length > 0) return of(own.choices[0][0]);
  return scalar(own);
}

function exampleObject(own, of) {
  const required = own.properties.filter(([name]) => own.required.includes(name));
  const shown = required.length > 0 ? required : own.properties.slice(0, 1);
  const chosen = own.choices.map(([first]) => of(first));
  return Object.assign({}, ...chosen, Object.fromEntries(shown.map(([name, schema]) => [name, of(schema)])));
}

function scalar(own) {
  switch (own.types[0]) {
    case "string": return BY_FORMAT[own.format] ?? "text";
    case "integer":
    case "number": return own.least || 1;
    case "boolean": return true;
    default: return {};
  }
}

/** The body to send, or undefined when there is none or it is not JSON. */
export function exampleBody(api, operation) {
  const [type, media] = preferredMedia(operation.body?.media ?? []) ?? [];
  if (!type?.endsWith("json")) return undefined;
  const given = media.example ?? Object.values(media.examples ?? {})[0]?.value;
  return given ?? exampleValue(api, media.schema ?? {});
}

export function curlCommand(api, operation, origin) {
  const needed = (place) => operation.parameters.filter((each) => each.in === place && each.required);
  const query = needed("query").map(({ name }) => `${encodeURIComponent(name)}=${placeholder(name)}`).join("&");
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name) => placeholder(name));
  const url = origin + path + (query && `?${query}`);
  return [
    `curl ${operation.method === "get" ? "" : `-X ${operation.method.toUpperCase()} `}${quoted(url)}`,
    ...(operation.needsKey ? ['-H "Authorization: Bearer $BELLJAR_API_KEY"'] : []),
    ...needed("header").map(({ name }) => `-H ${quoted(`${name}: ${placeholder(name)}`)}`),
    ...curlBody(api, operation),
  ].join(" \\\n  ");
}

function curlBody(api, operation) {
  const [type, media] = preferredMedia(operation.body?.media ?? []) ?? [];
  if (!type) return [];
  if (type === "multipart/form-data") {
    return shape(api, media.schema ?? {}).properties.map(([name]) => `-F ${quoted(`${name}=@FILE`)}`);
  }
  const body = exampleBody(api, operation);
  const header = `-H ${quoted(`Content-Type: ${type}`)}`;
  return [header, body === undefined ? "--data-binary @FILE" : `-d ${quoted(JSON.stringify(body))}`];
}

export function cliCommand(api, operation) {
  const needed = operation.parameters.filter((parameter) => parameter.required);
  const body = exampleBody(api, operation);
  return [
    `belljar api call ${quoted(operation.id)}`,
    ...needed.map(({ name }) => `--param ${quoted(`${name}=${placeholder(name)}`)}`),
    ...(operation.body ? [`--body ${body === undefined ? "@FILE" : quoted(JSON.stringify(body))}`] : []),
  ].join(" \\\n  ");
}

function placeholder(name) {
  return name.toUpperCase().replace(/\W+/g, "_");
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
