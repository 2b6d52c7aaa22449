// Shows one operation: a fold whose line is method, path and summary, and below it all that a caller needs.

import { element, fold, inline, listing, prose } from "./dom.js";
import { cliCommand, curlCommand, exampleBody } from "./example.js";
import { field, fields, schemaView } from "./schema.js";

const PLACES = { path: "in the path", query: "in the query", header: "a header", cookie: "a cookie" };

export function operationView(api, operation) {
  const line = element("h3", {},
    element("span", { class: `method ${operation.method}` }, operation.method.toUpperCase()), " ",
    element("code", { class: "path" }, operation.path), " ",
    element("span", { class: "summary" }, inline(operation.summary)));
  return fold(line, { id: operation.id, class: "operation" }, () => [
    identity(operation),
    prose(operation.description),
    parametersView(api, operation.parameters),
    operation.body ? bodyView(api, operation) : [],
    element("h4", {}, "Call it"),
    listing("curl", curlCommand(api, operation, location.origin)),
    listing("belljar", cliCommand(api, operation)),
    element("h4", {}, "Answers"),
    operation.responses.map((response) => responseView(api, response)),
  ]);
}

function identity(operation) {
  const link = element("a", { href: `#${encodeURIComponent(operation.id)}` }, operation.id);
  const notes = [operation.needsKey ? "needs a key" : "open without a key"];
  if (operation.deprecated) notes.push("deprecated");
  return element("p", { class: "facts" }, link, ` · ${notes.join(" · ")}`);
}

function parametersView(api, parameters) {
  if (parameters.length === 0) return [];
  const items = parameters.map((parameter) => {
    const place = PLACES[parameter.in] ?? "";
    const note = parameter.required ? `${place}, required` : place;
    return field(api, parameter.name, { ...parameter, note });
  });
  return [element("h4", {}, "Parameters"), fields(items)];
}

function bodyView(api, operation) {
  const example = exampleBody(api, operation);
  return [
    element("h4", {}, operation.body.required ? "Body" : "Body, optional"),
    prose(operation.body.description),
    mediaView(api, operation.body.media),
    example === undefined ? [] : listing("Example", JSON.stringify(example, null, 2)),
  ];
}

function responseView(api, response) {
  const good = response.status.startsWith("2");
  const status = element("code", { class: good ? "good" : "bad" }, response.status);
  const line = [status, " ", inline(response.description ?? "")];
  const headers = Object.entries(response.headers ?? {});
  if (headers.length + response.media.length === 0) return element("p", { class: "response" }, line);
  return fold(line, { class: "response" }, () => [
    mediaView(api, response.media),
    fields(headers.map(([name, header]) => field(api, name, { ...header, note: "a header" }))),
  ]);
}

function mediaView(api, media) {
  return media.map(([type, { schema }]) => [
    element("p", { class: "media" }, element("code", {}, type)),
    schema === undefined ? [] : schemaView(api, schema),
  ]);
}
